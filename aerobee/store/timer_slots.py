# SPDX-License-Identifier: Apache-2.0
"""The timer wheel's file: for every second of two weeks, the first and last timer-log record due then.

    second (8) | first position (8) | last position (8) | messages (4) | delivered (4)

at (second mod slots) * 32. RocketMQ leaves the last field 0; for us it makes delivery survive a kill without
repetition. A slot whose second is not the one asked for is left over from an earlier turn of the wheel: it is empty.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.directories import make_directory, sync_directory
from aerobee.store.modes import open_file
from aerobee.store.segment import reserve_range

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOTS = 2 * 7 * 24 * 3600
_SLOT = struct.Struct(">qqqii")
_SECOND = struct.Struct(">q")
_BLOCK = 65536
_ZEROS = bytes(_BLOCK)


class Slot(NamedTuple):
    first: int
    last: int
    messages: int  # less the deletions, as RocketMQ counts
    delivered: int = 0  # records, in order of arrival


EMPTY = Slot(-1, -1, 0)


class TimerSlots:
    """Made on first use: a broker without timed messages has no such file."""

    def __init__(self, path: Path, slots: int = SLOTS) -> None:
        self._path = path
        self._slots = slots
        self._bytes = slots * _SLOT.size
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._reserved: set[int] = set()
        if path.exists():
            self._open()

    @property
    def exists(self) -> bool:
        return self._map is not None

    def get(self, second: int) -> Slot:
        if self._map is None:
            return EMPTY
        stored, *slot = _SLOT.unpack_from(self._map, second % self._slots * _SLOT.size)
        return Slot(*slot) if stored == second else EMPTY

    def next_used(self, second: int, stop: int) -> int:
        """The first second of [second, stop) that has a slot; `stop` when none has."""
        if self._map is None:
            return stop
        data, slots, stored = self._map, self._slots, _SECOND.unpack_from
        for each in range(second, stop):
            if stored(data, each % slots * _SLOT.size)[0] == each:
                return each
        return stop

    def reserve(self, second: int) -> None:
        """Space for the slot, so that `put` cannot meet a full disk. Raises DiskFull."""
        if self._map is None:
            self._open()
        block = second % self._slots * _SLOT.size // _BLOCK
        if block not in self._reserved:
            start = block * _BLOCK
            reserve_range(self._fd, start, min(_BLOCK, self._bytes - start), str(self._path))
            self._reserved.add(block)

    def put(self, second: int, slot: Slot) -> None:
        assert self._map is not None, "reserve first"
        _SLOT.pack_into(self._map, second % self._slots * _SLOT.size, second, *slot)

    def since(self, second: int) -> Iterator[tuple[int, Slot]]:
        """Slots with messages from `second` on, in no order."""
        for start in range(0, self._bytes if self._map else 0, _BLOCK):
            assert self._map is not None
            block = self._map[start : start + _BLOCK]
            if block == _ZEROS[: len(block)]:  # most of the file is a hole
                continue
            for stored, *slot in _SLOT.iter_unpack(block):
                if stored >= second:
                    yield stored, Slot(*slot)

    def clear(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)

    def _open(self) -> None:
        make_directory(self._path.parent)
        self._fd = open_file(self._path)
        if os.fstat(self._fd).st_size != self._bytes:
            os.ftruncate(self._fd, self._bytes)
            sync_directory(self._path.parent)
        self._map = mmap.mmap(self._fd, self._bytes)

    @property
    def descriptor(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            os.close(self._fd)
        self._map, self._fd = None, -1
        self._reserved.clear()
