# SPDX-License-Identifier: Apache-2.0
"""What is in flight, against a plain dict of messages: leased, acked, journaled, dropped, forgotten."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.pop.bits import diffs_of
from aerobee.broker.pop.in_flight import (
    BLOCK_SHIFT,
    FULL,
    MAX_TIME,
    InFlight,
    Lane,
    LeasedBatch,
    Matched,
    oldest_offset,
)
from aerobee.settings import BrokerConfig, InForce

LANES = (("t", "g", 0), ("t", "g", 1), ("t", "h", 0))
STARTS = (0, 7, 40, (1 << BLOCK_SHIFT) - 3, 1 << BLOCK_SHIFT, 3 << BLOCK_SHIFT)
SHAPES = ((0,), (0, 1, 2), (0, 2, 5), tuple(range(32)), (0, 200_000))


class Key(NamedTuple):
    lane: tuple[str, str, int]
    start: int
    pop_time: int


class Both:
    """The part, and what it ought to know: offsets still open, by checkpoint; and which are journaled."""

    def __init__(self) -> None:
        self.committed: list[tuple[tuple[str, str, int], int]] = []
        config = BrokerConfig(pop_checkpoint_memory_ms=3_000, pop_checkpoint_cap=1_000)
        self.flight = InFlight(InForce(config), self._commit)
        self.open: dict[Key, set[int]] = {}
        self.journaled: set[Key] = set()
        self.batches: dict[Key, LeasedBatch] = {}
        self.position = 0

    def _commit(self, lane: Lane, offset: int) -> None:
        self.committed.append(((lane.topic, lane.group, lane.queue_id), offset))

    def lease(self, key: Key, shape: tuple[int, ...]) -> None:
        lane = self.flight.lane(*key.lane)
        offsets = [key.start + diff for diff in shape]
        batch = LeasedBatch(
            lane, key.start, key.pop_time, key.pop_time + 60_000, 0, len(offsets), FULL[len(offsets)],
            diffs_of(key.start, offsets), offsets[-1] + 1,
        )  # fmt: skip
        assert self.flight.lease(lane, batch) is (key not in self.open)
        if key not in self.open:
            self.open[key], self.batches[key] = set(offsets), batch

    def journal(self, key: Key) -> None:
        if key in self.open and key not in self.journaled:
            self.position += 1
            self.flight.journaled(self.batches[key], self.position)
            self.journaled.add(key)

    def leased_and_journaled(self, key: Key, shape: tuple[int, ...]) -> None:
        self.lease(key, shape)
        self.journal(key)

    def ack(self, key: Key, places: set[int]) -> None:
        lane = self.flight.lane(*key.lane)
        bits = sum(1 << place for place in places)
        matched, closed = self.flight.ack(lane, key.start, key.pop_time, bits)
        if key not in self.open:
            assert (matched, closed) == (Matched.UNKNOWN, 0)
            return
        gone = {offset for offset in self.open[key] if offset - key.start in places}
        assert matched is (Matched.JOURNALED if key in self.journaled else Matched.YOUNG)
        assert closed == sum(1 << offset - key.start for offset in gone)
        self._left(key, self.open[key] - gone)

    def drop(self, lane: tuple[str, str, int], from_offset: int) -> None:
        self.flight.drop_cold(self.flight.lane(*lane), from_offset)
        for key in [key for key in self.journaled if key.lane == lane]:
            self._left(key, {offset for offset in self.open[key] if offset < from_offset})

    def forget(self, lanes: list[tuple[str, str, int]]) -> None:
        self.flight.forget([self.flight.lane(*lane) for lane in lanes])
        for key in [key for key in self.open if key.lane in lanes]:
            self._left(key, set())

    def _left(self, key: Key, offsets: set[int]) -> None:
        self.open[key] = offsets
        if not offsets:
            del self.open[key], self.batches[key]
            self.journaled.discard(key)

    def check(self) -> None:
        flight = self.flight
        assert flight.messages == sum(map(len, self.open.values()))
        assert flight.young == len(self.open.keys() - self.journaled)
        for place in LANES:
            lane = flight.lane(*place)
            mine = {key: offsets for key, offsets in self.open.items() if key.lane == place}
            cold = {key for key in mine if key in self.journaled}
            assert lane.in_flight == sum(map(len, mine.values()))
            assert len(lane.young) == len(mine) - len(cold)
            assert sorted(lane.cold) == sorted({key.start >> BLOCK_SHIFT for key in cold})
            assert sum(map(len, lane.cold.values())) == len(cold)
            for key, offsets in mine.items():
                assert flight.known(lane, key.start, key.pop_time)
                if key in cold:
                    assert flight.open_offsets(lane, key.start, key.pop_time) == sorted(offsets)
                    bits = flight.open_cold(lane, key.start, key.pop_time)
                    assert bits.bit_count() == len(offsets)
                else:
                    assert self.batches[key].open_offsets == sorted(offsets)
                    assert flight.young_of(lane, key.start, key.pop_time) is self.batches[key]
            young = [min(offsets) for key, offsets in mine.items() if key not in cold]
            first = [min(mine[key]) for key in sorted(cold, key=lambda key: (key.start, key.pop_time))[:1]]
            assert oldest_offset(lane) == min(young + first, default=None)
        flight.sweep()
        busy = {key.lane for key in self.open}
        assert busy <= flight.lanes.keys()
        assert {place for place, lane in flight.lanes.items() if lane.idle} == set()


KEYS = st.builds(Key, st.sampled_from(LANES), st.sampled_from(STARTS), st.sampled_from([1, 1, 1 << 40]))
EDGES = sorted({start + diff for start in STARTS for shape in SHAPES for diff in (*shape, shape[-1] + 1)})
STEPS = st.one_of(
    st.tuples(st.just("lease"), KEYS, st.sampled_from(SHAPES)),
    st.tuples(st.just("leased_and_journaled"), KEYS, st.sampled_from(SHAPES)),
    st.tuples(st.just("journal"), KEYS),
    st.tuples(st.just("ack"), KEYS, st.sets(st.sampled_from([0, 1, 2, 5, 31, 200_000]), min_size=1)),
    st.tuples(st.just("drop"), st.sampled_from(LANES), st.sampled_from(EDGES)),
    st.tuples(st.just("forget"), st.lists(st.sampled_from(LANES), max_size=2, unique=True)),
)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=40))
@settings(deadline=None, max_examples=200)
def test_what_is_in_flight_is_what_was_leased_and_not_closed(history: list[tuple]) -> None:
    both = Both()
    for what, *told in history:
        getattr(both, what)(*told)
        both.check()
    for key, batch in list(both.batches.items()):
        both.ack(key, {offset - key.start for offset in batch.offsets})
        both.check()
    assert both.flight.lanes == {}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("start", STARTS)
def test_a_drop_voids_exactly_the_messages_from_its_offset_on(start: int, shape: tuple[int, ...]) -> None:
    key = Key(LANES[0], start, 1)
    for from_offset in sorted({start + diff + by for diff in shape for by in (-1, 0, 1)} | {1 << 20}):
        both = Both()
        both.leased_and_journaled(key, shape)
        both.drop(LANES[0], max(from_offset, 0))
        both.check()


def test_forgotten_leases_are_neither_attended_to_nor_counted_and_others_stay() -> None:
    both = Both()
    gone, young_too, stays = (Key(lane, 0, 1) for lane in LANES[:3])
    for key in (gone, young_too, stays):
        both.lease(key, (0, 1, 2))
    both.journal(gone)
    flight, forgotten = both.flight, both.batches[young_too]
    lane = flight.lane(*young_too.lane)
    child = LeasedBatch(lane, 1, 5, 60_005, 0, 1, 1)
    flight.split(forgotten, child)
    lane.skip.add(9)
    flight.forget([flight.lane(*gone.lane), lane])
    assert (flight.young, flight.messages) == (1, 3)
    assert list(flight.lanes) == [stays.lane]
    assert (lane.young, lane.cold, lane.skip, lane.in_flight, list(lane.line)) == ({}, {}, set(), 0, [])
    assert (forgotten.open, child.open, child.parent) == (0, 0, None)
    assert flight.attend(60_000_000, 10) == [both.batches[stays]]
    assert both.committed == [(gone.lane, 3)], "that it was journaled; nothing for what was forgotten"


def test_the_last_message_of_a_journaled_checkpoint_takes_its_block_along() -> None:
    both = Both()
    first, second = Key(LANES[0], 0, 1), Key(LANES[0], 40, 1)
    for key in (first, second):
        both.lease(key, (0, 1))
        both.journal(key)
    lane = both.flight.lane(*LANES[0])
    assert both.flight.close_cold(lane, 0, 1, 0b100) == 0, "none of its messages"
    assert both.flight.close_cold(lane, 0, 2, 0b11) == 0, "of another pop"
    assert both.flight.close_cold(lane, 5 << BLOCK_SHIFT, 1, 0b11) == 0, "of no block"
    assert lane.in_flight == 4
    assert both.flight.close_cold(lane, 0, 1, 0b111) == 0b11
    assert len(lane.cold[0]) == 1
    assert both.flight.close_cold(lane, 40, 1, 0b01) == 0b01
    assert both.flight.close_cold(lane, 40, 1, 0b01) == 0, "once"
    assert both.flight.close_cold(lane, 40, 1, 0b10) == 0b10
    assert (lane.cold, lane.in_flight) == ({}, 0)


@pytest.mark.parametrize(
    ("start", "pop_time"), [(-1, 1), (0, -1), (0, MAX_TIME), (1, MAX_TIME - (1 << 42) - 1)]
)
def test_a_receipt_that_no_pop_of_ours_made_is_unknown(start: int, pop_time: int) -> None:
    both = Both()
    both.lease(Key(LANES[0], 1, 0), (0,))
    both.lease(Key(LANES[0], 0, MAX_TIME - 1), (0,))
    lane = both.flight.lane(*LANES[0])
    assert both.flight.ack(lane, start, pop_time, 1) == (Matched.UNKNOWN, 0)
    assert both.flight.ack(lane, 0, MAX_TIME - 1, 1) == (Matched.YOUNG, 1)
    assert both.flight.ack(lane, 1, 0, 1) == (Matched.YOUNG, 1)


def test_what_the_log_brings_back_counts_its_open_messages_once() -> None:
    both = Both()
    lane = both.flight.lane(*LANES[0])
    for shape, bits, left in (((0, 1, 2), 0b101, [0, 2]), ((0, 3, 9), 0b110, [3, 9])):
        pop_time = len(left) + shape[-1]
        batch = LeasedBatch(lane, 0, pop_time, 500, 0, 3, bits, diffs_of(0, shape))
        before = lane.in_flight
        both.flight.restore(lane, batch, pop_time)
        both.flight.restore(lane, batch, pop_time + 100)
        assert lane.in_flight == before + 2
        assert both.flight.open_offsets(lane, 0, pop_time) == left
    done = LeasedBatch(lane, 50, 1, 500, 0, 1, 0)
    both.flight.restore(lane, done, 7)
    assert not both.flight.known(lane, 50, 1)
    assert sorted(both.flight.due.take(1_000, 10)) == [4, 7, 11, 104, 111], (
        "each place of the log is looked at"
    )


def test_progress_over_messages_without_a_match_waits_for_what_is_in_line() -> None:
    both = Both()
    lane = both.flight.lane(*LANES[0])
    both.flight.passed(lane, 5)
    assert both.committed == [(LANES[0], 5)]
    key = Key(LANES[0], 7, 1)
    both.lease(key, (0,))
    assert lane.position(5) == 8
    both.flight.passed(lane, 20)
    both.flight.passed(lane, 12)
    assert (both.committed[1:], lane.position(5), lane.position(30)) == ([], 20, 30)
    both.ack(key, {0})
    assert both.committed[1:] == [(LANES[0], 20)]
    assert lane.position(20) == 20


def test_when_it_is_next_attended_to_is_the_first_of_both_lines() -> None:
    both = Both()
    flight = both.flight
    assert flight.next_attention() is None
    both.lease(Key(LANES[0], 0, 1_000), (0,))
    assert flight.next_attention() == 4_000
    lane = flight.lane(*LANES[1])
    for pop_time, invisible, expected in ((900, 2_999, 3_899), (950, 3_000, 3_899), (940, 100, 1_040)):
        batch = LeasedBatch(lane, 0, pop_time, pop_time + invisible, 0, 1, 1, None, 1)
        flight.lease(lane, batch)
        assert flight.next_attention() == expected
    assert [one.pop_time for one in flight.attend(1_040, 10)] == [940]
    assert flight.attend(3_898, 10) == []
    assert [one.pop_time for one in flight.attend(3_899, 10)] == [900]
    assert [one.pop_time for one in flight.attend(4_000, 1)] == [1_000], "no more than asked for"
    assert [one.pop_time for one in flight.attend(4_000, 10)] == [950]
    assert flight.next_attention() is None


def test_room_is_made_by_the_oldest_that_are_open_and_in_memory_only() -> None:
    both = Both()
    keys = [Key(LANES[0], start, 1) for start in (0, 7, 40, 1 << 16)]
    for key in keys:
        both.lease(key, (0,))
    short = LeasedBatch(both.flight.lane(*LANES[1]), 0, 1, 5, 0, 1, 1, None, 1)
    both.flight.lease(short.lane, short)
    both.ack(keys[0], {0})
    both.journal(keys[1])
    assert both.flight.oldest(1) == [both.batches[keys[2]]]
    assert both.flight.oldest(10) == [both.batches[keys[3]], short]
    assert both.flight.oldest(10) == []
