# SPDX-License-Identifier: Apache-2.0
"""Waiting for what sockets and threads do. Nothing else in a test sleeps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import ManualClock


async def until(holds: Callable[[], object]) -> None:
    """No guessing how long a socket takes. A condition that never holds fails after half a minute."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - any condition, no event to wait for
            await asyncio.sleep(0.001)


async def until_asleep(clock: ManualClock, ms: int) -> None:
    """Somebody sleeps who wakes in so many milliseconds: time that moves before he lies down is lost on him."""
    await until(
        lambda: any(when == clock.now() + ms and not timer.cancelled for when, _, timer in clock._timers)
    )
