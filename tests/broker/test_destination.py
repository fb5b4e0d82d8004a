# SPDX-License-Identifier: Apache-2.0
"""Where a message goes first, and next: delays, timers, halves, and the places that what waits may name."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.delivery import deliver
from aerobee.broker.delivery.destination import Target, delay_level, route_delay, target_of, to_half
from aerobee.broker.operations.admin.cluster import _uptime
from aerobee.errors import MessageIllegal
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.message import MAX_PROPERTIES, RECORD_CHECK_SIZE, Record

NOW, LONGEST = 1_700_000_000_000, 100_000
MOST = names.MAX_QUEUES


@pytest.mark.parametrize(
    ("properties", "target"),
    [
        ({"REAL_TOPIC": "orders", "REAL_QID": "3"}, Target("orders", 3)),
        ({"REAL_TOPIC": "orders", "REAL_QID": "0"}, Target("orders", 0)),
        ({"REAL_TOPIC": "orders", "REAL_QID": str(MOST - 1)}, Target("orders", MOST - 1)),
        ({"REAL_TOPIC": "orders", "REAL_QID": str(MOST)}, None),
        ({"REAL_TOPIC": "orders", "REAL_QID": "-1"}, None),
        ({"REAL_TOPIC": "orders", "REAL_QID": "x"}, None),
        ({"REAL_TOPIC": "orders"}, None),
        ({"REAL_QID": "3"}, None),
        ({"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "3"}, None),
        ({"REAL_TOPIC": "a b", "REAL_QID": "3"}, None),
        ({"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}, Target("%RETRY%g", 0)),
    ],
)
def test_where_a_message_that_waits_may_go(properties: dict[str, str], target: Target | None) -> None:
    assert target_of(props.render(properties)) == target


@pytest.mark.parametrize(
    ("text", "level"),
    [(None, 0), ("0", 0), ("1", 1), ("18", 18), ("99", 99), ("-1", -1), ("-2", 0), ("x", 0)],
)
def test_delay_levels_as_they_are_said(text: str | None, level: int) -> None:
    assert delay_level({} if text is None else {"DELAY": text}) == level


def routed(**properties: str) -> tuple[str, int, dict[str, str]]:
    record, given = Record("orders", b"x", "", 3), dict(properties)
    route_delay(record, given, NOW, 18, LONGEST)
    return record.topic, record.queue_id, given


REAL = {"REAL_TOPIC": "orders", "REAL_QID": "3"}


@pytest.mark.parametrize(
    ("properties", "topic", "queue_id", "after"),
    [
        ({}, "orders", 3, {}),
        ({"DELAY": "0"}, "orders", 3, {"DELAY": "0"}),
        ({"DELAY": "-1"}, "orders", 3, {"DELAY": "-1"}),
        ({"DELAY": "1"}, names.SCHEDULE_TOPIC, 0, {"DELAY": "1", **REAL}),
        ({"DELAY": "18"}, names.SCHEDULE_TOPIC, 17, {"DELAY": "18", **REAL}),
        ({"DELAY": "19"}, names.SCHEDULE_TOPIC, 17, {"DELAY": "18", **REAL}),
        # A level goes before a time.
        (
            {"DELAY": "2", "TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1"},
            names.SCHEDULE_TOPIC,
            1,
            {"DELAY": "2", **REAL},
        ),
        # What is due already is an ordinary message.
        ({"TIMER_DELIVER_MS": str(NOW)}, "orders", 3, {"TIMER_DELIVER_MS": str(NOW)}),
        ({"TIMER_DELAY_SEC": "0"}, "orders", 3, {"TIMER_DELAY_SEC": "0"}),
        ({"TIMER_DELAY_MS": "-5"}, "orders", 3, {"TIMER_DELAY_MS": "-5"}),
        # What went through the timer does not go there again.
        (
            {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"},
            "orders",
            3,
            {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"},
        ),
    ],
)
def test_the_way_of_a_message(
    properties: dict[str, str], topic: str, queue_id: int, after: dict[str, str]
) -> None:
    assert routed(**properties) == (topic, queue_id, after)


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        # A whole second is that of the slot before it, as RocketMQ counts.
        ({"TIMER_DELAY_SEC": "5"}, NOW + 4_000),
        ({"TIMER_DELAY_MS": "5000"}, NOW + 4_000),
        ({"TIMER_DELAY_MS": "5001"}, NOW + 5_000),
        ({"TIMER_DELAY_MS": "5999"}, NOW + 5_000),
        ({"TIMER_DELIVER_MS": str(NOW + 5_000)}, NOW + 4_000),
        ({"TIMER_DELAY_SEC": "100"}, NOW + LONGEST - 1_000),
        ({"TIMER_DELIVER_MS": str(NOW + LONGEST)}, NOW + LONGEST - 1_000),
        # The first of them that is there counts.
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "7000", "TIMER_DELIVER_MS": "1"}, NOW + 4_000),
        ({"TIMER_DELAY_MS": "7000", "TIMER_DELIVER_MS": "1"}, NOW + 6_000),
    ],
)
def test_a_time_is_kept_with_the_message_and_it_waits_in_the_timer(
    properties: dict[str, str], due: int
) -> None:
    topic, queue_id, after = routed(**properties)
    assert (topic, queue_id) == (names.TIMER_TOPIC, 0)
    assert after == {**properties, **REAL, "TIMER_OUT_MS": str(due)}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"TIMER_DELAY_MS": str(LONGEST + 1)}, f"delivery in {LONGEST + 1} ms; at most {LONGEST} ms"),
        ({"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC='soon' is not a number"),
        ({"TIMER_DELIVER_MS": str(NOW), "TIMER_DEL_UNIQKEY": "k"}, "which has passed"),
    ],
)
def test_times_that_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(MessageIllegal, match=words):
        routed(**properties)


def test_a_half_message_keeps_its_target_and_none_of_what_only_the_broker_writes() -> None:
    record = Record("orders", b"x", "", 3, sys_flag=0b1101)
    given: Any = {
        "UNIQ_KEY": "k",
        "a": "b",
        "TRANSACTION_CHECK_TIMES": "5",
        "TRAN_PREPARED_QUEUE_OFFSET": "7",
    }
    to_half(record, given)
    assert (record.topic, record.queue_id, record.sys_flag) == (names.HALF_TOPIC, 0, 1)
    assert given == {"UNIQ_KEY": "k", "a": "b", "__transactionId__": "k", **REAL}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 days, 0 hours, 0 minutes, 0 seconds"),
        (-5, "0 days, 0 hours, 0 minutes, 0 seconds"),
        (59, "0 days, 0 hours, 0 minutes, 59 seconds"),
        (60, "0 days, 0 hours, 1 minutes, 0 seconds"),
        (3_599, "0 days, 0 hours, 59 minutes, 59 seconds"),
        (3_600, "0 days, 1 hours, 0 minutes, 0 seconds"),
        (86_399, "0 days, 23 hours, 59 minutes, 59 seconds"),
        (86_400, "1 days, 0 hours, 0 minutes, 0 seconds"),
        (3 * 86_400 - 1, "2 days, 23 hours, 59 minutes, 59 seconds"),
    ],
)
def test_how_long_a_broker_runs_as_its_tools_show_it(seconds: int, text: str) -> None:
    assert _uptime(seconds * 1000 + 999 * (seconds >= 0)) == f"[ {text} ]"


# -- stamps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["x", "\u00e4"])
def test_stamps_go_where_there_is_room_for_them_and_the_stores_check(letter: str) -> None:
    room, stamps, each = MAX_PROPERTIES - RECORD_CHECK_SIZE, "A\x01b\x02", len(letter.encode())
    fits = letter * ((room - len(stamps) - 1) // each) + "\x02"
    assert deliver.stamped(fits, stamps) == fits + stamps
    assert deliver.stamped(letter + fits, stamps) == letter + fits
    assert deliver.stamped("K\x01v", stamps) == f"K\x01v\x02{stamps}"
    assert deliver.stamped("", stamps) == stamps


def test_the_check_of_a_record_is_not_taken_along_to_its_copy() -> None:
    check = "__CRC32#\x010123456789\x02"
    assert deliver.without_check(f"K\x01v\x02{check}") == "K\x01v\x02"
    assert deliver.without_check(check) == ""
    assert deliver.without_check(check[1:]) == check[1:]
    assert deliver.without_check(f"{check}K\x01v\x02") == f"{check}K\x01v\x02"


def test_a_timed_message_says_when_it_began_to_wait_and_when_it_came(bench: Any, clock: Any) -> None:
    due = clock.wall() + 60_000
    clock.advance(3)
    began = clock.wall()
    bench.send(born_timestamp=7, properties={"TIMER_DELIVER_MS": str(due)})
    (waiting,) = bench.records(names.TIMER_TOPIC)
    deliver.deliver(waiting.physical_offset, bench.broker.store, bench.broker.stats, due + 9)
    told = bench.records("orders")[0].properties
    assert (told["TIMER_ENQUEUE_MS"], told["TIMER_DEQUEUE_MS"]) == (str(began), str(due + 9))
