# SPDX-License-Identifier: Apache-2.0
"""Bits and offsets of a checkpoint: bit i is its i-th message, place i is the offset i after its start.

They are the same while the messages are contiguous; a filter leaves gaps, and then `diffs` says which is where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def offsets_of(start: int, count: int, diffs: Sequence[int] | None, bits: int) -> list[int]:
    places = range(count) if diffs is None else diffs
    return [start + place for i, place in enumerate(places) if bits >> i & 1]


def bit_of(place: int, count: int, diffs: Sequence[int] | None) -> int:
    """The bit of the message `place` offsets after the start; 0 when it is none of the checkpoint's."""
    if diffs is None:
        return 1 << place if 0 <= place < count else 0
    return 1 << diffs.index(place) if place in diffs else 0


def bits_of(places: int, diffs: Sequence[int]) -> int:
    """The bits of the messages at those places (bit i = start + i)."""
    return sum([1 << i for i, place in enumerate(diffs) if places >> place & 1])


def places_of(bits: int, diffs: Sequence[int]) -> int:
    return sum([1 << place for i, place in enumerate(diffs) if bits >> i & 1])


def diffs_of(start: int, offsets: Sequence[int]) -> tuple[int, ...] | None:
    """None when the offsets are start, start + 1, ..."""
    if offsets[0] == start and offsets[-1] - start == len(offsets) - 1:
        return None
    return tuple([offset - start for offset in offsets])


def offsets_at(start: int, places: int) -> list[int]:
    """The offsets at those places."""
    found = []
    while places:
        lowest = places & -places
        found.append(start + lowest.bit_length() - 1)
        places ^= lowest
    return found
