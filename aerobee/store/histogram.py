# SPDX-License-Identifier: Apache-2.0
"""How values are distributed, as metrics show it."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """How many lay at or below each of some ends, and the sum of all."""

    __slots__ = ("counts", "ends", "sum")

    def __init__(self, ends: tuple[int, ...]) -> None:
        self.ends = ends
        self.counts = [0] * (len(ends) + 1)
        self.sum: float = 0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.ends, value)] += times
        self.sum += value * times
