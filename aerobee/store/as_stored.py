# SPDX-License-Identifier: Apache-2.0
"""Reading in bulk, for those who check records themselves (Spark): one step for all units instead of one for each.

What is left is mostly waiting for memory, since the records of a queue lie scattered in the log.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from aerobee.protocol.message import MIN_RECORD
from aerobee.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE
from aerobee.store.results import Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.store.segment import Segment


def stored(
    units: bytes, segment: Segment, count: int, room: int, codes: frozenset[int] | None
) -> Stored | None:
    """The records of up to `count` units and `room` bytes that lie in one log file; None where it takes a closer look:
    a gap in the queue, a unit that points out of the file, a record larger than the room."""
    # Not many more units than will fit, going by the first.
    likely = min(room * 5 // 4 // max(1, UNIT.unpack_from(units)[1]) + 16, len(units) // UNIT_SIZE)
    numbers = struct.unpack_from(">" + "qiq" * likely, units)
    positions, sizes = numbers[0::3], numbers[1::3]
    fitting = bisect_right(list(accumulate(sizes)), room)
    seen = min(count, fitting, bisect_left(positions, segment.base + segment.size))
    if not seen or FILLER_SIZE in sizes or min(sizes) < MIN_RECORD or min(positions[:seen]) < segment.base:
        return None
    picked: Sequence[int] = range(seen)
    kept = units[: seen * UNIT_SIZE]
    if codes is not None:
        picked = [i for i in picked if signed32(numbers[3 * i + 2]) in codes]
        kept = b"".join([units[i * UNIT_SIZE : (i + 1) * UNIT_SIZE] for i in picked])
    base, log = segment.base, memoryview(segment.map)
    records = [log[positions[i] - base : positions[i] - base + sizes[i]] for i in picked]
    if sum(map(len, records)) != sum([sizes[i] for i in picked]):
        return None
    return Stored(kept, records, seen)


def signed32(code: int) -> int:
    """Java compares (int) tagsCode; the time of a delayed message has more bits."""
    return code if -0x8000_0000 <= code <= 0x7FFF_FFFF else ((code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
