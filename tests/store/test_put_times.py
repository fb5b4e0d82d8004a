# SPDX-License-Identifier: Apache-2.0
"""How long appends took, in the buckets tools show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import MS_NS
from aerobee.store import put_times
from aerobee.store.put_times import PutTimes

if TYPE_CHECKING:
    from collections.abc import Callable

# milliseconds -> RocketMQ's bucket, at the edges of each
EDGES = {
    0: "[<=0ms]", 1: "[0~10ms]", 9: "[0~10ms]", 10: "[10~50ms]", 49: "[10~50ms]", 50: "[50~100ms]",
    100: "[100~200ms]", 200: "[200~500ms]", 499: "[200~500ms]", 500: "[500ms~1s]", 1_000: "[1~2s]", 2_000: "[2~3s]",
    3_999: "[3~4s]", 4_000: "[4~5s]", 5_000: "[5~10s]", 9_999: "[5~10s]", 10_000: "[10s~]", 99_999: "[10s~]",
}  # fmt: skip


@pytest.mark.parametrize(("took_ms", "bucket"), EDGES.items())
def test_each_time_is_in_its_bucket_of_thirteen(took_ms: int, bucket: str) -> None:
    times = PutTimes(0)
    times.add(took_ms * 1_000_000)
    shown = times.distribution()
    assert len(shown) == 13
    assert {name: count for name, count in shown.items() if count} == {bucket: 1}
    assert times.longest_ms == took_ms


def test_percentiles_say_how_long_the_slow_ones_took() -> None:
    times = PutTimes(0)
    assert times.percentile_ms(0.99) == 0.0
    for _ in range(980):
        times.add(9_000)
    for _ in range(15):
        times.add(30 * MS_NS)
    for _ in range(5):
        times.add(700 * MS_NS)
    assert times.percentile_ms(0.5) < 0.02
    assert 28 <= times.percentile_ms(0.99) <= 32
    assert 700 <= times.percentile_ms(0.999) <= 800
    assert times.longest_ms == 700


def test_of_the_very_slow_no_more_is_said_than_was_seen() -> None:
    times = PutTimes(0)
    times.add(12_000 * MS_NS)
    assert times.percentile_ms(1.0) == 12_000


def test_the_last_whole_minute_is_shown_and_the_maximum_stays() -> None:
    times = PutTimes(0)
    times.add(20 * MS_NS)
    assert times.distribution()["[10~50ms]"] == 1  # the first minute is shown as it grows
    times.tick(59_999)
    assert times.distribution()["[10~50ms]"] == 1
    times.tick(60_000)
    times.add(5 * MS_NS)
    assert times.distribution()["[10~50ms]"] == 1
    assert times.distribution()["[0~10ms]"] == 0
    times.tick(120_000)
    assert times.distribution()["[10~50ms]"] == 0
    assert times.distribution()["[0~10ms]"] == 1
    assert times.longest_ms == 20


def test_a_timed_function_is_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 3_000, 10 * MS_NS, 17 * MS_NS])
    monkeypatch.setattr(put_times, "perf_counter_ns", lambda: next(clock))
    times = PutTimes(0)

    def append(what: Any) -> str:
        if what is None:
            raise ValueError("refused")
        return f"stored {what}"

    timed: Callable[[Any], str] = times.timed(append)
    assert timed(1) == "stored 1"
    with pytest.raises(ValueError, match="refused"):
        timed(None)
    assert [timed(number) for number in range(2, 10)] == [f"stored {number}" for number in range(2, 10)]
    counts = times.distribution()
    # The first, and the ninth with the seven before it.
    assert (counts["[<=0ms]"], counts["[0~10ms]"], sum(counts.values())) == (1, 8, 9)
    assert (times.longest_ms, times.failed) == (7, 1)


@pytest.mark.parametrize("stored", [1, 2, 7, 8, 9, 10, 24, 25])
def test_every_append_is_counted_once_whenever_somebody_looks(stored: int) -> None:
    times = PutTimes(0)
    timed = times.timed(lambda what: what)
    for number in range(stored):
        timed(number)
        assert sum(times.distribution().values()) == number + 1
    times.tick(60_000)
    timed(stored)
    assert sum(times.distribution().values()) == stored
    times.tick(120_000)
    assert sum(times.distribution().values()) == 1


@pytest.mark.parametrize("stored", [1, 3, 8, 12])
def test_appends_are_of_the_minute_they_were_made_in_though_nobody_looked(stored: int) -> None:
    times = PutTimes(0)
    timed = times.timed(lambda what: what)
    for number in range(stored):
        timed(number)
    times.tick(60_000)
    assert sum(times.distribution().values()) == stored
    times.tick(120_000)
    assert sum(times.distribution().values()) == 0
