# SPDX-License-Identifier: Apache-2.0
"""How long it takes to store a message: counts of one minute, in the buckets RocketMQ's tools show.

Nearly every append takes microseconds, so those below a millisecond are only counted, by their number of binary
digits in nanoseconds; the rare slow ones are looked at more closely. A minute's counts are shown when it is over.

Two looks at the clock are a good part of what an append costs, so of those that come one by one each eighth is timed and
stands for the seven before it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aerobee.clock import MS_NS, perf_counter_ns

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
R = TypeVar("R")

MINUTE_MS = 60_000
_QUICK = MS_NS.bit_length() + 1
_UNTIMED = 7  # appends between two that are timed
# Each slow bucket ends where these milliseconds begin; the last has no end.
_ENDS = [
    *range(2, 21),
    *range(22, 51, 2),
    *range(55, 101, 5),
    *range(110, 201, 10),
    *range(250, 501, 50),
    *range(600, 1001, 100),
    *range(2_000, 10_001, 1_000),
]
# RocketMQ's names of what lies below each of these milliseconds, and of the rest.
_SHOWN = {
    "[<=0ms]": 1,
    "[0~10ms]": 10,
    "[10~50ms]": 50,
    "[50~100ms]": 100,
    "[100~200ms]": 200,
    "[200~500ms]": 500,
    "[500ms~1s]": 1_000,
    "[1~2s]": 2_000,
    "[2~3s]": 3_000,
    "[3~4s]": 4_000,
    "[4~5s]": 5_000,
    "[5~10s]": 10_000,
    "[10s~]": None,
}


class _Minute(NamedTuple):
    quick: list[int]
    slow: list[int]


class PutTimes:
    def __init__(self, now: int) -> None:
        self.failed = 0
        self.longest_ms = 0
        self._running = _Minute([0] * _QUICK, [0] * (len(_ENDS) + 1))
        self._shown = self._running
        self._turns_at = now + MINUTE_MS
        self._to_skip = 0  # appends until the next that is timed
        self._uncounted = 0  # of those between two timed ones
        self._last_ns = 0  # that the last timed one took

    def timed(self, append: Callable[[T], R]) -> Callable[[T], R]:
        """The same function with a stopwatch. This is the busiest call of the broker: one frame and little else."""
        clock = perf_counter_ns

        def run(what: T) -> R:
            try:
                if self._to_skip:
                    result = append(what)
                    self._to_skip -= 1
                else:
                    began = clock()
                    result = append(what)
                    self._timed(clock() - began)
            except BaseException:
                self.failed += 1
                raise
            return result

        return run

    def _timed(self, took_ns: int) -> None:
        self.add(took_ns, self._uncounted + 1)
        self._to_skip = self._uncounted = _UNTIMED
        self._last_ns = took_ns

    def _settle(self) -> None:
        """Those that no timed one stands for yet were as the last one was, as far as anybody knows."""
        self.add(self._last_ns, self._uncounted - self._to_skip)
        self._uncounted = self._to_skip

    def add(self, took_ns: int, count: int = 1) -> None:
        if took_ns < MS_NS:
            self._running.quick[took_ns.bit_length()] += count
        else:
            self._slow(took_ns // MS_NS, count)

    def _slow(self, took_ms: int, count: int = 1) -> None:
        self._running.slow[bisect_right(_ENDS, took_ms)] += count
        self.longest_ms = max(self.longest_ms, took_ms)

    def tick(self, now: int) -> None:
        if now < self._turns_at:
            return
        self._settle()
        self._turns_at = now + MINUTE_MS
        quick, slow = self._running
        self._shown = _Minute(quick.copy(), slow.copy())
        quick[:], slow[:] = [0] * len(quick), [0] * len(slow)

    # -- figures -----------------------------------------------------------------------------------------

    def distribution(self) -> dict[str, int]:
        """How many of the last minute lay between which times."""
        self._settle()
        quick, slow = self._shown
        below = {end: sum(slow[: bisect_right(_ENDS, end)]) + sum(quick) for end in _ENDS}
        below[1] = sum(quick)
        counts, before = {}, 0
        for name, end in _SHOWN.items():
            until = sum(quick) + sum(slow) if end is None else below[end]
            counts[name], before = until - before, until
        return counts

    def percentile_ms(self, part: float) -> float:
        """Within a bucket the times are taken to lie evenly. Until the first minute is over: of what there is."""
        quick, slow = self._shown
        ends = [
            *((1 << digits) / MS_NS for digits in range(_QUICK - 1)),
            1.0,
            *map(float, _ENDS),
            float("inf"),
        ]
        wanted, passed, low = int((sum(quick) + sum(slow)) * part), 0, 0.0
        for count, end in zip([*quick, *slow], ends, strict=True):
            if count and wanted <= passed + count:
                high = min(end, float(self.longest_ms)) if end == float("inf") else end
                return low + (high - low) * (wanted - passed) / count
            passed, low = passed + count, end
        return 0.0
