# SPDX-License-Identifier: Apache-2.0
"""Queues that are a table in memory, and a stream that reads them; time is the test's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from aerobee import ManualClock
from aerobee.spark import options
from aerobee.spark.reading.plan import Look
from aerobee.spark.reading.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.errors import AerobeeError
    from aerobee.spark.reading import plan
    from aerobee.spark.reading.plan import Place, Range

ALL = ReadAllAvailable()


class Source:
    """Queues by name, as a cluster would tell them; counts looks."""

    def __init__(self, **queues: tuple[int, int]) -> None:
        self.bounds: plan.Bounds = {}
        self.failed: dict[str, AerobeeError] = {}
        self.away: dict[str, AerobeeError] = {}
        self.known = ["t"]
        self.unreached: AerobeeError | None = None
        self.looked: list[tuple[list[str], frozenset[tuple[str, str]]]] = []
        self.forgot = 0
        self.told: list[tuple[Place, int]] = []
        self.put(**queues)

    def put(self, **queues: tuple[int, int]) -> None:
        self.bounds = {"t": {"b": {name[1:]: at for name, at in queues.items()}}}

    def topics(self) -> list[str]:
        if self.unreached:
            raise self.unreached
        return self.known

    def existing(self, topics: Sequence[str]) -> list[str]:
        return [topic for topic in topics if topic in self.topics()]

    def look(self, topics: Iterable[str], carried: frozenset[tuple[str, str]] = frozenset()) -> Look:
        self.looked.append((sorted(topics), carried))
        return Look(self.bounds, self.failed, self.away, frozenset({"b"}))

    def forget_routes(self) -> None:
        self.forgot += 1

    def offsets_at(self, places: list[Place], timestamps: list[int]) -> list[int]:
        return timestamps

    def address(self, broker: str) -> str:
        return f"{broker}:1"

    def commit_each(self, offsets: list[tuple[Place, int]]) -> dict[Place, AerobeeError]:
        self.told += offsets
        return {}


class BySize:
    """All messages are of 100 bytes."""

    def total(self, parts: list[Range]) -> float:
        return 100.0 * sum(map(len, parts))


class Stream:
    def __init__(self, source: Source, **given: str) -> None:
        where = {} if "storePath" in given else {"namesrv": "h:1"}
        told = {**where, "subscribe": "t", "startingOffsets": "earliest", **given}
        self.reader: Any = StreamReader(options.for_stream(told))
        self.source, self.clock = source, ManualClock()
        self.reader._source_now, self.reader._clock, self.reader._sizes = source, self.clock, BySize()
        self.reader._sleep = lambda _: None
        self.at = json.loads(json.dumps(self.reader.initialOffset()))

    def reaches(self, limit: Any = ALL) -> list[int] | None:
        """Where a batch would end in each queue; None where there is none."""
        end = self.reader.latestOffset(self.at, limit)
        return None if end == self.at else list(end["o"]["t"]["b"].values())

    def go(self, limit: Any = ALL) -> list[int] | None:
        end = json.loads(json.dumps(self.reader.latestOffset(self.at, limit)))
        moved, self.at = end != self.at, end
        return list(end["o"]["t"]["b"].values()) if moved else None
