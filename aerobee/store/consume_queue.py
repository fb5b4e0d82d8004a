# SPDX-License-Identifier: Apache-2.0
"""A consume queue: where in the commit log each message of one (topic, queue) is.

    consumequeue/{topic}/{queue id}/{20 digits}     6,000,000 bytes = 300,000 units
    unit: commit-log offset 8 | record size 4 | tags code 8

Unit n of the queue is at byte n * 20; a file is named by its first byte. What follows the last unit is zeros.
queue_loading.py finds the end, and whether the units are those that were written. New units wait in `tail` until a
tick writes them: after a crash the log tells them again, so memory is a safe place for them. An idle queue is this
object and nothing else: no open file, no mapping.

A queue that starts above 0 (its first messages were lost with their log, or their topic's queue was moved)
begins with filler units, offset 0 and size 0x7FFFFFFF, as RocketMQ's do; readers step over them.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aerobee import native
from aerobee.store import platform
from aerobee.store.queue_sums import FileSum
from aerobee.store.results import Unit
from aerobee.store.segment import is_position

if TYPE_CHECKING:
    from aerobee.store.open_files import OpenFiles
    from aerobee.store.queue_sums import QueueSums

UNIT = struct.Struct(">qiq")
UNIT_SIZE = UNIT.size
FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
NOTHING: dict[int, FileSum] = {}
_FILL_AT_ONCE = 4096


class Shelf(NamedTuple):
    """What the queues of a store share."""

    file_units: int
    files: OpenFiles
    sums: QueueSums


if TYPE_CHECKING or not native.is_on:

    class QueueEnd:
        """What an append changes; the compiled lane has one of plain numbers."""

        __slots__ = ("max_offset", "tail")
        max_offset: int
        tail: bytearray

else:
    from aerobee.native.state import QueueEnd


class ConsumeQueue(QueueEnd):
    __slots__ = (
        "_min_for", "_min_offset", "crc", "directory", "file_units", "files", "first_unit",
        "last_written", "magic", "queue_id", "served_from", "sums", "topic", "topic_field", "unread",
    )  # fmt: skip

    def __init__(self, topic: str, queue_id: int, directory: str, shelf: Shelf) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self.file_units, self.files, self.sums = shelf
        self.first_unit = 0  # first unit of the oldest file
        self.max_offset = 0  # the offset the next message gets
        self.tail = bytearray()  # the units before max_offset that no file has yet
        self.last_written = -1  # log position of the last unit that went from the tail into a file
        self.topic_field = (
            b""  # length and name as in a record, and the record's magic: kept for the append path
        )
        self.magic = 0
        self.crc = 0  # of the units in the last file
        # Older files whose units nobody has compared with their sums yet; replaced, never changed.
        self.unread = NOTHING
        self.served_from = 0  # what lies before is older than its topic keeps messages, and as good as gone
        self._min_offset = 0
        self._min_for = -1

    # -- files -----------------------------------------------------------------------------------------

    def file_starts(self) -> list[int]:
        """The first units of the files there are."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(int(name) // UNIT_SIZE for name in names if is_position(name))

    def path(self, unit: int) -> str:
        """The file that a unit is in."""
        start = unit - unit % self.file_units
        return f"{self.directory}/{start * UNIT_SIZE:020d}"

    def remove_file(self, start: int) -> None:
        path = self.path(start)
        self.files.drop(path)
        with suppress(FileNotFoundError):
            os.unlink(path)
        self.sums.note(self.topic, self.queue_id, FileSum(start, 0, 0))

    def drop_from(self, start: int) -> None:
        """Forget all units from that file on, those in memory too: the log is going to tell them again."""
        starts = self.file_starts()
        if not starts or start <= starts[0]:
            self.remove_files()
            return
        self.tail.clear()
        self.first_unit, self.max_offset, self.crc, self._min_for = starts[0], start, 0, -1
        self._min_offset = min(self._min_offset, start)
        self.served_from = min(self.served_from, start)
        self.unread = {file: known for file, known in self.unread.items() if file < start}
        # Those that were written down and are lost go from the sums as well, or they would be missed again.
        written = {file.start for file in self.sums.of(self.topic, self.queue_id)}
        for later in sorted(written.union(starts)):
            if later >= start:
                self.remove_file(later)

    # -- units -----------------------------------------------------------------------------------------

    @property
    def written(self) -> int:
        """The offset after the last unit in a file."""
        return self.max_offset - len(self.tail) // UNIT_SIZE

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` units from `offset`, over every seam: file to file, file to memory. It ends where a file is
        gone or too short, so it is empty when that is where it begins."""
        data = self._piece(offset, count)
        if len(data) == count * UNIT_SIZE or not data:
            return data
        parts, at, end = [data], offset + len(data) // UNIT_SIZE, min(offset + count, self.max_offset)
        while at < end and (data := self._piece(at, end - at)):
            parts.append(data)
            at += len(data) // UNIT_SIZE
        return b"".join(parts)

    def _piece(self, offset: int, count: int) -> bytes:
        """As many of them as lie together: in memory, or in one file."""
        written = self.written
        if offset >= written:
            at = (offset - written) * UNIT_SIZE
            return bytes(self.tail[at : at + count * UNIT_SIZE])
        in_file = offset % self.file_units
        count = min(count, written - offset, self.file_units - in_file)
        try:
            data = platform.pread(
                self.files.existing(self.path(offset)), count * UNIT_SIZE, in_file * UNIT_SIZE
            )
        except FileNotFoundError:
            return b""
        return whole_units(data)

    def moved_since(self, position: int) -> bool:
        """Was a record at or past that position of the log put in here, since the queue was loaded?"""
        tail = self.tail
        if tail:
            return bool(UNIT.unpack_from(tail, len(tail) - UNIT_SIZE)[0] >= position)
        return self.last_written >= position

    def unit(self, offset: int) -> Unit | None:
        if not self.first_unit <= offset < self.max_offset:
            return None
        data = self.read(offset, 1)
        return Unit(*UNIT.unpack(data)) if data else None

    def next_file(self, offset: int) -> int:
        """The first unit of the file after the one `offset` is in."""
        return offset - offset % self.file_units + self.file_units

    def put(self, offset: int, unit: bytes) -> list[str]:
        """Recovery's way in: the unit of `offset`, fillers before it where units are missing. The paths written to."""
        if offset < self.max_offset:
            # A lower offset further on in the log: the topic was deleted in between and began again.
            self.remove_files()
        filler = FILLER
        if offset > self.max_offset and not self.max_offset:
            # No file before the one that holds the first message, as in RocketMQ.
            self.first_unit = self.max_offset = offset - offset % self.file_units
            self._min_for = -1  # whoever asked before there was a unit was told 0
        elif offset > self.max_offset:
            # A hole among units: physical offsets must go on rising, bisection relies on it.
            filler = UNIT.pack(UNIT.unpack(unit)[0], FILLER_SIZE, 0)
        paths = self.fill(offset, filler)
        self.tail += unit
        self.max_offset += 1
        return paths

    def fill(self, offset: int, filler: bytes) -> list[str]:
        """Units that stand for nothing, up to `offset`; the paths written to."""
        paths: list[str] = []
        while self.max_offset < offset:
            count = min(offset - self.max_offset, _FILL_AT_ONCE)
            self.tail += filler * count
            self.max_offset += count
            paths += self.write_tail()
        return paths

    def replace(self, offset: int, unit: bytes) -> str:
        """Another unit at `offset`, where a wrong one is; the path written to, if any."""
        written = self.written
        if offset >= written:
            at = (offset - written) * UNIT_SIZE
            self.tail[at : at + UNIT_SIZE] = unit
            return ""
        in_file = offset % self.file_units
        start, path = offset - in_file, self.path(offset)
        fd = self.files.existing(path)
        platform.pwrite(fd, unit, in_file * UNIT_SIZE)
        units = min(self.file_units, written - start)
        crc = zlib.crc32(platform.pread(fd, units * UNIT_SIZE, 0))
        if start + self.file_units > written:
            self.crc = crc
        self.sums.note(self.topic, self.queue_id, FileSum(start, units, crc))
        return path

    def write_tail(self) -> list[str]:
        """Move the tail into files; the paths written to. On OSError what was not written stays in memory."""
        paths = []
        while self.tail:
            start = self.written
            room = (self.file_units - start % self.file_units) * UNIT_SIZE
            part = bytes(self.tail if len(self.tail) <= room else self.tail[:room])
            path = self.path(start)
            fd = self.files.created(path, self.file_units * UNIT_SIZE)
            done = platform.pwrite(fd, part, start % self.file_units * UNIT_SIZE)
            if done < UNIT_SIZE:  # the last bytes of a full disk; the next start drops such a piece of a unit
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            done -= done % UNIT_SIZE
            self.last_written = UNIT.unpack_from(part, done - UNIT_SIZE)[0]
            del self.tail[:done]
            in_file = start % self.file_units
            self.crc = zlib.crc32(part[:done], self.crc if in_file else 0)
            new = FileSum(start - in_file, in_file + done // UNIT_SIZE, self.crc)
            self.sums.note(self.topic, self.queue_id, new)
            paths.append(path)
        return paths

    # -- the oldest message ----------------------------------------------------------------------------

    def min_offset(self, log_min: int) -> int:
        """The first offset that is served and whose record the log still has; max_offset when there is none."""
        kept = self._min_offset if self._min_for == log_min else self.kept_from(log_min)
        return kept if kept >= self.served_from else self.served_from

    def kept_from(self, log_min: int) -> int:
        """The first offset whose record the log still has, served or not; max_offset when it has none."""
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
        gone = []
        while self.first_unit + self.file_units < self.written:
            last = self.unit(self.first_unit + self.file_units - 1)
            if last is not None and last.physical_offset >= log_min:
                break
            gone.append(self.first_unit)
            self.first_unit += self.file_units
        if gone:
            for start in gone:
                self.sums.note(self.topic, self.queue_id, FileSum(start, 0, 0))
            self.sums.save()  # first: a file that is gone must not be taken for one that was lost
            for start in gone:
                self.remove_file(start)
        return len(gone)

    def remove_files(self) -> None:
        """Begin again at offset 0."""
        for path in self.close_files():
            os.unlink(path)

    def close_files(self) -> list[str]:
        """Forget all units, in memory and of the files, which are returned: whoever calls removes them."""
        self.tail.clear()
        self.max_offset = self.first_unit = self._min_offset = self.served_from = 0
        self._min_for, self.crc, self.unread = -1, 0, NOTHING
        paths = [self.path(start) for start in self.file_starts()]
        for path in paths:
            self.files.drop(path)
        self.sums.forget(self.topic, self.queue_id)
        return paths


def whole_units(data: bytes) -> bytes:
    return data[: len(data) // UNIT_SIZE * UNIT_SIZE]
