# SPDX-License-Identifier: Apache-2.0
"""How much a stream's batch takes, when one is worth it, and in how many tasks it and a query are read. The queues are
a table in memory, time is the test's. No Spark."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from aerobee import ManualClock
from aerobee.errors import AerobeeError, NetworkError, NoPermission, TopicNotFound
from aerobee.spark import options
from aerobee.spark.reading import batch_reader, plan, tasks, wire_scan
from aerobee.spark.reading.batch_reader import Part, PushdownReader
from aerobee.spark.reading.plan import Look, Range
from aerobee.spark.reading.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aerobee.spark.reading.plan import Place

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


# -- how much a batch takes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "limit", "ends"),
    [
        ({}, ALL, [100, 50]),
        ({}, ReadMaxRows(60), [40, 20]),
        ({"maxOffsetsPerTrigger": "30"}, ALL, [20, 10]),
        ({"maxOffsetsPerTrigger": "30"}, ReadMaxRows(60), [20, 10]),  # the least of what was said
        ({"maxOffsetsPerTrigger": "60"}, ReadMaxRows(30), [20, 10]),
        ({"maxBytesPerTrigger": "6000"}, ALL, [40, 20]),
        ({"maxBytesPerTrigger": "6000"}, ReadMaxRows(30), [20, 10]),
        ({"maxBytesPerTrigger": "3000", "maxOffsetsPerTrigger": "60"}, ALL, [20, 10]),
        ({"maxBytesPerTrigger": "90000"}, ALL, [100, 50]),
    ],
)
def test_a_batch_is_no_larger_than_the_least_of_its_limits(
    given: dict[str, str], limit: Any, ends: list[int]
) -> None:
    assert Stream(Source(q0=(0, 100), q1=(0, 50)), **given).reaches(limit) == ends


def test_a_queue_that_is_new_or_was_made_again_is_counted_from_its_beginning() -> None:
    source = Source(q0=(0, 100))
    stream = Stream(source, failOnDataLoss="false", maxOffsetsPerTrigger="40", startingOffsets="latest")
    source.put(q0=(0, 120), q1=(10, 30))
    assert stream.go() == [120, 30]
    source.put(q0=(5, 85), q1=(10, 30))
    assert stream.go() == [45, 30]
    assert stream.go() == [85, 30]


def test_the_first_batch_tells_where_it_started_and_later_ones_do_not() -> None:
    source = Source(q0=(3, 10))
    stream = Stream(source)
    assert stream.at == {"init": True, "o": {"t": {"b": {"0": 3}}}, "v": 1}
    end = stream.reader.latestOffset(stream.at, ALL)
    assert end == {"from": {"t": {"b": {"0": 3}}}, "o": {"t": {"b": {"0": 10}}}, "v": 1}
    source.put(q0=(3, 11))
    assert stream.reader.latestOffset(end, ALL) == {"o": {"t": {"b": {"0": 11}}}, "v": 1}


# -- when a batch is worth it -----------------------------------------------------------------------------------


def test_few_messages_wait_for_more_or_for_their_time() -> None:
    source = Source(q0=(0, 9))
    stream = Stream(source, minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    assert stream.go() is None
    stream.clock.advance(4_999)
    assert stream.go() is None
    stream.clock.advance(1)
    assert stream.go() == [9]
    source.put(q0=(0, 18))
    assert stream.go() is None, "the wait begins anew with what is new"
    stream.clock.advance(4_999)
    assert stream.go() is None
    source.put(q0=(0, 19))
    assert stream.go() == [19], "ten are enough"
    source.put(q0=(0, 20))
    stream.clock.advance(60_000)
    assert stream.go() is None, "the time before they came does not count"


def test_available_now_waits_for_nothing() -> None:
    stream = Stream(Source(q0=(0, 9)), minOffsetsPerTrigger="10")
    assert stream.reaches() is None
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.reaches() == [9]


def test_a_stream_without_such_an_option_waits_for_nothing() -> None:
    assert Stream(Source(q0=(0, 1))).reaches() == [1]


# -- what is looked at, and when --------------------------------------------------------------------------------


def test_topics_are_looked_for_again_when_the_interval_is_over() -> None:
    source = Source(q0=(0, 1))
    stream = Stream(source, discoveryIntervalMs="700")
    forgot = source.forgot
    stream.clock.advance(699)
    stream.reaches()
    assert source.forgot == forgot
    stream.clock.advance(1)
    stream.reaches()
    stream.reaches()
    assert source.forgot == forgot + 1
    assert source.looked[-1] == (["t"], frozenset())


def test_new_topics_join_and_a_name_server_that_is_silent_changes_nothing() -> None:
    source = Source(q0=(0, 1))
    told = {
        "namesrv": "h:1",
        "subscribePattern": ".*",
        "startingOffsets": "earliest",
        "discoveryIntervalMs": "1",
    }
    stream = Stream.__new__(Stream)
    stream.reader, stream.clock = StreamReader(options.for_stream(told)), ManualClock()
    stream.reader._source_now, stream.reader._clock = source, stream.clock
    source.unreached = NetworkError("silent")
    with pytest.raises(NetworkError):
        stream.reader.initialOffset()
    source.unreached = None
    stream.at = stream.reader.initialOffset()
    source.known = ["t", "u"]
    stream.clock.advance(1)
    stream.reaches()
    assert source.looked[-1][0] == ["t", "u"]
    source.unreached = NetworkError("silent")
    stream.clock.advance(1)
    stream.reaches()
    assert source.looked[-1][0] == ["t", "u"]


def test_what_is_known_is_not_looked_at_again_for_a_plan_and_what_is_not_is() -> None:
    source = Source(q0=(0, 10))
    stream = Stream(source)
    end = stream.reader.latestOffset(stream.at, ALL)
    looks = len(source.looked)
    stream.reader.partitions(stream.at, end)
    assert len(source.looked) == looks
    source.put(q0=(0, 20))
    beyond = {"o": {"t": {"b": {"0": 15}}}, "v": 1}
    (part,) = stream.reader.partitions(end, beyond)
    assert part.task.parts == [Range("t", "b", 0, 10, 15)]
    assert len(source.looked) == looks + 1


@pytest.mark.parametrize(
    ("failed", "away", "stops"),
    [
        ({}, {"b": NetworkError("gone")}, True),
        ({}, {"c": NetworkError("gone")}, False),  # nothing of it was planned
        ({"t": NoPermission("no")}, {}, True),
        ({"t": TopicNotFound("t")}, {}, False),
    ],
)
def test_a_plan_of_an_earlier_run_needs_its_brokers_and_its_topics(
    failed: dict[str, AerobeeError], away: dict[str, AerobeeError], stops: bool
) -> None:
    source = Source(q0=(0, 10))
    stream = Stream(source, failOnDataLoss="false")
    source.failed, source.away = failed, away
    source.put(q0=(0, 20))
    beyond = {"o": {"t": {"b": {"0": 15}}}, "v": 1}
    if stops:
        with pytest.raises(AerobeeError):
            stream.reader.partitions(stream.at, beyond)
    else:
        assert len(stream.reader.partitions(stream.at, beyond)) == 1


def test_progress_is_told_to_a_group_only_and_not_before_the_first_batch() -> None:
    source = Source(q0=(0, 10))
    stream = Stream(source, group="g")
    stream.go()
    assert source.told == []
    stream.go()
    assert source.told == [(plan.Place("t", "b", 0), 10)]
    other = Source(q0=(0, 10))
    alone = Stream(other)
    alone.go()
    alone.go()
    assert other.told == []


# -- tasks ------------------------------------------------------------------------------------------------------


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


def test_store_files_are_looked_at_ten_times_a_second_and_brokers_each_time(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    source = Source(q0=(0, 1))
    stream = Stream(source, storePath=str(tmp_path), discoveryIntervalMs="1000000")
    looks = len(source.looked)
    for passes, seen in ((0, 0), (99, 0), (1, 1), (99, 1), (1, 2), (5_000, 3)):
        stream.clock.advance(passes)
        stream.reaches()
        assert len(source.looked) - looks == seen
    brokers = Stream(source)
    looks = len(source.looked)
    brokers.reaches()
    brokers.reaches()
    assert len(source.looked) - looks == 2


def test_a_topic_that_is_gone_is_remembered_for_a_minute_and_looked_for_at_its_broker() -> None:
    source = Source(q0=(0, 1))
    stream = Stream(source, failOnDataLoss="false")
    stream.go()
    source.bounds = {}
    gone = frozenset({("t", "b")})
    look = source.look

    def without(topics: Iterable[str], carried: frozenset[tuple[str, str]] = frozenset()) -> Look:
        return look(topics, carried)._replace(bounds={}, gone=gone & carried)

    source.look = without  # type: ignore[method-assign]
    stream.go()
    assert stream.reader._carried == gone
    stream.go()
    assert source.looked[-1] == (["t"], gone)
    stream.clock.advance(59_999)
    assert stream.reader._without_gone({"t": {"b": {"0": 1}}}, look([], gone)._replace(gone=gone)) == {
        "t": {"b": {"0": 1}}
    }
    stream.clock.advance(1)
    both = {"t": {"b": {"0": 1}, "c": {"0": 2}}}
    told = Look({"t": {"c": {"0": (0, 2)}}}, {}, {}, frozenset({"b", "c"}), gone)
    assert stream.reader._without_gone(both, told) == {"t": {"c": {"0": 2}}}
    assert stream.reader._without_gone({"t": {"b": {"0": 1}}}, told) == {}
    assert stream.reader._without_gone(both, told._replace(gone=frozenset())) == both, "it may only be away"
    assert stream.reader._without_gone(both, told) == both, "and then its minute begins anew"


def test_a_named_topic_that_was_never_there_is_the_users_mistake() -> None:
    source = Source()
    source.bounds, source.failed = {}, {"t": TopicNotFound("t")}
    with pytest.raises(TopicNotFound):
        Stream(source)
    assert Stream(source, failOnDataLoss="false").at == {"init": True, "o": {}, "v": 1}
    source.put(q0=(0, 1))
    source.failed = {}
    stream = Stream(source)
    source.bounds, source.failed = {}, {"t": TopicNotFound("t")}
    assert stream.reaches() is None, "one that was there is waited for"


def test_a_broker_that_is_away_keeps_a_stream_from_starting() -> None:
    source = Source(q0=(0, 1))
    source.away = {"c": NetworkError("gone")}
    for fails in ("true", "false"):
        with pytest.raises(NetworkError):
            Stream(source, failOnDataLoss=fails)


def test_a_target_is_what_was_there_when_it_was_asked_for() -> None:
    source = Source(q0=(0, 5), q1=(0, 7))
    stream = Stream(source)
    stream.reader.prepareForTriggerAvailableNow()
    source.put(q0=(0, 50), q1=(0, 70), q2=(0, 3))
    assert stream.go() == [5, 7]
    assert stream.go() is None
    assert stream.reader.reportLatestOffset() == {"o": {"t": {"b": {"0": 50, "1": 70, "2": 3}}}, "v": 1}
