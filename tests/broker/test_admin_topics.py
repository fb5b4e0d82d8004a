# SPDX-License-Identifier: Apache-2.0
"""Topics and groups as operators create, change, delete and see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.admin import figures, groups, progress, settings, topics
from aerobee.broker.operations.pop import Pop, pop
from aerobee.broker.operations.pull import Pull, pull
from aerobee.errors import (
    BrokerError,
    ConsumerNotOnline,
    GroupNotFound,
    InvalidParameter,
    SystemFailure,
    TopicNotFound,
)
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    ConsumerData,
    GroupConfig,
    Heartbeat,
    MessageQueue,
    ProducerData,
    SubscriptionData,
    TopicConfig,
)
from aerobee.store.results import ReadStatus


class Link:
    remote_text = "10.0.0.9:50001"
    is_open = True

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {"language": "JAVA", "version": 479}

    def send(self, command: Any) -> None: ...


def beat(bench: Any, group: str, *topic_names: str) -> None:
    subscriptions = [SubscriptionData(topic=name) for name in topic_names]
    consumer = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    producer = ProducerData(group_name="shop")
    heartbeat = Heartbeat(client_id="c1", consumer_data_set=[consumer], producer_data_set=[producer])
    bench.broker.clients.heartbeat(Link(), heartbeat, bench.clock.now())


# -- topics ------------------------------------------------------------------------------------------------


async def test_a_topic_is_created_and_changed(bench: Any) -> None:
    await topics.put_topic(
        TopicConfig(topic_name="t", read_queue_nums=2, write_queue_nums=3), "+message.type=FIFO", bench.broker
    )
    await topics.put_topic(
        TopicConfig(topic_name="t", read_queue_nums=4, write_queue_nums=4, perm=4), "", bench.broker
    )
    config = bench.broker.topics.require("t")
    assert (config.read_queue_nums, config.perm, config.attributes) == (4, 4, {"message.type": "FIFO"})
    await topics.put_topic(config, "-message.type", bench.broker)
    assert bench.broker.topics.require("t").attributes == {}
    bench.restart()
    assert bench.broker.topics.require("t").read_queue_nums == 4


async def test_a_list_of_topics_is_created_whole_or_not_at_all(bench: Any) -> None:
    good = TopicConfig(topic_name="good")
    for bad in (TopicConfig(topic_name="TBW102"), TopicConfig(topic_name="b", attributes={"+colour": "red"})):
        with pytest.raises(BrokerError):
            await topics.put_topics([good, bad], bench.broker)
        assert bench.broker.topics.get("good") is None
    await topics.put_topics(
        [good, TopicConfig(topic_name="too", attributes={"+message.type": "DELAY"})], bench.broker
    )
    assert bench.broker.topics.require("too").attributes == {"message.type": "DELAY"}


@pytest.mark.parametrize(
    ("config", "changes", "remark"),
    [
        (TopicConfig(topic_name=""), "", "blank"),
        (TopicConfig(topic_name="a b"), "", "other characters"),
        (TopicConfig(topic_name="x" * 128), "", "at most 127"),
        (TopicConfig(topic_name="SCHEDULE_TOPIC_XXXX"), "", "broker's own"),
        (TopicConfig(topic_name="rmq_sys_x"), "", "broker's own"),
        (TopicConfig(topic_name="DefaultCluster"), "", "broker's own"),
        (TopicConfig(topic_name="t", read_queue_nums=-1), "", "-1 read queues"),
        (TopicConfig(topic_name="t", perm=77), "", "perm 77"),
        (TopicConfig(topic_name="t"), "+message.type=MIXED", "MIXED message type is not supported"),
    ],
)
async def test_a_wrong_topic_is_refused(bench: Any, config: TopicConfig, changes: str, remark: str) -> None:
    with pytest.raises(InvalidParameter, match=remark):
        await topics.put_topic(config, changes, bench.broker)


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+colour=red", "unsupported key: colour"),
        ("+-a=b", "kv string format wrong"),
        ("+=b", "kv string format wrong"),
        ("+message.type=FIFO,+message.type=NORMAL", "key duplication: \\+message.type"),
        ("+message.type=RED", "value is not in set: .*FIFO"),
        ("+cleanup.policy=COMPACTION", "value is not in set: .DELETE"),
        ("+reserve.time=x", 'For input string: "x"'),
        ("+reserve.time=-2", "value is not in range"),
        ("-message.type", "only add attribute is supported while creating topic. key: message.type"),
    ],
)
async def test_a_wrong_attribute_is_refused_in_rocketmqs_words(bench: Any, changes: str, remark: str) -> None:
    with pytest.raises(SystemFailure, match=remark):
        await topics.put_topic(TopicConfig(topic_name="t"), changes, bench.broker)
    assert bench.broker.topics.get("t") is None


async def test_attributes_of_a_topic_that_exists(bench: Any) -> None:
    topic = TopicConfig(topic_name="t")
    await topics.put_topic(topic, "+queue.type=SimpleCQ,+reserve.time=-1", bench.broker)
    for changes, remark in {
        "-message.type": "attempt to delete a nonexistent key: message.type",
        "+queue.type=SimpleCQ": "attempt to update an unchangeable attribute. key: queue.type",
        "-queue.type": "attempt to update an unchangeable attribute. key: queue.type",
        "-reserve.time,+reserve.time=5": "alter duplication key. key: reserve.time",
    }.items():
        with pytest.raises(SystemFailure, match=remark):
            await topics.put_topic(topic, changes, bench.broker)
    await topics.put_topic(topic, "+reserve.time=5", bench.broker)
    assert bench.broker.topics.require("t").attributes == {"queue.type": "SimpleCQ", "reserve.time": "5"}


async def test_topics_of_mixed_types_are_a_setting(bench: Any) -> None:
    settings.change_settings("enableMixedMessageType=true", bench.broker)
    await topics.put_topic(TopicConfig(topic_name="t"), "+message.type=MIXED", bench.broker)
    assert bench.broker.topics.require("t").attributes == {"message.type": "MIXED"}


async def test_deleting_a_topic_takes_everything_of_it(bench: Any) -> None:
    broker = bench.broker
    bench.send("orders")
    bench.send("other")
    retry = names.pop_retry_topic("orders", "billing")
    broker.topics.ensure(retry)
    broker.topics.ensure(names.pop_retry_topic("other", "billing"))
    for topic in ("orders", "other"):
        broker.offsets.set("billing", topic, 0, 1)
    await topics.delete_topic("orders", broker)
    assert broker.topics.get("orders") is None
    assert broker.topics.get(retry) is None
    assert broker.topics.get(names.pop_retry_topic("other", "billing")) is not None
    assert broker.offsets.topics_of("billing") == {"other"}
    assert broker.store.max_offset("orders", 0) == 0
    assert broker.stats.figures("TOPIC_PUT_NUMS", "orders") is None
    bench.restart()
    assert bench.broker.topics.get("orders") is None
    assert bench.send("orders").queue_offset == 0


async def test_a_held_pull_is_let_go_when_its_topic_is_deleted(bench: Any) -> None:
    bench.send("orders")
    bench.send("orders", queue_id=2)
    held = [bench.hold("orders", 1), bench.hold("orders", 1, queue_id=2), bench.hold("orders", 0, queue_id=3)]
    await asyncio.sleep(0)
    await topics.delete_topic("orders", bench.broker)
    await asyncio.sleep(0)
    assert [each.done() for each in held] == [True] * 3, "also where nothing was ever stored"
    assert {(await each).status for each in held} == {ReadStatus.NO_MATCHED_LOGIC_QUEUE}


async def test_system_topics_cannot_be_deleted(bench: Any) -> None:
    for topic in ("TBW102", "DefaultCluster", "broker-a", names.HALF_TOPIC):
        with pytest.raises(InvalidParameter):
            await topics.delete_topic(topic, bench.broker)
    assert "DefaultCluster" in topics.system_topics(bench.broker)


def test_topic_stats_show_every_queue(bench: Any) -> None:
    bench.send("orders", queue_id=1)
    bench.send("orders", queue_id=1)
    stats = topics.topic_stats("orders", bench.broker)
    assert len(stats.offset_table) == 4
    row = stats.offset_table[MessageQueue("broker-a", 1, "orders")]
    assert (row.min_offset, row.max_offset, row.last_update_timestamp) == (0, 2, bench.clock.now())
    assert stats.offset_table[MessageQueue("broker-a", 0, "orders")].last_update_timestamp == 0
    with pytest.raises(TopicNotFound):
        topics.topic_stats("nowhere", bench.broker)


def test_topic_stats_show_queues_that_may_only_be_written_or_only_be_read(bench: Any) -> None:
    for read, write in ((1, 3), (3, 1)):
        bench.broker.topics.put(TopicConfig(topic_name="t", read_queue_nums=read, write_queue_nums=write))
        assert len(topics.topic_stats("t", bench.broker).offset_table) == 3


def test_groups_of_a_topic_are_those_subscribed_and_those_with_offsets(bench: Any) -> None:
    beat(bench, "online", "orders")
    bench.broker.offsets.set("offline", "orders", 0, 1)
    assert topics.groups_of("orders", bench.broker) == ["offline", "online"]


def test_who_only_pulls_has_no_lag_and_is_nobodys_group(bench: Any) -> None:
    """mqadmin and dashboards read topics as TOOLS_CONSUMER, and subscribe to them while they do."""
    bench.send("orders")
    beat(bench, "TOOLS_CONSUMER", "orders")
    for group in ("TOOLS_CONSUMER", "CID_RMQ_SYS_SPARK", "looks-only"):
        pull(Pull(group, "orders", 0, 0, expression="*"), bench.broker)
    assert topics.groups_of("orders", bench.broker) == []
    everything = progress.broker_consume_stats(bench.broker, ordered_only=False)
    assert everything.total_diff == 0
    assert not [rows for entry in everything.consume_stats_list for rows in entry.values() if rows]
    assert figures.group_figures("TOOLS_CONSUMER", None, bench.broker).ready == 0


def test_a_group_that_pops_without_heartbeat_consumes_the_topic(bench: Any) -> None:
    bench.send("orders")
    pop(Pop("popping", "orders", Start.MIN, born_time=bench.clock.now(), expression="*"), bench.broker)
    assert topics.groups_of("orders", bench.broker) == ["popping"]


def test_all_topics_have_the_members_java_expects(bench: Any) -> None:
    all_topics = topics.all_topics(bench.broker)
    assert all_topics.topic_config_table["TBW102"].perm == 7
    assert all_topics.topic_queue_mapping_detail_map == {}


# -- groups ------------------------------------------------------------------------------------------------


async def test_a_group_is_created_changed_and_deleted(bench: Any) -> None:
    broker = bench.broker
    await groups.put_groups([GroupConfig(group_name="g", retry_max_times=3)], broker)
    await groups.put_groups([GroupConfig(group_name="g", retry_max_times=5)], broker)
    with pytest.raises(SystemFailure, match="unsupported key: a"):
        await groups.put_groups([GroupConfig(group_name="g", attributes={"+a": "1"})], broker)
    assert groups.group_config("g", broker).retry_max_times == 5
    assert groups.group_config("g", broker).attributes == {}
    broker.offsets.set("g", "orders", 0, 1)
    await groups.delete_group("g", broker, clean_offsets=False)
    assert broker.offsets.topics_of("g") == {"orders"}
    await groups.delete_group("g", broker, clean_offsets=True)
    assert broker.offsets.topics_of("g") == set()
    with pytest.raises(GroupNotFound):
        groups.group_config("g", broker)


async def test_a_deleted_group_leaves_no_lease_and_no_figures(bench: Any) -> None:
    broker = bench.broker
    bench.send()
    pop(Pop("g", "orders", Start.MIN, queue_id=0, born_time=bench.clock.now()), broker)
    assert broker.pops.leases.in_flight.messages == 1
    await groups.delete_group("g", broker, clean_offsets=True)
    assert broker.pops.leases.in_flight.messages == 0
    assert broker.stats.meters("GROUP_GET") == []


@pytest.mark.parametrize("name", [names.pop_retry_topic, names.pop_retry_topic_v2])
async def test_a_deleted_topic_takes_the_retries_of_all_who_read_it_along(bench: Any, name: Any) -> None:
    broker = bench.broker
    bench.send()
    broker.offsets.set("commits", "orders", 0, 1)
    broker.clients.learn("reads", "orders", None, "*", bench.clock.now())
    for group in ("commits", "reads", "stranger"):
        broker.topics.ensure(name("orders", group))
    await topics.delete_topic("orders", broker)
    left = [
        broker.topics.get(name("orders", group)) is not None for group in ("commits", "reads", "stranger")
    ]
    assert left == [False, False, True]


@pytest.mark.parametrize(
    "config", [GroupConfig(group_name="a b"), GroupConfig(group_name="g", retry_queue_nums=-1)]
)
async def test_a_wrong_group_is_refused(bench: Any, config: GroupConfig) -> None:
    with pytest.raises(InvalidParameter):
        await groups.put_groups([config], bench.broker)


async def test_a_group_can_be_forbidden_a_topic(bench: Any) -> None:
    bench.send("orders")
    broker = bench.broker
    broker.groups.require("billing")
    assert await groups.forbid("billing", "orders", None, broker)
    assert not await groups.forbid("billing", "orders", False, broker)
    assert broker.groups.forbidden("billing", "orders")
    assert await groups.forbid("billing", "orders", True, broker)
    assert groups.all_groups(broker).forbidden_table == {}


def test_connections_of_consumers_and_producers(bench: Any) -> None:
    with pytest.raises(ConsumerNotOnline):
        groups.consumer_connection("billing", bench.broker)
    with pytest.raises(SystemFailure):
        groups.producer_connection("shop", bench.broker)
    beat(bench, "billing", "orders")
    consumers = groups.consumer_connection("billing", bench.broker)
    (connection,) = consumers.connection_set
    assert (connection.client_id, connection.client_addr, connection.version) == ("c1", "10.0.0.9:50001", 479)
    assert set(consumers.subscription_table) == {"orders"}
    assert groups.producer_connection("shop", bench.broker).connection_set == [connection]
    (told,) = groups.all_producers(bench.broker).data["shop"]
    assert (told.client_id, told.last_update_timestamp) == ("c1", bench.clock.now())
    found = groups.subscription("billing", "orders", bench.broker)
    assert found.subscription_data is not None
    assert groups.subscription("billing", "nothing", bench.broker).subscription_data is None
