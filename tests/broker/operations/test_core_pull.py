# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aerobee.broker.operations.pull import code_of, suggested_broker
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.errors import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    StoreError,
    SubscriptionNotFound,
    SubscriptionNotLatest,
    SubscriptionParseFailed,
    SystemFailure,
    TopicNotFound,
)
from aerobee.protocol import message
from aerobee.protocol.bodies import (
    ConsumerData,
    GroupConfig,
    Heartbeat,
    MessageModel,
    SubscriptionData,
    TopicConfig,
)
from aerobee.store.results import Found, ReadStatus


class Link:
    remote_text = "10.0.0.1:1"
    is_open = True

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {"language": "JAVA", "version": 479}

    def send(self, command: Any) -> None:
        pass


def connect(bench: Any, expression: str = "*", version: int = 1, **data: Any) -> None:
    subscription = SubscriptionData(topic="orders", sub_string=expression, sub_version=version)
    consumer = ConsumerData(group_name="billing", subscription_data_set=[subscription], **data)
    bench.broker.clients.heartbeat(
        Link(), Heartbeat(client_id="c", consumer_data_set=[consumer]), bench.clock.now()
    )


def bodies(found: Found) -> list[bytes]:
    return [message.decode(raw).body for raw in found.messages]


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.seed("S002-7", "S004-15", "S004-16", "S004-49", "S004-72")
def test_found_messages_are_returned_at_once(bench: Any) -> None:
    for number in range(40):
        bench.send(body=b"%d" % number)
    found = bench.pull(hold_ms=15_000)
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
        ReadStatus.FOUND,
        32,
        0,
        40,
    )
    assert bodies(found) == [b"%d" % number for number in range(32)]
    assert bodies(bench.pull(offset=35, max_messages=3)) == [b"35", b"36", b"37"]
    assert bodies(bench.pull(offset=38, hold_ms=15_000)) == [b"38", b"39"], "nor is more waited for"
    bench.send(queue_id=1, body=b"of queue 1")
    bench.send("invoices", body=b"of another topic")
    assert bodies(bench.pull(queue_id=1)) == [b"of queue 1"]
    assert bodies(bench.pull("invoices")) == [b"of another topic"]


@pytest.mark.seed("S004-16", "S004-74")
def test_next_offset_counts_the_filtered_messages_too(bench: Any) -> None:
    for tag in "ABAC":
        bench.send(body=tag.encode(), properties={"TAGS": tag})
    found = bench.pull(expression="A || C", max_messages=2)
    assert (bodies(found), found.next_offset) == ([b"A", b"A"], 3)
    none = bench.pull(expression="X")
    assert (none.status, none.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 4)
    assert bench.pull(expression="A").next_offset == 4, "past what follows the last that matches"


def test_sql_filter_reads_the_properties(bench: Any) -> None:
    for amount in (5, 15, 25):
        bench.send(body=b"%d" % amount, properties={"amount": str(amount)})
    found = bench.pull(expression="amount BETWEEN 10 AND 20", expression_type="SQL92")
    assert bodies(found) == [b"15"]


@pytest.mark.seed("S002-12", "S004-75")
@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (ReadStatus.FOUND, 0, 0),
        (ReadStatus.NO_MATCHED_MESSAGE, 0, 20),
        (ReadStatus.MESSAGE_WAS_REMOVING, 0, 20),
        (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 19),
        (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 1, 21),
        (ReadStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
        (ReadStatus.NO_MESSAGE_IN_QUEUE, 1, 21),
        (ReadStatus.OFFSET_OVERFLOW_ONE, 9, 19),
        (ReadStatus.OFFSET_FOUND_NULL, 9, 19),
        (ReadStatus.OFFSET_OVERFLOW_BADLY, 9, 21),
        (ReadStatus.OFFSET_TOO_SMALL, 0, 21),
        (ReadStatus.OFFSET_RESET, 0, 21),
    ],
)
def test_every_lookup_status_has_its_code(status: ReadStatus, offset: int, code: int) -> None:
    assert code_of(status, offset) == code


def test_offset_past_the_end_or_in_a_queue_never_written_is_corrected(bench: Any) -> None:
    bench.send()
    past = bench.pull(offset=7, hold_ms=15_000)
    assert (past.status, past.next_offset) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 1)
    empty = bench.pull(queue_id=1, offset=3, hold_ms=15_000)
    assert (empty.status, empty.next_offset) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)


# -- limits ----------------------------------------------------------------------------------------------


def test_ordinary_answer_ends_at_256_kibibytes_but_has_at_least_one_message(bench: Any) -> None:
    for _ in range(4):
        bench.send(body=bytes(100_000))
    assert len(bench.pull().messages) == 2
    bench.send("big", body=bytes(300_000))
    assert len(bench.pull("big").messages) == 1


@pytest.mark.parametrize(
    ("config", "count", "big"), [({}, 32, 2), ({"pull_messages": 5, "pull_bytes": 350_000}, 5, 3)]
)
def test_an_ordinary_client_gets_at_most_what_the_broker_transfers_at_once(
    make_bench: Any, config: dict[str, int], count: int, big: int
) -> None:
    bench = make_bench(**config)
    for _ in range(120):
        bench.send()
    assert len(bench.pull(max_messages=1000).messages) == count
    for _ in range(6):
        bench.send("big", body=bytes(100_000))
    assert len(bench.pull("big", max_messages=1000).messages) == big
    assert len(bench.pull("big", max_bytes=2**31 - 1).messages) == big
    assert len(bench.pull("big", max_bytes=150_000).messages) == 1


def test_client_that_asks_for_bulk_gets_it_within_the_settings(make_bench: Any) -> None:
    bench = make_bench(max_pull_messages=100, max_pull_bytes=400_000)
    for _ in range(120):
        bench.send()
    assert len(bench.pull(max_messages=1000, bulk=True).messages) == 100
    for _ in range(6):
        bench.send("big", body=bytes(100_000))
    assert len(bench.pull("big", max_messages=33, bulk=True).messages) == 3
    assert len(bench.pull("big", max_bytes=2**31 - 1, bulk=True).messages) == 3
    assert len(bench.pull("big", max_bytes=150_000, bulk=True).messages) == 1


# -- what has left memory ---------------------------------------------------------------------------------


@pytest.fixture
def cold(make_bench: Any) -> Any:
    """60 messages of `orders` so far behind the log's end that they count as being on disk."""
    bench = make_bench(slave_read=True)
    bench.broker.store.memory_bytes = 100_000
    for _ in range(60):
        bench.send(body=bytes(100))
    for _ in range(40):
        bench.send("later", body=bytes(10_000))
    return bench


@pytest.mark.seed("S004-58", "S004-73")
def test_messages_on_disk_come_eight_or_64_kib_at_a_time(cold: Any) -> None:
    assert len(cold.pull(max_messages=32).messages) == 8
    assert len(cold.pull(max_messages=5).messages) == 5
    assert len(cold.pull("later", max_messages=32).messages) == 6  # 64 KiB
    assert len(cold.pull("later", offset=35, max_messages=32).messages) == 5  # in memory
    assert len(cold.pull(max_messages=50, bulk=True).messages) == 50


@pytest.mark.seed("S004-58", "S004-59")
def test_a_reader_far_behind_is_told_to_ask_a_slave(cold: Any) -> None:
    broker = cold.broker
    slow, quick = cold.pull(), cold.pull("later", offset=38)
    assert suggested_broker("billing", slow, broker) == 1
    assert suggested_broker("billing", quick, broker) == 0
    group = msgspec.structs.replace(
        broker.groups.require("billing"), which_broker_when_consume_slowly=3, broker_id=2
    )
    broker.groups.put(group)
    assert suggested_broker("billing", slow, broker) == 3
    assert suggested_broker("billing", quick, broker) == 2
    for memory_bytes, asked_next in ((slow.behind_bytes, 2), (slow.behind_bytes - 1, 3)):
        broker.store.memory_bytes = memory_bytes
        assert suggested_broker("billing", slow, broker) == asked_next


@pytest.mark.seed("S004-59")
def test_no_slave_is_named_where_slaves_serve_no_reads(make_bench: Any) -> None:
    bench = make_bench()
    bench.broker.store.memory_bytes = 10
    for _ in range(40):
        bench.send()
    assert suggested_broker("billing", bench.pull(max_messages=1), bench.broker) == 0


@pytest.mark.seed("S004-73")
def test_how_far_a_group_is_behind_is_kept_per_queue(cold: Any) -> None:
    broker, key = cold.broker, ("billing", "orders", 0)
    cold.clock.advance(seconds=7)
    found = cold.pull(max_messages=1)
    last = message.decode(found.messages[0])
    assert broker.stats.behind(*key) == (broker.store.log_max - last.size, 7_000)
    assert broker.stats.behind("billing", "orders", 1) == (0, 0)
    cold.send(body=b"newer")  # 7 s after the others
    last = message.decode(cold.pull(group="audit", offset=59, max_messages=2).messages[1])
    assert broker.stats.behind("audit", "orders", 0) == (0, 0), "of the last it was given"
    assert last.body == b"newer"
    assert broker.stats.behind(*key)[1] == 7_000, "each group by itself"
    cold.pull(offset=61)  # at the end
    assert broker.stats.behind(*key) == (0, 0)
    cold.pull(max_messages=1)
    broker.stats.remove_group("billing")
    assert broker.stats.behind(*key) == (0, 0)
    cold.pull(max_messages=1)
    broker.stats.remove_topic("orders")
    assert broker.stats.behind(*key) == (0, 0)


# -- refusals, in their order -----------------------------------------------------------------------------


@pytest.mark.seed("S002-11", "S004-68")
def test_pull_is_refused_with_the_official_code(bench: Any) -> None:
    topics, groups = bench.broker.topics, bench.broker.groups
    topics.ensure("orders", 4)
    topics.put(TopicConfig(topic_name="closed", perm=2))
    groups.put(GroupConfig(group_name="stopped", consume_enable=False))
    with pytest.raises(GroupNotFound):
        bench.start_pull(group="not a name")
    with pytest.raises(NoPermission, match="stopped"):
        bench.start_pull(group="stopped")
    with pytest.raises(TopicNotFound, match="missing"):
        bench.start_pull("missing")
    with pytest.raises(NoPermission, match="closed"):
        bench.start_pull("closed")
    for queue_id in (-1, 4):
        with pytest.raises(InvalidParameter, match=f"queue {queue_id}"):
            bench.start_pull(queue_id=queue_id)
    with pytest.raises(SubscriptionParseFailed):
        bench.start_pull(expression="amount >", expression_type="SQL92")
    kinds = GroupNotFound, NoPermission, TopicNotFound, InvalidParameter, SubscriptionParseFailed
    assert [kind.code for kind in kinds] == [26, 16, 17, 29, 23], "RocketMQ's"


@pytest.mark.seed("S002-11", "S004-68")
@pytest.mark.parametrize(
    ("config", "wrong", "told"),
    [
        ({"perm": 2}, {"group": "not a name", "topic": "missing"}, (NoPermission, "broker-a")),
        ({}, {"group": "not a name", "topic": "missing"}, (GroupNotFound, "not a name")),
        ({}, {"group": "stopped", "topic": "missing"}, (NoPermission, "stopped")),
        ({}, {"topic": "missing", "queue_id": 9}, (TopicNotFound, "missing")),
        ({}, {"topic": "closed", "queue_id": 9}, (NoPermission, "closed")),
        ({}, {"queue_id": 9, "expression": "a >", "expression_type": "SQL92"}, (InvalidParameter, "queue 9")),
        ({}, {"queue_id": 9, "expression": None}, (InvalidParameter, "queue 9")),
        (
            {},
            {"expression": "a >", "expression_type": "SQL92", "offset": 9},
            (SubscriptionParseFailed, "column 4"),
        ),
        ({}, {"expression": None, "offset": 9}, (SubscriptionNotFound, "not connected")),
    ],
)
def test_of_several_reasons_against_a_pull_the_first_is_told_and_nothing_of_it_is_done(
    make_bench: Any, config: dict[str, Any], wrong: dict[str, Any], told: tuple[type[Exception], str]
) -> None:
    bench = make_bench(**config)
    broker = bench.broker
    broker.topics.ensure("orders", 4)
    broker.topics.put(TopicConfig(topic_name="closed", perm=2))
    broker.groups.put(GroupConfig(group_name="stopped", consume_enable=False))
    kind, text = told
    with pytest.raises(kind, match=text):
        bench.start_pull(**wrong, commit_offset=5)
    group, topic, queue_id = (
        wrong.get("group", "billing"),
        wrong.get("topic", "orders"),
        wrong.get("queue_id", 0),
    )
    assert broker.offsets.get(group, topic, queue_id) == -1
    assert broker.offsets.pull_offset(group, topic, queue_id) == -1
    assert broker.clients.subscription(group, topic) is None


@pytest.mark.seed("S004-68")
def test_broker_that_may_not_be_read_refuses_pulls(make_bench: Any) -> None:
    bench = make_bench(perm=2)
    bench.send()
    with pytest.raises(NoPermission, match="broker-a"):
        bench.start_pull()


def test_sql_filters_may_be_switched_off(make_bench: Any) -> None:
    bench = make_bench(property_filter=False)
    bench.send()
    with pytest.raises(SystemFailure, match="SQL92"):
        bench.start_pull(expression="a = 1", expression_type="SQL92")
    bench.send(body=b"tagged", properties={"TAGS": "A"})
    for kind in ("TAG", None):
        assert bodies(bench.pull(expression="A", expression_type=kind)) == [b"tagged"], (
            "tags are no such filters"
        )


@pytest.mark.seed("S004-68")
def test_pull_without_its_own_filter_uses_what_the_group_subscribed(bench: Any) -> None:
    for tag in "AB":
        bench.send(body=tag.encode(), properties={"TAGS": tag})
    with pytest.raises(SubscriptionNotFound, match="not connected"):
        bench.start_pull(expression=None)
    connect(bench, "B", version=5)
    for known in (4, 5):
        assert bodies(bench.pull(expression=None, sub_version=known)) == [b"B"]
    with pytest.raises(SubscriptionNotLatest):
        bench.start_pull(expression=None, sub_version=6)
    bench.broker.topics.ensure("other")
    with pytest.raises(SubscriptionNotFound, match="other"):
        bench.start_pull("other", expression=None)
    bench.broker.groups.forbid("billing", "orders", 4)
    with pytest.raises(NoPermission):
        bench.start_pull(expression=None)


def test_broadcasting_may_be_forbidden_to_a_group(bench: Any) -> None:
    bench.send()
    bench.broker.groups.put(GroupConfig(group_name="billing", consume_broadcast_enable=False))
    connect(bench, message_model=MessageModel.BROADCASTING)
    with pytest.raises(NoPermission, match="broadcasting"):
        bench.start_pull(expression=None)
    connect(bench)
    assert len(bench.pull(expression=None).messages) == 1, "as one of many it may"


@pytest.mark.seed("S004-78")
def test_store_that_may_not_be_read_fails_the_pull(bench: Any) -> None:
    bench.send()
    bench.broker.store.readable = False
    with pytest.raises(StoreError):
        bench.start_pull()


@pytest.mark.seed("S004-64")
def test_group_with_different_tags_loses_messages_as_in_rocketmq(bench: Any) -> None:
    """The trap itself: the consumer of tag B moves the group's offset past what the one of tag A wanted."""
    for tag in "AB":
        bench.send(body=tag.encode(), properties={"TAGS": tag})
    found = bench.pull(expression="B")
    bench.broker.offsets.set("billing", "orders", 0, found.next_offset)
    start = bench.broker.offsets.get("billing", "orders", 0)
    assert bench.pull(offset=start, expression="A").status is ReadStatus.OFFSET_OVERFLOW_ONE


# -- offsets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hold_ms", "held"), [(-1, False), (0, False), (1, True)])
async def test_a_pull_is_held_for_any_time_it_names(bench: Any, hold_ms: int, held: bool) -> None:
    bench.send()
    found = bench.start_pull(offset=1, hold_ms=hold_ms)
    assert asyncio.iscoroutine(found) is held
    if held:
        waiting = asyncio.ensure_future(found)
        await turns()
        bench.clock.advance(1)
        assert (await waiting).status is ReadStatus.OFFSET_OVERFLOW_ONE


@pytest.mark.seed("S004-77")
async def test_offset_carried_by_a_pull_is_stored_on_arrival_and_only_then(bench: Any) -> None:
    bench.send()
    held = bench.hold(offset=1, commit_offset=1)
    assert bench.broker.offsets.get("billing", "orders", 0) == 1
    await turns()
    bench.broker.offsets.set("billing", "orders", 0, 5)
    bench.send()
    await held
    assert bench.broker.offsets.get("billing", "orders", 0) == 5


def test_the_offset_0_that_a_pull_carries_is_stored_as_well(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    bench.pull()
    assert bench.broker.offsets.get("billing", "orders", 0) == -1
    bench.pull(commit_offset=0)
    assert bench.broker.offsets.get("billing", "orders", 0) == 0


def test_what_a_pull_with_its_own_filter_reads_is_known(bench: Any) -> None:
    """Its group may have sent no heartbeat: who reads the topic is told all the same."""
    bench.broker.topics.ensure("orders", 4)
    bench.pull(expression="A || B", expression_type="TAG")
    known = bench.broker.clients.subscription("billing", "orders")
    assert (known.sub_string, known.sub_version) == ("A || B", bench.clock.now())


def test_a_pull_that_finds_nothing_is_a_miss(bench: Any, clock: Any) -> None:
    bench.send()
    bench.broker.stats.tick(clock.now())
    for offset in (0, 1, 1):
        bench.pull(offset=offset)
    clock.advance(10_000)
    bench.broker.stats.tick(clock.now())
    rates = bench.broker.stats.broker_rates(10)
    assert (rates["found"], rates["missed"]) == (0.1, 0.2)


def test_next_offset_is_remembered_as_the_pulled_one(bench: Any) -> None:
    bench.send()
    bench.pull()
    assert bench.broker.offsets.pull_offset("billing", "orders", 0) == 1
    assert bench.broker.offsets.get("billing", "orders", 0) == -1


async def test_pending_reset_is_told_once(bench: Any) -> None:
    for _ in range(5):
        bench.send()
    bench.broker.groups.require("billing")
    await reset_offset(Reset("billing", "orders", queue_id=0, offset=2), bench.broker)
    found = bench.pull(offset=4, commit_offset=4)
    assert (found.status, found.next_offset, found.messages) == (ReadStatus.OFFSET_RESET, 2, [])
    assert bench.broker.offsets.get("billing", "orders", 0) == 2  # the commit of that pull is void
    assert bench.pull(offset=2).status is ReadStatus.FOUND


@pytest.mark.parametrize(("target", "commit"), [(2, 2), (0, None)])
async def test_a_reader_that_begins_where_it_was_reset_to_reads_at_once(
    bench: Any, target: int, commit: int | None
) -> None:
    for _ in range(5):
        bench.send()
    bench.broker.groups.require("billing")
    await reset_offset(Reset("billing", "orders", queue_id=0, offset=target), bench.broker)
    found = bench.pull(offset=target, commit_offset=commit)
    assert (found.status, len(found.messages)) == (ReadStatus.FOUND, 5 - target)
    assert not bench.broker.offsets.has_reset("billing", "orders", 0)


async def test_a_reader_with_messages_in_work_is_told_of_a_reset_to_where_it_reads(bench: Any) -> None:
    for _ in range(5):
        bench.send()
    bench.broker.groups.require("billing")
    await reset_offset(Reset("billing", "orders", queue_id=0, offset=4), bench.broker)
    found = bench.pull(offset=4, commit_offset=1)
    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_RESET, 4)


async def test_reset_wakes_a_held_pull(bench: Any) -> None:
    bench.send()
    held = bench.hold(offset=1)
    await turns()
    await reset_offset(Reset("billing", "orders", queue_id=0, offset=0), bench.broker)
    found = await held
    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_RESET, 0)


# -- holding ----------------------------------------------------------------------------------------------


@pytest.mark.seed(
    "S002-2", "S002-8", "S002-14", "S004-17", "S004-35", "S004-36", "S002-15", "S002-28", "S002-29"
)
async def test_pull_of_an_empty_queue_is_held_and_answered_by_the_next_message(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold()
    await turns()
    assert not held.done()
    bench.send(body=b"at last")
    assert bodies(await held) == [b"at last"]


@pytest.mark.seed("S002-15", "S002-29")
async def test_a_woken_pull_runs_after_the_send_that_woke_it_and_not_within_it(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold()
    await turns()
    reads: list[Any] = []
    read = bench.broker.store.read
    monkeypatch.setattr(bench.broker.store, "read", lambda *a, **k: reads.append(a) or read(*a, **k))
    bench.send(body=b"first")
    assert (reads, held.done()) == ([], False)
    bench.send(body=b"second")  # before the pull had its turn
    assert bodies(await held) == [b"first", b"second"]
    assert len(reads) == 1


@pytest.mark.seed("S002-13")
async def test_what_a_held_pull_asked_for_counts_when_it_is_woken(bench: Any, clock: Any) -> None:
    """Its offset, its filter, its limits and its time, whatever others on the queue asked for."""
    for tag in "AB":
        bench.send(properties={"TAGS": tag})
    later = bench.hold(offset=2, expression="B", max_messages=1, hold_ms=10_000)
    smaller = bench.hold(offset=2, expression="B", max_bytes=1, hold_ms=10_000)
    sooner = bench.hold(offset=2, expression="C", hold_ms=5_000)
    await turns()
    clock.advance(5_000)
    assert (await sooner).next_offset == 2
    for tag in "ABB":
        bench.send(body=tag.encode(), properties={"TAGS": tag})
    for held in (later, smaller):
        found = await held
        assert (bodies(found), found.next_offset) == ([b"B"], 4)


@pytest.mark.seed("S002-6", "S002-13")
@pytest.mark.parametrize("set_by_ms", [3_600_000, -3_600_000])
async def test_a_pull_is_held_as_long_as_it_asks_though_the_machines_clock_was_set(
    bench: Any, clock: Any, set_by_ms: int
) -> None:
    bench.send()
    clock.set_wall(clock.wall() + set_by_ms)
    held = bench.hold(offset=1)
    await turns()
    clock.advance(14_999)
    await turns()
    assert not held.done()
    clock.advance(1)
    assert (await held).status is ReadStatus.OFFSET_OVERFLOW_ONE


async def test_message_that_comes_between_the_read_and_the_parking_is_not_missed(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    later = bench.start_pull(hold_ms=15_000)
    bench.send(body=b"in between")  # the pull's coroutine has not run yet, nobody is parked
    assert bodies(await later) == [b"in between"]


@pytest.mark.seed("S002-8", "S002-12")
def test_a_pull_that_found_only_what_does_not_match_is_not_held(bench: Any) -> None:
    bench.send(properties={"TAGS": "A"})
    found = bench.pull(expression="B", hold_ms=15_000)
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 1)


@pytest.mark.seed("S002-8")
def test_pull_that_does_not_ask_to_be_held_is_answered(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    assert bench.pull(hold_ms=0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE


@pytest.mark.seed("S002-9", "S002-16", "S002-26", "S004-38")
async def test_deadline_answers_what_there_is_and_does_not_hold_again(bench: Any, clock: Any) -> None:
    bench.send()
    held = bench.hold(offset=1)
    await turns()
    clock.advance(15_000)
    found = await held
    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, 1)


@pytest.mark.seed("S002-25", "S002-26")
async def test_messages_that_do_not_match_are_skipped_at_the_safety_check(bench: Any, clock: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold(expression="wanted")
    await turns()
    bench.send(properties={"TAGS": "other"})
    await turns()
    assert not held.done()
    bench.broker.parked.tick(clock.now())
    found = await held
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 1)
    assert code_of(found.status, 0) == 20


async def test_arrival_wakes_by_sql_filter(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold(expression="amount > 10", expression_type="SQL92")
    await turns()
    bench.send(properties={"amount": "1"})
    await turns()
    assert not held.done()
    bench.send(body=b"big", properties={"amount": "11"})
    assert bodies(await held) == [b"big"]


@pytest.mark.seed("S002-4", "S002-5", "S002-31")
@pytest.mark.parametrize("hold_ms", [300, 15_000])
@pytest.mark.parametrize(("config", "after_ms"), [({}, 1_000), ({"short_polling_ms": 700}, 700)])
async def test_short_polling_is_answered_by_time_alone(
    make_bench: Any, clock: Any, config: dict[str, int], after_ms: int, hold_ms: int
) -> None:
    bench = make_bench(long_polling=False, **config)
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold(hold_ms=hold_ms)
    await turns()
    bench.send(body=b"unnoticed")
    await turns()
    clock.advance(after_ms - 1)
    await turns()
    assert not held.done()
    clock.advance(1)
    assert bodies(await held) == [b"unnoticed"]


async def test_cancelled_pull_is_not_held_any_more(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold()
    await turns()
    held.cancel()
    await turns()
    assert bench.broker.parked.count == 0


async def test_stopping_broker_answers_held_pulls(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 4)
    held = bench.hold()
    await turns()
    bench.broker.parked.stop()
    assert (await held).messages == []
