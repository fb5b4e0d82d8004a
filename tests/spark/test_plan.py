# SPDX-License-Identifier: Apache-2.0
"""Offset algebra: nothing lost, nothing twice, limits kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.spark.reading import plan
from aerobee.spark.reading.plan import Range

if TYPE_CHECKING:
    from aerobee.spark.option_values import Offsets

queues = st.dictionaries(st.integers(0, 12).map(str), st.integers(0, 1000), max_size=8)
offsets = st.dictionaries(
    st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from(["x", "y"]), queues, max_size=2), max_size=2
)
parts = st.lists(
    st.builds(
        lambda t, q, start, n: Range(t, "b", q, start, start + n),
        st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 100), st.integers(1, 500),
    ),
    max_size=6,
    unique_by=lambda r: (r.topic, r.queue),
)  # fmt: skip


def covered(groups: list[list[Range]]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for group in groups:
        for part in group:
            found.setdefault((part.topic, part.queue), []).extend(range(part.start, part.end))
    return {key: sorted(value) for key, value in found.items()}


@given(parts, st.integers(0, 9), st.integers(0, 9), st.integers(0, 300), st.integers(1, 400))
def test_packing_covers_every_offset_once(
    ranges: list[Range], at_least: int, at_most: int, max_records: int, target: int
) -> None:
    groups = plan.pack(ranges, at_least=at_least, at_most=at_most, max_records=max_records, target=target)
    assert covered(groups) == {(r.topic, r.queue): list(range(r.start, r.end)) for r in ranges}
    if max_records:
        assert all(sum(map(len, group)) <= max_records for group in groups)
    if ranges and at_least <= sum(map(len, ranges)):
        assert len(groups) >= min(at_least, 1)


@given(parts, st.integers(1, 6))
def test_min_partitions_splits_a_queue_over_several_tasks(ranges: list[Range], wanted: int) -> None:
    total = sum(map(len, ranges))
    groups = plan.pack(ranges, at_least=wanted, at_most=0, max_records=0, target=10_000)
    if total >= wanted * wanted:
        assert len(groups) == (wanted if total else 0)


@given(offsets, offsets, st.integers(1, 500))
def test_clipping_keeps_the_limit_and_starves_no_queue(start: Offsets, end: Offsets, limit: int) -> None:
    for topic, broker, queue, offset in plan.flat(start):
        plan.put(end, topic, broker, queue, max(offset, plan.get(end, topic, broker, queue, 0)))
    clipped = plan.clip(start, end, limit)
    behind = [q for q in plan.flat(end) if q[3] > plan.get(start, *q[:3], 0)]
    assert plan.backlog(start, clipped) == min(plan.backlog(start, end), max(limit, len(behind)))
    for topic, broker, queue, offset in behind:
        at = plan.get(start, topic, broker, queue, 0)
        assert at < plan.get(clipped, topic, broker, queue, 0) <= offset


@given(offsets)
def test_equal_offsets_are_equal_text(value: Offsets) -> None:
    turned = {
        t: {b: dict(reversed(q.items())) for b, q in reversed(bs.items())}
        for t, bs in reversed(value.items())
    }
    assert json.dumps(plan.tidy(value)) == json.dumps(plan.tidy(turned))


def bounds(low: int, high: int) -> plan.Bounds:
    return {"t": {"b": {"0": (low, high)}}}


def test_a_queue_without_a_start_begins_at_its_earliest() -> None:
    assert plan.ranges({}, {"t": {"b": {"0": 9}}}, bounds(4, 9), fail_on_data_loss=True) == [
        Range("t", "b", 0, 4, 9)
    ]


def test_an_empty_range_is_not_read() -> None:
    same = {"t": {"b": {"0": 9}}}
    assert plan.ranges(same, same, bounds(0, 9), fail_on_data_loss=True) == []


@pytest.mark.parametrize(("start", "end", "low", "high"), [(1, 9, 4, 9), (1, 9, 0, 7)])
def test_lost_offsets_fail_by_default_and_name_the_queue(start: int, end: int, low: int, high: int) -> None:
    begin, stop = {"t": {"b": {"0": start}}}, {"t": {"b": {"0": end}}}
    with pytest.raises(plan.DataLoss, match=r"t/b/0: .* failOnDataLoss=false"):
        plan.ranges(begin, stop, bounds(low, high), fail_on_data_loss=True)
    found = plan.ranges(begin, stop, bounds(low, high), fail_on_data_loss=False)
    assert found == [Range("t", "b", 0, max(start, low), min(end, high))]


# -- topics that come and go ---------------------------------------------------------------------------


def at(offset: int, topic: str = "t") -> Offsets:
    return {topic: {"b": {"0": offset}}}


def test_a_planned_range_whose_topic_is_gone_is_data_loss_or_left_out() -> None:
    with pytest.raises(plan.DataLoss, match=r"t/b/0: offsets 4..9 are gone with their topic"):
        plan.ranges(at(4), at(9), {}, fail_on_data_loss=True)
    assert plan.ranges(at(4), at(9), {}, fail_on_data_loss=False) == []
    assert (
        plan.ranges(at(9), at(9), {}, fail_on_data_loss=True) == []
    )  # nothing was to be read: nothing is lost


def test_a_stream_notices_a_queue_that_was_re_created() -> None:
    with pytest.raises(
        plan.DataLoss, match=r"the stream is at offset 100, but the queue ends at 7: .* re-created"
    ):
        plan.advanced(at(100), at(7), fail_on_data_loss=True)
    end = plan.advanced(at(100), at(7), fail_on_data_loss=False)
    assert end == at(7)
    assert plan.counted_from(at(100), bounds(2, 7)) == at(2)
    assert plan.clip(plan.counted_from(at(100), bounds(2, 7)), end, 3) == at(5)
    assert plan.ranges(at(100), at(5), bounds(2, 7), fail_on_data_loss=False) == [Range("t", "b", 0, 2, 5)]
    assert plan.ranges(at(5), at(7), bounds(2, 7), fail_on_data_loss=True) == [Range("t", "b", 0, 5, 7)]


def test_a_queue_re_created_between_plan_and_read_is_left_to_the_next_batch() -> None:
    with pytest.raises(plan.DataLoss, match="past the end 7"):
        plan.ranges(at(100), at(150), bounds(0, 7), fail_on_data_loss=True)
    assert plan.ranges(at(100), at(150), bounds(0, 7), fail_on_data_loss=False) == []


def test_a_queue_out_of_sight_keeps_its_place_and_a_new_one_joins() -> None:
    end = plan.advanced(at(5), at(3, "new"), fail_on_data_loss=True)
    assert end == {**at(5), **at(3, "new")}
    assert plan.counted_from(at(5), {"new": {"b": {"0": (1, 3)}}}) == {**at(5), **at(1, "new")}


@pytest.mark.parametrize(
    ("head", "target", "begin", "expected"),
    [(50, 20, 10, 20), (15, 20, 10, 15), (50, 20, 30, 30), (5, 20, 10, 5)],
    ids=["no further than asked", "re-created since", "the start was taken later", "re-created and behind"],
)
def test_available_now_goes_no_further_than_what_was_there(
    head: int, target: int, begin: int, expected: int
) -> None:
    assert plan.capped(at(head), at(target), at(begin)) == at(expected)


def test_available_now_still_plans_what_went_out_of_sight() -> None:
    assert plan.capped({}, at(20), at(10)) == at(20)


# -- the edges of data loss ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (4, 9, ""),  # from the first message there is to the last
        (9, 9, ""),  # at the end, nothing new
        (3, 9, r"offsets 3\.\.4 were deleted \(the earliest is 4\)"),
        (1, 2, r"offsets 1\.\.2 were deleted \(the earliest is 4\)"),
        (4, 10, "offset 10 is past the end 9"),
        (10, 10, "offset 10 is past the end 9: the queue was deleted and re-created"),
    ],
)
def test_data_loss_begins_with_the_first_message_that_is_missing(start: int, end: int, said: str) -> None:
    if not said:
        assert sum(
            map(len, plan.ranges(at(start, "t"), at(end, "t"), bounds(4, 9), fail_on_data_loss=True))
        ) == (end - start)
        return
    with pytest.raises(plan.DataLoss, match=said):
        plan.ranges(at(start), at(end), bounds(4, 9), fail_on_data_loss=True)
    for part in plan.ranges(at(start), at(end), bounds(4, 9), fail_on_data_loss=False):
        assert 4 <= part.start < part.end <= 9


@pytest.mark.parametrize(("head", "fails"), [(100, False), (99, True), (101, False)])
def test_a_head_at_the_streams_place_is_no_loss(head: int, *, fails: bool) -> None:
    if fails:
        with pytest.raises(plan.DataLoss, match="the stream is at offset 100, but the queue ends at 99"):
            plan.advanced(at(100), at(head), fail_on_data_loss=True)
    else:
        assert plan.advanced(at(100), at(head), fail_on_data_loss=True) == at(head)


def test_only_what_is_elsewhere_moves_and_is_looked_at() -> None:
    begin = {**at(5), **at(7, "u"), **at(1, "gone")}
    end = {**at(5), **at(9, "u"), **at(0, "new"), **at(1, "gone")}
    assert plan.moving(begin, end) == {**at(9, "u"), **at(0, "new")}
    seen = {"t": {"b": {"0": (0, 5)}}, "u": {"b": {"0": (0, 9)}}, "new": {"b": {"0": (0, 0)}}}
    assert plan.unlike(begin, seen) == {"u", "new"}
    assert plan.unlike(begin, {"t": {"c": {"0": (0, 0)}}}) == {"t"}
    assert plan.unlike(begin, {}, at(6)) == {"t"}
    assert plan.unlike(begin, {}, at(5)) == set()
    assert plan.covers(seen, plan.moving(begin, end))
    assert not plan.covers(seen, at(6))
    assert not plan.covers(seen, at(1, "gone"))
