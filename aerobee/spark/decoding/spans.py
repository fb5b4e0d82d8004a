# SPDX-License-Identifier: Apache-2.0
"""Many byte ranges of one buffer copied into one Arrow array, without Python work per range."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

_INT32 = 2**31


def gather(buffer: pa.Buffer, start: Ints, size: Ints) -> pa.Array:
    """The bytes [start, start + size) of every row, as binary. The ranges ascend and do not overlap."""
    count = len(start)
    if count == 0:
        return pa.array([], pa.binary())
    width = int(size[0])
    if width > 0 and width * count < _INT32 and (size == width).all():
        return _of_one_width(buffer, start, width)
    # An array whose entries are the ranges and, between them, the gaps; `take` copies every second one in C++.
    base = int(start[0])
    wide = int(start[-1] + size[-1]) - base >= _INT32
    offsets = np.empty(2 * count, np.int64 if wide else np.int32)
    offsets[0::2] = start - base
    offsets[1::2] = start - base + size
    kind = pa.large_binary() if wide else pa.binary()
    spread = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(offsets), buffer.slice(base) if base else buffer]
    )
    found = spread.take(_every_second(count))
    return found.cast(pa.binary()) if wide else found


def _of_one_width(buffer: pa.Buffer, start: Ints, width: int) -> pa.Array:
    """Ids, tags, topics, often bodies: a view of `width` bytes at every byte, of which numpy copies the wanted."""
    view = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer=buffer, strides=(1,))
    return of_width(view[start])


def of_width(values: npt.NDArray[np.void]) -> pa.Array:
    """Values of one width, one behind the other, as binary."""
    count, width = len(values), values.itemsize
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values.view(np.uint8))]
    )


@lru_cache(maxsize=8)
def _every_second(count: int) -> pa.Array:
    return pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32))


def valid_text(raw: pa.Array) -> pa.Array:
    """UTF-8 checked: Spark must never be handed anything else; what is broken gets U+FFFD."""
    if _is_ascii(raw.buffers()[2]):
        return raw.view(pa.string())
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if v is None else v.decode("utf-8", "replace") for v in raw.to_pylist()], pa.string()
        )


def _is_ascii(data: pa.Buffer | None) -> bool:
    """Ids, tags and most keys are: a look at all bytes at once costs nothing, a check value by value does."""
    return not data or int(np.frombuffer(data, np.uint8).max()) < 0x80


@lru_cache(maxsize=8)
def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(text, count)


def constant(text: str, count: int) -> pa.Array:
    """The same text in every row; made once for batches of about this length."""
    return _repeated(text, 1 << count.bit_length())[:count]
