# SPDX-License-Identifier: Apache-2.0
"""Batch filters that make the plan smaller: topic, queue, offset and time ranges, tags.

Ranges are narrowed, and every filter is still handed back to Spark except the ones the narrowing answers exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.spark.reading.plan import Place

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql.datasource import Filter

    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Range
    from aerobee.spark.reading.queue_source import QueueSource


class Narrow:
    """What the accepted filters leave over."""

    def __init__(self) -> None:
        self.topics: set[str] | None = None
        self.queues: set[int] | None = None
        self.low: int | None = None
        self.high: int | None = None  # exclusive
        self.since: int | None = None
        self.until: int | None = None  # exclusive, milliseconds
        self.tags = ""

    def keeps_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def take(self, filters: list[Filter], options: Read) -> list[Filter]:
        """Note what each filter allows; return those that Spark must still evaluate."""
        return [one for one in filters if not self._take(one, options)]

    def _take(self, one: Filter, options: Read) -> bool:
        column = ".".join(getattr(one, "attribute", ()))
        values = _values(one)
        if column == "topic" and values is not None:
            self.topics = _both(self.topics, {str(v) for v in values})
            return True
        if column == "queueId" and values is not None:
            self.queues = _both(self.queues, {int(v) for v in values})
            return True
        if column == "queueOffset":
            return self._take_offset(one)
        if column == "storeTimestamp":
            self._take_time(one)
            return False  # store times are not strictly ascending: Spark looks at each row
        if (
            column == "tags"
            and values is not None
            and options.tags == "*"
            and not options.sql
            and not self.tags
        ):
            self.tags = "||".join(str(v) for v in values if v)
            return False
        return False

    def _take_offset(self, one: Filter) -> bool:
        low, high = _interval(one, 1)
        if low is None and high is None:
            return False
        if low is not None:
            self.low = max(low, self.low or 0)
        if high is not None:
            self.high = high if self.high is None else min(high, self.high)
        return True

    def _take_time(self, one: Filter) -> None:
        value = getattr(one, "value", None)
        if value is None or not hasattr(value, "timestamp"):
            return
        moment = _millis(value)
        if isinstance(one, (GreaterThan, GreaterThanOrEqual, EqualTo)):
            self.since = max(self.since or 0, moment - 1000)
        if isinstance(one, (LessThan, LessThanOrEqual, EqualTo)):
            self.until = min(self.until or 1 << 62, moment + 1001)

    def ranges(self, parts: list[Range], source: QueueSource) -> list[Range]:
        since = self._times(parts, self.since, source)
        until = self._times(parts, self.until, source)
        kept = []
        for part in parts:
            if self.queues is not None and part.queue not in self.queues:
                continue
            low = max(part.start, self.low or 0, since.get(part, 0))
            high = min(part.end, part.end if self.high is None else self.high, until.get(part, part.end))
            if low < high:
                kept.append(msgspec.structs.replace(part, start=low, end=high))
        return kept

    @staticmethod
    def _times(parts: list[Range], moment: int | None, source: QueueSource) -> dict[Range, int]:
        """The offset of that moment in each range; delayed messages are not in the order of time."""
        asked = [] if moment is None else [part for part in parts if part.topic != SCHEDULE_TOPIC]
        places = [Place(part.topic, part.broker, part.queue) for part in asked]
        return dict(zip(asked, source.offsets_at(places, [moment or 0] * len(places)), strict=True))


def _values(one: Filter) -> tuple[Any, ...] | None:
    if isinstance(one, EqualTo):
        return (one.value,)
    return tuple(one.value) if isinstance(one, In) else None


def _both(old: set[Any] | None, new: set[Any]) -> set[Any]:
    return new if old is None else old & new


def _interval(one: Filter, step: int) -> tuple[int | None, int | None]:
    """[low, high) that a comparison of whole numbers allows; (None, None) when it is none."""
    value = getattr(one, "value", None)
    if not isinstance(value, int):
        return None, None
    table: dict[type, tuple[int | None, int | None]] = {
        EqualTo: (value, value + step),
        GreaterThan: (value + step, None),
        GreaterThanOrEqual: (value, None),
        LessThan: (None, value),
        LessThanOrEqual: (None, value + step),
    }
    return table.get(type(one), (None, None))


def _millis(value: datetime) -> int:
    return int(value.timestamp() * 1000)
