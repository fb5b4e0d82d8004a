# SPDX-License-Identifier: Apache-2.0
"""Between the fetching of a pull consumer and its `poll`: batches in the order they came. Pure but for the waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.client.consume.membership import OwnedQueue
    from aerobee.client.message import ReceivedMessage


class PollBuffer:
    def __init__(self) -> None:
        self._batches: deque[tuple[OwnedQueue, list[ReceivedMessage]]] = deque()
        self._filled = asyncio.Event()
        self.count = 0

    def put(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        self._batches.append((owned, messages))
        self.count += len(messages)
        self._filled.set()

    def wake(self) -> None:
        """Whoever waits has something to look at, though there is nothing to take."""
        self._filled.set()

    def take(self, limit: int) -> list[tuple[OwnedQueue, list[ReceivedMessage]]]:
        """Up to `limit` messages by queue; those of queues dropped meanwhile are left out."""
        taken: list[tuple[OwnedQueue, list[ReceivedMessage]]] = []
        while self._batches and limit > 0:
            owned, messages = self._batches.popleft()
            part, rest = messages[:limit], messages[limit:]
            if rest:
                self._batches.appendleft((owned, rest))
            self.count -= len(part)
            if not owned.inbox.dropped:
                taken.append((owned, part))
                limit -= len(part)
        if not self._batches:
            self._filled.clear()
        return taken

    def forget(self, owned: OwnedQueue) -> None:
        """Fetched messages of the queue are not wanted any more."""
        self._batches = deque((other, batch) for other, batch in self._batches if other is not owned)
        self.count = sum(len(batch) for _, batch in self._batches)
        if not self._batches:
            self._filled.clear()

    async def wait(self, timeout_ms: int) -> bool:
        """True when there is something to take, or to look at."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True
