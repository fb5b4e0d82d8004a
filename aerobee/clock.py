# SPDX-License-Identifier: Apache-2.0
"""The only place that reads a clock. Times are int milliseconds since the epoch.

Parts of the broker are told `now`; drivers ask a `Clock`. `ManualClock` lets a test, ours or a user's,
move time by hand: timers fire in order of their due time while it moves.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> int:
        """Wall time in milliseconds."""
        ...

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the loop once `now() >= when`."""
        ...

    async def sleep(self, delay_ms: int) -> None: ...


class SystemClock:
    """The machine's clock. Waiting is by the loop's monotonic time, so a jump of the wall clock
    neither fires a timer early nor loses it."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        delay_ms = max(0, when - self.now())
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    async def sleep(self, delay_ms: int) -> None:
        await asyncio.sleep(max(0, delay_ms) / 1000)


class _ManualTimer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._sequence = itertools.count()

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (max(when, self._now), next(self._sequence), timer))
        return timer

    async def sleep(self, delay_ms: int) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_at(self._now + max(0, delay_ms), wake)
        try:
            await woken
        finally:
            timer.cancel()

    def advance(self, ms: int = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        """Move time on. Timers due on the way fire in order, each at its own time; coroutines that slept
        run at the loop's next turns and then see the new time."""
        target = self._now + ms + round(seconds * 1000 + minutes * 60_000 + hours * 3_600_000)
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled:
                timer.callback()
        self._now = target

    def jump(self, to: int) -> None:
        """Set the wall time without firing anything: a clock corrected by an operator."""
        self._now = to


def perf_counter_ns() -> int:
    """A stopwatch for figures in logs and benchmarks; never for deciding anything."""
    return time.perf_counter_ns()
