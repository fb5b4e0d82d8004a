# SPDX-License-Identifier: Apache-2.0
"""Open transactions, held against lists that are searched from the start each time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.state.half_messages import (
    KNOWN_OUTCOMES,
    OPS_PER_MARK,
    Half,
    HalfMessages,
    Outcome,
    _Ended,
)

places = st.one_of(st.integers(0, 40), st.integers(32_700, 32_900), st.integers(65_500, 66_000))


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["add", "forget"]), places), max_size=40))
def test_ended_offsets_are_a_set_of_those_at_or_past_the_cursor(steps: list[tuple[str, int]]) -> None:
    ended, naive, low = _Ended(), set(), 0
    for what, offset in steps:
        if what == "add":
            ended.add(offset)
            naive.add(offset)
        else:
            low = max(low, offset)
            ended.forget_below(low)
        for place in {*naive, *(place + 1 for place in naive), *(place - 8 for place in naive), low, low + 7}:
            if place >= low:
                assert (place in ended) == (place in naive), (place, low)
    assert -1 not in ended


def test_bits_that_have_served_take_no_memory() -> None:
    ended = _Ended()
    ended.add(40_000)
    ended.forget_below(8 * 4096 + 7)  # not worth a move
    assert len(ended._bits) == 5_001
    ended.forget_below(8 * 4097)
    assert (len(ended._bits), ended._base) == (5_001 - 4_097, 8 * 4_097)
    assert 40_000 in ended
    ended.forget_below(40_008)
    assert (len(ended._bits), ended._base) == (0, 40_008)
    ended.add(40_000)  # below: of no use any more
    assert len(ended._bits) == 0
    ended.add(40_009)
    assert [offset for offset in range(40_000, 40_020) if offset in ended] == [40_009]


def half(offset: int, origin: int | None = None, due: int = 0) -> Half:
    return Half(offset if origin is None else origin, offset, offset * 100, 0, due, [offset])


class Naive:
    """The two topics as lists, and who is open."""

    def __init__(self) -> None:
        self.halves: list[int] = []  # the origin of each half message
        self.ops: list[list[int]] = []
        self.open: dict[int, list[int]] = {}  # origin -> its copies
        self.due: dict[int, int] = {}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 9)),
        st.tuples(st.just("check"), st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("forget"), st.integers(0, 9)),
        st.tuples(st.just("due"), st.integers(0, 12)),
    ),
    max_size=60,
)


@pytest.mark.slow
@given(steps)
def test_progress_says_where_a_restart_finds_everything_it_needs(history: list[tuple[str, int]]) -> None:
    found, naive = HalfMessages(), Naive()
    found.start(0, 0)
    for what, number in history:
        origins = sorted(naive.open)
        chosen = origins[number % len(origins)] if origins else None
        if what == "send":
            place = len(naive.halves)
            naive.halves.append(place)
            naive.open[place], naive.due[place] = [place], number
            found.read(half(place, due=number))
        elif what == "due":
            expected = sorted(origin for origin, due in naive.due.items() if due <= number)
            got = found.due(number, 100)
            assert sorted(each.origin for each in got) == expected
            assert [each.due for each in got] == sorted(each.due for each in got)
            for each in got:
                naive.due[each.origin] = number + 3
                found.postpone(each, number + 3)
        elif chosen is not None and what == "check":
            place = len(naive.halves)
            naive.halves.append(chosen)
            naive.open[chosen].append(place)
            naive.due[chosen] = 20
            known = found.find(chosen)
            assert known is not None
            found.moved(known, place, place * 100, 20)
            found.read(half(place, chosen))  # met again by the reader
        elif chosen is not None and what == "end":
            copies = naive.open.pop(chosen)
            del naive.due[chosen]
            assert found.end(chosen, copies[-1], Outcome.COMMIT) == copies
            naive.ops.append(copies)
        elif chosen is not None:
            found.forget(chosen)
            del naive.open[chosen], naive.due[chosen]
        check(found, naive)


def check(found: HalfMessages, naive: Naive) -> None:
    assert {each.origin: each.copies for each in found.open()} == naive.open
    assert (len(found), found.room) == (len(naive.open), 200_000 - len(naive.open))
    newest = {copies[-1]: origin for origin, copies in naive.open.items()}
    low = min(newest, default=len(naive.halves))
    assert found.half_progress == low
    head = found.head()
    assert (head.origin if head else None) == newest.get(low)
    known = {offset for record in naive.ops[found.op_progress :] for offset in record}
    assert {offset for record in naive.ops for offset in record if offset >= low} <= known
    if not naive.open:
        assert found.op_progress == len(naive.ops)
    for origin, copies in naive.open.items():
        each = found.find(origin)
        assert each is not None
        assert (each.offset, each.physical_offset) == (copies[-1], copies[-1] * 100)
        assert found.outcome(origin) is None


@pytest.mark.slow
@given(steps)
def test_a_restart_finds_the_same_transactions_open(history: list[tuple[str, int]]) -> None:
    """From progress as it was saved at any moment: what ended since is named by the records after it."""
    found, naive = HalfMessages(), Naive()
    found.start(0, 0)
    saved = [(0, 0)]
    for what, number in history:
        origins = sorted(naive.open)
        if what in ("send", "due", "forget"):
            naive.open[len(naive.halves)] = [len(naive.halves)]
            naive.halves.append(len(naive.halves))
            found.read(half(len(naive.halves) - 1))
        elif origins and what == "check":
            origin, place = origins[number % len(origins)], len(naive.halves)
            naive.halves.append(origin)
            naive.open[origin].append(place)
            found.moved(found.find(origin), place, place * 100, 0)  # type: ignore[arg-type]
            found.read(half(place, origin))
        elif origins:
            origin = origins[number % len(origins)]
            naive.ops.append(found.end(origin, naive.open.pop(origin)[-1], Outcome.ROLLBACK))
        saved.append((found.half_progress, found.op_progress))
    for half_offset, op_offset in saved:
        again = HalfMessages()
        again.start(half_offset, op_offset)
        for number in range(op_offset, len(naive.ops)):
            again.replay_op(number, naive.ops[number])
        for place in range(half_offset, len(naive.halves)):
            again.read(half(place, naive.halves[place]))
        again.settled()
        assert {each.origin for each in again.open()} == set(naive.open)
        assert again.cursor == len(naive.halves)
        assert again.half_progress == found.half_progress


def test_ops_are_counted_by_the_hundred_and_pass_with_what_they_name() -> None:
    found = HalfMessages()
    found.start(0, 0)
    for place in range(OPS_PER_MARK + 2):
        found.read(half(place))
    for place in range(OPS_PER_MARK + 1):
        found.end(place, place, Outcome.COMMIT)
    assert found.ops_kept == OPS_PER_MARK + 1
    assert found.op_progress == OPS_PER_MARK + 1
    assert found.ops_kept == 0
    found.read(half(200))
    found.read(half(201))
    found.end(201, 201, Outcome.COMMIT)
    assert (found.half_progress, found.op_progress, found.ops_kept) == (OPS_PER_MARK + 1, OPS_PER_MARK + 1, 1)


def test_a_record_that_names_nothing_passes_with_the_next() -> None:
    found = HalfMessages()
    found.start(5, 3)
    found.replay_op(3, [])
    found.replay_op(4, [7])
    assert (found.op_progress, found.ops_kept) == (3, 2)
    assert found.ended_unread(7)
    assert not found.ended_unread(6)
    found.skip(8)
    found.settled()
    assert (found.cursor, found.half_progress, found.op_progress) == (8, 8, 5)
    found.skip(2)
    assert found.cursor == 8


def test_outcomes_are_remembered_for_so_many() -> None:
    found = HalfMessages()
    found.start(0, 0)
    for origin in range(KNOWN_OUTCOMES + 1):
        found.end(origin, origin, Outcome.COMMIT if origin % 2 else Outcome.ROLLBACK)
    assert found.outcome(0) is None
    assert (found.outcome(1), found.outcome(2)) == (Outcome.COMMIT, Outcome.ROLLBACK)
    assert found.outcome(KNOWN_OUTCOMES) is Outcome.ROLLBACK


def test_each_is_asked_about_once_and_no_more_than_wanted_at_a_time() -> None:
    found = HalfMessages()
    assert found.next_due() is None
    found.start(0, 0)
    for place, due in enumerate((30, 10, 20)):
        found.read(half(place, due=due))
        assert found.cursor == place + 1
    assert found.next_due() == 10
    assert [each.origin for each in found.due(9, 5)] == []
    assert [each.origin for each in found.due(30, 2)] == [1, 2]
    assert [each.origin for each in found.due(30, 2)] == [0]
    assert found.due(30, 2) == []
    again = found.find(1)
    assert again is not None
    found.postpone(again, 50)
    found.postpone(again, 40)  # the newest word counts
    assert [each.origin for each in found.due(60, 5)] == [1]
    assert found.due(60, 5) == []


def test_memory_is_bounded_by_the_number_given(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = HalfMessages(capacity=2)
    found.start(0, 0)
    assert (found.room, found.cursor, HalfMessages().cursor) == (2, 0, -1)
    found.read(half(0))
    found.read(half(1))
    assert found.room == 0
    assert [int(each) for each in Outcome] == [0, 8, 12]


def test_a_start_far_on_takes_no_memory_for_what_was_before_it() -> None:
    found = HalfMessages()
    found.start(80_000_000, 0)
    found.replay_op(0, [80_000_001])
    assert found.ended_unread(80_000_001)
    assert len(found._ended._bits) == 1


def test_a_word_about_a_copy_that_was_not_read_yet_ends_all_copies() -> None:
    """One that an earlier run appended, with more open before it than memory has room for."""
    found = HalfMessages()
    found.start(0, 0)
    found.read(half(0))
    found.read(half(1))
    found.read(half(2, origin=0))
    assert found.end(0, 5, Outcome.COMMIT) == [0, 2, 5]
    assert found.ended_unread(5)
    found.read(half(5, origin=0))
    assert [each.origin for each in found.open()] == [1]


def test_an_op_is_needed_as_long_as_any_message_named_beside_it() -> None:
    """They are counted by the hundred: the latest of all they name decides."""
    found = HalfMessages()
    found.start(0, 0)
    for place in range(10):
        found.read(half(place))
    for place in (9, 3, 0, 1, 2, 4):
        found.end(place, place, Outcome.COMMIT)
    assert (found.half_progress, found.op_progress) == (5, 0)
    for place in (5, 6, 7, 8):
        found.end(place, place, Outcome.COMMIT)
    assert (found.half_progress, found.op_progress) == (10, 10)


def test_a_restart_begins_at_what_was_not_read_yet_though_the_open_one_has_a_newer_copy() -> None:
    found = HalfMessages()
    found.start(0, 0)
    found.read(half(0))
    first = found.find(0)
    assert first is not None
    found.moved(first, 5, 500, 0)  # appended behind four that nobody has read
    assert (found.cursor, found.half_progress) == (1, 1)
    for place in range(1, 5):
        found.read(half(place))
        found.end(place, place, Outcome.ROLLBACK)
    assert (found.cursor, found.half_progress) == (5, 5)


def test_an_op_of_a_message_that_was_not_read_yet_is_needed() -> None:
    found = HalfMessages()
    found.start(0, 0)
    assert found.end(0, 0, Outcome.COMMIT) == [0]
    assert (found.half_progress, found.op_progress) == (0, 0)
    found.read(half(0))
    assert (found.open(), found.half_progress, found.op_progress) == ([], 1, 1)


def test_a_topic_is_counted_as_long_as_something_of_it_is_open() -> None:
    found = HalfMessages()
    found.start(0, 0)
    for place, topic in enumerate(("orders", "orders", "bills")):
        found.read(msgspec.structs.replace(half(place), topic=topic))
    assert dict(found.by_topic) == {"orders": 2, "bills": 1}
    found.end(2, 2, Outcome.COMMIT)
    found.forget(0)
    assert dict(found.by_topic) == {"orders": 1}
    found.end(1, 1, Outcome.ROLLBACK)
    assert dict(found.by_topic) == {}


def test_when_all_was_read_nothing_is_kept_of_those_that_ended_before() -> None:
    found = HalfMessages()
    found.start(0, 0)
    for place in range(104):
        found.end(place, place, Outcome.COMMIT)
    assert len(found._ended._bits) == 13
    for place in range(104):
        found.read(half(place))
    found.settled()
    assert (len(found._ended._bits), found.open()) == (0, [])
