# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background.schedule import Schedule
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.errors import GroupNotFound, NoPermission, SystemFailure
from aerobee.protocol.bodies import GroupConfig, TopicConfig

if TYPE_CHECKING:
    from aerobee.broker.delivery.keeping import Unkept

DELAYS = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def back(bench: Any, physical_offset: int, **more: Any) -> Unkept | None:
    return send_back(SendBackRequest("billing", physical_offset, **more), bench.broker)


@pytest.mark.seed("S004-30", "S004-31", "S004-52", "S004-65")
def test_failed_message_waits_in_the_delay_topic_as_a_new_copy_for_the_retry_topic(
    bench: Any, clock: Any
) -> None:
    sent = bench.send(body=b"work", properties={"TAGS": "paid", "KEYS": "k"}, flag=7, born_timestamp=5)
    back(bench, sent.physical_offset)
    original, (waiting,) = bench.records("orders")[0], bench.records("SCHEDULE_TOPIC_XXXX", 2)
    assert (waiting.body, waiting.flag, waiting.born_timestamp, waiting.reconsume_times) == (b"work", 7, 5, 1)
    properties = waiting.properties
    assert properties["REAL_TOPIC"] == "%RETRY%billing"
    assert properties["RETRY_TOPIC"] == "orders"
    assert properties["ORIGIN_MESSAGE_ID"] == original.offset_id
    assert (properties["WAIT"], properties["DELAY"], properties["KEYS"]) == ("false", "3", "k")
    assert bench.records("%RETRY%billing") == []


@pytest.mark.seed("S004-32", "S004-33", "S004-34", "S004-69", "S004-30")
def test_retries_wait_longer_and_longer_and_end_in_the_dead_letters(bench: Any, clock: Any) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    where = bench.send().physical_offset
    waited = []
    for attempt in range(16):
        back(bench, where)
        began = clock.now()
        while len(bench.records("%RETRY%billing")) == attempt:
            clock.advance(seconds=10)
            schedule.tick(clock.now())
        waited.append((clock.now() - began) // 1000)
        newest = bench.records("%RETRY%billing")[-1]
        assert newest.reconsume_times == attempt + 1
        where = newest.physical_offset
    assert waited == DELAYS
    back(bench, where)
    (dead,) = bench.records("%DLQ%billing")
    assert (dead.reconsume_times, dead.properties["DELAY"], dead.properties["RETRY_TOPIC"]) == (
        17,
        "0",
        "orders",
    )


@pytest.mark.seed("S004-28")
def test_level_of_the_consumer_is_taken_and_a_negative_one_means_dead(bench: Any) -> None:
    sent = bench.send()
    back(bench, sent.physical_offset, delay_level=7)
    assert len(bench.records("SCHEDULE_TOPIC_XXXX", 6)) == 1
    back(bench, sent.physical_offset, delay_level=-1)
    assert len(bench.records("%DLQ%billing")) == 1


@pytest.mark.seed("S004-28", "S004-33")
@pytest.mark.parametrize(("level", "tries"), [(18, 0), (25, 0), (0, 15), (0, 16), (0, 40)])
def test_no_level_is_past_the_last_however_often_a_message_was_tried(
    bench: Any, level: int, tries: int
) -> None:
    """The consumer's wish and the broker's count alike end at two hours."""
    sent = bench.send(reconsume_times=tries)
    back(bench, sent.physical_offset, delay_level=level, max_reconsume_times=100)
    (waiting,) = bench.records("SCHEDULE_TOPIC_XXXX", 17)
    assert (waiting.properties["DELAY"], waiting.reconsume_times) == ("18", tries + 1)


@pytest.mark.seed("S004-65")
def test_a_message_that_comes_back_again_and_again_keeps_its_first_name_and_topic(bench: Any) -> None:
    sent = bench.send(properties={"UNIQ_KEY": "U1"})
    original, where = bench.records("orders")[0], sent.physical_offset
    for number in range(3):
        back(bench, where, delay_level=1)
        copy = bench.records("SCHEDULE_TOPIC_XXXX", 0)[number]
        assert copy.properties["ORIGIN_MESSAGE_ID"] == original.offset_id
        assert (copy.properties["RETRY_TOPIC"], copy.unique_key) == ("orders", "U1")
        where = copy.physical_offset


@pytest.mark.parametrize(("level", "topic"), [(1, "SCHEDULE_TOPIC_XXXX"), (-1, "%DLQ%billing")])
def test_a_copy_is_as_its_producer_sent_it(bench: Any, level: int, topic: str) -> None:
    """Its flags say whether the body is compressed."""
    said = {"flag": 7, "sys_flag": 1, "born_timestamp": 123_456, "born_host": b"\x0a\0\0\x07\0\0\x30\x39"}
    sent = bench.send(body=b"paid", **said)
    back(bench, sent.physical_offset, delay_level=level)
    (copy,) = bench.records(topic)
    assert {name: getattr(copy, name) for name in said} == said
    assert copy.body == b"paid"


@pytest.mark.seed("S004-30")
def test_limit_of_the_consumer_wins_over_the_group(bench: Any) -> None:
    sent = bench.send(reconsume_times=2)
    back(bench, sent.physical_offset, max_reconsume_times=3)
    back(bench, sent.physical_offset, max_reconsume_times=2)
    assert len(bench.records("%DLQ%billing")) == 1
    bench.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=2))
    back(bench, sent.physical_offset)
    assert len(bench.records("%DLQ%billing")) == 2


@pytest.mark.seed("S004-53")
def test_retry_and_dead_letter_topics_are_created_with_one_queue(bench: Any) -> None:
    sent = bench.send()
    back(bench, sent.physical_offset)
    back(bench, sent.physical_offset, delay_level=-1)
    for name in ("%RETRY%billing", "%DLQ%billing"):
        topic = bench.broker.topics.get(name)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_group_without_retry_queues_drops_what_it_returns(bench: Any) -> None:
    bench.broker.groups.put(GroupConfig(group_name="billing", retry_queue_nums=0))
    sent = bench.send()
    assert back(bench, sent.physical_offset) is None
    assert bench.broker.topics.get("%RETRY%billing") is None


def test_send_back_is_refused_with_the_official_code(bench: Any, make_bench: Any) -> None:
    bench.send()
    with pytest.raises(SystemFailure, match="99999"):
        back(bench, 99999)
    bench.broker.topics.put(TopicConfig(topic_name="%RETRY%billing", perm=4))
    with pytest.raises(NoPermission):
        back(bench, 0)


def test_send_back_needs_a_group_and_a_writable_broker(make_bench: Any) -> None:
    bench = make_bench(auto_create_groups=False)
    sent = bench.send()
    with pytest.raises(GroupNotFound):
        back(bench, sent.physical_offset)


def test_send_back_needs_a_writable_broker(make_bench: Any) -> None:
    bench = make_bench(perm=4)
    sent = bench.send()
    with pytest.raises(NoPermission):
        back(bench, sent.physical_offset)


def test_why_it_failed_stands_in_the_copy_and_stays_until_there_is_a_newer_reason(bench: Any) -> None:
    where = bench.send().physical_offset
    back(bench, where, failure="KeyError:\x01 'card'\nand\x02 more", delay_level=-1)
    (dead,) = bench.records("%DLQ%billing")
    assert dead.properties["AEROBEE_LAST_ERROR"] == "KeyError: 'card' and more"
    back(bench, dead.physical_offset, delay_level=-1)
    assert bench.records("%DLQ%billing")[-1].properties["AEROBEE_LAST_ERROR"] == "KeyError: 'card' and more"
    back(bench, dead.physical_offset, failure="ValueError: later", delay_level=-1)
    assert bench.records("%DLQ%billing")[-1].properties["AEROBEE_LAST_ERROR"] == "ValueError: later"


def test_a_reason_is_bounded_and_left_out_where_properties_have_no_room(bench: Any) -> None:
    back(bench, bench.send().physical_offset, failure="long " * 100_000, delay_level=-1)
    assert len(bench.records("%DLQ%billing")[-1].properties["AEROBEE_LAST_ERROR"]) == 1_000
    full = bench.send(properties={"a": "x" * 32_000}).physical_offset
    back(bench, full, failure="ü" * 1_000, delay_level=-1)
    assert "AEROBEE_LAST_ERROR" not in bench.records("%DLQ%billing")[-1].properties


def test_retries_are_spread_over_the_queues_of_their_topic(bench: Any) -> None:
    bench.broker.groups.put(GroupConfig(group_name="billing", retry_queue_nums=2))
    sent = bench.send()
    for _ in range(40):
        back(bench, sent.physical_offset, delay_level=1)
    waiting = bench.records("SCHEDULE_TOPIC_XXXX", 0)
    assert {record.properties["REAL_QID"] for record in waiting} == {"0", "1"}
