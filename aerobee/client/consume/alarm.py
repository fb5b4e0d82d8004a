# SPDX-License-Identifier: Apache-2.0
"""A wait that ends after a time or when someone rings, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.clock import Clock


class Alarm:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Ends the wait under way, or the next one at once."""
        self._rung = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, ms: int) -> bool:
        """True when it was rung."""
        if not self._rung:
            self._waiter = asyncio.get_running_loop().create_future()
            timer = self._clock.call_at(self._clock.now() + ms, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        rung, self._rung = self._rung, False
        return rung
