# SPDX-License-Identifier: Apache-2.0
"""Writes small tables that change all the time, such as the groups' offsets, to their files.

The text is made on the loop, where the table cannot change meanwhile; writing and syncing it happens in a thread.
These tables say what was done with messages (delayed ones delivered, expired ones given back), so the log that has the
result is synced first: a power cut must not leave the word without the deed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from aerobee.broker.background.runner import Interval, milliseconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Flushable(Protocol):
    def unsaved(self) -> bytes | None:
        """The text to write, None when nothing changed since the last time."""
        ...

    def write(self, text: bytes) -> None:
        """Write it; called in a thread."""
        ...


def flush_every(
    interval: Interval, table: Flushable, log_on_disk: Callable[[], Awaitable[None]]
) -> Callable[[int], Awaitable[int]]:
    async def tick(now: int) -> int:
        text = table.unsaved()
        if text is not None:
            await log_on_disk()
            await asyncio.to_thread(table.write, text)
        return milliseconds(interval)

    return tick
