# SPDX-License-Identifier: Apache-2.0
"""When journaled checkpoints fall due: 8 bytes each, in buckets of a fifth of a second.

A due time is rounded up to its bucket, so nothing comes early and nothing later than one bucket. A checkpoint
acked before its time stays in its bucket; whoever takes it sees then that nothing of it is open.
"""

from __future__ import annotations

import heapq
from array import array

BUCKET_MS = 200


class DueBuckets:
    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []  # a heap of the buckets' numbers
        self.count = 0

    def add(self, due: int, position: int) -> None:
        number = -(-due // BUCKET_MS)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("q")
            heapq.heappush(self._order, number)
        bucket.append(position)
        self.count += 1

    def take(self, now: int, limit: int) -> list[int]:
        """Up to `limit` positions that are due, earliest bucket first."""
        found: list[int] = []
        while self._order and self._order[0] * BUCKET_MS <= now and len(found) < limit:
            bucket = self._buckets[self._order[0]]
            room = limit - len(found)
            found.extend(bucket[:room])
            del bucket[:room]
            if not bucket:
                del self._buckets[heapq.heappop(self._order)]
        self.count -= len(found)
        return found

    def next_due(self) -> int | None:
        return self._order[0] * BUCKET_MS if self._order else None
