# SPDX-License-Identifier: Apache-2.0
"""What filters leave of a plan: never less than they keep, and of offsets exactly that. No Spark is started here."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from aerobee.spark.options import for_batch
from aerobee.spark.reading.plan import Range
from aerobee.spark.reading.pushdown import Narrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.spark.reading.plan import Place

COMPARED: dict[type, Any] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
PARTS = [Range("T", "b", 0, 0, 20), Range("T", "b", 1, 5, 15), Range("U", "b", 0, 0, 20)]
READ = for_batch({"namesrv": "h:1", "subscribe": "T"})
BEGAN = datetime(2024, 1, 1, tzinfo=UTC)


class ByTheSecond:
    """The message at offset n of any queue was stored in second n; it tells the first from a moment on."""

    def __init__(self) -> None:
        self.asked: list[Place] = []

    def offsets_at(self, places: Sequence[Place], timestamps: Sequence[int]) -> list[int]:
        self.asked += places
        began = round(BEGAN.timestamp() * 1000)
        return [max(0, -(-(timestamp - began) // 1000)) for timestamp in timestamps]


def narrowed(*filters: Filter, options: Any = READ) -> tuple[set[tuple[str, int, int]], list[Filter]]:
    """Topic, queue and offset of what is still read, and the filters that Spark must look at itself."""
    narrow = Narrow()
    left = narrow.take(list(filters), options)
    parts = [part for part in PARTS if narrow.keeps_topic(part.topic)]
    kept = narrow.ranges(parts, ByTheSecond())  # type: ignore[arg-type]
    return {(part.topic, part.queue, at) for part in kept for at in range(part.start, part.end)}, left


def everything() -> set[tuple[str, int, int]]:
    return {(part.topic, part.queue, at) for part in PARTS for at in range(part.start, part.end)}


comparisons = st.builds(
    lambda kind, value: kind(("queueOffset",), value), st.sampled_from(list(COMPARED)), st.integers(-2, 22)
)


@given(st.lists(comparisons, max_size=4))
def test_comparisons_of_offsets_are_answered_exactly(filters: list[Any]) -> None:
    kept, left = narrowed(*filters)
    assert kept == {
        row for row in everything() if all(COMPARED[type(one)](row[2], one.value) for one in filters)
    }
    assert left == []


@given(
    st.lists(st.tuples(st.sampled_from(list(COMPARED)), st.integers(-3_000, 23_000)), min_size=1, max_size=3)
)
def test_times_are_narrowed_to_a_second_around_and_left_to_spark(told: list[tuple[Any, int]]) -> None:
    moments = [(kind, BEGAN + timedelta(milliseconds=ms)) for kind, ms in told]
    filters = [kind(("storeTimestamp",), moment) for kind, moment in moments]
    kept, left = narrowed(*filters)
    assert left == filters

    def passes(row: tuple[str, int, int], slack_s: float) -> bool:
        stored = BEGAN + timedelta(seconds=row[2])
        slack = timedelta(seconds=slack_s)
        return all(
            {EqualTo: abs(stored - moment) <= slack,
             GreaterThan: stored > moment - slack, GreaterThanOrEqual: stored >= moment - slack,
             LessThan: stored < moment + slack, LessThanOrEqual: stored <= moment + slack}[kind]
            for kind, moment in moments
        )  # fmt: skip

    assert kept >= {row for row in everything() if passes(row, 0)}, "no row that passes is left out"
    assert kept <= {row for row in everything() if passes(row, 1.002)}, "and little else is read"


def test_a_time_says_nothing_of_delayed_messages() -> None:
    source, narrow = ByTheSecond(), Narrow()
    narrow.take([GreaterThan(("storeTimestamp",), BEGAN + timedelta(seconds=10))], READ)
    delayed = Range("SCHEDULE_TOPIC_XXXX", "b", 2, 0, 20)
    kept = narrow.ranges([delayed, PARTS[0]], source)  # type: ignore[arg-type]
    assert kept == [delayed, Range("T", "b", 0, 9, 20)]
    assert [place.topic for place in source.asked] == ["T"]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([EqualTo(("topic",), "T")], {("T", 0), ("T", 1)}),
        ([In(("topic",), ("U", "V"))], {("U", 0)}),
        ([In(("topic",), ("T", "U")), EqualTo(("topic",), "U")], {("U", 0)}),
        ([EqualTo(("queueId",), 0)], {("T", 0), ("U", 0)}),
        ([In(("queueId",), (1, 7))], {("T", 1)}),
        ([In(("queueId",), (0, 1)), EqualTo(("queueId",), 7)], set()),
    ],
)
def test_topics_and_queues_are_chosen_and_spark_need_not_look(
    filters: list[Filter], kept: set[tuple[str, int]]
) -> None:
    rows, left = narrowed(*filters)
    assert {row[:2] for row in rows} == kept
    assert left == []


@pytest.mark.parametrize(
    "one",
    [
        IsNotNull(("topic",)),
        StringContains(("topic",), "T"),
        GreaterThan(("queueId",), 0),
        GreaterThan(("topic",), "T"),
        EqualTo(("queueOffset",), "7"),
        IsNotNull(("queueOffset",)),
        EqualTo(("storeTimestamp",), None),
        EqualTo(("storeTimestamp",), 12),
        EqualTo(("properties", "topic"), "T"),
        EqualTo(("keys",), "k"),
    ],
    ids=str,
)
def test_other_filters_change_nothing_and_are_left_to_spark(one: Filter) -> None:
    assert narrowed(one) == (everything(), [one])


@pytest.mark.parametrize(
    ("given_options", "filters", "tags"),
    [
        ({}, [EqualTo(("tags",), "A")], "A"),
        ({}, [In(("tags",), ("A", "B"))], "A||B"),
        ({}, [In(("tags",), ("A", None, ""))], "A"),
        ({}, [EqualTo(("tags",), "A"), EqualTo(("tags",), "B")], "A"),
        ({}, [GreaterThan(("tags",), "A")], ""),
        ({"tags": "C"}, [EqualTo(("tags",), "A")], ""),
        ({"sqlFilter": "a > 1"}, [EqualTo(("tags",), "A")], ""),
    ],
)
def test_tags_are_asked_of_the_broker_where_nothing_else_is_and_looked_at_again(
    given_options: dict[str, str], filters: list[Filter], tags: str
) -> None:
    options = for_batch({"namesrv": "h:1", "subscribe": "T", **given_options})
    narrow = Narrow()
    assert narrow.take(filters, options) == filters
    assert narrow.tags == tags
