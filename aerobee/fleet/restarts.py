# SPDX-License-Identifier: Apache-2.0
"""When a process that ended is started again: at once at first, then ever later, while it does not last."""

from __future__ import annotations

FIRST_MS = 200
LONGEST_MS = 30_000
STEADY_MS = 60_000  # who has run this long is started at once again


class Restarts:
    """Of one process. Told the time."""

    def __init__(self, now: int) -> None:
        self._started_at = now
        self._wait_ms = FIRST_MS

    def started(self, now: int) -> None:
        self._started_at = now

    def ended(self, now: int) -> int:
        """How long to wait before it is started again."""
        if now - self._started_at >= STEADY_MS:
            self._wait_ms = FIRST_MS
        wait = self._wait_ms
        self._wait_ms = min(2 * wait, LONGEST_MS)
        return wait
