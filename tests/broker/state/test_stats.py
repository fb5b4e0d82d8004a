# SPDX-License-Identifier: Apache-2.0
"""Figures over time, held against what was really counted: every event is remembered, and sums are taken by hand."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.state.stats import METERS_PER_TICK, Day, Meter, Span, Spans, Stats

if TYPE_CHECKING:
    from collections.abc import Callable

TEN_S = 10_000


class Counted:
    """A meter as it might be written on paper: (time, calls, count, bytes) at each sample, none thrown away."""

    def __init__(self, born: int) -> None:
        self.total = [0, 0, 0]
        self.minute, self.hour, self.day = [[(born, 0, 0, 0)] for _ in range(3)]

    def add(self, count: int, size: int, calls: int = 1) -> None:
        self.total = [self.total[0] + calls, self.total[1] + count, self.total[2] + size]

    def sample(self, now: int, turn: int) -> None:
        row = (now, self.total[0], self.total[1], self.total[2])
        self.minute.append(row)
        if turn % 60 == 0:
            self.hour.append(row)
        if turn % 360 == 0:
            self.day.append(row)

    def spans(self, field: int) -> Spans:
        newest = self.minute[-1]

        def span(kept: list[tuple[int, int, int, int]], keep: int) -> Span:
            oldest = kept[-keep:][0]
            took, calls, total = (newest[i] - oldest[i] for i in (0, 1, field))
            return Span(total, total * 1000 / took if took else 0.0, total / calls if calls else 0.0)

        return Spans(span(self.minute, 7), span(self.hour, 7), span(self.day, 25))


def drive(stats: Stats, paper: dict[str, Counted], now: int, turn: int) -> None:
    while not stats.tick(now):
        pass
    for meter in paper.values():
        meter.sample(now, turn)


@pytest.mark.slow
def test_a_steady_stream_has_exact_sums_of_a_minute_an_hour_and_a_day() -> None:
    """At each turn for two days and a bit, so that old samples are dropped at all three paces."""
    stats = Stats(0)
    paper: dict[str, Counted] = {}
    for turn in range(1, 6 * 60 * 50 + 7):
        stats.sent("t", 2 + turn % 3, 30)
        paper.setdefault("t", Counted(0)).add(2 + turn % 3, 30)
        drive(stats, paper, turn * TEN_S, turn)
        if turn % 359 < 3 or turn % 61 == 0:
            assert stats.figures("TOPIC_PUT_NUMS", "t") == paper["t"].spans(2), turn
            assert stats.figures("TOPIC_PUT_SIZE", "t") == paper["t"].spans(3), turn
    figures = stats.figures("TOPIC_PUT_NUMS", "t")
    assert figures is not None
    assert figures.minute.sum == 18


KINDS: dict[str, Callable[[Stats, int, int], None]] = {
    "TOPIC_PUT": lambda stats, count, size: stats.sent("t", count, size),
    "GROUP_GET": lambda stats, count, size: stats.got("g", "t", count, size),
    "SNDBCK_PUT": lambda stats, count, _: stats.sent_back("g", "t", count),
    "GROUP_ACK": lambda stats, count, _: stats.acked("g", "t", count),
    "GROUP_CK": lambda stats, count, _: stats.popped("g", "t", count),
}
SIZED = ("TOPIC_PUT", "GROUP_GET")
events = st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 9), st.integers(0, 99))


@pytest.mark.slow
@given(st.lists(st.lists(events, max_size=4), min_size=1, max_size=30))
def test_each_kind_counts_for_itself_and_from_its_first_message_on(
    turns: list[list[tuple[str, int, int]]],
) -> None:
    stats = Stats(0)
    paper: dict[str, Counted] = {}
    for turn, counted in enumerate(turns, 1):
        for kind, count, size in counted:
            KINDS[kind](stats, count, size)
            born = (turn - 1) * TEN_S
            paper.setdefault(kind, Counted(born)).add(count, size if kind in SIZED else 0)
        drive(stats, paper, turn * TEN_S, turn)
        for kind in KINDS:
            key = "t" if kind == "TOPIC_PUT" else "t@g"
            for unit, field in (("NUMS", 2), ("SIZE", 3)):
                expected = paper[kind].spans(field) if kind in paper else None
                assert stats.figures(f"{kind}_{unit}", key) == expected
            assert stats.figures(f"{kind}_OTHER", key) is None
    assert stats.put_count == sum(c for turn in turns for kind, c, _ in turn if kind == "TOPIC_PUT")
    assert stats.get_found == sum(kind == "GROUP_GET" for turn in turns for kind, _, _ in turn)


def test_the_brokers_own_figures_are_those_of_all_topics_and_of_all_groups() -> None:
    stats = Stats(0)
    for turn in range(1, 4):
        stats.sent("a", 2, 10)
        stats.sent("b", 3, 10)
        stats.got("g", "a", 4, 7)
        stats.tick(turn * TEN_S)
    put, got = stats.figures("BROKER_PUT_NUMS", "any"), stats.figures("BROKER_GET_NUMS", "any")
    assert put is not None
    assert got is not None
    assert put.minute == put.day == Span(15, 0.5, 2.5)
    assert got.minute == got.hour == Span(12, 0.4, 4.0)
    assert (stats.put_calls, stats.put_count, stats.put_bytes) == (6, 15, 60)
    assert (stats.get_found, stats.get_count, stats.get_bytes) == (3, 12, 21)


class _ThreeSends:
    def count(
        self, meter_of: Callable[[str], Meter], large_run: Callable[[str, tuple[int, ...]], None]
    ) -> tuple[int, int, int]:
        meter = meter_of("t")
        meter.calls, meter.count, meter.size_bytes = meter.calls + 3, meter.count + 6, meter.size_bytes + 30
        return 3, 6, 30


def test_several_requests_counted_at_once_are_as_many_calls() -> None:
    one, many = Stats(0), Stats(0)
    for _ in range(3):
        one.sent("t", 2, 10)
        one.acked("g", "t")
    many.sent_run(_ThreeSends())
    many.acked_one_by_one("g", "t", 3)
    for stats in (one, many):
        stats.tick(TEN_S)
    for name, key in (("TOPIC_PUT_NUMS", "t"), ("TOPIC_PUT_SIZE", "t"), ("GROUP_ACK_NUMS", "t@g")):
        assert many.figures(name, key) == one.figures(name, key)
    assert many.put_calls == one.put_calls == 3


def test_rates_of_the_last_seconds_go_back_so_far_and_not_further() -> None:
    stats = Stats(0)
    for second in range(1, 700):
        stats.sent("t", 1 if second <= 689 else 11, 1)
        stats.got("g", "t", 3, 1)
        stats.missed()
        stats.missed()
        stats.tick(second * 1000)
    # The ten newest seconds had eleven messages each, the others one.
    assert stats.broker_rates(10) == {"put": 11.0, "found": 1.0, "missed": 2.0, "got": 3.0}
    assert stats.broker_rates(60)["put"] == pytest.approx((50 + 110) / 60)
    assert stats.broker_rates(600)["put"] == pytest.approx((590 + 110) / 600)


def test_a_second_is_sampled_once_however_often_it_is_asked() -> None:
    stats = Stats(0)
    assert stats.broker_rates(10) == {"put": 0.0, "found": 0.0, "missed": 0.0, "got": 0.0}
    stats.sent("t", 5, 5)
    assert stats.tick(999) == 1000
    assert stats.broker_rates(10)["put"] == 0.0
    stats.tick(1000)
    assert stats.broker_rates(10)["put"] == 5.0


def test_the_timers_ways_in_and_out_have_their_own_rates() -> None:
    stats = Stats(0)
    for _ in range(30):
        stats.timed()
    for _ in range(10):
        stats.timed_out()
    stats.tick(TEN_S)
    assert stats.timer_rates() == (3.0, 1.0)
    assert stats.send_rate("nobody") == stats.consume_rate("nobody", "t") == 0.0


def test_samples_are_taken_every_ten_seconds_not_sooner() -> None:
    stats = Stats(0)
    stats.sent("t", 10, 10)
    stats.tick(TEN_S - 1)
    assert stats.send_rate("t") == 0.0
    stats.tick(TEN_S)
    assert stats.send_rate("t") == 1.0


@pytest.mark.parametrize("meters", [METERS_PER_TICK - 3, METERS_PER_TICK - 2, METERS_PER_TICK * 2 - 2])
def test_a_turn_over_many_meters_ends_when_the_last_was_sampled(meters: int) -> None:
    stats = Stats(0)
    for i in range(meters):
        stats.sent(f"t{i}", 10, 1)
    calls = 1
    while stats.tick(TEN_S) == 0:
        calls += 1
    assert calls == (meters + 2) // METERS_PER_TICK + 1
    assert stats.send_rate(f"t{meters - 1}") == stats.send_rate("t0") == 1.0


def test_what_is_removed_is_forgotten_and_nothing_else() -> None:
    def counted() -> Stats:
        stats = Stats(0)
        for topic in ("a", "b"):
            stats.sent(topic, 1, 1)
            for group in ("g", "h"):
                stats.got(group, topic, 1, 1)
                for count in (stats.sent_back, stats.acked, stats.popped):
                    count(group, topic)
                stats.fell_behind(group, topic, 0, 5, 6)
        return stats

    def left(stats: Stats) -> set[str]:
        names = ("GROUP_GET", "SNDBCK_PUT", "GROUP_ACK", "GROUP_CK")
        keys = [f"{topic}@{group}" for topic in "ab" for group in "gh"]
        found = {key for key in keys if all(stats.figures(f"{name}_NUMS", key) for name in names)}
        found |= {key for key in "ab" if stats.figures("TOPIC_PUT_NUMS", key)}
        assert not {k for k in keys if k not in found and any(stats.figures(f"{n}_NUMS", k) for n in names)}
        for key in keys:
            topic, group = key.split("@")
            assert stats.behind(group, topic, 0) == ((5, 6) if key in found else (0, 0))
        return found

    stats = counted()
    assert left(stats) == {"a", "b", "a@g", "a@h", "b@g", "b@h"}
    stats.remove_topic("a")
    assert left(stats) == {"b", "b@g", "b@h"}
    stats = counted()
    stats.remove_group("g")
    assert left(stats) == {"a", "b", "a@h", "b@h"}
    stats.remove_topic("never counted")
    stats.remove_group("nor this")
    assert left(stats) == {"a", "b", "a@h", "b@h"}


def test_what_waits_in_a_topic_of_the_brokers_own_is_no_message_of_the_day() -> None:
    noon = int(datetime(2026, 5, 1, 12).timestamp() * 1000)
    stats = Stats(noon)
    stats.stored("SCHEDULE_TOPIC_XXXX", 3, 3)
    stats.stored("t", 2, 2)
    stats.got("g", "t", 1, 1)
    assert (stats.put_day(), stats.got_day()) == (Day(0, 0, 2), Day(0, 0, 1))
    stats.tick(noon + 24 * 3_600_000)
    stats.stored("t", 4, 4)
    assert (stats.put_day(), stats.got_day()) == (Day(0, 2, 6), Day(0, 1, 1))
    stats.tick(noon + 36 * 3_600_000)  # past midnight once more
    assert (stats.put_day(), stats.got_day()) == (Day(2, 6, 6), Day(1, 1, 1))


def test_a_call_is_late_by_what_it_came_after_it_was_wanted() -> None:
    stats = Stats(0)
    stats.tick(900)
    assert stats.late_ms == 0
    stats.tick(1930)
    assert stats.late_ms == 30


def test_rates_of_seconds_are_from_one_sample_a_second_however_often_it_ticks() -> None:
    stats = Stats(1_000_000)
    for now in (1_000_200, 1_000_999, 1_001_000, 1_001_500, 1_002_000):
        stats.sent("t", 1, 10)
        stats.tick(now)
    assert [second.at - 1_000_000 for second in stats._seconds] == [0, 1_000, 2_000]
    assert stats.broker_rates(10)["put"] == 2.5


def test_the_rates_of_a_topic_and_of_a_group_are_of_the_last_minute() -> None:
    stats = Stats(0)
    for turn in range(1, 66):
        if turn < 3:
            stats.sent("orders", 60, 0)
            stats.got("billing", "orders", 60, 0)
        stats.tick(turn * TEN_S)
        if turn == 2:
            assert (stats.send_rate("orders"), stats.consume_rate("billing", "orders")) == (6.0, 6.0)
    assert (stats.send_rate("orders"), stats.consume_rate("billing", "orders")) == (0.0, 0.0)


def test_what_is_removed_is_a_whole_name_and_not_what_begins_like_it() -> None:
    stats = Stats(0)
    for group in ("bill", "billing"):
        for topic in ("order", "orders"):
            stats.got(group, topic, 1, 1)
            stats.fell_behind(group, topic, 0, 1, 1)
    stats.remove_group("bill")
    assert [key for key, _ in stats.meters("GROUP_GET")] == ["order@billing", "orders@billing"]
    stats.remove_topic("order")
    assert [key for key, _ in stats.meters("GROUP_GET")] == ["orders@billing"]
    assert stats.behind("billing", "orders", 0) == (1, 1)


def test_what_only_metrics_show_goes_with_its_topic_and_its_group() -> None:
    stats = Stats(0)
    counted = stats.counted
    for group, topic in (("bill", "orders"), ("audit", "orders"), ("bill", "trades")):
        for pairs in (counted.dead, counted.retried):
            pairs[group, topic] += 1
        counted.revived[group, topic, 3] += 1
        counted.came[topic].moved_count += 1
        for table in (counted.committed, counted.rolled_back, counted.timer_in, counted.timer_out):
            table[topic] += 1
        for histograms in (counted.finish_s, counted.delay_s):
            histograms.add(topic, 1)
    stats.remove_group("bill")
    assert list(counted.dead) == list(counted.retried) == [("audit", "orders")]
    assert list(counted.revived) == [("audit", "orders", 3)]
    stats.remove_topic("orders")
    assert not (counted.dead or counted.retried or counted.revived)
    assert list(counted.came) == ["trades"]
    for table in (counted.committed, counted.rolled_back, counted.timer_in, counted.timer_out):
        assert list(table) == ["trades"]
    for histograms in (counted.finish_s, counted.delay_s):
        assert [key for key, _ in histograms] == ["trades"]
