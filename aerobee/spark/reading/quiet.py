# SPDX-License-Identifier: Apache-2.0
"""A stream without anything new leaves the processor to others: its looks wait, the longer the more they cost."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.spark.reading.plan import Bounds

IDLE_MS = 1_000  # without anything new; from then on
PAUSE_MS = 25  # a look waits at least so long for the next,
PAUSE_SHARE = 19  # and so many times as long as it took,
MOST_PAUSE_MS = 1_000  # but no longer than this
LOOKS = 16


class Quiet:
    """Nothing is new: for which place and bounds that was found, and since when."""

    def __init__(self) -> None:
        self._at: tuple[dict[str, Any], Bounds] | None = None
        self._since: int | None = None
        # How long the last looks took: the shortest of them, for others wait for the processor too.
        self.looks_ms: deque[int] = deque([0], maxlen=LOOKS)

    def note(self, start: dict[str, Any], bounds: Bounds, now: int) -> None:
        self._at = start, bounds
        self._since = now if self._since is None else self._since

    def is_so(self, start: dict[str, Any], bounds: Bounds) -> bool:
        return self._at is not None and self._at[1] is bounds and self._at[0] == start

    def end(self) -> None:
        self._at = self._since = None

    def pause_ms(self, now: int) -> int:
        if self._since is None or not is_past(self._since, IDLE_MS, now):
            return 0
        return min(max(PAUSE_MS, min(self.looks_ms) * PAUSE_SHARE), MOST_PAUSE_MS)


def is_past(since: int, interval_ms: int, now: int) -> bool:
    """Has the interval gone by? A clock that was set back says yes: too early once is better than late by the jump."""
    return not 0 <= now - since < interval_ms
