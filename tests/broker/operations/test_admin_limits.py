# SPDX-License-Identifier: Apache-2.0
"""What an operator may just ask for, and what is just too much: attributes, numbers of queues, permissions, retries."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.admin import attributes, groups, topics
from aerobee.broker.operations.admin.attributes import LONG_MAX, OF_GROUPS, OF_TOPICS
from aerobee.errors import GroupNotFound, InvalidParameter, SystemFailure, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.bodies import GroupConfig, TopicConfig

TYPES = "DELAY, FIFO, MIXED, NORMAL, TRANSACTION, UNSPECIFIED"


def after(current: dict[str, str] | None, text: str) -> dict[str, str] | str:
    """The attributes after a change, or why it was refused."""
    try:
        return attributes.changed(current, attributes.parse(text), OF_TOPICS)
    except SystemFailure as refused:
        return refused.remark


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", {}),
        (" , ,", {}),
        ("+message.type=FIFO", {"message.type": "FIFO"}),
        (" +message.type=DELAY , +reserve.time=7 ", {"message.type": "DELAY", "reserve.time": "7"}),
        *((f"+message.type={kind}", {"message.type": kind}) for kind in TYPES.split(", ")),
        (
            "+cleanup.policy=DELETE,+queue.type=SimpleCQ",
            {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ"},
        ),
        ("+reserve.time=-1", {"reserve.time": "-1"}),
        ("+reserve.time=0", {"reserve.time": "0"}),
        (f"+reserve.time={LONG_MAX}", {"reserve.time": str(LONG_MAX)}),
        (f"+reserve.time={LONG_MAX + 1}", f"value is not in range(-1, {2**63 - 1})"),
        ("+reserve.time=-2", f"value is not in range(-1, {2**63 - 1})"),
        ("+reserve.time=--1", 'For input string: "--1"'),
        ("+reserve.time=", 'For input string: ""'),
        ("+message.type=fifo", f"value is not in set: [{TYPES}]"),
        ("+message.type=", f"value is not in set: [{TYPES}]"),
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type; write +key=value"),
        ("-message.type=FIFO", "add/alter attribute format is wrong: -message.type; write +key=value"),
        ("message.type", "delete attribute format is wrong: message.type; write -key"),
        ("+message.type", "delete attribute format is wrong: +message.type; write -key"),
        ("+reserve.time=1,+reserve.time=2", "key duplication: +reserve.time"),
        ("++message.type=FIFO", "kv string format wrong. '++message.type': write +key=value or -key"),
        ("+message-type=FIFO", "kv string format wrong. '+message-type': write +key=value or -key"),
        ("+message+type=FIFO", "kv string format wrong. '+message+type': write +key=value or -key"),
        ("+=FIFO", "kv string format wrong. '+': write +key=value or -key"),
        ("-", "kv string format wrong. '-': write +key=value or -key"),
        (
            "+colour=red",
            "unsupported key: colour; there are cleanup.policy, message.type, queue.type, reserve.time",
        ),
        ("-reserve.time", "only add attribute is supported while creating topic. key: reserve.time"),
    ],
)
def test_attributes_of_what_is_created(text: str, result: dict[str, str] | str) -> None:
    assert after(None, text) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", {"queue.type": "SimpleCQ", "reserve.time": "7"}),
        ("-reserve.time", {"queue.type": "SimpleCQ"}),
        (
            "+message.type=FIFO,-reserve.time",
            {"queue.type": "SimpleCQ", "message.type": "FIFO"},
        ),
        ("+reserve.time=8", {"queue.type": "SimpleCQ", "reserve.time": "8"}),
        ("-message.type", "attempt to delete a nonexistent key: message.type"),
        ("-queue.type", "attempt to update an unchangeable attribute. key: queue.type"),
        ("+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("+cleanup.policy=DELETE", "attempt to update an unchangeable attribute. key: cleanup.policy"),
        ("+reserve.time=8,-reserve.time", "alter duplication key. key: reserve.time"),
    ],
)
def test_attributes_of_what_is_there(text: str, result: dict[str, str] | str) -> None:
    before = {"queue.type": "SimpleCQ", "reserve.time": "7"}
    assert after(before, text) == result
    assert before == {"queue.type": "SimpleCQ", "reserve.time": "7"}, "what was there is not changed in place"


def test_groups_have_no_attributes_and_say_so() -> None:
    with pytest.raises(SystemFailure, match="unsupported key: a; there are none"):
        attributes.changed({}, {"+a": "1"}, OF_GROUPS)
    with pytest.raises(SystemFailure, match=r"kv string format wrong. '\*a'"):
        attributes.changed({}, {"*a": "1"}, OF_GROUPS)


def queues(read: int, write: int, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name="t", read_queue_nums=read, write_queue_nums=write, perm=perm)


MOST = names.MAX_QUEUES


@pytest.mark.parametrize("config", [queues(0, 0), queues(MOST, MOST), queues(1, 1, 0), queues(1, 1, 15)])
async def test_a_topic_at_the_limit_is_made(bench: Any, config: TopicConfig) -> None:
    await topics.put_topic(config, "", bench.broker)
    assert bench.broker.topics.require("t") == config


@pytest.mark.parametrize(
    ("config", "remark"),
    [
        (queues(-1, 4), "-1 read queues"),
        (queues(4, -1), "-1 write queues"),
        (queues(MOST + 1, 4), f"{MOST + 1} read queues; 0 to {MOST} are allowed"),
        (queues(4, MOST + 1), f"{MOST + 1} write queues"),
        (queues(4, 4, -1), "perm -1"),
        (queues(4, 4, 16), "perm 16"),
    ],
)
async def test_a_topic_beyond_it_is_not(bench: Any, config: TopicConfig, remark: str) -> None:
    with pytest.raises(InvalidParameter, match=remark):
        await topics.put_topic(config, "", bench.broker)
    assert bench.broker.topics.get("t") is None


async def test_a_list_that_a_tool_exported_has_its_attributes_without_signs(bench: Any) -> None:
    config = TopicConfig(topic_name="t", attributes={"message.type": "FIFO", "+reserve.time": "5"})
    await topics.put_topics([config], bench.broker)
    assert bench.broker.topics.require("t").attributes == {"message.type": "FIFO", "reserve.time": "5"}
    await topics.put_topics([TopicConfig(topic_name="t", attributes={"-reserve.time": ""})], bench.broker)
    assert bench.broker.topics.require("t").attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize(("retries", "queue_count"), [(-1, 0), (0, 1), (16, 1)])
async def test_a_group_at_the_limit_is_made(bench: Any, retries: int, queue_count: int) -> None:
    config = GroupConfig(group_name="g", retry_max_times=retries, retry_queue_nums=queue_count)
    await groups.put_groups([config], bench.broker)
    assert groups.group_config("g", bench.broker) == config


@pytest.mark.parametrize(("retries", "queue_count"), [(-2, 1), (16, -1)])
async def test_a_group_beyond_it_is_not(bench: Any, retries: int, queue_count: int) -> None:
    good = GroupConfig(group_name="good")
    bad = GroupConfig(group_name="g", retry_max_times=retries, retry_queue_nums=queue_count)
    with pytest.raises(InvalidParameter, match=f"{queue_count} and retryMaxTimes {retries}"):
        await groups.put_groups([good, bad], bench.broker)
    assert bench.broker.groups.get("good") is None, "all or none"


async def test_a_group_that_is_deleted_leaves_no_figures_and_no_offsets_when_asked(bench: Any) -> None:
    broker = bench.broker
    for group in ("g", "h"):
        broker.groups.put(GroupConfig(group_name=group))
        broker.offsets.set(group, "orders", 0, 1)
        broker.stats.got(group, "orders", 1, 1)
        broker.groups.forbid(group, "orders", 4)
    await groups.delete_group("g", broker, clean_offsets=True)
    assert [broker.offsets.get(group, "orders", 0) for group in "gh"] == [-1, 1]
    assert [bool(broker.stats.figures("GROUP_GET_NUMS", f"orders@{group}")) for group in "gh"] == [
        False,
        True,
    ]
    told = groups.all_groups(broker)
    assert "g" not in told.subscription_group_table
    assert told.subscription_group_table["h"] == GroupConfig(group_name="h")
    assert told.forbidden_table.get("h") == {"orders": 4}
    assert told.data_version == broker.groups.data_version


async def test_only_a_group_and_a_topic_that_are_there_can_be_kept_apart(bench: Any) -> None:
    bench.send("orders")
    bench.broker.groups.require("billing")
    for readable in (None, False):
        with pytest.raises(GroupNotFound):
            await groups.forbid("nobody", "orders", readable, bench.broker)
        with pytest.raises(TopicNotFound):
            await groups.forbid("billing", "nothing", readable, bench.broker)
    assert bench.broker.groups.forbidden_table == {}
