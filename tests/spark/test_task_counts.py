# SPDX-License-Identifier: Apache-2.0
"""In how many tasks a stream's batch and a query are read, and what each of them is told. No Spark."""

from __future__ import annotations

import os
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, InputPartition

from aerobee.spark import options
from aerobee.spark.reading import batch_reader, plan, tasks, wire_scan
from aerobee.spark.reading.batch_reader import Part, PushdownReader
from aerobee.spark.reading.plan import Range
from tests.spark.memory_queues import ALL, Source, Stream


def sizes_of(parts: list[Any]) -> list[int]:
    return [sum(map(len, each.task.parts)) for each in parts]


@pytest.mark.parametrize(
    ("given", "cores", "tasks_of"),
    [
        ({}, 4, [20_000, 20_000, 20_000]),
        ({}, 2, [30_000, 30_000]),
        ({}, None, [60_000]),
        ({"maxPartitions": "5"}, 2, [20_000, 20_000, 20_000]),
        ({"maxPartitions": "1"}, 4, [60_000]),
        ({"minPartitions": "6"}, 2, [10_000] * 6),
        ({"maxRecordsPerPartition": "15000"}, 2, [15_000] * 4),
    ],
)
def test_a_batch_of_a_stream_is_read_in_tasks_of_twenty_thousand(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], cores: int | None, tasks_of: list[int]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(wire_scan, "cut", lambda *_: None)
    stream = Stream(Source(q0=(0, 60_000)), **given)
    parts = stream.reader.partitions(stream.at, stream.reader.latestOffset(stream.at, ALL))
    assert sizes_of(parts) == tasks_of
    for part in parts:
        assert part.task.addresses == {"b": "b:1"}
        assert part.task.columns == stream.reader._options.columns


def query(source: Source, monkeypatch: pytest.MonkeyPatch, **given: str) -> PushdownReader:
    monkeypatch.setattr(batch_reader, "source_for", lambda _: source)
    monkeypatch.setattr(wire_scan, "cut", lambda *_: None)
    return PushdownReader(options.for_batch({"namesrv": "h:1", "subscribe": "t", **given}), ("body", "tags"))


@pytest.mark.parametrize(
    ("given", "cores", "tasks_of"),
    [
        ({}, 4, [250_000] * 6),
        ({}, 2, [375_000] * 4),
        ({}, 1, [375_000] * 4),
        ({}, None, [375_000] * 4),
        ({"maxPartitions": "3"}, 2, [500_000] * 3),
        ({"minPartitions": "10"}, 2, [150_000] * 10),
        ({"maxRecordsPerPartition": "100000"}, 2, [100_000] * 15),
    ],
)
def test_a_query_is_read_in_two_tasks_a_core_unless_they_would_be_small(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], cores: int | None, tasks_of: list[int]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    parts = query(Source(q0=(0, 1_500_000)), monkeypatch, **given).partitions()
    assert sizes_of(parts) == tasks_of
    assert all(part.task.columns == ("body", "tags") for part in parts)  # type: ignore[attr-defined]
    assert all(part.task.addresses == {"b": "b:1"} for part in parts)  # type: ignore[attr-defined]


def test_a_query_is_planned_between_its_ends_and_by_its_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(q0=(0, 10), q1=(2, 20))
    reader = query(
        source, monkeypatch, startingOffsets='{"t": {"b": {"0": 4}}}', endingOffsets='{"t": {"b": {"1": 8}}}'
    )
    (part,) = reader.partitions()
    assert part.task.parts == [Range("t", "b", 0, 4, 10), Range("t", "b", 1, 2, 8)]  # type: ignore[attr-defined]
    assert part.task.options.tags == "*"  # type: ignore[attr-defined]
    filters = [EqualTo(("queueId",), 1), EqualTo(("tags",), "A")]
    assert list(reader.pushFilters(filters)) == filters[1:]  # type: ignore[arg-type]
    (part,) = reader.partitions()
    assert part.task.parts == [Range("t", "b", 1, 2, 8)]  # type: ignore[attr-defined]
    assert part.task.options.tags == "A", "the broker is asked for them alone"  # type: ignore[attr-defined]
    kept = query(source, monkeypatch, tags="B")
    assert kept.partitions()[0].task.options.tags == "B"  # type: ignore[attr-defined]


def test_topics_that_a_filter_rules_out_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(q0=(0, 10))
    reader = query(source, monkeypatch, subscribe="t,u")
    reader.pushFilters([EqualTo(("topic",), "t")])
    assert len(reader.partitions()) == 1
    assert source.looked == [(["t"], frozenset())]


def test_a_plan_without_rows_is_read_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(q0=(5, 5))
    reader = query(source, monkeypatch)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(0))) == []
    stream = Stream(source)
    assert list(stream.reader.read(InputPartition(0))) == []
    monkeypatch.setattr(tasks, "read", lambda task: iter([task]))
    task: Any = object()
    assert list(reader.read(Part(task))) == list(stream.reader.read(Part(task))) == [task]


def test_lost_offsets_stop_a_query_or_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(q0=(5, 10))
    given = {"startingOffsets": '{"t": {"b": {"0": 2}}}'}
    with pytest.raises(plan.DataLoss):
        query(source, monkeypatch, **given).partitions()
    (part,) = query(source, monkeypatch, **given, failOnDataLoss="false").partitions()
    assert part.task.parts == [Range("t", "b", 0, 5, 10)]  # type: ignore[attr-defined]
