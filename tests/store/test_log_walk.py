# SPDX-License-Identifier: Apache-2.0
"""Where records, blanks and damage are in a log: told by their bytes alone."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol.message import MAGIC_BLANK, decode
from aerobee.store.log_walk import is_blank, next_whole, places, walk, whole_at

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore
    from aerobee.store.segment import Segment

SEGMENT = 1 << 16


@pytest.fixture
def store(kit: Any) -> MessageStore:
    """Two files, a blank between them: seven messages in the first, five in the second."""
    store: MessageStore = kit.open()
    for n in range(12):
        store.append(kit.message(body=b"%02d" % n * 4_100))
    assert [place(store, n) // SEGMENT for n in (6, 7)] == [0, 1]
    return store


def place(store: MessageStore, n: int) -> int:
    unit = store.unit("orders", 0, n)
    assert unit is not None
    return unit.physical_offset


def overwrite(store: MessageStore, at: int, data: bytes) -> None:
    segment = segment_at(store, at)
    segment.map[at - segment.base : at - segment.base + len(data)] = data


def segment_at(store: MessageStore, at: int) -> Segment:
    segment = store._log.segment_at(at)
    assert segment is not None
    return segment


def found(store: MessageStore) -> list[int]:
    """Which messages a walk meets; -1 for bytes that are none."""
    return [
        -1 if step.raw is None else int(decode(step.raw).body[:2])
        for step in walk(store._log, 0, store.log_max)
    ]


def test_the_rest_of_a_file_is_blank_when_it_says_so_of_exactly_that_rest(store: MessageStore) -> None:
    first, end = store._log.segments[0], place(store, 6) + place(store, 1)
    assert is_blank(first, end)
    for size, magic, blank in [
        (SEGMENT - end, MAGIC_BLANK, True),
        (SEGMENT - end - 1, MAGIC_BLANK, False),
        (SEGMENT, MAGIC_BLANK, False),
        (SEGMENT - end, 0, False),
    ]:
        overwrite(store, end, struct.pack(">ii", size, magic))
        assert is_blank(first, end) is blank
    overwrite(store, SEGMENT - 8, struct.pack(">ii", 8, MAGIC_BLANK))
    assert is_blank(first, SEGMENT - 8)
    overwrite(store, SEGMENT - 8, bytes(8))
    assert not is_blank(first, SEGMENT - 8)
    assert all(is_blank(first, SEGMENT - left) for left in range(8)), "too little for anything"


def test_a_record_is_whole_where_it_says_it_is_and_nowhere_else(store: MessageStore) -> None:
    first, at = store._log.segments[0], place(store, 2)
    raw = whole_at(first, at)
    assert raw is not None
    assert decode(raw).body[:2] == b"02"
    assert whole_at(first, at + 1) is None
    overwrite(store, place(store, 3), raw)
    assert whole_at(first, place(store, 3)) is None, "a copy"
    overwrite(store, at, struct.pack(">i", SEGMENT))
    assert whole_at(first, at) is None
    assert all(whole_at(first, SEGMENT - left) is None for left in (0, 1, 8, 35, 36, 90, 91))


@pytest.mark.parametrize("keeps_its_size", [True, False])
@pytest.mark.parametrize("next_keeps_its_size", [True, False])
@pytest.mark.parametrize("lost", [[0], [3], [3, 4], [5, 6], [6], [7], [11], [0, 1, 2, 3, 4, 5, 6], [10, 11]])
def test_a_walk_goes_on_behind_damage_with_the_next_whole_record(
    store: MessageStore, lost: list[int], keeps_its_size: bool, next_keeps_its_size: bool
) -> None:
    for n in lost:
        keeps = keeps_its_size if n == lost[0] else next_keeps_its_size
        overwrite(store, place(store, n) + (60 if keeps else 0), b"\xff" * 30)
    messages = [n for n in found(store) if n >= 0]
    assert messages == [n for n in range(12) if n not in lost]
    for step in walk(store._log, 0, store.log_max):
        if step.raw is None and step.following < store.log_max:
            behind = segment_at(store, step.following)
            start = step.following - behind.base
            assert whole_at(behind, start) is not None or is_blank(behind, start)


@pytest.mark.parametrize("n", [0, 3, 6])
@pytest.mark.parametrize("left", [*range(9), -1, -4, -8, -9])
def test_a_size_that_was_damaged_leads_nowhere_near_the_end_of_a_file(
    store: MessageStore, n: int, left: int
) -> None:
    """There what follows looks like too little for a record, in this file or in the next."""
    at = place(store, n)
    overwrite(store, at, struct.pack(">i", SEGMENT - left - at))
    assert found(store) == [*range(n), -1, *range(n + 1, 12)]


def test_the_last_record_of_a_file_that_is_damaged_ends_where_the_blank_begins(store: MessageStore) -> None:
    at, size = place(store, 6), place(store, 1)
    overwrite(store, at + 100, b"x")
    assert next_whole(store._log, segment_at(store, at), at) == at + size
    overwrite(store, at, b"\0\0\0\1")
    assert next_whole(store._log, segment_at(store, at), at) == SEGMENT
    overwrite(store, SEGMENT, bytes(8))
    assert next_whole(store._log, segment_at(store, at), at) is None, "the next file begins with none"


def test_a_body_that_looks_like_a_record_is_none_of_the_log(kit: Any) -> None:
    """Whoever sends may choose its bytes: a damaged message must not bring forth one it had within."""
    store: MessageStore = kit.open()
    inner = kit.message("secrets", body=b"never sent")
    store.append(inner)
    raw = store.raw_at(0)
    assert raw is not None
    fake = kit.message("secrets", body=b"never sent")
    start = inner.size + 88 + 40
    other = kit.open(kit.root / "other")  # where a whole record of that very place comes from
    other.append(kit.message(body=bytes(start - 117 - 20)))
    while other.log_max < start:
        other.append(kit.message(body=b""))
    other._log.end = other._log.base + start
    other.append(fake)
    made = other.raw_at(start)
    assert made is not None
    store.append(kit.message(body=bytes(40) + made + bytes(9)))
    store.append(kit.message(body=b"after"))
    outer = place(store, 0)
    assert segment_at(store, 0).map[start : start + len(made)] == made
    overwrite(store, outer + 90, b"x")
    bodies = [decode(step.raw).body for step in walk(store._log, 0, store.log_max) if step.raw]
    assert bodies == [b"never sent", b"after"]
    assert [at for at, _ in places(store._log, 0, store.log_max)] == [0, outer, place(store, 1)]


def test_places_go_from_file_to_file(store: MessageStore) -> None:
    assert [each.offset for _, each in places(store._log, 0, store.log_max)] == list(range(12))
    assert [at for at, _ in places(store._log, place(store, 5), place(store, 9))] == [
        place(store, n) for n in (5, 6, 7, 8)
    ]
    overwrite(store, place(store, 6), bytes(8))
    assert [each.offset for _, each in places(store._log, 0, store.log_max)] == [
        n for n in range(12) if n != 6
    ]


def test_a_walk_ends_where_it_is_told_also_within_damage(store: MessageStore) -> None:
    overwrite(store, place(store, 4), bytes(place(store, 5) - place(store, 4)))
    middle = place(store, 4) + 100
    steps = list(walk(store._log, place(store, 3), middle))
    assert [(step.at, step.raw is None, step.following) for step in steps] == [
        (place(store, 3), False, place(store, 4)),
        (place(store, 4), True, middle),
    ]
