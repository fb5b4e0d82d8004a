# SPDX-License-Identifier: Apache-2.0
"""Properties of rows that are all laid out alike: of one length, with the same names in the same columns.

So a producer writes them whose keys and tags have a fixed length. The rows are then a table of bytes, a value is a
stripe of it, and only the first row is read name by name. That all rows have what the first one has is seen by the
smallest and the largest byte of every column, which are one where the rows are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from aerobee.spark.decoding.spans import of_width, valid_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from aerobee.spark.decoding.spans import Ints

    Bytes = npt.NDArray[np.uint8]

_FOLD = 16  # rows taken together in a pass: numpy's cost is by the step, a row is too short for one


class Alike(NamedTuple):
    """The table, and in which columns the value of each property stands."""

    data: Bytes
    rows: int
    width: int
    values: dict[bytes, tuple[int, int]]
    ascii: bool

    def lookup(self, name: bytes) -> pa.Array:
        if name not in self.values:
            return pa.nulls(self.rows, pa.string())
        start, end = self.values[name]
        stripe = np.ndarray((self.rows,), f"V{end - start}", self.data, start, (self.width,))
        found = of_width(stripe.copy())
        return found.view(pa.string()) if self.ascii else valid_text(found)


def alike(data: Bytes, offsets: Ints) -> Alike | None:
    """The rows as a table, when they are alike; else None."""
    rows = len(offsets) - 1
    width = len(data) // rows if rows else 0
    if not width or not (np.diff(offsets) == width).all():
        return None
    low, high = _over_rows(np.minimum, data, width), _over_rows(np.maximum, data, width)
    same = low == high
    if not (same | (low > 2)).all():  # a pair may end where the first row has none
        return None
    values = _values(data[:width].tobytes(), same.tobytes())
    return None if values is None else Alike(data, rows, width, values, int(high.max()) < 0x80)


def _over_rows(choice: np.ufunc, data: Bytes, width: int) -> Bytes:
    """One row out of all rows: each column's byte by `choice`."""
    folded = len(data) // (width * _FOLD) * (width * _FOLD)
    if folded:
        together = choice.reduce(data[:folded].reshape(-1, width * _FOLD), axis=0)
        data = np.concatenate((together, data[folded:]))
    return np.asarray(choice.reduce(data.reshape(-1, width), axis=0), np.uint8)


def _values(first: bytes, same: bytes) -> dict[bytes, tuple[int, int]] | None:
    """Where the values stand in the first row, and so in all: None unless every name is the same in all rows. A pair
    without a name or a value is none; the last of a repeated one wins."""
    found = {}
    start = 0
    for pair in first.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        end = start + len(pair)
        before_value = end - len(value)
        if not all(same[start:before_value]):
            return None
        if name and value:
            found[name] = (before_value, end)
        start = end + 1
    return found
