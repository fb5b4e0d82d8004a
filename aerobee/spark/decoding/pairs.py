# SPDX-License-Identifier: Apache-2.0
"""The properties of many messages split at once: `name 0x01 value 0x02`, over and over, row after row.

A single property is looked up the cheapest way that holds for the rows: as a stripe of a table when they are all laid
out alike (`alike`); by place when they have the same names in one order, as messages of one producer do: a look at the
first eight bytes of every pair tells where it stands in all rows. Only rows that differ are split name by name.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from aerobee.spark.decoding.alike import alike
from aerobee.spark.decoding.spans import gather, valid_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from aerobee.spark.decoding.alike import Alike
    from aerobee.spark.decoding.spans import Ints

    Words = npt.NDArray[np.uint64]

_RECORD_CRC = b"__CRC32#"
_WORD = 8


class _Split(NamedTuple):
    """Every pair of every row: where its name starts, its 0x01, and where its value ends."""

    start: Ints
    mark: Ints
    end: Ints
    row: Ints


class Pairs:
    """All properties of all rows."""

    def __init__(self, text: pa.Array) -> None:
        self._offsets = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, text.offset * 4).astype(
            np.int64
        )
        values = text.buffers()[2]
        self._buffer = values if values is not None else pa.py_buffer(b"")
        data = np.frombuffer(self._buffer, np.uint8) if len(self._buffer) else np.empty(0, np.uint8)
        self._data = data[: self._offsets[-1]]
        self._rows = len(text)

    def lookup(self, name: bytes) -> pa.Array:
        """The value of one property for every row, null where absent; the last of a repeated one wins."""
        if self._alike is not None:
            return self._alike.lookup(name)
        return self._by_place(name) if self._ends is not None else self._by_name(name)

    def as_map(self) -> pa.Array:
        split = self._split
        keep = ~self._named(split, _RECORD_CRC)
        names = self._texts(split.start[keep], split.mark[keep])
        values = self._texts(split.mark[keep] + 1, split.end[keep])
        counts = np.bincount(split.row[keep], minlength=self._rows)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def _texts(self, start: Ints, end: Ints) -> pa.Array:
        return valid_text(gather(self._buffer, start, end - start))

    @cached_property
    def _alike(self) -> Alike | None:
        return alike(self._data, self._offsets)

    # -- by place: as many in all rows ---------------------------------------------------------------

    @cached_property
    def _ends(self) -> Ints | None:
        """Where the pairs end, a line for each place in the row, when all rows have as many pairs; else None."""
        stops = np.flatnonzero(self._data == 2)
        count = len(stops) // self._rows if self._rows else 0
        if count == 0 or count * self._rows != len(stops):
            return None
        ends = np.ascontiguousarray(stops.reshape(self._rows, count).T)
        return ends if np.array_equal(ends[-1] + 1, self._offsets[1:]) else None

    def _starts(self, place: int) -> Ints:
        assert self._ends is not None
        return self._ends[place - 1] + 1 if place else self._offsets[:-1]

    @cached_property
    def _names(self) -> list[bytes | None]:
        """What stands at each place in all rows, with its 0x01; None where rows differ."""
        assert self._ends is not None
        found: list[bytes | None] = []
        for place, ends in enumerate(self._ends):
            at = int(self._starts(place)[0])
            name, mark, _ = self._data[at : ends[0]].tobytes().partition(b"\x01")
            found.append(
                name + mark if mark and self._spells(self._starts(place), name + mark).all() else None
            )
        return found

    def _by_place(self, name: bytes) -> pa.Array:
        assert self._ends is not None
        wanted = name + b"\x01"
        places = [place for place, held in enumerate(self._names) if self._may_hold(place, held, wanted)]
        if not places:
            return pa.nulls(self._rows, pa.string())
        if len(places) > 1 or self._names[places[0]] is None:
            return self._by_name(name)  # twice, or in some rows only
        start, end = self._starts(places[0]) + len(wanted), self._ends[places[0]]
        # A property with an empty value is none.
        return self._texts(start, end) if (start < end).all() else self._by_name(name)

    def _may_hold(self, place: int, held: bytes | None, wanted: bytes) -> bool:
        return held == wanted if held else bool(self._spells(self._starts(place), wanted).any())

    def _words(self, at: Ints) -> Words:
        """Eight bytes from every position, zeros behind the last: a number at every byte, of which numpy takes some."""
        view = np.ndarray((max(0, len(self._data) - _WORD + 1),), "<u8", buffer=self._data, strides=(1,))
        inside = int(np.searchsorted(at, len(view)))
        if inside == len(at):
            return view[at]
        tail = [int.from_bytes(self._data[a : a + _WORD].tobytes(), "little") for a in at[inside:].tolist()]
        return np.concatenate((view[at[:inside]], np.array(tail, np.uint64)))

    # -- by name: any rows ---------------------------------------------------------------------------

    @cached_property
    def _split(self) -> _Split:
        marks, ends = np.flatnonzero(self._data == 1), np.flatnonzero(self._data == 2)
        start, mark, end = self._regular(marks, ends) or self._irregular(marks, ends)
        row = np.repeat(np.arange(self._rows), np.diff(np.searchsorted(start, self._offsets)))
        return _Split(start, mark, end, row)

    def _regular(self, marks: Ints, ends: Ints) -> tuple[Ints, Ints, Ints] | None:
        """As all clients write them: `name 0x01 value 0x02`, over and over, nothing else."""
        filled = self._offsets[1:][np.diff(self._offsets) > 0]
        if len(marks) != len(ends) or not (self._data[filled - 1] == 2).all():
            return None
        starts = np.concatenate((self._offsets[:1], ends[:-1] + 1)) if len(ends) else ends
        if not ((starts < marks) & (marks < ends - 1)).all():  # an empty name or value is no pair
            return None
        return starts, marks, ends

    def _irregular(self, marks: Ints, stops: Ints) -> tuple[Ints, Ints, Ints]:
        """A pair ends at 0x02 or at its row's end; each piece between ends that has a 0x01 inside is a pair."""
        ends = np.union1d(stops, self._offsets[1:])
        starts = np.concatenate((self._offsets[:1], ends[:-1]))
        starts = starts + np.isin(starts, stops)
        first = np.searchsorted(marks, starts)
        mark = np.append(marks, -1)[np.minimum(first, len(marks))]  # -1: no mark, which makes no pair
        good = (mark > starts) & (mark + 1 < ends)  # neither name nor value may be empty
        return starts[good], mark[good], ends[good]

    def _named(self, split: _Split, name: bytes) -> npt.NDArray[np.bool_]:
        """Which pairs have this name."""
        hit = split.mark - split.start == len(name)
        index = np.flatnonzero(hit)
        hit[index[~self._spells(split.start[index], name)]] = False
        return np.asarray(hit, np.bool_)

    def _by_name(self, name: bytes) -> pa.Array:
        split = self._split
        hit = np.flatnonzero(self._named(split, name))
        last = np.full(self._rows, -1, np.int64)
        last[split.row[hit]] = np.arange(len(hit))
        values = self._texts(split.mark[hit] + 1, split.end[hit])
        return values.take(pa.array(last, mask=last < 0))

    def _spells(self, at: Ints, wanted: bytes) -> npt.NDArray[np.bool_]:
        """Where the bytes from every position on are `wanted`."""
        same = np.ones(len(at), np.bool_)
        for i in range(0, len(wanted), _WORD):
            same &= _begin_with(self._words(at + i), wanted[i : i + _WORD])
        return same


def _begin_with(words: Words, wanted: bytes) -> npt.NDArray[np.bool_]:
    bits = np.uint64((1 << 8 * len(wanted)) - 1)
    return np.asarray((words & bits) == np.uint64(int.from_bytes(wanted, "little")), np.bool_)
