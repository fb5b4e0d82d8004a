# SPDX-License-Identifier: Apache-2.0
"""The timer log: one record per timed message, appended in order of arrival, each chained to the record before
it that is due in the same second.

    size 52 (4) | previous record of the second, or -1 (8) | kind bits (4) | write time (8) |
    delay after it (4) | commit-log offset (8) | size there (4) | hash of the real topic (4) | 0 (8)

Records do not span files. Where 52 + 16 bytes no longer fit, `space left (4), 0 (8), BLANK (4)` ends the file.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store import platform
from aerobee.store.directories import make_directory, sync_directory
from aerobee.store.segment import Segment, is_position

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_BYTES = 104_857_600
RECORD_BYTES = 52
NONE = -1

_RECORD = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqi")
_BLANK_MAGIC = 0xCBD43194 - (1 << 32)
_OPEN_FILES = 64  # older files kept open for reading
_SCAN_RECORDS = 1024


# Bits of a record's kind. Plain numbers: an IntFlag costs more than the rest of an append.
PLAIN = 1
ROLL = 2  # due much later: store it again now
DELETE = 4  # cancels another message due in the same second


class Entry(NamedTuple):
    size: int
    previous: int
    kind: int
    write_time: int
    delay: int
    physical_offset: int
    message_size: int
    topic_hash: int
    reserved: int = 0

    @property
    def second(self) -> int:
        return (self.write_time + self.delay) // 1000


class TimerLog:
    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._records_per_file = (file_bytes - RECORD_BYTES - _BLANK.size) // RECORD_BYTES + 1
        paths = sorted(p for p in directory.glob("*") if is_position(p.name)) if directory.exists() else []
        self._segments = {int(path.name): Segment(path, file_bytes) for path in paths}
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._tail: Segment | None = None  # the file being written: the only one mapped
        self.end = self.start

    @property
    def start(self) -> int:
        """Where the oldest file begins."""
        return next(iter(self._segments), 0)

    # -- writing -------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> int:
        """Returns the record's position. Raises DiskFull before anything is changed."""
        segment = self._writable()
        at = self.end - segment.base
        segment.reserve_for(at + RECORD_BYTES, at)
        if segment is not self._tail:
            self._move_tail(segment)
            segment.written_from(at)
        _RECORD.pack_into(segment.map, at, *entry)
        position, self.end = self.end, self.end + RECORD_BYTES
        return position

    def _writable(self) -> Segment:
        base = self.end - self.end % self._file_bytes
        segment = self._segments.get(base)
        if segment is None:
            return self._create(base)
        at = self.end - base
        if at + RECORD_BYTES + _BLANK.size <= self._file_bytes:
            return segment
        segment.reserve(at + _BLANK.size)
        following = self._create(base + self._file_bytes)
        platform.pwrite(segment.fd, _BLANK.pack(self._file_bytes - at, 0, _BLANK_MAGIC), at)
        self.end = following.base
        return following

    def _create(self, base: int) -> Segment:
        make_directory(self._directory)
        segment = Segment(self._directory / f"{base:020d}", self._file_bytes)
        try:
            segment.reserve(RECORD_BYTES)
        except BaseException:
            segment.delete()
            raise
        sync_directory(self._directory)
        self._segments[base] = segment
        return segment

    def _move_tail(self, segment: Segment) -> None:
        # Older files are read with pread: mapped, all that waits would count as this process's memory.
        if self._tail is not None:
            self._tail.unmap()
        self._tail = segment

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, position: int) -> Entry | None:
        """None where there is no whole record (any more)."""
        segment = self._segment_of(position)
        if segment is None:
            return None
        if segment is self._tail:
            data = segment.map[position - segment.base : position - segment.base + RECORD_BYTES]
        else:
            data = platform.pread(segment.fd, RECORD_BYTES, position - segment.base)
        if len(data) < RECORD_BYTES:
            return None
        entry = Entry(*_RECORD.unpack(data))
        return entry if _is_sound(entry, position) else None

    def scan(self, position: int) -> Iterator[tuple[int, Entry]]:
        """Whole records from `position` on, across files, up to the first place that holds none."""
        while (segment := self._segment_of(position)) is not None:
            for entry in self._scan_file(segment, position):
                yield position, entry
                position += RECORD_BYTES
            if not self._is_blank(segment, position - segment.base):
                return
            position = segment.base + self._file_bytes

    def _scan_file(self, segment: Segment, position: int) -> Iterator[Entry]:
        while data := platform.pread(segment.fd, _SCAN_RECORDS * RECORD_BYTES, position - segment.base):
            for fields in _RECORD.iter_unpack(data[: len(data) // RECORD_BYTES * RECORD_BYTES]):
                entry = Entry(*fields)
                if not _is_sound(entry, position):
                    return
                yield entry
                position += RECORD_BYTES
            if len(data) < RECORD_BYTES:
                return

    def boundary(self, position: int) -> int:
        """`position` if a record can begin there, else the nearest place before it where one can."""
        position = max(position, self.start)
        base = position - position % self._file_bytes
        return base + min((position - base) // RECORD_BYTES, self._records_per_file) * RECORD_BYTES

    def before(self, position: int) -> int:
        """Where the record before `position` begins; NONE when there is none."""
        base = position - position % self._file_bytes
        if position == base:
            base -= self._file_bytes
            position = base + self._records_per_file * RECORD_BYTES
        return position - RECORD_BYTES if base in self._segments else NONE

    def _is_blank(self, segment: Segment, at: int) -> bool:
        data = platform.pread(segment.fd, _BLANK.size, at)
        if len(data) < _BLANK.size:
            return False
        size, _, magic = _BLANK.unpack(data)
        return bool(magic == _BLANK_MAGIC and size == self._file_bytes - at)

    def _segment_of(self, position: int) -> Segment | None:
        segment = self._segments.get(position - position % self._file_bytes) if position >= 0 else None
        if segment is None or segment is self._tail:
            return segment
        self._open[segment.base] = segment
        self._open.move_to_end(segment.base)
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        return segment

    # -- the ends ------------------------------------------------------------------------------------------

    def cut(self, end: int) -> None:
        """Make `end` the end: nothing that was written after it may ever be read again."""
        self.end = end
        for base in [base for base in self._segments if base >= end and base != self.start]:
            self._forget(base)
        segment = self._segment_of(end)
        if segment is not None:
            segment.cut(end - segment.base)

    def delete_written_before(self, time: int) -> int:
        """Delete the files all of whose records were written before `time`; returns how many."""
        deleted = 0
        for base in list(self._segments)[:-1]:
            last = self.read(base + (self._records_per_file - 1) * RECORD_BYTES)
            if last is None or last.write_time >= time:
                break
            self._forget(base)
            deleted += 1
        return deleted

    def _forget(self, base: int) -> None:
        self._open.pop(base, None)
        self._segments.pop(base).delete()

    def descriptors(self, position: int) -> list[int]:
        """Of the files that hold anything from `position` on."""
        return [s.fd for base, s in self._segments.items() if base + self._file_bytes > position]

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._open.clear()
        self._tail = None


def _is_sound(entry: Entry, position: int) -> bool:
    return (
        entry.size == RECORD_BYTES
        and entry.kind & PLAIN
        and entry.kind <= 15
        and NONE <= entry.previous < position
        and entry.delay >= 0
        and entry.physical_offset >= 0
        and entry.message_size > 0
    ) != 0
