# SPDX-License-Identifier: Apache-2.0
"""The only place that reads a clock. Times are int milliseconds since the epoch.

Theory of operation. There are two times, equal until somebody sets the machine's clock.

- `now` is the time of this run: the machine's time when the clock was made, plus what has passed since by the
  monotonic clock. It never jumps. Everything that waits is measured by it: leases, delays, holds, expiries, intervals.
- `wall` is what the machine's clock says. It is written on messages and into files, told to peers, and compared with
  what was: a delivery time asked for, an age, a retention time.

`ahead` is wall - now. It changes in steps: the machine's clock is looked at every half second, and when it was set the
new difference holds from that moment for everybody, and whoever keeps wall times in memory is told by `on_jump`.
What one run writes as wall time the next one reads as such.

Parts of the broker are told `now`; drivers ask a `Clock`. `ManualClock` lets a test, ours or a user's,
move time by hand: timers fire in order of their due time while it moves.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("aerobee.clock")

T = TypeVar("T")

MS_NS = 1_000_000  # of `perf_counter_ns`
LOOK_MS = 500
_LAZY_LOOK_MS = 2_000  # where nobody looks regularly, `wall` does
_TOLERATED_MS = 50  # the two clocks of a machine drift apart a little
_WORTH_A_LINE_MS = 1_000
_UNDISTURBED_NS = 5_000_000  # readings further apart than this say nothing


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    @property
    def ahead(self) -> int:
        """wall - now: 0 until somebody sets the machine's clock."""
        ...

    @property
    def on_jump(self) -> list[Callable[[int], None]]:
        """Called with the milliseconds by which the wall clock was just set on (or back)."""
        ...

    def now(self) -> int:
        """The time of this run in milliseconds: it only ever goes on, at an even pace."""
        ...

    def wall(self) -> int:
        """What the machine's clock says, in milliseconds."""
        ...

    def look(self) -> None:
        """Notice it if the machine's clock was set."""
        ...

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the loop once `now() >= when`."""
        ...

    def release_at(self, when: int, callback: Callable[[], object]) -> Timer:
        """As `call_at`, for a peer that waits at the other end: it lives in the machine's time, also where this clock
        stands still, and gives up when that has gone by."""
        ...

    async def sleep(self, delay_ms: int) -> None: ...


class SystemClock:
    """The machine's clocks; others can be given in their place."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._base_ns = wall_ns() - steady_ns()
        self._next_look = self.now() + _LAZY_LOOK_MS
        self.ahead = 0
        self.on_jump: list[Callable[[int], None]] = []

    def now(self) -> int:
        return (self._steady_ns() + self._base_ns) // 1_000_000

    def wall(self) -> int:
        now = (self._steady_ns() + self._base_ns) // 1_000_000
        if now >= self._next_look:
            self.look()
        return now + self.ahead

    def look(self) -> None:
        began = self._steady_ns()
        wall_ns, now = self._wall_ns(), self.now()
        self._next_look = now + _LAZY_LOOK_MS
        if self._steady_ns() - began > _UNDISTURBED_NS:
            return
        jump = wall_ns // 1_000_000 - now - self.ahead
        if abs(jump) <= _TOLERATED_MS:
            return
        self.ahead += jump
        if abs(jump) >= _WORTH_A_LINE_MS:
            log.warning(
                "the machine's clock was set jump_ms=%d; what waits goes on waiting as long as it was to",
                jump,
            )
        for tell in list(self.on_jump):
            tell(jump)

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        delay_ms = max(0, when - self.now())
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    def release_at(self, when: int, callback: Callable[[], object]) -> Timer:
        return self.call_at(when, callback)

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
        self.ahead = 0
        self.on_jump: list[Callable[[int], None]] = []
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._sequence = itertools.count()

    def now(self) -> int:
        return self._now

    def wall(self) -> int:
        return self._now + self.ahead

    def look(self) -> None:
        """`set_wall` has told everybody."""

    def call_at(self, when: int, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (max(when, self._now), next(self._sequence), timer))
        return timer

    def release_at(self, when: int, callback: Callable[[], object]) -> Timer:
        """Our own tests are their peers themselves; for others there is `aerobee.testing`'s clock."""
        return self.call_at(when, callback)

    async def sleep(self, delay_ms: int) -> None:
        await told(self, self._now + max(0, delay_ms), asyncio.get_running_loop().create_future(), None)

    def advance(
        self, ms: int = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Move time on. Timers due on the way fire in order, each at its own time; coroutines that slept
        run at the loop's next turns and then see the new time."""
        target = self._now + ms + round(seconds * 1000 + minutes * 60_000 + (hours + 24 * days) * 3_600_000)
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled:
                timer.callback()
        self._now = target

    def jump(self, to: int) -> None:
        """Be at another time at once: nothing fires on the way."""
        self._now = to

    def set_wall(self, to: int) -> None:
        """The machine's clock is set by an operator; no time passes."""
        jump, self.ahead = to - self.wall(), to - self._now
        for tell in list(self.on_jump):
            tell(jump)


def tell(waiter: asyncio.Future[T], what: T) -> None:
    """End a wait; one that has ended already is left as it is."""
    if not waiter.done():
        waiter.set_result(what)


async def told(clock: Clock, deadline: int, waiter: asyncio.Future[T], late: T) -> T:
    """What the waiter is told, by `tell` or as its owner likes, before the deadline; else `late`."""
    return await _until(clock.call_at(deadline, lambda: tell(waiter, late)), waiter)


async def held(clock: Clock, deadline: int, waiter: asyncio.Future[T], late: T) -> T:
    """As `told`, on behalf of a peer whose request is held."""
    return await _until(clock.release_at(deadline, lambda: tell(waiter, late)), waiter)


async def _until(timer: Timer, waiter: asyncio.Future[T]) -> T:
    try:
        return await waiter
    finally:
        timer.cancel()


class Alarm:
    """A wait that ends after a time or when someone rings, whichever comes first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Ends the wait under way, or the next one at once."""
        self._rung = True
        if self._waiter is not None:
            tell(self._waiter, None)

    def clear(self) -> None:
        """What rang so far is heard."""
        self._rung = False

    async def wait(self, ms: int) -> bool:
        """True when it was rung."""
        if not self._rung:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await told(self._clock, self._clock.now() + ms, self._waiter, None)
            finally:
                self._waiter = None
        rung, self._rung = self._rung, False
        return rung


# A stopwatch for figures in logs and benchmarks; never for deciding anything. The function itself: it is called twice
# for every message stored.
perf_counter_ns = time.perf_counter_ns
