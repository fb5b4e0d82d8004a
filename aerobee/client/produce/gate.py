# SPDX-License-Identifier: Apache-2.0
"""Bounds what is under way: a count and a number of bytes. Whoever comes when it is full waits, in order."""

from __future__ import annotations

import asyncio
from collections import deque


class Gate:
    """`enter` before, `leave` after. The first one always enters, however big."""

    __slots__ = ("_emptied", "_max_bytes", "_max_count", "_waiting", "bytes", "count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._emptied: asyncio.Future[None] | None = None
        self.count = 0
        self.bytes = 0

    def try_enter(self, size: int) -> bool:
        if self._waiting or not self._has_room(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def enter(self, size: int) -> None:
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # it was our turn already
            raise

    def leave(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        if not self.count and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        while self._waiting:
            turn, wanted = self._waiting[0]
            if not turn.done():
                if not self._has_room(wanted):
                    return
                self.count += 1
                self.bytes += wanted
                turn.set_result(None)
            self._waiting.popleft()

    async def empty(self, wait_ms: int) -> bool:
        """Wait, so long at most, until nothing is under way."""
        if self.count:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=wait_ms / 1000)
        return not self.count

    def _has_room(self, size: int) -> bool:
        return not self.count or (self.count < self._max_count and self.bytes + size <= self._max_bytes)
