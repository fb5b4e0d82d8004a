# SPDX-License-Identifier: Apache-2.0
"""The slots of the index file that is being written, in memory of our own; a checkpoint writes them to the file.

Every key goes to another slot, so a mapping of the file has all its pages written to in no time. Each sync then takes
them away, and the next store into each is a fault of some microseconds: for a tenth of a second after every checkpoint
a run of sends took a millisecond instead of a tenth of one. After a crash the slots of the newest file are made from
its entries, whatever they are on disk.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from aerobee.store import platform

if TYPE_CHECKING:
    from collections.abc import Iterable

SLOT_SIZE = 4
_PIECE = 4096  # bytes that are read or written together
_FEW = 4096  # keys, of which each goes to another piece; of more all is written at once
_AT_ONCE = 128 << 10
_ZEROS = bytes(_PIECE)


class IndexSlots:
    """`table` has them as the file does, from `at` on; `count` of them."""

    def __init__(self, count: int, at: int) -> None:
        self.table = mmap.mmap(-1, count * SLOT_SIZE)
        self.count = count
        self._at = at

    def load(self, fd: int) -> None:
        """From the file. Where it has none, no memory is used."""
        size = self.count * SLOT_SIZE
        for start in range(0, size, _PIECE):
            piece = platform.pread(fd, min(_PIECE, size - start), self._at + start)
            if piece != _ZEROS[: len(piece)]:
                self.table[start : start + len(piece)] = piece

    def write(self, fd: int, changed: Iterable[int] | None) -> None:
        """To the file, those of the pieces in `changed`, or all; a thread may, while slots change."""
        view = memoryview(self.table)
        if changed is None:
            write_all(fd, view, self._at)
            return
        for piece in changed:
            start = piece * _PIECE
            write_all(fd, view[start : start + _PIECE], self._at + start)

    def pieces(self, hashes: Iterable[int]) -> list[int]:
        """Where the slots of these keys are."""
        slots, in_piece = self.count, _PIECE // SLOT_SIZE
        return sorted({key_hash % slots // in_piece for key_hash in hashes})


def are_few(keys: int) -> bool:
    """Whether to look where they are before their slots are written."""
    return keys <= _FEW


def write_all(fd: int, data: memoryview, at: int) -> None:
    """In parts: who else writes to the file waits for one of them."""
    while data:
        done = platform.pwrite(fd, data[:_AT_ONCE], at)
        data, at = data[done:], at + done
