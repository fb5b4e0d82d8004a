# SPDX-License-Identifier: Apache-2.0
"""How much a stream's batch takes, when one is worth it, and what is looked at for it. The queues are a table in memory,
time is the test's. No Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from aerobee import ManualClock
from aerobee.errors import AerobeeError, NetworkError, NoPermission, NoRoute, TopicNotFound
from aerobee.spark import options
from aerobee.spark.reading import plan
from aerobee.spark.reading.plan import Look, Range
from aerobee.spark.reading.stream_reader import StreamReader
from tests.spark.memory_queues import ALL, Source, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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


def test_the_heads_that_are_told_are_those_of_the_last_look() -> None:
    source = Source(q0=(0, 5))
    stream = Stream(source)
    stream.reaches()
    first = stream.reader.reportLatestOffset()
    assert stream.reader.reportLatestOffset() is first
    source.put(q0=(0, 9))
    stream.reaches()
    assert stream.reader.reportLatestOffset() == {"o": {"t": {"b": {"0": 9}}}, "v": 1}


def test_a_misspelt_topic_of_a_stream_is_answered_with_the_nearest_one() -> None:
    source = Source()
    source.bounds, source.known = {}, ["orders", "letters"]
    source.failed = {"ordres": NoRoute("no route to topic 'ordres'")}
    with pytest.raises(NoRoute, match=r"no route to topic 'ordres'; did you mean 'orders'\?"):
        Stream(source, subscribe="ordres")
