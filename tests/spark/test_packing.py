# SPDX-License-Identifier: Apache-2.0
"""Offsets shared out among batches and tasks, to the message. No Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aerobee.spark.reading import plan
from aerobee.spark.reading.plan import Place, Range

if TYPE_CHECKING:
    from aerobee.spark.option_values import Offsets


def part(queue: int, start: int, end: int) -> Range:
    return Range("t", "b", queue, start, end)


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [
        # at_least, at_most, max_records, target
        ((0, 0, 0, 1_000), [1_000, 1_000]),
        ((0, 0, 0, 999), [667, 667, 666]),
        ((0, 0, 0, 2_000), [2_000]),
        ((0, 0, 0, 1_999), [1_000, 1_000]),
        ((0, 0, 0, 5_000), [2_000]),
        ((0, 3, 0, 100), [667, 667, 666]),
        ((0, 30, 0, 1_000), [1_000, 1_000]),
        ((4, 0, 0, 5_000), [500] * 4),
        ((4, 2, 0, 5_000), [500] * 4),  # the least that is asked for wins over the most
        ((1, 0, 0, 1_000), [1_000, 1_000]),
        ((0, 0, 700, 5_000), [667, 667, 666]),
        ((0, 2, 500, 5_000), [500] * 4),  # and no task is too large, whatever else is asked
        ((0, 0, 2_000, 5_000), [2_000]),
        ((0, 0, 1_999, 5_000), [1_000, 1_000]),
    ],
)
def test_as_many_tasks_as_are_worth_it_or_asked_for(
    asked: tuple[int, int, int, int], sizes: list[int]
) -> None:
    at_least, at_most, max_records, target = asked
    groups = plan.pack(
        [part(1, 100, 1_300), part(0, 7, 807)],
        at_least=at_least, at_most=at_most, max_records=max_records, target=target,
    )  # fmt: skip
    assert [sum(map(len, group)) for group in groups] == sizes


def test_small_queues_share_a_task_and_a_large_one_is_cut_in_order() -> None:
    parts = [part(2, 0, 50), part(0, 10, 40), part(1, 5, 25)]
    assert plan.pack(parts, at_least=2, at_most=0, max_records=0, target=1_000) == [
        [part(0, 10, 40), part(1, 5, 25)],
        [part(2, 0, 50)],
    ]
    assert plan.pack(parts, at_least=3, at_most=0, max_records=0, target=1_000) == [
        [part(0, 10, 40), part(1, 5, 9)],
        [part(1, 9, 25), part(2, 0, 18)],
        [part(2, 18, 25), part(2, 25, 50)],
    ]
    assert plan.pack([], at_least=3, at_most=0, max_records=0, target=1_000) == []
    assert plan.pack([part(0, 4, 4)], at_least=3, at_most=0, max_records=0, target=1_000) == []


@pytest.mark.parametrize(
    ("most", "edges"),
    [(10, [5, 15]), (11, [5, 15]), (9, [5, 10, 15]), (4, [5, 8, 11, 15]), (1, list(range(5, 16)))],
)
def test_a_range_is_cut_into_equal_pieces_of_no_more_than_is_allowed(most: int, edges: list[int]) -> None:
    cut = plan.split([part(3, 5, 15)], most)
    assert [each.start for each in cut] == edges[:-1]
    assert [each.end for each in cut] == edges[1:]
    assert all((each.topic, each.broker, each.queue) == ("t", "b", 3) for each in cut)
    assert plan.split([part(3, 5, 5)], most) == []


@pytest.mark.parametrize(
    ("limit", "reached"),
    [
        (0, [100, 50, 9, 5]),  # no limit
        (-1, [100, 50, 9, 5]),
        (130, [100, 50, 9, 5]),  # all of it is no more than that
        (131, [100, 50, 9, 5]),
        (129, [99, 50, 9, 5]),
        (65, [50, 35, 9, 5]),
        (13, [10, 23, 9, 5]),
        (1, [1, 21, 9, 5]),  # each by one, though that is more
    ],
)
def test_a_limit_is_shared_by_what_each_queue_has_waiting(limit: int, reached: list[int]) -> None:
    start = {"t": {"b": {"1": 20, "2": 9, "3": 8}}}  # queue 0 is new; 3 ends before its place
    end = {"t": {"b": {"0": 100, "1": 50, "2": 9, "3": 5}}}
    assert plan.backlog(start, end) == 130
    assert plan.clip(start, end, limit) == {
        "t": {"b": {str(queue): offset for queue, offset in enumerate(reached)}}
    }


def test_offsets_are_told_by_topic_broker_and_the_number_of_the_queue() -> None:
    told = plan.tidy({"u": {"b": {"10": 1, "9": 2, "0": 3}, "a": {"1": 4}}, "t": {}})
    assert json.dumps(told) == '{"t": {}, "u": {"a": {"1": 4}, "b": {"0": 3, "9": 2, "10": 1}}}'
    limited = plan.clip({}, {"u": {"b": {"10": 4, "9": 4}}, "t": {"b": {"0": 4}}}, 6)
    assert json.dumps(limited) == '{"t": {"b": {"0": 2}}, "u": {"b": {"9": 2, "10": 2}}}'
    bounds: plan.Bounds = {"u": {"b": {"10": (3, 8), "9": (2, 7)}}, "t": {"b": {"0": (1, 6)}}}
    assert json.dumps(plan.edge(bounds, 0)) == '{"t": {"b": {"0": 1}}, "u": {"b": {"9": 2, "10": 3}}}'
    assert json.dumps(plan.edge(bounds, 1)) == '{"t": {"b": {"0": 6}}, "u": {"b": {"9": 7, "10": 8}}}'
    assert list(plan.places(bounds)) == [
        (Place("u", "b", 10), 3, 8), (Place("u", "b", 9), 2, 7), (Place("t", "b", 0), 1, 6),
    ]  # fmt: skip
    for merged in (
        plan.advanced({"u": {"b": {"10": 1}}}, {"t": {"b": {"0": 2}}}, fail_on_data_loss=True),
        plan.capped({}, {"u": {"b": {"10": 1}}, "t": {"b": {"0": 2}}}, {}),
    ):
        assert json.dumps(merged) == '{"t": {"b": {"0": 2}}, "u": {"b": {"10": 1}}}'


def test_ranges_are_read_in_the_order_of_topics_brokers_and_queues() -> None:
    end = {"u": {"a": {"0": 9}}, "t": {"b": {"10": 9, "2": 9}, "a": {"3": 9}}}
    bounds: plan.Bounds = {t: {b: dict.fromkeys(qs, (4, 9)) for b, qs in bs.items()} for t, bs in end.items()}
    assert plan.ranges({}, end, bounds, fail_on_data_loss=True) == [
        Range("t", "a", 3, 4, 9), Range("t", "b", 2, 4, 9), Range("t", "b", 10, 4, 9), Range("u", "a", 0, 4, 9),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        (100, 7, [(2, 7)]),  # planned when the new queue was there: from its beginning, to its very end
        (100, 6, [(2, 6)]),
        (100, 8, []),  # planned before that
        (7, 7, []),
        (1, 2, []),  # all of it was deleted
        (1, 3, [(2, 3)]),
        (5, 8, [(5, 7)]),
    ],
)
def test_of_what_is_lost_the_rest_is_read_where_that_is_allowed(
    start: int, end: int, read: list[tuple[int, int]]
) -> None:
    found = plan.ranges(
        {"t": {"b": {"0": start}}},
        {"t": {"b": {"0": end}}},
        {"t": {"b": {"0": (2, 7)}}},
        fail_on_data_loss=False,
    )  # fmt: skip
    assert [(each.start, each.end) for each in found] == read


def test_a_place_at_the_very_end_of_a_queue_is_no_sign_of_another_queue() -> None:
    bounds: plan.Bounds = {"t": {"b": {"0": (2, 7), "1": (3, 9)}}}
    begin = {"t": {"b": {"0": 7, "1": 10}}, "u": {"c": {"4": 5}}}
    assert plan.counted_from(begin, bounds) == {"t": {"b": {"0": 7, "1": 3}}, "u": {"c": {"4": 5}}}


def test_every_topic_that_moved_is_looked_at_wherever_it_stands() -> None:
    """One that stands still, is new, or moved says nothing of those behind it."""
    bounds: plan.Bounds = {
        "new": {"b": {"0": (0, 0)}},
        "still": {"a": {"0": (0, 3)}, "b": {"0": (0, 4)}},
        "moved": {"a": {"0": (0, 3)}, "b": {"0": (0, 4), "1": (0, 5)}},
        "last": {"a": {"0": (0, 1)}},
    }
    begin = {
        "still": {"a": {"0": 3}, "b": {"0": 4}},
        "moved": {"a": {"0": 3}, "b": {"0": 4, "1": 6}},
        "last": {"a": {"0": 0}},
        "unseen": {"a": {"0": 0}},
    }
    assert plan.unlike(begin, bounds) == {"new", "moved", "last"}
    assert plan.unlike(begin, bounds, {"unseen": {"a": {"0": 1}}, "still": {"a": {"0": 3}, "b": {"0": 4}}}) == {
        "new", "moved", "last", "unseen",
    }  # fmt: skip


def test_bounds_serve_a_plan_when_they_reach_as_far_in_every_queue() -> None:
    bounds: plan.Bounds = {"t": {"b": {"0": (0, 5), "1": (0, 3)}}}
    assert plan.covers(bounds, {"t": {"b": {"0": 5, "1": 2}}})
    assert plan.covers(bounds, {})
    assert not plan.covers(bounds, {"t": {"b": {"0": 5, "1": 4}}})
    assert not plan.covers(bounds, {"t": {"b": {"0": 5, "2": 0}}})
    assert not plan.covers(bounds, {"t": {"c": {"0": 0}}})


@pytest.mark.parametrize("start", [{}, {"t": {"b": {"0": 0}}}])
def test_of_a_queue_that_is_gone_nothing_is_read(start: Offsets) -> None:
    end = {"t": {"b": {"0": 9}}}
    assert plan.ranges(start, end, {}, fail_on_data_loss=False) == []
    with pytest.raises(plan.DataLoss, match=r"^t/b/0: offsets 0\.\.9 are gone"):
        plan.ranges(start, end, {}, fail_on_data_loss=True)
