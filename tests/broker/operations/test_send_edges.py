# SPDX-License-Identifier: Apache-2.0
"""Sends at their limits, and that the quick way of plain messages takes no message that is not plain."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.broker.delivery import destination
from aerobee.broker.operations.send import (
    MAX_WAITING_PROPERTIES,
    SPECIAL,
    PlainOrigin,
    choose_queue,
    send,
    send_batch,
    send_reply,
)
from aerobee.errors import InvalidParameter, MessageIllegal, NoPermission, SystemFailure
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.bodies import MessageQueue, TopicConfig
from aerobee.protocol.message import Record
from tests.broker.conftest import SMALL

OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}


@pytest.fixture(params=["known", "new"])
def shop(request: Any, bench: Any) -> Any:
    """The topic exists, so that plain messages have a quick way; or it does not."""
    if request.param == "known":
        bench.broker.topics.ensure("orders", 4)
    return bench


def test_words_that_change_a_messages_way_are_known() -> None:
    assert SPECIAL == (
        "DELAY\x01", "TIMER_", "TRAN_MSG\x01", "POP_CK\x01", "MSG_REGION\x01", "INNER_NUM\x01",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "topic", "queue_id"),
    [
        ({}, "orders", 2),
        ({"KEYS": "a b", "TAGS": "DELAY"}, "orders", 2),
        ({"DELAY": "2"}, names.SCHEDULE_TOPIC, 1),
        ({"DELAY": "0"}, "orders", 2),
        ({"DELAY": "-1"}, "orders", 2),
        ({"DELAY": "soon"}, "orders", 2),
        ({"TIMER_DELAY_SEC": "5"}, names.TIMER_TOPIC, 0),
        ({"TIMER_DELAY_MS": "5000"}, names.TIMER_TOPIC, 0),
        ({"TIMER_DELAY_MS": "0"}, "orders", 2),
        ({"TIMER_DELAY_MS": "-5"}, "orders", 2),
        ({"TIMER_DELAY_MS": "5000", "TIMER_OUT_MS": "1"}, "orders", 2),  # it has been there
        ({"TRAN_MSG": "true"}, names.HALF_TOPIC, 0),
        ({"TRAN_MSG": "TRUE"}, names.HALF_TOPIC, 0),
        ({"TRAN_MSG": "false"}, "orders", 2),
        ({"TRAN_MSG": "true", "DELAY": "2"}, names.HALF_TOPIC, 0),
    ],
)
def test_what_it_says_decides_where_it_goes(
    shop: Any, properties: dict[str, str], topic: str, queue_id: int
) -> None:
    sent = shop.send(queue_id=2, properties=properties)
    assert sent.queue_id == 2, "to the producer it is the real one"
    (stored,) = shop.records(topic, queue_id)
    assert (sent.physical_offset, sent.end) == (stored.physical_offset, stored.physical_offset + stored.size)
    assert OWN.items() <= stored.properties.items()
    if topic != "orders":
        assert (stored.properties["REAL_TOPIC"], stored.properties["REAL_QID"]) == ("orders", "2")


def test_stamps_of_an_earlier_broker_are_replaced_and_not_doubled(shop: Any) -> None:
    before = {
        "MSG_REGION": "elsewhere",
        "TRACE_ON": "false",
        "CLUSTER": "other",
        "UNIQ_KEY": "A1",
        "KEYS": "k",
    }
    shop.send(properties=before)
    (stored,) = shop.records("orders")
    assert stored.properties == {**OWN, "UNIQ_KEY": "A1", "KEYS": "k"}
    for name in ("MSG_REGION", "TRACE_ON", "CLUSTER", "UNIQ_KEY"):
        assert f"\x02{stored.properties_text}".count(f"\x02{name}\x01") == 1, name


def test_a_receipt_of_an_earlier_delivery_is_dropped_whichever_way_it_goes(shop: Any) -> None:
    shop.send(properties={"POP_CK": "0 1 2 3 0 b 0 0", "TAGS": "a"})
    (stored,) = shop.records("orders")
    assert "POP_CK" not in stored.properties
    assert stored.properties["TAGS"] == "a"


def test_an_inner_batch_must_say_so_in_its_flag(shop: Any) -> None:
    with pytest.raises(MessageIllegal, match="INNER_NUM"):
        shop.send(properties={"INNER_NUM": "2"})
    shop.send(properties={"INNER_NUM": "2"}, sys_flag=0x80)
    assert len(shop.records("orders")) == 1


def test_checks_of_a_half_message_that_its_producer_brings_along_are_dropped(shop: Any) -> None:
    brought = {"TRAN_MSG": "true", "TRANSACTION_CHECK_TIMES": "14", "TRAN_PREPARED_QUEUE_OFFSET": "3"}
    shop.send(properties=brought, sys_flag=4)
    (half,) = shop.records(names.HALF_TOPIC)
    assert not {"TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"} & set(half.properties)
    assert half.properties["__transactionId__"] == half.properties["UNIQ_KEY"]


def test_a_delay_level_wins_over_a_time_and_takes_its_words_away(shop: Any) -> None:
    asked = {"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "5"}
    shop.send(properties={"DELAY": "1", **asked})
    (stored,) = shop.records(names.SCHEDULE_TOPIC, 0)
    assert not set(asked) & set(stored.properties)


@pytest.mark.parametrize(
    ("properties", "times", "topic", "queue_id"),
    [
        ({}, 1, names.HALF_TOPIC, 0),
        ({"DELAY": "3"}, 0, names.HALF_TOPIC, 0),
        ({"DELAY": "3"}, 1, names.SCHEDULE_TOPIC, 2),
    ],
)
def test_a_transactional_message_that_comes_back_delayed_is_an_ordinary_one(
    shop: Any, properties: dict[str, str], times: int, topic: str, queue_id: int
) -> None:
    shop.send(properties={"TRAN_MSG": "true", **properties}, reconsume_times=times)
    assert len(shop.records(topic, queue_id)) == 1


def test_a_retry_past_its_limit_is_told_where_its_dead_letter_is(bench: Any) -> None:
    retry = names.retry_topic("billing")
    bench.broker.topics.ensure(retry, 2)
    alive = bench.send(retry, queue_id=1, reconsume_times=2, max_reconsume_times=2)
    dead = bench.send(retry, queue_id=1, reconsume_times=3, max_reconsume_times=2)
    assert (alive.queue_id, dead.queue_id) == (1, 0)
    (letter,) = bench.records(names.dead_letter_topic("billing"))
    assert letter.physical_offset == dead.physical_offset


# -- queues ------------------------------------------------------------------------------------------------


def test_a_queue_that_can_only_be_read_or_only_be_written_may_be_named() -> None:
    """While queues are taken away or added, producers know the one number or the other."""
    for read, write in ((2, 4), (4, 2)):
        topic = TopicConfig(topic_name="t", read_queue_nums=read, write_queue_nums=write)
        assert [choose_queue(queue, topic) for queue in range(4)] == [0, 1, 2, 3]
        with pytest.raises(InvalidParameter, match=f"topic 't' has {write} queues; asked for queue 4"):
            choose_queue(4, topic)
        assert {choose_queue(-1, topic) for _ in range(200)} == set(range(write))
        assert {choose_queue(-1, topic, f"__SHARDINGKEY\x01{key}\x02") for key in range(99)} == set(
            range(write)
        )


def test_a_dead_letter_is_told_by_its_group_and_topic(bench: Any) -> None:
    bench.broker.topics.ensure("orders")
    for origin in ("orders", "made-up", None):
        brought = {} if origin is None else {"RETRY_TOPIC": origin}
        sent = bench.send("%RETRY%billing", queue_id=0, reconsume_times=17, properties=brought)
        assert sent.queue_id == 0
    assert bench.broker.stats.counted.dead == {("billing", "orders"): 1, ("billing", ""): 2}
    bench.send("%RETRY%billing", queue_id=0, reconsume_times=16)
    assert sum(bench.broker.stats.counted.dead.values()) == 3


def test_a_retry_of_a_group_that_holds_locks_is_dead_only_while_it_holds_them(bench: Any, clock: Any) -> None:
    bench.broker.locks.lock("other", "client", [MessageQueue("broker-a", 0, "orders")], clock.now())
    bench.send("%RETRY%billing", reconsume_times=1)
    assert len(bench.records("%RETRY%billing")) == 1, "another group's"


def test_only_a_reply_may_go_to_the_reply_topic(bench: Any) -> None:
    topic = names.reply_topic("DefaultCluster")
    with pytest.raises(NoPermission, match="broker's own"):
        bench.send(topic)
    sent = send_reply(Record(topic, b"answer", "", 0), PlainOrigin(), bench.broker)
    (stored,) = bench.records(topic)
    assert (stored.body, stored.physical_offset) == (b"answer", sent.physical_offset)
    send_reply(Record("orders", b"plain", "", 0), PlainOrigin(), bench.broker)
    assert [record.body for record in bench.records("orders")] == [b"plain"]


# -- limits ------------------------------------------------------------------------------------------------


def test_what_waits_leaves_room_for_the_stamps_of_its_delivery(shop: Any) -> None:
    def filled(extra: int) -> dict[str, str]:
        asked = {"DELAY": "1", "UNIQ_KEY": "A1", "fill": ""}
        stored = {**asked, **OWN, "REAL_TOPIC": "orders", "REAL_QID": "0"}
        room = MAX_WAITING_PROPERTIES - len(props.render(stored).encode())
        return {**asked, "fill": "x" * (room + extra)}

    shop.send(properties=filled(0))
    (stored,) = shop.records(names.SCHEDULE_TOPIC, 0)
    assert len(props.render(stored.properties)) == MAX_WAITING_PROPERTIES == 32_767 - 20 - 256
    with pytest.raises(MessageIllegal, match="properties of 32492 bytes"):
        shop.send(properties=filled(1))
    shop.send(properties={name: text for name, text in filled(1).items() if name != "DELAY"})
    assert len(shop.records("orders")) == 1, "a plain one may be longer"


def test_a_topics_name_may_have_127_characters_and_a_dead_letters_no_more(bench: Any) -> None:
    longest = "%DLQ%" + "g" * 122
    bench.broker.topics.ensure(longest)
    bench.send(longest)
    assert len(bench.records(longest)) == 1
    with pytest.raises(MessageIllegal, match="topic name of 128 characters; at most 127 can be stored"):
        bench.send("%DLQ%" + "g" * 123)


def members(*bodies: bytes, text: str = "") -> Columns:
    return Columns([0] * len(bodies), list(bodies), [text] * len(bodies))


def test_a_batch_without_messages_or_with_an_empty_one_is_refused(shop: Any) -> None:
    with pytest.raises(MessageIllegal, match="the batch is empty"):
        send_batch(Batch("orders", 0, members()), PlainOrigin(), shop.broker)
    for bodies in ((b"", b"x"), (b"x", b"")):
        with pytest.raises(SystemFailure, match="empty body"):
            send_batch(Batch("orders", 0, members(*bodies)), PlainOrigin(), shop.broker)
    assert shop.broker.store.log_max == 0


@pytest.mark.parametrize("level", ["0", "-1", "word"])
def test_a_batch_whose_messages_name_no_delay_is_taken(shop: Any, level: str) -> None:
    made = members(b"x", b"y", text=f"DELAY\x01{level}\x02")
    sent = send_batch(Batch("orders", 1, made), PlainOrigin(), shop.broker)
    assert (sent.places.queue_offset, len(shop.records("orders", 1))) == (0, 2)
    assert shop.broker.stats.put_count == 2


@pytest.mark.parametrize("flag", [4, 8, 12])
def test_a_batch_of_a_transaction_is_refused(shop: Any, flag: int) -> None:
    with pytest.raises(MessageIllegal, match="transactional"):
        send_batch(Batch("orders", 1, members(b"x"), flag), PlainOrigin(), shop.broker)
    send_batch(Batch("orders", 1, members(b"x"), 1), PlainOrigin(), shop.broker)


def test_a_batch_may_have_as_many_bytes_as_a_message(make_bench: Any) -> None:
    bench = make_bench(msgspec.structs.replace(SMALL, max_message_bytes=1_000))
    send_batch(Batch("orders", 0, members(bytes(500), bytes(500))), PlainOrigin(), bench.broker)
    with pytest.raises(
        SystemFailure,
        match="batch of more than 1000 bytes, the broker's max_message_bytes; send smaller ones",
    ):
        send_batch(Batch("orders", 0, members(bytes(500), bytes(501))), PlainOrigin(), bench.broker)


# -- what is counted ---------------------------------------------------------------------------------------


def test_how_long_messages_are_to_wait_is_counted_by_topic(shop: Any, clock: Any) -> None:
    counted = shop.broker.stats.counted
    shop.send(properties={"DELAY": "5"})  # a minute
    shop.send(properties={"TIMER_DELAY_SEC": "7200"})
    shop.send(properties={"TRAN_MSG": "true"})
    shop.send()
    ((topic, delays),) = counted.delay_s
    assert (topic, sum(delays.counts)) == ("orders", 2)
    assert delays.sum == pytest.approx(60 + 7200, abs=1)
    came = counted.came["orders"]
    assert (sum(came.delayed.counts), sum(came.transactional.counts)) == (2, 1)
    assert shop.broker.stats.put_day().now == 1, "the others have not reached their topic"


def test_a_plain_message_is_counted_with_its_size(shop: Any) -> None:
    shop.send(body=b"x" * 100)
    (stored,) = shop.records("orders")
    stats = shop.broker.stats
    assert (stats.put_calls, stats.put_count, stats.put_bytes) == (1, 1, stored.size)


# -- times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"TIMER_DELAY_SEC": "5"}, 15_000),
        ({"TIMER_DELAY_MS": "5"}, 10_005),
        ({"TIMER_DELIVER_MS": "5"}, 5),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "5"}, 11_000),
        ({"TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "7"}, 10_005),
        ({}, 10_000),
    ],
)
def test_the_first_of_three_words_says_when(properties: dict[str, str], due: int) -> None:
    assert destination._target_time(properties, 10_000) == due


def test_a_recall_of_what_is_due_already_is_refused(bench: Any, clock: Any) -> None:
    asked = {"TIMER_DELIVER_MS": str(clock.wall()), "TIMER_DEL_UNIQKEY": "orders+A1"}
    record = Record("orders", b"0", props.render(asked), 0)
    with pytest.raises(MessageIllegal, match="which has passed"):
        send(record, PlainOrigin(), bench.broker)


def test_a_target_is_a_topic_that_may_be_delivered_to_and_one_of_its_queues() -> None:
    def target(topic: str | None, queue: str | None) -> destination.Target | None:
        told = {"REAL_TOPIC": topic, "REAL_QID": queue}
        return destination.target_of(props.render({name: text for name, text in told.items() if text}))

    assert target("orders", "0") == ("orders", 0)
    assert target("orders", str(names.MAX_QUEUES - 1)) == ("orders", names.MAX_QUEUES - 1)
    for topic, queue in ((None, "0"), ("orders", None), ("orders", "-1"), ("orders", str(names.MAX_QUEUES)),
                         ("orders", "x"), (names.HALF_TOPIC, "0"), ("no such name!", "0")):  # fmt: skip
        assert target(topic, queue) is None, (topic, queue)
