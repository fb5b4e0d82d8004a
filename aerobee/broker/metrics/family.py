# SPDX-License-Identifier: Apache-2.0
"""What a metric is, whoever it is told to: a family has a name, a kind and points; a point has labels and a value."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.store.histogram import Histogram

Labels = tuple[tuple[str, str], ...]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """`name` is what Prometheus shows, with the unit in it where RocketMQ's exporter puts one."""

    name: str
    kind: Kind
    help: str
    unit: str = ""


class Distribution(NamedTuple):
    """A histogram's value: how many lay at or below each end and above the one before, and beyond the last."""

    ends: Sequence[float]
    counts: Sequence[int]
    sum: float

    @classmethod
    def of(cls, histogram: Histogram, unit: float = 1) -> Distribution:
        """`unit` is so much of what was counted in."""
        ends = histogram.ends if unit == 1 else tuple(end / unit for end in histogram.ends)
        return cls(ends, tuple(histogram.counts), histogram.sum / unit)

    @property
    def total(self) -> int:
        return sum(self.counts)


Value = int | float | Distribution


class Scrape:
    """Families in the order they were first met, each with its points."""

    def __init__(self) -> None:
        self._points: dict[Family, list[tuple[Labels, Value]]] = {}

    def add(self, family: Family, value: Value, labels: Labels = ()) -> None:
        points = self._points.get(family)
        if points is None:
            points = self._points[family] = []
        points.append((labels, value))

    def __iter__(self) -> Iterator[tuple[Family, list[tuple[Labels, Value]]]]:
        return iter(self._points.items())


def counter(name: str, text: str, unit: str = "") -> Family:
    return Family(name, Kind.COUNTER, text, unit)


def gauge(name: str, text: str, unit: str = "") -> Family:
    return Family(name, Kind.GAUGE, text, unit)


def histogram(name: str, text: str, unit: str = "") -> Family:
    return Family(name, Kind.HISTOGRAM, text, unit)
