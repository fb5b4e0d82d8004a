# SPDX-License-Identifier: Apache-2.0
"""The pure state: checkpoints, their bits, their line, their time; and what they weigh."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.pop.bits import bit_of, diffs_of, offsets_of
from aerobee.broker.pop.due_buckets import BUCKET_MS, DueBuckets
from aerobee.broker.pop.in_flight import FULL, InFlight, LeasedBatch, Matched, oldest_offset
from aerobee.settings import BrokerConfig, InForce


class Flight(InFlight):
    """Remembers what was committed."""

    def __init__(self, memory_ms: int = 3_000, cap: int = 1_000) -> None:
        self.committed: list[int] = []
        settings = BrokerConfig(pop_checkpoint_memory_ms=memory_ms, pop_checkpoint_cap=cap)
        super().__init__(InForce(settings), lambda lane, offset: self.committed.append(offset))

    def pop(self, start: int, count: int, *, now: int = 0, invisible: int = 60_000) -> LeasedBatch:
        lane = self.lane("t", "g", 0)
        checkpoint = LeasedBatch(
            lane, start, now, now + invisible, 0, count, FULL[count], None, next_offset=start + count
        )
        assert self.lease(lane, checkpoint)
        return checkpoint


def test_unacked_checkpoints_are_attended_to_after_their_time_in_memory():
    flight = Flight()
    checkpoint = flight.pop(0, 3)
    assert flight.attend(2_999, 10) == []
    assert flight.attend(3_000, 10) == [checkpoint]
    assert flight.attend(3_000, 10) == [], "once"


def test_short_leases_are_attended_to_when_they_are_due():
    flight = Flight()
    long, short = flight.pop(0, 1), flight.pop(1, 1, invisible=500)
    assert flight.next_attention() == 500
    assert flight.attend(500, 10) == [short]
    assert flight.attend(3_000, 10) == [long]


def test_acked_checkpoints_are_never_attended_to():
    flight = Flight()
    flight.pop(0, 2)
    lane = flight.lane("t", "g", 0)
    assert [flight.ack(lane, 0, 0, places) for places in (0b01, 0b11, 0b01)] == [
        (Matched.YOUNG, 0b01), (Matched.YOUNG, 0b10), (Matched.UNKNOWN, 0),
    ]  # fmt: skip
    assert flight.attend(10_000, 10) == []
    assert flight.committed == [2]


def test_the_line_commits_in_order_only():
    flight = Flight()
    first, second = flight.pop(0, 2), flight.pop(2, 2)
    flight.close(second, second.open)
    assert flight.committed == []
    flight.close(first, first.open)
    assert flight.committed == [4]


def test_a_journaled_head_lets_the_line_pass_and_its_acks_are_to_be_written():
    flight = Flight()
    first, _second = flight.pop(0, 2), flight.pop(2, 2)
    flight.journaled(first, position=77)
    assert flight.committed == [2]
    lane = first.lane
    assert flight.ack(lane, 0, 0, 0b10) == (Matched.JOURNALED, 0b10)
    assert flight.open_cold(lane, 0, 0) == 0b01
    assert lane.in_flight == 3
    assert flight.due.take(60_000, 10) == [77]


@pytest.mark.seed("S000-28")
def test_a_child_keeps_its_parent_in_line():
    flight = Flight()
    parent = flight.pop(0, 2)
    child = LeasedBatch(parent.lane, 0, 5, 60_005, 0, 1, 1)
    flight.split(parent, child)
    flight.close(parent, 0b11)
    assert flight.committed == []
    assert parent.lane.in_flight == 1
    flight.journaled(child, position=1)
    assert flight.committed == [2]


@pytest.mark.seed("S000-28")
def test_at_the_cap_no_lease_is_given_until_the_oldest_has_gone():
    flight = Flight(cap=2)
    first, _ = flight.pop(0, 1), flight.pop(1, 1)
    lane = first.lane
    assert not flight.lease(lane, LeasedBatch(lane, 2, 0, 9, 0, 1, 1, None, 3))
    assert flight.oldest(1) == [first]
    flight.journaled(first, position=1)
    assert flight.lease(lane, LeasedBatch(lane, 2, 0, 9, 0, 1, 1, None, 3))


def test_the_same_key_is_leased_once():
    flight = Flight()
    first = flight.pop(0, 1)
    lane = first.lane
    assert not flight.lease(lane, LeasedBatch(lane, 0, 0, 9, 0, 1, 1, None, 1))
    flight.journaled(first, position=1)
    assert not flight.lease(lane, LeasedBatch(lane, 0, 0, 9, 0, 1, 1, None, 1))


def test_a_lane_is_swept_only_when_nothing_is_in_it():
    flight = Flight()
    checkpoint = flight.pop(0, 1)
    flight.sweep()
    assert flight.lanes
    flight.journaled(checkpoint, position=1)
    flight.sweep()
    assert flight.lanes
    flight.ack(checkpoint.lane, 0, 0, 0b1)
    flight.sweep()
    assert not flight.lanes


def test_the_oldest_offset_of_young_and_journaled_leases():
    flight = Flight()
    first, second = flight.pop(10, 3), flight.pop(70_000, 2)
    lane = first.lane
    assert oldest_offset(lane) == 10
    flight.journaled(first, position=1)
    flight.ack(lane, 10, 0, 0b1)
    assert oldest_offset(lane) == 11
    flight.close_cold(lane, 10, 0, 0b111)
    assert oldest_offset(lane) == 70_000
    flight.close(second, 0b11)
    assert oldest_offset(lane) is None


@given(
    start=st.integers(0, 1 << 40),
    diffs=st.lists(st.integers(0, 10_000), min_size=1, max_size=32, unique=True).map(sorted),
    acked=st.sets(st.integers(0, 31)),
    journaled=st.booleans(),
)
def test_bits_follow_offsets_whatever_the_gaps(start, diffs, acked, journaled):
    flight = Flight()
    lane = flight.lane("t", "g", 0)
    offsets = [start + diff for diff in diffs]
    packed = diffs_of(start, offsets)
    assert offsets_of(start, len(offsets), packed, FULL[len(offsets)]) == offsets
    checkpoint = LeasedBatch(
        lane, start, 9, 60_000, 0, len(offsets), FULL[len(offsets)], packed, offsets[-1] + 1
    )
    flight.lease(lane, checkpoint)
    if journaled:
        flight.journaled(checkpoint, position=1)
    for index in acked:
        if index < len(offsets):
            place = 1 << diffs[index]
            matched = Matched.JOURNALED if journaled else Matched.YOUNG
            assert flight.ack(lane, start, 9, place) == (matched, place)
    left = [offset for i, offset in enumerate(offsets) if i not in acked]
    assert lane.in_flight == len(left)
    assert (flight.open_offsets(lane, start, 9) if journaled else checkpoint.open_offsets) == left
    assert bit_of(-1, len(offsets), packed) == 0


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 1 << 40)), max_size=60), st.integers(1, 7))
def test_due_buckets_give_everything_once_never_early_and_at_most_a_bucket_late(entries, limit):
    buckets = DueBuckets()
    for due, position in entries:
        buckets.add(due, position)
    left = list(entries)
    for now in range(0, 50_000 + BUCKET_MS + 1, 100):
        while taken := buckets.take(now, limit):
            assert len(taken) <= limit
            for position in taken:
                match = next(entry for entry in left if entry[1] == position and entry[0] <= now)
                left.remove(match)
        assert all(due > now - BUCKET_MS for due, _ in left)
    assert left == []
    assert buckets.count == 0


def test_dropping_from_an_offset_on_voids_exactly_those_messages():
    flight = Flight()
    first, second = flight.pop(0, 32), flight.pop(32, 32)
    for position, checkpoint in enumerate((first, second)):
        flight.journaled(checkpoint, position)
    lane = first.lane
    flight.drop_cold(lane, 20)
    assert flight.open_offsets(lane, 0, 0) == list(range(20))
    assert flight.open_cold(lane, 32, 0) == 0
    assert lane.in_flight == 20


def test_forgetting_a_lane_leaves_nothing_to_attend_to():
    flight = Flight()
    checkpoint = flight.pop(0, 5)
    flight.forget([checkpoint.lane])
    assert (flight.lanes, flight.young, flight.attend(60_000, 10)) == ({}, 0, [])


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "most"), [(1, 150), (32, 20)])
def test_a_journaled_message_costs_less_than_150_bytes(batch, most):
    flight = Flight(cap=10_000)
    messages = 200_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(0, messages, batch):
        now = 1_700_000_000_000 + start // 100
        checkpoint = flight.pop(start, batch, now=now, invisible=600_000)
        flight._by_age.clear()
        flight.journaled(checkpoint, start << 8)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert flight.messages == messages
    assert used / messages < most


def test_what_was_acked_behind_an_open_lease_does_not_pile_up(make_shop: Any) -> None:
    shop = make_shop(pop_checkpoint_cap=4)
    shop.send(*(str(i) for i in range(40)))
    shop.pop(max_messages=1, invisible_ms=60_000)
    for _ in range(39):
        shop.ack(*shop.pop(max_messages=1, invisible_ms=60_000))
    flight = shop.broker.pops.leases.in_flight
    assert flight.attend(shop.clock.now(), 64) == []
    assert len(flight._by_age) == 1
    shop.clock.advance(3_000)
    assert [one.offsets for one in flight.attend(shop.clock.now(), 64)] == [[0]]


def test_due_buckets_say_how_many_wait_in_them() -> None:
    buckets = DueBuckets()
    for position in range(5):
        buckets.add(BUCKET_MS, position)
    counts = []
    for limit in (2, 2, 2, 2):
        buckets.take(BUCKET_MS, limit)
        counts.append(buckets.count)
    assert counts == [3, 1, 0, 0]
