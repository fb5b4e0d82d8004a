# SPDX-License-Identifier: Apache-2.0
"""A fixed number of workers over one list of work: no task per message, no thread hand-over when it is async.

A worker that finds plenty wakes two more, and they two more: where handlers wait, all are soon at work; where they do
not, one does everything before the others have looked."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aerobee.client.session.tasks import Tasks

W = TypeVar("W")

# A handler that never waits would keep the loop from pulling: give it a turn after so many pieces of work.
YIELD_EVERY = 64


WAKES = 2


class Slots(Generic[W]):
    """`work_off` takes work from the list it is given until that is empty."""

    def __init__(
        self, tasks: Tasks, count: int, work_off: Callable[[deque[W]], Awaitable[None]], name: str
    ) -> None:
        self._tasks = tasks
        self._count = count
        self._work_off = work_off
        self._name = name
        self._running = 0
        self.ready: deque[W] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self.busy = 0
        self._closed = False
        self._quiet: asyncio.Future[None] | None = None

    def add(self, work: W) -> None:
        self.add_all((work,))

    def add_all(self, works: Iterable[W]) -> None:
        if self._closed:
            return
        self.ready.extend(works)
        if self.ready:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        if self._running < self._count:
            self._running += 1
            self._tasks.start(self._run(), f"{self._name}-{self._running}")

    async def _run(self) -> None:
        ready = self.ready
        while True:
            while not ready:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(waiter)
                await waiter
            for _ in range(min(WAKES, len(ready) - 1)):
                self._wake_one()
            self.busy += 1
            try:
                await self._work_off(ready)
            finally:
                self.busy -= 1
                if self._quiet is not None and not self.busy and not self._quiet.done():
                    self._quiet.set_result(None)

    def close(self) -> None:
        """Nothing more begins, whoever adds it; what runs goes on to its end."""
        self._closed = True
        self.ready.clear()

    async def drained(self, wait_ms: int) -> bool:
        """Wait, so long at most, until running work has ended; what is only ready is dropped."""
        self.ready.clear()
        if self.busy:
            self._quiet = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._quiet], timeout=wait_ms / 1000)
        return not self.busy


def each(work: Callable[[W], Awaitable[None]]) -> Callable[[deque[W]], Awaitable[None]]:
    """Work that is done piece by piece."""

    async def work_off(ready: deque[W]) -> None:
        done = 0
        while ready:
            await work(ready.popleft())
            done += 1
            if done % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    return work_off
