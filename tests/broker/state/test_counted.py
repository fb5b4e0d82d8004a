# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.state import counted as module
from aerobee.broker.state.counted import Counted, RequestTimes, Stopwatch
from aerobee.broker.state.stats import Stats
from aerobee.protocol import names

MS = 1_000_000


def test_requests_are_told_apart_by_time_and_answer() -> None:
    times = RequestTimes()
    times.add_run(310, 200_000, 1)
    times.add_run(310, 4 * MS, 1)
    times.add_run(310, MS, 1)
    times.add_run(310, 500_000, 16)
    times.add_run(310, 2 * MS, 2)
    times.add(310, 0, 100)
    times.add(310, 1, 100)
    times.held[11, 0].add(5_000 * MS)
    found = dict(times)
    assert found.keys() == {(310, 0, False), (310, 1, False), (11, 0, True)}
    assert found[310, 0, False].counts == [19, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    assert found[310, 0, False].sum == 200_000 + 4 * MS + MS + 16 * 500_000 + 4 * MS + 100
    assert found[11, 0, True].counts[-1] == 1


def test_the_broker_s_own_copies_are_no_messages_of_producers() -> None:
    stats = Stats(0)
    stats.sent("orders", 2, 300)
    stats.moved("orders", 1, 150)
    stats.waits("orders", names.SCHEDULE_TOPIC, 200)
    came = stats.counted.came["orders"]
    assert (came.moved_count, came.moved_bytes) == (1, 150)
    assert came.delayed.counts[0] == 1
    assert stats.put_count == 4, "but all of them were stored"
    assert stats.counted.came[names.SCHEDULE_TOPIC].moved_count == 1


def test_large_messages_are_counted_by_the_mean_of_those_sent_together() -> None:
    counted = Counted()
    counted.large("t", 2, 2_048)
    assert "t" not in counted.came, "1 KiB each is not large"
    counted.large("t", 2, 2_050)
    counted.large_run("t", (1, 0, 0, 0, 0, 3))
    assert counted.came["t"].large == [3, 0, 0, 0, 0, 3]


def test_what_was_counted_of_a_deleted_group_is_forgotten() -> None:
    counted = Counted()
    counted.dead["g", "t"] += 1
    counted.dead["h", "t"] += 1
    counted.revived["g", "t", 0] += 1
    counted.retried["g", "t"] += 1
    counted.remove_group("g")
    assert list(counted.dead) == [("h", "t")]
    assert not counted.revived and not counted.retried


def test_what_was_counted_of_a_deleted_topic_is_forgotten_and_nothing_else() -> None:
    counted = Counted()
    for topic in ("t", "u"):
        counted.came[topic].moved_count += 1
        for table in (counted.committed, counted.rolled_back, counted.timer_in, counted.timer_out):
            table[topic] += 1
        for histograms in (counted.finish_s, counted.delay_s):
            histograms.add(topic, 1)
        for pairs in (counted.dead, counted.retried):
            pairs["g", topic] += 1
        counted.revived["g", topic, 3] += 1

    def left() -> list[set[object]]:
        tables = (counted.committed, counted.rolled_back, counted.timer_in, counted.timer_out, counted.came)
        found: list[set[object]] = [set(table) for table in tables]
        found += [{key for key, _ in histograms} for histograms in (counted.finish_s, counted.delay_s)]
        found += [{key[1] for key in pairs} for pairs in (counted.dead, counted.retried)]
        return [*found, {key[1] for key in counted.revived}]

    assert left() == [{"t", "u"}] * 10
    counted.remove_group("t")  # a group of that name
    assert left() == [{"t", "u"}] * 10
    counted.remove_topic("t")
    assert left() == [{"u"}] * 10
    counted.remove_topic("never seen")
    counted.remove_group("g")
    assert left() == [{"u"}] * 7 + [set()] * 3


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("SIZES", (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)),
        ("CREATE_MS", (10, 100, 1_000, 3_000, 5_000)),
        ("FINISH_S", (5, 60, 600, 3_600, 43_200, 86_400)),
        ("DELAY_S", (60, 600, 3_600, 43_200, 86_400, 259_200)),
        ("SCAN_MS", (1, 10, 100, 1_000, 2_000, 3_000)),
        ("RPC_MS", (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)),
        ("LATE_MS", (1, 5, 10, 50, 100, 500, 1_000)),
    ],
)
def test_the_ends_of_buckets_are_those_that_dashboards_know(name: str, ends: tuple[int, ...]) -> None:
    assert getattr(module, name) == ends
    assert tuple(end * MS for end in module.RPC_MS) == module.RPC_NS


def test_a_size_belongs_to_the_first_end_that_is_not_below_it() -> None:
    for size, place in ((1025, 0), (4096, 0), (4097, 1), (524_288, 1), (4_194_304, 4), (4_194_305, 5)):
        counted = Counted()
        counted.large("t", 3, 3 * size)
        assert [at for at, count in enumerate(counted.came["t"].large) if count == 3] == [place], size


def test_a_stopwatch_tells_milliseconds_and_whether_it_went_well(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1 * MS, 6 * MS, 10 * MS, 10 * MS + 500_000])
    monkeypatch.setattr(module, "perf_counter_ns", lambda: next(ticks))
    told: list[tuple[float, bool]] = []
    with Stopwatch(lambda took, well: told.append((took, well))):
        pass
    with pytest.raises(KeyError), Stopwatch(lambda took, well: told.append((took, well))):
        raise KeyError
    assert told == [(5.0, True), (0.5, False)]
    counted = Counted()
    counted.topic_made(5.0, True)
    counted.group_made(5_001.0, False)
    ((topic_went_well, topics),), ((group_went_well, groups),) = (
        counted.topic_create_ms,
        counted.group_create_ms,
    )
    assert (topic_went_well, topics.counts[0], group_went_well, groups.counts[-1]) == (True, 1, False, 1)


def test_a_quick_first_answer_and_a_slow_one_are_both_counted() -> None:
    times = RequestTimes()
    times.add_run(1, MS, 1)
    times.add(2, 0, MS + 1)
    times.add_run(3, MS, 2)
    times.add_run(4, MS + 1, 2)
    found = {key[0]: (histogram.counts[:2], histogram.sum) for key, histogram in times}
    assert found == {1: ([1, 0], MS), 2: ([0, 1], MS + 1), 3: ([2, 0], 2 * MS), 4: ([0, 2], 2 * MS + 2)}


def test_what_waits_for_its_producers_word_is_no_delayed_message() -> None:
    stats = Stats(0)
    stats.waits("orders", names.HALF_TOPIC, 5_000)
    stats.waits("orders", names.TIMER_TOPIC, 100)
    came = stats.counted.came["orders"]
    assert (came.transactional.counts[2], came.transactional.sum) == (1, 5_000)
    assert (came.delayed.counts[0], came.delayed.sum) == (1, 100)
    assert stats.put_day().now == 0, "neither has reached its topic"


def test_what_the_broker_moves_has_the_figures_of_what_it_stores() -> None:
    moved, stored = Stats(0), Stats(0)
    for topic, count in (("orders", 3), (names.SCHEDULE_TOPIC, 2), ("orders", 1)):
        moved.moved(topic, count, 100 * count)
        stored.stored(topic, count, 100 * count)
    for stats in (moved, stored):
        stats.tick(10_000)
    for key in ("orders", names.SCHEDULE_TOPIC):
        for unit in ("NUMS", "SIZE"):
            assert moved.figures(f"TOPIC_PUT_{unit}", key) == stored.figures(f"TOPIC_PUT_{unit}", key)
    for name in ("put_calls", "put_count", "put_bytes"):
        assert getattr(moved, name) == getattr(stored, name)
    assert moved.put_day() == stored.put_day()
    assert moved.counted.came["orders"].moved_bytes == 400


def test_runs_of_new_and_known_topics_add_up() -> None:
    class Run:
        """Tells each topic's meter of its part, and of the large ones; returns the sums."""

        def count(self, meter_of: Any, large: Any) -> tuple[int, int, int]:
            parts = (("a", 2, 4, 50), ("b", 3, 3, 70))
            for name, calls, count, size_bytes in parts:
                meter = meter_of(name)
                meter.calls += calls
                meter.count += count
                meter.size_bytes += size_bytes
                large(name, (1, 0, 0, 0, 0, 2))
            return 5, 7, 120

    stats = Stats(0)
    stats.sent("a", 1, 10)
    stats.sent_run(Run())
    assert (stats.put_calls, stats.put_count, stats.put_bytes) == (6, 8, 130)
    meters = dict(stats.meters("TOPIC_PUT"))
    assert {name: (meter.calls, meter.count, meter.size_bytes) for name, meter in meters.items()} == {
        "a": (3, 5, 60),
        "b": (3, 3, 70),
    }
    assert stats.counted.came["b"].large == [1, 0, 0, 0, 0, 2]
    stats.acked_one_by_one("g", "a", 5)
    ((_, acks),) = stats.meters("GROUP_ACK")
    assert (acks.calls, acks.count) == (5, 5)
