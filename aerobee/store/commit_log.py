# SPDX-License-Identifier: Apache-2.0
"""The commit log: every message of every topic, one record after another, in files of fixed size.

    commitlog/00000000000000000000   record record ... record BLANK
    commitlog/00000000001073741824   record record ...           <- end

A record never spans two files. When size + 8 bytes do not fit any more, the rest of the file is declared
blank (space left 4, BLANK magic 4) and the record starts the next file. The hot path (appender.py) writes
into `map` itself and moves `end`; everything that happens once a file or once an extent is here.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import MessageIllegal, StoreError
from aerobee.protocol.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD, stored_at
from aerobee.store.directories import make_directory, sync_directory
from aerobee.store.next_segment import NextSegment
from aerobee.store.segment import Segment, is_position

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("aerobee.store")

BLANK_SIZE = 8
HEAD_SIZE = 8  # size and magic of a record
BLANK = struct.Struct(">ii")
PLACE = struct.Struct(">ii4xi4xqq")  # size, magic, queue id, queue offset, physical offset
_MAGICS = (MAGIC_V1, MAGIC_V2)
_MAX_MAPPED = 64
_FORGET_EVERY = 16 << 20
_WORTH_MAKING_AHEAD = 16 << 20
WORTH_A_CALL = 4096  # where no pages are ready
RUN_BYTES = 1 << 20  # more than one run of the compiled lane has


def file_name(offset: int) -> str:
    return f"{offset:020d}"


class Place(NamedTuple):
    """Which message a record is, by its own word."""

    size: int
    queue_id: int
    offset: int  # in its queue


class CommitLog:
    """`end` is where the next record goes; `limit` how far `map` may be filled without asking `room`."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        make_directory(directory)
        sync_directory(directory)  # a process that was killed may have left a file with a name not synced
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.end = 0
        self.limit = 0
        self.base = 0
        self.map: mmap.mmap | None = None
        self._mapped: list[Segment] = []
        self._forgotten = 0
        self._next = NextSegment()
        self._load()
        # So many bytes before the end of a file the next is made: enough for what comes from one tick to the next.
        self._ahead = self.segment_bytes // 4 if self.segment_bytes >= _WORTH_MAKING_AHEAD else 0

    def _load(self) -> None:
        paths = sorted(path for path in self.directory.iterdir() if is_position(path.name))
        sizes = [path.stat().st_size for path in paths]
        if len(paths) > 1 or (sizes and sizes[0] > self.segment_bytes):
            # Files say best what size they have: another would put every later record at a wrong place.
            actual = int(paths[1].name) - int(paths[0].name) if len(paths) > 1 else sizes[0]
            if actual != self.segment_bytes:
                log.warning(
                    "commit log files have %d bytes, not the configured %d", actual, self.segment_bytes
                )
                self.segment_bytes = actual
        for path in paths:
            if self.segments and int(path.name) != self.segments[-1].base + self.segment_bytes:
                log.error(
                    "commit log file=%s does not follow %s; it is left aside", path, self.segments[-1].path
                )
                continue
            self.segments.append(Segment(path, self.segment_bytes))

    @property
    def min_offset(self) -> int:
        return self.segments[0].base if self.segments else self.end

    # -- writing ---------------------------------------------------------------------------------------

    def start_at(self, end: int) -> None:
        """Where recovery found the end. Later files go, later bytes become zeros."""
        self._next.discard()
        while self.segments and self.segments[-1].base > end:
            self.segments.pop().delete()
        self.end = self.base = self.limit = end
        self._forgotten = end
        if self.segments and end < self.segments[-1].base + self.segment_bytes:
            segment = self.segments[-1]
            segment.reserved = (end - segment.base) // mmap.PAGESIZE * mmap.PAGESIZE
            self._use(segment)

    def _use(self, segment: Segment) -> None:
        self._remember(segment)
        self.map = segment.map
        segment.written_from(self.end - segment.base)
        self.base = segment.base
        self.limit = self.end  # the first append asks for room

    def room(self, size: int) -> int:
        """Make `size` bytes fit in one file at `end`, which is returned; or raise DiskFull and change
        nothing."""
        if self.end + size <= self.limit:
            return self.end
        if size + BLANK_SIZE > self.segment_bytes:
            raise MessageIllegal(
                f"{size} bytes do not fit one commit-log file of {self.segment_bytes}; send less at once"
            )
        if self.map is None or self.end + size + BLANK_SIZE > self.base + self.segment_bytes:
            self._roll(size)
        segment = self.segments[-1]
        needed = self.end - self.base + size + BLANK_SIZE
        segment.reserve_for(needed, self.end - self.base)
        self.limit = self.base + segment.make_pages(self.end - self.base, needed) - BLANK_SIZE
        self._forget_pages()
        return self.end

    def _forget_pages(self) -> None:
        if self.end - self._forgotten > _FORGET_EVERY:
            self.segments[-1].forget_pages(self.end - self.base)
            self._forgotten = self.end

    def room_for_draft(self) -> int:
        """How far a run may go that is written by one call, which needs no pages made ready."""
        segment = self.segments[-1]
        wanted = min(self.end - self.base + RUN_BYTES, self.segment_bytes)
        if segment.reserved < wanted:
            with suppress(StoreError):  # whoever needs it is told why
                segment.reserve_for(wanted, self.end - self.base)
            self._forget_pages()
        return self.base + min(segment.reserved, self.segment_bytes) - BLANK_SIZE

    def publish(self, at: int, data: bytes | memoryview) -> None:
        """Records at `at`, for which room was asked: all of them or, when we are killed on the way, none.

        The copy of the many bytes may happen in any order; size and magic of the first record, which follow in one
        store, make them part of the log. Where these are zeros, recovery ends the log, whatever lies behind.
        """
        start, view = at - self.base, memoryview(data)
        is_easy = len(view) < WORTH_A_CALL or at + len(view) <= self.limit
        if not is_easy and self._written(start + HEAD_SIZE, view[HEAD_SIZE:]):
            # By a call as well, for the map has none of these pages; in two of them half of it could get lost.
            if start % mmap.PAGESIZE <= mmap.PAGESIZE - HEAD_SIZE and self._written(start, view[:HEAD_SIZE]):
                return
        else:
            self.map[start + HEAD_SIZE : start + len(data)] = view[HEAD_SIZE:]  # type: ignore[index]
        self.map[start : start + HEAD_SIZE] = view[:HEAD_SIZE]  # type: ignore[index]

    def _written(self, start: int, view: memoryview) -> bool:
        """By one system call: the kernel need not make fresh pages zero first, as it must before a store into the map.
        Should the disk refuse all or part of it, the map takes it: there is space."""
        try:
            return os.pwrite(self.segments[-1].fd, view, start) == len(view)
        except OSError as error:
            log.warning("commit log file=%s takes no write: %s", self.segments[-1].path, error)
            return False

    def prepare(self) -> None:
        """Have the next file made while there is time."""
        if self.map is not None and self.base + self.segment_bytes - self.end < self._ahead:
            self._next.make(self.directory / file_name(self.base + self.segment_bytes), self.segment_bytes)

    def _roll(self, size: int) -> None:
        base = self.base + self.segment_bytes if self.map is not None else self.end
        path = self.directory / file_name(base)
        ready = self._next.take(path)
        following = ready or Segment(path, self.segment_bytes)
        try:
            following.reserve(size + BLANK_SIZE)
        except BaseException:
            following.delete()
            raise
        if self.map is not None:
            # Room for these 8 bytes was part of every reservation in this file.
            self.segments[-1].reserve(self.end - self.base + BLANK_SIZE)
            BLANK.pack_into(self.map, self.end - self.base, base - self.end, MAGIC_BLANK)
            self.segments[-1].forget_pages(self.segment_bytes)
            self.segments[-1].written_from(self.segment_bytes)
        if ready is None:
            sync_directory(self.directory)
        self.segments.append(following)
        self.end = base
        self._forgotten = base
        self._use(following)

    # -- reading ---------------------------------------------------------------------------------------

    def segment_at(self, offset: int) -> Segment | None:
        if not self.segments or offset < self.segments[0].base or offset >= self.end:
            return None
        segment = self.segments[(offset - self.segments[0].base) // self.segment_bytes]
        if segment.mapped is None:
            self._remember(segment)
        return segment

    def _remember(self, segment: Segment) -> None:
        """One that is to be mapped: the number of those is bounded, and the current one is never dropped."""
        self._mapped.append(segment)
        while len(self._mapped) > _MAX_MAPPED:
            oldest = self._mapped.pop(0)
            if oldest is self.segments[-1]:
                self._mapped.append(oldest)
            else:
                oldest.close()

    def slice(self, offset: int, size: int) -> bytes | None:
        """The bytes at `offset`, or None when they are not (all) in one file of the log."""
        segment = self.segment_at(offset)
        if segment is None or size <= 0:
            return None
        at = offset - segment.base
        data = segment.map[at : at + size]
        return data if len(data) == size else None

    def bytes_from(self, offset: int, size: int) -> memoryview | bytes:
        """Up to `size` bytes from `offset` to the log's end, over the edge of a file if need be; none outside the log.
        A view of the mapped log wherever possible, which outlives the file."""
        segment = self.segment_at(offset) if size > 0 else None
        if segment is None:
            return b""
        at = offset - segment.base
        count = min(size, segment.size - at, self.end - offset)
        if count == size or offset + count == self.end:
            return memoryview(segment.map)[at : at + count]
        # Copied at once: to map the next file this one may have to go.
        return segment.map[at : at + count] + self.bytes_from(offset + count, size - count)

    def header(self, offset: int) -> tuple[int, int]:
        """Size and magic at `offset`; (0, 0) outside the log."""
        segment = self.segment_at(offset)
        if segment is None or offset - segment.base + BLANK_SIZE > segment.size:
            return 0, 0
        size, magic = BLANK.unpack_from(segment.map, offset - segment.base)
        return size, magic

    def place(self, offset: int) -> Place | None:
        """What the record at `offset` says of itself, when one says it is there; it need not be whole."""
        segment = self.segment_at(offset)
        if segment is None or offset + MIN_RECORD > segment.base + segment.size:
            return None
        size, magic, queue_id, queue_offset, there = PLACE.unpack_from(segment.map, offset - segment.base)
        if there != offset or magic not in _MAGICS or not MIN_RECORD <= size <= self.end - offset:
            return None
        return Place(size, queue_id, queue_offset) if offset + size <= segment.base + segment.size else None

    def store_time(self, offset: int) -> int:
        """The store time of the record at `offset`, unverified; -1 when there is no record."""
        segment = self.segment_at(offset)
        if segment is None or offset - segment.base + 91 > segment.size:
            return -1
        at = offset - segment.base
        _, magic = BLANK.unpack_from(segment.map, at)
        if magic not in _MAGICS:
            return -1
        return stored_at(segment.map, at)

    # -- retention, end --------------------------------------------------------------------------------

    def delete_first(self) -> Segment:
        """Remove the oldest file; the caller keeps the last one out of this."""
        segment = self.segments.pop(0)
        if segment in self._mapped:
            self._mapped.remove(segment)
        segment.delete()
        return segment

    def close(self) -> None:
        self._next.close()
        self.map = None
        for segment in self.segments:
            segment.close()
