# SPDX-License-Identifier: Apache-2.0
"""One timer for thousands of requests that all wait equally long, instead of one each."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aerobee.errors import RequestTimeout

if TYPE_CHECKING:
    from aerobee.clock import Clock, Timer
    from aerobee.net.connection import Waiting

TICK_MS = 100


class Deadlines:
    """Futures in the order of their deadlines, which holds when every wait has the same length."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, Waiting]] = deque()
        self._timer: Timer | None = None

    def watch(self, call: Waiting, deadline: int) -> None:
        waiting = self._waiting
        # Else the garbage collector would meet all that were answered since the last tick.
        while waiting and waiting[0][1].done():
            waiting.popleft()
        waiting.append((deadline, call))
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now() + TICK_MS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.expire(self._clock.now())
        if self._waiting:
            self._timer = self._clock.call_at(self._clock.now() + TICK_MS, self._tick)

    def expire(self, now: int) -> None:
        waiting = self._waiting
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now):
            expire(waiting.popleft()[1])

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def expire(call: Waiting) -> None:
    fail(call, RequestTimeout("no answer in time"))


def fail(call: Waiting, error: BaseException) -> None:
    """Tell whoever waits, if he still does."""
    if not call.done():
        call.set_exception(error)
        call.exception()  # its waiter may be gone: no "never retrieved" warning
