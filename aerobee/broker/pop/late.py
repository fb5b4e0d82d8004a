# SPDX-License-Identifier: Apache-2.0
"""Pops that come when their time is long over by their client's clock. They get no message, as RocketMQ has it, and the
client cannot tell that from an empty topic: so it is said here."""

from __future__ import annotations

import logging

log = logging.getLogger("aerobee.pop")

LATE_MS = 3_000  # less is the way, and a busy broker
TOLD_EVERY_MS = 60_000


class LatePops:
    """Told the time. A line a minute for all of them: one is enough to find the others."""

    def __init__(self) -> None:
        self._told_at: int | None = None

    def met(self, group: str, topic: str, late_ms: int, now: int) -> None:
        if late_ms < LATE_MS or (self._told_at is not None and 0 <= now - self._told_at < TOLD_EVERY_MS):
            return
        self._told_at = now
        log.warning(
            "group=%s topic=%s: a pop whose time was over s=%.1f ago by its client's clock gets no message; set that "
            "clock right; in a test that moves the server's, give it to the consumer: clock=server.clock",
            group,
            topic,
            late_ms / 1000,
        )
