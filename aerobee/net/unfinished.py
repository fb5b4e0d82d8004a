# SPDX-License-Identifier: Apache-2.0
"""Frames that are not whole yet, over all connections of a process: a bound on what strangers make it keep."""

from __future__ import annotations

import logging
from typing import Protocol

log = logging.getLogger("aerobee.net")


class Sender(Protocol):
    """Who sends a frame: a connection."""

    remote_text: str

    def abort(self) -> None: ...


class Unfinished:
    """Past `max_bytes` in all, the oldest incomplete frames are cut off first, their connections with them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[Sender, int] = {}  # in the order in which the frames began
        self.total = 0

    def hold(self, sender: Sender, pending_bytes: int) -> None:
        """The sender's frame has grown to this, or a first part of it has come."""
        self.total += pending_bytes - self._held.get(sender, 0)
        self._held[sender] = pending_bytes
        while self.total > self._max_bytes:
            self._cut_off_oldest()

    def release(self, sender: Sender) -> None:
        """The frame is whole, or its sender is gone."""
        self.total -= self._held.pop(sender, 0)

    def _cut_off_oldest(self) -> None:
        oldest = next(iter(self._held))
        log.warning(
            "cutting off peer=%s: its unfinished frame of %d bytes is the oldest, max_unfinished_bytes=%d reached",
            oldest.remote_text,
            self._held[oldest],
            self._max_bytes,
        )
        self.release(oldest)
        oldest.abort()
