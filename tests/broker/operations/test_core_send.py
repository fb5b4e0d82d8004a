# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations.send import PlainOrigin, send_batch
from aerobee.errors import (
    BrokerError,
    GroupNotFound,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    SystemFailure,
    TopicNotFound,
)
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.bodies import GroupConfig, MessageQueue, TopicConfig
from aerobee.protocol.message import Record
from aerobee.protocol.routing import place_of_key
from aerobee.settings import StoreConfig

if TYPE_CHECKING:
    from aerobee.store.batch_columns import Places

DAY = 24 * 3600 * 1000


def refused(bench: Any, **request: Any) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        bench.send(**request)
    return caught.value


def test_first_send_creates_the_topic_and_stamps_the_message(bench: Any) -> None:
    sent = bench.send("orders", b"hello", queue_id=2, properties={"TAGS": "paid"})
    assert (sent.queue_id, sent.queue_offset) == (2, 0)
    topic = bench.broker.topics.get("orders")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    (stored,) = bench.records("orders", 2)
    assert stored.body == b"hello"
    assert stored.properties == {
        "TAGS": "paid",
        "UNIQ_KEY": sent.unique_key,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


@pytest.mark.seed("S004-24")
def test_queue_offset_grows_by_one_per_message(bench: Any) -> None:
    assert [bench.send(queue_id=1).queue_offset for _ in range(3)] == [0, 1, 2]
    assert bench.send(queue_id=0).queue_offset == 0


def test_unique_key_of_the_producer_is_kept(bench: Any) -> None:
    sent = bench.send(properties={"UNIQ_KEY": "AB12"})
    assert sent.unique_key == "AB12"
    assert bench.records("orders")[0].properties["UNIQ_KEY"] == "AB12"


def test_known_topic_takes_the_short_way_to_the_same_result(bench: Any) -> None:
    bench.send(properties={"KEYS": "k"})
    bench.send(properties={"KEYS": "k"})
    first, second = bench.records("orders")
    assert set(first.properties) == set(second.properties)


def test_properties_without_their_last_separator_are_accepted(bench: Any) -> None:
    from aerobee.broker.operations.send import send

    bench.send()
    send(Record("orders", b"x", "TAGS\x01paid\x02KEYS\x01k1", 0), PlainOrigin(), bench.broker)
    stored = bench.records("orders")[1].properties
    assert (stored["TAGS"], stored["KEYS"], stored["CLUSTER"]) == ("paid", "k1", "DefaultCluster")


def test_queue_minus_one_lets_the_broker_choose(bench: Any) -> None:
    chosen = {bench.send(queue_id=-1).queue_id for _ in range(200)}
    assert chosen == {0, 1, 2, 3}


@pytest.mark.parametrize("more", [{}, {"DELAY": "1"}])
def test_a_sharding_key_has_one_queue_unless_the_producer_names_another(
    bench: Any, more: dict[str, str]
) -> None:
    def queue(key: str, wish: int) -> int:
        sent = bench.send(queue_id=wish, properties={"__SHARDINGKEY": key, **more})
        return int(sent.queue_id)

    queues = {key: {queue(key, -1) for _ in range(20)} for key in map(str, range(40))}
    assert queues == {key: {place_of_key(key, 4)} for key in queues}, "where remoting producers send it"
    assert set.union(*queues.values()) == {0, 1, 2, 3}
    assert [queue("7", wish) for wish in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ({"topic": "no such name!"}, InvalidParameter, "characters"),
        ({"topic": ""}, InvalidParameter, "blank"),
        ({"topic": "t" * 128}, InvalidParameter, "128"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, NoPermission, "SCHEDULE_TOPIC_XXXX"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, NoPermission, "broker's own"),
        ({"topic": "unknown", "default_topic": "missing"}, TopicNotFound, "unknown"),
        ({"queue_id": 8}, InvalidParameter, "asked for queue 8"),
        ({"body": b""}, SystemFailure, "empty"),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, MessageIllegal, "4194305"),
        ({"properties": {"long": "é" * 16_400}}, MessageIllegal, "properties"),
        ({"properties": {"INNER_NUM": "2"}}, MessageIllegal, "INNER_NUM"),
        ({"topic": "%DLQ%" + "g" * 125}, MessageIllegal, "130"),
    ],
)
def test_send_is_refused_with_the_official_code(
    bench: Any, request_: dict[str, Any], error: type[BrokerError], says: str
) -> None:
    bench.broker.topics.ensure("orders", 4)
    refusal = refused(bench, **request_)
    assert type(refusal) is error
    assert says in refusal.remark
    assert bench.broker.store.log_max == 0


@pytest.mark.slow
def test_body_of_four_mebibytes_is_accepted(make_bench: Any) -> None:
    bench = make_bench(StoreConfig(commit_log_segment_bytes=1 << 24, index_slots=100, index_entries=400))
    bench.send(body=bytes(4 * 1024 * 1024))
    assert len(bench.records("orders")[0].body) == 4 * 1024 * 1024


def test_ordered_topic_is_refused_while_the_broker_may_not_be_written(make_bench: Any) -> None:
    bench = make_bench(perm=4)
    bench.broker.topics.put(TopicConfig(topic_name="ordered", order=True))
    assert type(refused(bench, topic="ordered")) is NoPermission
    assert type(refused(bench, topic="ordered", properties={"DELAY": "1"})) is NoPermission
    with pytest.raises(NoPermission):
        batch(bench, Record("ordered", b"x"))
    bench.send("plain")


def test_receipt_of_an_earlier_delivery_is_dropped(bench: Any) -> None:
    bench.send(properties={"POP_CK": "0 1 2 3 0 b 0 0", "TAGS": "a"})
    assert "POP_CK" not in bench.records("orders")[0].properties


# -- delays ----------------------------------------------------------------------------------------------


@pytest.mark.seed("S004-33")
def test_delay_level_sends_by_way_of_the_schedule_topic(bench: Any, clock: Any) -> None:
    sent = bench.send(queue_id=3, properties={"DELAY": "3", "TIMER_DELAY_MS": "5"})
    assert sent.queue_id == 3
    (waiting,) = bench.records("SCHEDULE_TOPIC_XXXX", 2)
    properties = waiting.properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"], properties["DELAY"]) == ("orders", "3", "3")
    assert "TIMER_DELAY_MS" not in properties
    unit = bench.broker.store.unit("SCHEDULE_TOPIC_XXXX", 2, 0)
    assert unit.tags_code == waiting.store_timestamp + 10_000


def test_level_above_the_last_means_the_last(bench: Any) -> None:
    bench.send(properties={"DELAY": "99"})
    assert len(bench.records("SCHEDULE_TOPIC_XXXX", 17)) == 1


def test_arbitrary_delay_goes_to_the_timer(bench: Any, clock: Any) -> None:
    for name, value in (
        ("TIMER_DELAY_SEC", "10"),
        ("TIMER_DELAY_MS", "10_000".replace("_", "")),
        ("TIMER_DELIVER_MS", str(clock.now() + 10_000)),
    ):
        sent = bench.send(properties={name: value})
        assert sent.timer_out == clock.now() + 9_000  # an exact second is one second earlier
    sent = bench.send(properties={"TIMER_DELAY_MS": "10500"})
    assert sent.timer_out == clock.now() + 10_000
    assert len(bench.records("rmq_sys_wheel_timer")) == 4
    assert bench.records("rmq_sys_wheel_timer")[0].properties["REAL_TOPIC"] == "orders"


def test_delivery_time_that_has_passed_is_an_ordinary_message(bench: Any, clock: Any) -> None:
    sent = bench.send(properties={"TIMER_DELIVER_MS": str(clock.now())})
    assert sent.timer_out == 0
    assert len(bench.records("orders")) == 1


def test_delivery_too_far_ahead_or_not_a_number_is_refused(bench: Any) -> None:
    bench.send(properties={"TIMER_DELAY_MS": str(40 * DAY)})
    assert type(refused(bench, properties={"TIMER_DELAY_MS": str(40 * DAY + 1)})) is MessageIllegal
    assert type(refused(bench, properties={"TIMER_DELIVER_MS": "tomorrow"})) is MessageIllegal


# -- retry topics ----------------------------------------------------------------------------------------


def test_retry_past_its_limit_goes_to_the_dead_letters(bench: Any) -> None:
    bench.send("%RETRY%billing", reconsume_times=16, properties={"DELAY": "18"})
    assert len(bench.records("SCHEDULE_TOPIC_XXXX", 17)) == 1
    sent = bench.send("%RETRY%billing", reconsume_times=17, properties={"DELAY": "18"})
    assert sent.queue_id == 0
    (dead,) = bench.records("%DLQ%billing")
    assert dead.properties["DELAY"] == "-1"
    topic = bench.broker.topics.get("%DLQ%billing")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_limit_of_the_request_wins_over_the_group(bench: Any) -> None:
    bench.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=1))
    bench.send("%RETRY%billing", reconsume_times=2, max_reconsume_times=2)
    bench.send("%RETRY%billing", reconsume_times=2)
    assert len(bench.records("%RETRY%billing")) == 1
    assert len(bench.records("%DLQ%billing")) == 1
    bench.send("%RETRY%billing", reconsume_times=1, max_reconsume_times=0)  # no retry at all
    assert len(bench.records("%DLQ%billing")) == 2


def test_retry_of_a_group_that_consumes_in_order_is_dead_at_once(bench: Any, clock: Any) -> None:
    bench.broker.locks.lock("billing", "client", [MessageQueue("broker-a", 0, "orders")], clock.now())
    bench.send("%RETRY%billing", reconsume_times=1)
    assert len(bench.records("%DLQ%billing")) == 1
    clock.set_wall(clock.now() + 3_600_000)  # locks last as long, whatever the machine's clock says
    bench.send("%RETRY%billing", reconsume_times=1)
    assert len(bench.records("%DLQ%billing")) == 2
    clock.advance(60_001)
    bench.send("%RETRY%billing", reconsume_times=1)
    assert len(bench.records("%RETRY%billing")) == 1


def test_retry_of_an_unknown_group_is_refused_where_groups_are_not_created(make_bench: Any) -> None:
    assert type(refused(make_bench(auto_create_groups=False), topic="%RETRY%billing")) is GroupNotFound


# -- transactions ----------------------------------------------------------------------------------------


def test_half_message_waits_in_the_half_topic(bench: Any) -> None:
    sent = bench.send(
        queue_id=1, sys_flag=4, properties={"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "AB"}
    )
    assert (sent.queue_id, sent.queue_offset) == (1, 0)
    (half,) = bench.records("RMQ_SYS_TRANS_HALF_TOPIC")
    assert half.sys_flag & 0xC == 0
    properties = half.properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("orders", "1")
    assert properties["__transactionId__"] == "AB"


def test_transactional_message_that_is_retried_is_ordinary(bench: Any) -> None:
    bench.send("%RETRY%billing", reconsume_times=1, properties={"TRAN_MSG": "true", "DELAY": "3"})
    assert bench.records("RMQ_SYS_TRANS_HALF_TOPIC") == []
    assert len(bench.records("SCHEDULE_TOPIC_XXXX", 2)) == 1


# -- batches ---------------------------------------------------------------------------------------------


def batch(bench: Any, *records: Record) -> Places:
    """What the records share is taken from the last one."""
    last = records[-1]
    members = Columns(
        [record.flag for record in records],
        [record.body for record in records],
        [record.properties_text for record in records],
    )
    batch = Batch(last.topic, last.queue_id, members, last.sys_flag)
    return send_batch(batch, PlainOrigin(), bench.broker).places


def test_batch_gets_consecutive_offsets_and_keeps_its_properties(bench: Any) -> None:
    sent = batch(bench, *[Record("orders", b"%d" % n, f"KEYS\x01k{n}\x02", 2) for n in range(3)])
    stored = bench.records("orders", 2)
    assert sent.queue_offset == 0
    assert [record.queue_offset for record in stored] == [0, 1, 2]
    assert [record.physical_offset for record in stored] == sent.physical_offsets
    assert [record.body for record in stored] == [b"0", b"1", b"2"]
    assert [record.properties for record in stored] == [{"KEYS": f"k{n}"} for n in range(3)]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (Record("%RETRY%billing", b"x"), MessageIllegal),
        (Record("orders", b"x", sys_flag=4), MessageIllegal),
        (Record("orders", b"x", "DELAY\x013\x02"), MessageIllegal),
        (Record("orders", b"x", "DELAY\x011\x02"), MessageIllegal),
        (Record("%DLQ%" + "g" * 125, b"x"), MessageIllegal),
        (Record("orders", bytes(4 * 1024 * 1024 + 1)), SystemFailure),
        (Record("orders", b"x", queue_id=9), InvalidParameter),
    ],
)
def test_batch_is_refused_as_a_whole(bench: Any, record: Record, error: type[BrokerError]) -> None:
    good = Record(record.topic, b"good", queue_id=record.queue_id)
    with pytest.raises(error):
        batch(bench, good, record)
    assert bench.broker.store.log_max == 0


@pytest.mark.slow
def test_a_batch_may_have_so_many_keys_and_not_one_more(bench: Any) -> None:
    from aerobee.broker.operations.send import MAX_BATCH_KEYS

    def batch(spaces: int) -> Batch:
        """`spaces` between its keys."""
        texts = ["KEYS\x01" + " ".join(["k"] * 1_001) + "\x02"] * (spaces // 1_000)
        texts += ["KEYS\x01" + " ".join(["k"] * (spaces % 1_000 + 1)) + "\x02", "TAGS\x01a b c\x02"]
        return Batch("orders", 0, Columns([0] * len(texts), [b"x"] * len(texts), texts))

    assert MAX_BATCH_KEYS == 40_000
    send_batch(batch(MAX_BATCH_KEYS), PlainOrigin(), bench.broker)
    with pytest.raises(MessageIllegal, match="a batch with 40001 keys, limit 40000"):
        send_batch(batch(MAX_BATCH_KEYS + 1), PlainOrigin(), bench.broker)
