# SPDX-License-Identifier: Apache-2.0
"""A topic that keeps messages for fewer hours than the log does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.broker.background.topic_retention import TopicRetention, hours_of
from aerobee.broker.operations.admin.figures import group_figures
from aerobee.protocol.bodies import TopicConfig
from aerobee.store.results import ReadStatus

if TYPE_CHECKING:
    from aerobee.clock import ManualClock


def retention(bench: Any) -> TopicRetention:
    return TopicRetention(bench.broker.topics, bench.broker.store, bench.broker.clock)


def keep(bench: Any, hours: str | None) -> None:
    known = bench.broker.topics.require("orders")
    attributes = {} if hours is None else {"reserve.time": hours}
    bench.broker.topics.put(msgspec.structs.replace(known, attributes=attributes))


def filled(bench: Any, clock: ManualClock) -> None:
    """Three messages, an hour between them; the last is an hour old."""
    for number in range(3):
        bench.send(body=b"%d" % number)
        clock.advance(hours=1)


def served(bench: Any) -> tuple[int, int]:
    found: tuple[int, int] = bench.broker.store.bounds("orders", 0)
    return found


def test_what_is_older_than_the_topic_keeps_is_no_longer_served(bench: Any, clock: ManualClock) -> None:
    filled(bench, clock)
    job = retention(bench)
    keep(bench, "2")
    job.tick(clock.now())
    assert served(bench) == (1, 3)
    refused = bench.pull(offset=0)
    assert (refused.status, refused.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, 1)
    assert len(bench.pull(offset=1).messages) == 2
    clock.advance(hours=2)
    job.tick(clock.now())
    assert served(bench) == (3, 3)
    bench.send(body=b"new")
    assert served(bench) == (3, 4)


def test_a_group_that_stood_at_what_is_gone_has_less_before_it(bench: Any, clock: ManualClock) -> None:
    filled(bench, clock)
    bench.broker.offsets.set("billing", "orders", 0, 0)
    assert group_figures("billing", None, bench.broker).ready == 3
    retention(bench)
    keep(bench, "2")
    assert group_figures("billing", None, bench.broker).ready == 2


def test_more_hours_or_none_bring_back_what_the_log_still_has(bench: Any, clock: ManualClock) -> None:
    filled(bench, clock)
    retention(bench)
    for hours, first in (("1", 2), ("3", 0), ("2", 1), ("-1", 0), ("1", 2), (None, 0)):
        keep(bench, hours)
        assert served(bench) == (first, 3), hours


def test_it_holds_again_after_a_restart(bench: Any, clock: ManualClock) -> None:
    filled(bench, clock)
    keep(bench, "2")
    bench.restart()
    assert bench.broker.topics.require("orders").attributes == {"reserve.time": "2"}
    retention(bench).tick(clock.now())
    assert served(bench) == (1, 3)


def test_other_topics_and_texts_that_are_no_hours_are_left_alone(bench: Any, clock: ManualClock) -> None:
    filled(bench, clock)
    retention(bench).tick(clock.now())
    assert served(bench) == (0, 3)
    for text in ("-1", "0", "x", ""):
        assert hours_of(TopicConfig(topic_name="t", attributes={"reserve.time": text})) == 0
    assert hours_of(TopicConfig(topic_name="t", attributes={"reserve.time": "24"})) == 24


def test_what_a_timed_search_finds_begins_where_the_queue_does(bench: Any, clock: ManualClock) -> None:
    filled(bench, clock)
    retention(bench)
    keep(bench, "2")
    assert bench.broker.store.offset_by_time("orders", 0, 1) == 1
    assert len(bench.broker.store.units("orders", 0, 0, 10)) == 2 * 20


def test_the_age_of_a_message_is_by_the_wall_clock_it_was_stored_by(bench: Any, clock: ManualClock) -> None:
    clock.set_wall(clock.wall() + 50 * 3_600_000)
    filled(bench, clock)
    job = retention(bench)
    keep(bench, "2")
    assert served(bench) == (1, 3)
    clock.advance(hours=1)
    job.tick(clock.now())
    assert served(bench) == (2, 3)
