# SPDX-License-Identifier: Apache-2.0
"""The properties of many messages split at once: `name 0x01 value 0x02`, over and over, row after row."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_RECORD_CRC = b"__CRC32#"


def valid_text(raw: pa.Array) -> pa.Array:
    """UTF-8 checked: Spark must never be handed anything else; what is broken gets U+FFFD."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode("utf-8", "replace") for v in raw.to_pylist()], pa.string()
        )


class Pairs:
    """All properties of all rows, split at once: row, name range and value range of every pair."""

    def __init__(self, text: pa.Array) -> None:
        offsets = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, text.offset * 4).astype(np.int64)
        values = text.buffers()[2]
        self.buffer = values if values is not None else pa.py_buffer(b"")
        data = np.frombuffer(self.buffer, np.uint8) if len(self.buffer) else np.empty(0, np.uint8)
        self.data = data[: offsets[-1]] if len(offsets) else data
        self.rows = len(text)
        marks, stops = np.flatnonzero(self.data == 1), np.flatnonzero(self.data == 2)
        starts, mark, ends = self._regular(offsets, marks, stops) or _irregular(offsets, marks, stops)
        self.name_start, self.name_end, self.value_end = starts, mark, ends
        self.name_size = mark - starts
        self._offsets = offsets

    @cached_property
    def row(self) -> Ints:
        """Which row each pair belongs to."""
        return np.repeat(np.arange(self.rows), np.diff(np.searchsorted(self.name_start, self._offsets)))

    @cached_property
    def per_row(self) -> int:
        """How many pairs every row has, if all have as many; else 0."""
        count = len(self.name_start) // self.rows if self.rows else 0
        same = count > 0 and count * self.rows == len(self.name_start)
        return count if same and np.array_equal(self.name_start[::count], self._offsets[:-1]) else 0

    def _regular(self, offsets: Ints, marks: Ints, stops: Ints) -> tuple[Ints, Ints, Ints] | None:
        """As all clients write them: `name 0x01 value 0x02`, over and over, nothing else."""
        filled = offsets[1:][np.diff(offsets) > 0]
        if len(marks) != len(stops) or not (self.data[filled - 1] == 2).all():
            return None
        starts = np.concatenate((offsets[:1], stops[:-1] + 1)) if len(stops) else stops
        if not ((starts < marks) & (marks < stops - 1)).all():  # an empty name or value is no pair
            return None
        return starts, marks, stops

    def named(self, name: bytes) -> npt.NDArray[np.bool_]:
        """Which pairs have this name."""
        hit = self.name_size == len(name)
        index = np.flatnonzero(hit)
        hit[index[~self._spells(self.name_start[index], name)]] = False
        return np.asarray(hit, np.bool_)

    def _spells(self, at: Ints, name: bytes) -> npt.NDArray[np.bool_]:
        same = np.ones(len(at), np.bool_)
        for i, (size, wanted) in _words(name):
            # A view of a number at every byte: one gather compares four bytes of the name.
            view = np.ndarray(
                (max(0, len(self.data) - size + 1),), f"<u{size}", buffer=self.data, strides=(1,)
            )
            same &= view[at + i] == wanted
        return same

    def _place_of(self, name: bytes) -> int | None:
        """Where in every row the property stands, when one producer wrote them all alike; else None."""
        found = None
        for i in range(self.per_row):
            sized = self.name_size[i :: self.per_row] == len(name)
            if not sized.any():
                continue
            spelled = self._spells(self.name_start[i :: self.per_row], name) if sized.all() else sized
            if spelled.any() and (found is not None or not spelled.all() or not sized.all()):
                return None
            found = i if spelled.any() else found
        return found

    def lookup(self, name: bytes) -> pa.Array:
        """The value of one property for every row, null where absent; the last of a repeated one wins."""
        place = self._place_of(name)
        if place is not None:
            start = self.name_end[place :: self.per_row] + 1
            return self._take(start, self.value_end[place :: self.per_row] - start)
        hit = np.flatnonzero(self.named(name))
        start = self.name_end[hit] + 1
        last = np.full(self.rows, -1, np.int64)
        last[self.row[hit]] = np.arange(len(hit))
        return self._take(start, self.value_end[hit] - start).take(pa.array(last, mask=last < 0))

    def as_map(self) -> pa.Array:
        keep = ~self.named(_RECORD_CRC)
        names = self._take(self.name_start[keep], self.name_size[keep])
        values = self._take(self.name_end[keep] + 1, (self.value_end - self.name_end - 1)[keep])
        counts = np.bincount(self.row[keep], minlength=self.rows)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def _take(self, start: Ints, size: Ints) -> pa.Array:
        n = len(start)
        if n == 0:
            return pa.array([], pa.string())
        order = None
        if n > 1 and (np.diff(start) < 0).any():
            order = np.argsort(start, kind="stable")
            start, size = start[order], size[order]
        offsets = np.empty(2 * n, np.int32)
        offsets[0::2] = start
        offsets[1::2] = start + size
        spread = pa.Array.from_buffers(pa.binary(), 2 * n - 1, [None, pa.py_buffer(offsets), self.buffer])
        found = valid_text(spread.take(pa.array(np.arange(0, 2 * n - 1, 2, dtype=np.int32))))
        if order is None:
            return found
        back = np.empty(n, np.int64)
        back[order] = np.arange(n)
        return found.take(pa.array(back))


def _irregular(offsets: Ints, marks: Ints, stops: Ints) -> tuple[Ints, Ints, Ints]:
    """A pair ends at 0x02 or at its row's end; each piece between ends that has a 0x01 inside is a pair."""
    ends = np.union1d(stops, offsets[1:])
    starts = np.concatenate((offsets[:1], ends[:-1]))
    starts = starts + np.isin(starts, stops)
    first = np.searchsorted(marks, starts)
    mark = np.append(marks, -1)[np.minimum(first, len(marks))]  # -1: no mark, which makes no pair
    good = (mark > starts) & (mark + 1 < ends)  # neither name nor value may be empty
    return starts[good], mark[good], ends[good]


def _words(name: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """(at, (size, number)) for every four bytes of the name, then for each byte left."""
    at = 0
    while at < len(name):
        size = 4 if len(name) - at >= 4 else 1
        yield at, (size, int.from_bytes(name[at : at + size], "little"))
        at += size
