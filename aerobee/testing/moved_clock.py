# SPDX-License-Identifier: Apache-2.0
"""The clock of a server under test: it stands still until the test moves it.

A client in such a test is given it too: `PushConsumer(server.namesrv, ..., clock=server.clock)`. Its waits end when
the clock is moved past them, or by themselves when that much real time has gone by, so that nothing a client does
between two steps (looking for its queues, trying again) has to be stepped through. Without it a client still works,
for what is retried, delayed or invisible is timed by the broker; but its own times stay the machine's (a handler that
hangs: `consume_timeout_ms`), and a POP request from a client behind the server looks overdue to it and gets no message.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from aerobee.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.clock import Clock, Timer

_SETTLE_TURNS = 50


class _Wait:
    """A callback that runs once on its loop: when real time, or the moved clock, has come so far."""

    def __init__(self, clock: TestClock, when: int, callback: Callable[[], object]) -> None:
        self.when = when
        self._clock = clock
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(max(0, when - clock.now()) / 1000, self._fire)

    def _fire(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        self._handle.cancel()
        self._clock.forget(self)

    def hurry(self) -> None:
        """From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hurried)

    def _hurried(self) -> None:
        if not self._handle.cancelled():
            self._fire()


class _Either:
    """Two timers of one callback: it runs when the first of them is due."""

    __slots__ = ("_callback", "_timers")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._timers: tuple[Timer, ...] = ()

    def begin(self, *timers: Timer) -> None:
        self._timers = timers

    def due(self) -> None:
        self.cancel()
        self._callback()

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()


class StandingClock(ManualClock):
    """The server's own. Nothing fires but by moving it, with one exception: a request that is held goes back after its
    wait in real time, too, for whoever sent it gives up by then."""

    def release_at(self, when: int, callback: Callable[[], object]) -> Timer:
        first = _Either(callback)
        left_s = max(0, when - self.now()) / 1000
        first.begin(self.call_at(when, first.due), asyncio.get_running_loop().call_later(left_s, first.due))
        return first


class TestClock:
    """`advance` moves the server's time from the test, and lets what it woke run before it returns."""

    __test__ = False

    def __init__(self, clock: Clock, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._clock = clock
        self._run = run
        self._waits: set[_Wait] = set()
        self._lock = threading.Lock()  # tests, clients and the server each have a thread of their own

    def now(self) -> int:
        return self._clock.now()

    def wall(self) -> int:
        return self._clock.wall()

    def look(self) -> None:
        self._clock.look()

    @property
    def ahead(self) -> int:
        return self._clock.ahead

    @property
    def on_jump(self) -> list[Callable[[int], None]]:
        return self._clock.on_jump

    def advance(
        self, ms: int = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        """Move time on: timers due on the way fire in order, and what they woke runs."""
        total = ms + round(seconds * 1000 + minutes * 60_000 + (hours + 24 * days) * 3_600_000)
        if total < 0:
            raise ValueError(f"time moves on, not back: {total} ms")
        if not isinstance(self._clock, ManualClock):
            raise RuntimeError("this server lives in real time; TestServer.with_manual_clock() can be moved")
        self._run(self._move(self._clock, total))
        with self._lock:
            due = [wait for wait in self._waits if wait.when <= self.now()]
        for wait in sorted(due, key=lambda each: each.when):
            wait.hurry()

    async def _move(self, clock: ManualClock, ms: int) -> None:
        clock.advance(ms)
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)

    # -- as a client's clock -------------------------------------------------------------------------------

    def call_at(self, when: int, callback: Callable[[], object]) -> _Wait:
        wait = _Wait(self, when, callback)
        with self._lock:
            self._waits.add(wait)
        return wait

    release_at = call_at

    def forget(self, wait: _Wait) -> None:
        with self._lock:
            self._waits.discard(wait)

    async def sleep(self, delay_ms: int) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        wait = self.call_at(self.now() + max(0, delay_ms), wake)
        try:
            await woken
        finally:
            wait.cancel()
