# SPDX-License-Identifier: Apache-2.0
"""A consume queue: where in the commit log each message of one (topic, queue) is.

    consumequeue/{topic}/{queue id}/{20 digits}     6,000,000 bytes = 300,000 units
    unit: commit-log offset 8 | record size 4 | tags code 8

Unit n of the queue is at byte n * 20; a file is named by its first byte. What follows the last unit is zeros,
so the end is found by bisection and needs no file of its own. New units wait in `tail` until a tick writes
them: after a crash the log tells them again, so memory is a safe place for them. An idle queue is this object
and nothing else: no open file, no mapping.

A queue that starts above 0 (its first messages were lost with their log, or their topic's queue was moved)
begins with filler units, offset 0 and size 0x7FFFFFFF, as RocketMQ's do; readers step over them.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING

from aerobee.store.results import Unit
from aerobee.store.segment import is_position

if TYPE_CHECKING:
    from aerobee.store.open_files import OpenFiles

UNIT = struct.Struct(">qiq")
UNIT_SIZE = UNIT.size
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
_LOOK_FIRST = 64
_FILL_AT_ONCE = 4096


class ConsumeQueue:
    __slots__ = (
        "_min_for", "_min_offset", "directory", "file_units", "files", "first_unit",
        "magic", "max_offset", "queue_id", "tail", "topic", "topic_field",
    )  # fmt: skip

    def __init__(self, topic: str, queue_id: int, directory: str, file_units: int, files: OpenFiles) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.file_units = file_units
        self.files = files
        self.first_unit = 0  # first unit of the oldest file
        self.max_offset = 0  # the offset the next message gets
        self.tail = bytearray()  # the units before max_offset that no file has yet
        self.topic_field = (
            b""  # length and name as in a record, and the record's magic: kept for the append path
        )
        self.magic = 0
        self._min_offset = 0
        self._min_for = -1

    # -- loading ---------------------------------------------------------------------------------------

    def load(self, log_end: int) -> list[int]:
        """Find first and last unit on disk; the files' first units. Units at or past `log_end` do not count: their
        records are gone."""
        starts = self._file_starts()
        if not starts:
            return starts
        self.first_unit = starts[0]
        # Usually the last file has the end; an empty one (or one with dead units only) moves it back.
        for start in reversed(starts):
            count = self._alive_in(start, log_end)
            if count or start == starts[0]:
                self.max_offset = start + count
                break
        return starts

    def _alive_in(self, start: int, log_end: int) -> int:
        """How many units of the file at `start` point into the log: those that do come first."""
        fd = self.files.existing(self._path(start))
        low, high = 0, self.file_units
        head = os.pread(fd, _LOOK_FIRST * UNIT_SIZE, 0)  # most queues of a broker with many are short
        units = [size > 0 and physical < log_end for physical, size, _ in UNIT.iter_unpack(whole_units(head))]
        if not all(units):
            return units.index(False)
        if len(units) < min(_LOOK_FIRST, self.file_units):
            return len(units)  # the file ends here
        low = len(units)
        while low < high:
            middle = (low + high) // 2
            unit = os.pread(fd, UNIT_SIZE, middle * UNIT_SIZE)
            physical, size, _ = UNIT.unpack(unit) if len(unit) == UNIT_SIZE else (0, 0, 0)
            if size > 0 and physical < log_end:
                low = middle + 1
            else:
                high = middle
        return low

    def _file_starts(self) -> list[int]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(int(name) // UNIT_SIZE for name in names if is_position(name))

    def cut(self, log_end: int) -> int:
        """Remove units at or past `log_end` from the files for good; called before the queue is used. Returns
        how many files it looked at."""
        starts = self.load(log_end)
        for start in starts:
            path = self._path(start)
            if start > self.max_offset or (start == self.max_offset and start > self.first_unit):
                self.files.drop(path)
                os.unlink(path)
            elif start <= self.max_offset < start + self.file_units:
                fd = self.files.existing(path)
                if os.pread(fd, UNIT_SIZE, (self.max_offset - start) * UNIT_SIZE).strip(b"\0"):
                    os.ftruncate(fd, (self.max_offset - start) * UNIT_SIZE)
                if os.fstat(fd).st_size != self.file_units * UNIT_SIZE:
                    os.ftruncate(fd, self.file_units * UNIT_SIZE)
        return len(starts)

    # -- units -----------------------------------------------------------------------------------------

    @property
    def written(self) -> int:
        """The offset after the last unit in a file."""
        return self.max_offset - len(self.tail) // UNIT_SIZE

    def _path(self, unit: int) -> str:
        start = unit - unit % self.file_units
        return f"{self.directory}/{start * UNIT_SIZE:020d}"

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` units from `offset`, out of memory or out of one file; empty when the file is gone."""
        written = self.written
        if offset >= written:
            at = (offset - written) * UNIT_SIZE
            return bytes(self.tail[at : at + count * UNIT_SIZE])
        in_file = offset % self.file_units
        count = min(count, written - offset, self.file_units - in_file)
        try:
            data = os.pread(self.files.existing(self._path(offset)), count * UNIT_SIZE, in_file * UNIT_SIZE)
        except FileNotFoundError:
            return b""
        return whole_units(data)

    def unit(self, offset: int) -> Unit | None:
        if not self.first_unit <= offset < self.max_offset:
            return None
        data = self.read(offset, 1)
        return Unit(*UNIT.unpack(data)) if data else None

    def next_file(self, offset: int) -> int:
        """The first unit of the file after the one `offset` is in."""
        return offset - offset % self.file_units + self.file_units

    def put(self, offset: int, unit: bytes) -> None:
        """Recovery's way in: the unit of `offset`, fillers before it where units are missing."""
        if offset < self.max_offset:
            # A lower offset further on in the log: the topic was deleted in between and began again.
            self.remove_files()
        filler = FILLER
        if offset > self.max_offset and not self.max_offset:
            # No file before the one that holds the first message, as in RocketMQ.
            self.first_unit = self.max_offset = offset - offset % self.file_units
        elif offset > self.max_offset:
            # A hole among units: physical offsets must go on rising, bisection relies on it.
            filler = UNIT.pack(UNIT.unpack(unit)[0], FILLER_SIZE, 0)
        while self.max_offset < offset:
            count = min(offset - self.max_offset, _FILL_AT_ONCE)
            self.tail += filler * count
            self.max_offset += count
            self.write_tail()
        self.tail += unit
        self.max_offset += 1

    def write_tail(self) -> list[str]:
        """Move the tail into files; the paths written to. On OSError what was not written stays in memory."""
        paths = []
        while self.tail:
            start = self.written
            room = (self.file_units - start % self.file_units) * UNIT_SIZE
            part = bytes(self.tail[:room])
            path = self._path(start)
            fd = self.files.created(path, self.file_units * UNIT_SIZE)
            done = os.pwrite(fd, part, start % self.file_units * UNIT_SIZE)
            if done < UNIT_SIZE:  # the last bytes of a full disk; the next start drops such a piece of a unit
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            del self.tail[: done // UNIT_SIZE * UNIT_SIZE]
            paths.append(path)
        return paths

    # -- the oldest message ----------------------------------------------------------------------------

    def min_offset(self, log_min: int) -> int:
        """The first offset whose record the log still has; max_offset when it has none."""
        if self._min_for != log_min:
            self._min_offset = self._find_min(log_min)
            self._min_for = log_min
        return self._min_offset

    def _find_min(self, log_min: int) -> int:
        low, high = max(self.first_unit, self._min_offset), self.max_offset
        if low < high and self._is_gone(low, log_min):
            while low < high:
                middle = (low + high) // 2
                if self._is_gone(middle, log_min):
                    low = middle + 1
                else:
                    high = middle
        return low

    def _is_gone(self, offset: int, log_min: int) -> bool:
        unit = self.unit(offset)
        if unit is None or unit.physical_offset < log_min:
            return True
        return unit.size == FILLER_SIZE and not unit.physical_offset

    # -- retention -------------------------------------------------------------------------------------

    def trim(self, log_min: int) -> int:
        """Delete files whose every unit points before `log_min`. The last file stays: it knows max_offset."""
        removed = 0
        while self.first_unit + self.file_units < self.written:
            last = self.unit(self.first_unit + self.file_units - 1)
            if last is not None and last.physical_offset >= log_min:
                break
            path = self._path(self.first_unit)
            self.files.drop(path)
            if os.path.exists(path):
                os.unlink(path)
                removed += 1
            self.first_unit += self.file_units
        return removed

    def remove_files(self) -> None:
        """Begin again at offset 0."""
        for path in self.close_files():
            os.unlink(path)

    def close_files(self) -> list[str]:
        """Forget all units, in memory and of the files, which are returned: whoever calls removes them."""
        self.tail.clear()
        self.max_offset = self.first_unit = self._min_offset = 0
        self._min_for = -1
        paths = [self._path(start) for start in self._file_starts()]
        for path in paths:
            self.files.drop(path)
        return paths


def whole_units(data: bytes) -> bytes:
    return data[: len(data) // UNIT_SIZE * UNIT_SIZE]
