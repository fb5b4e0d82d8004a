# SPDX-License-Identifier: Apache-2.0
"""The hot path of a pull: units of a queue, filtered, and their records out of the log, each checked.

A record is served only when it is the one its unit means (size, magic, queue offset, physical offset) and its
check holds: RocketMQ's record check over all its bytes where it has one, else the CRC of its body. One that
fails is reported once, counted and stepped over. Bulk readers (Spark) check for themselves: they get records as stored.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from typing import TYPE_CHECKING

from aerobee import native
from aerobee.protocol import properties as props
from aerobee.protocol.message import CHECK_BACKWARDS, MAGIC_V1, MIN_RECORD
from aerobee.store import as_stored
from aerobee.store.as_stored import signed32
from aerobee.store.commit_log import PLACE
from aerobee.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE
from aerobee.store.record_parts import is_whole, text_parts
from aerobee.store.results import Found, ReadStatus, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.queue_care import QueueCare
    from aerobee.store.results import Accept, ReadLimit, Stretch

if native.is_on:
    from aerobee.native.reads import collect

log = logging.getLogger("aerobee.store")

_place = PLACE.unpack_from
_POSITION = struct.Struct(">q")  # a unit begins with it
_crc32 = zlib.crc32
# Of a record: its check, backwards, and all that is checked. Made once: a slice written out is made for every record.
_CHECK = slice(None, -21, -1)
_CHECKED = slice(None, -20)
_MAX_REPORTED = 10_000
_SMALL = 4096  # bytes that may be copied for nothing
_NOWHERE = -(1 << 64)  # before every offset that a unit can hold


def machine_memory() -> int:
    """In bytes; a guess where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def units_wanted(limit: ReadLimit, accept: Accept | None) -> int:
    """How many units one read looks at."""
    is_filtered = accept is not None and bool(accept.codes or accept.properties is not None)
    return max(1, limit.max_messages, limit.max_scan if is_filtered else 0)


class Reader:
    """`corrupt` counts records found damaged; each is logged once."""

    def __init__(self, commit_log: CommitLog, care: QueueCare, memory_bytes: int) -> None:
        self._log = commit_log
        self._care = care
        self.memory_bytes = memory_bytes  # a message this far behind the end has probably left the page cache
        self._reported: set[int] = set()
        self._hopeless: set[tuple[ConsumeQueue, int]] = set()
        self.corrupt = 0
        self.cold = 0  # reads further back than that

    def read(
        self,
        found: Found,
        queue: ConsumeQueue,
        limit: ReadLimit,
        accept: Accept | None,
        *,
        checked: bool = True,
    ) -> Found:
        """What there is from `found.next_offset` on, which the queue has."""
        offset = found.next_offset
        codes, holds = (accept.codes or None, accept.properties) if accept is not None else (None, None)
        wanted = units_wanted(limit, accept)
        if queue.unread:
            self._care.compare(queue, offset, wanted)
        units = queue.read(offset, wanted)
        if not units:
            found.status = ReadStatus.OFFSET_FOUND_NULL
            found.next_offset = queue.next_file(offset)
            return found
        if not checked and holds is None:
            found.stored = self._as_stored(found, units, limit, codes)
            if found.stored is not None:
                return found
        self._collect(found, queue, units, limit, codes, holds)
        if not found.messages and wanted < limit.max_scan:
            # Lost or damaged, all of them: look on as far as a filter may.
            units = queue.read(found.next_offset, limit.max_scan - wanted)
            if units:
                self._collect(found, queue, units, limit, codes, holds)
        if found.messages:
            found.status = ReadStatus.FOUND
        if not checked:
            units = b"".join([UNIT.pack(_place(raw)[4], len(raw), 0) for raw in found.messages])
            found.stored = Stored(units, [memoryview(raw) for raw in found.messages], len(found.messages))
            found.messages, found.offsets = [], []
        return found

    def stretch(self, queue: ConsumeQueue, offset: int, count: int) -> Stretch | None:
        """What the compiled lane chooses records from; None where `read` must have a look."""
        low, high = queue.min_offset(self._log.min_offset), queue.max_offset
        if not low <= offset < high:
            return None
        if queue.unread:
            self._care.compare(queue, offset, count)
        units = queue.read(offset, count)
        if not units:
            return None
        (physical,) = _POSITION.unpack_from(units)
        segment = self._log.segment_at(physical)
        if segment is None or self._log.end - physical > self.memory_bytes:
            return None
        return units, segment.map, segment.base, low, queue

    def _collect(
        self,
        found: Found,
        queue: ConsumeQueue,
        units: bytes,
        limit: ReadLimit,
        codes: frozenset[int] | None,
        holds: Callable[[dict[str, str]], bool] | None,
    ) -> None:
        messages, offsets, offset, total = found.messages, found.offsets, found.next_offset, 0
        status, queue_id = ReadStatus.NO_MATCHED_MESSAGE, queue.queue_id
        max_messages, max_bytes = self._limits(units, limit)
        base = end = last = 0
        most = max(1, max_messages)
        if native.is_on and holds is None:
            taken, total, last = self._collect_usual(found, queue, units, (max_messages, max_bytes), codes)
            offset, units, most = offset + taken, units[taken * UNIT_SIZE :], most - len(messages)
        left = max_bytes - total
        for physical, size, code in UNIT.iter_unpack(units):
            if not most or (size > left and messages and size != FILLER_SIZE):
                break
            here = offset
            offset += 1
            if codes is not None and signed32(code) not in codes:
                continue
            if not base <= physical < end:
                segment = self._log.segment_at(physical)
                if segment is None:
                    if 0 <= physical < self._log.min_offset and size != FILLER_SIZE:
                        # The file is gone.
                        status = ReadStatus.MESSAGE_WAS_REMOVING
                        continue
                    base = end = _NOWHERE
                else:
                    base, end, data = segment.base, segment.base + segment.size, segment.mapped or segment.map
            start, stop = physical - base, physical + size
            # The usual record, whole: its check read backwards (its digits are), then its place. A large size is not
            # believed before its record says the same, or one damaged unit would copy a gigabyte.
            if (
                stop > end
                or not (MIN_RECORD <= size <= _SMALL or (size > _SMALL and _place(data, start)[0] == size))
                or (raw := data[start : start + size])[_CHECK]
                != CHECK_BACKWARDS % (_crc32(raw[_CHECKED]) & 0x7FFFFFFF)
                or _place(raw) != (size, MAGIC_V1, queue_id, here, physical)
            ):
                raw = self._unusual(queue, here, physical, size)
                size = len(raw)
            if not size or (holds is not None and not holds(props.parse(text_parts(raw)[1]))):
                continue
            messages.append(raw)
            offsets.append(here)
            left -= size
            most -= 1
            last = stop
        found.behind_bytes = self._log.end - last if messages else 0
        found.status, found.next_offset, found.size_bytes = status, offset, max_bytes - left

    def _collect_usual(
        self,
        found: Found,
        queue: ConsumeQueue,
        units: bytes,
        limits: tuple[int, int],
        codes: frozenset[int] | None,
    ) -> tuple[int, int, int]:
        """The start of it by the compiled lane: how many units it dealt with, the bytes found, the last one's end."""
        (physical,) = _POSITION.unpack_from(units)
        segment = self._log.segment_at(physical)
        if segment is None:
            return 0, 0, 0
        place = (queue.queue_id, found.next_offset)
        return collect(units, segment.map, segment.base, place, limits, codes, found.messages, found.offsets)

    def _as_stored(
        self, found: Found, units: bytes, limit: ReadLimit, codes: frozenset[int] | None
    ) -> Stored | None:
        (position,) = _POSITION.unpack_from(units)
        segment = self._log.segment_at(position)
        taken = as_stored.stored(units, segment, *self._limits(units, limit), codes) if segment else None
        if taken is not None:
            found.status = ReadStatus.FOUND if taken.records else ReadStatus.NO_MATCHED_MESSAGE
            found.next_offset += taken.seen
            found.size_bytes = sum(map(len, taken.records))
            found.behind_bytes = self._log.end - taken.end if taken.records else 0
        return taken

    def _limits(self, units: bytes, limit: ReadLimit) -> tuple[int, int]:
        (physical,) = _POSITION.unpack_from(units)
        if self._log.end - physical > self.memory_bytes:
            self.cold += 1
            return limit.cold_messages or limit.max_messages, limit.cold_bytes or limit.max_bytes
        return limit.max_messages, limit.max_bytes

    def _unusual(self, queue: ConsumeQueue, offset: int, physical: int, size: int) -> bytes:
        """The record of a unit when it is not the usual one: of a long topic, without a record check; or empty, for a
        gap or damage."""
        if size == FILLER_SIZE:
            return b""
        place = self._log.place(physical)
        if place == (size, queue.queue_id, offset):
            raw = self._log.slice(physical, size)
            if raw is not None and is_whole(raw):
                return raw
        mended = self._mended(queue, offset)
        if not mended:
            self.report(physical, f"queue offset {offset}")
        return mended

    def _mended(self, queue: ConsumeQueue, offset: int) -> bytes:
        """The record itself, when it was the unit that was wrong and not the record."""
        if (queue, offset) in self._hopeless:
            return b""
        unit = self._care.right_unit(queue, offset)
        if unit is not None:
            raw = self._log.slice(unit.physical_offset, unit.size)
            if raw is not None and is_whole(raw):
                return raw
        if len(self._hopeless) >= _MAX_REPORTED:
            self._hopeless.clear()
        self._hopeless.add((queue, offset))
        return b""

    def report(self, physical: int, where: str) -> None:
        """Shout once per record."""
        if physical in self._reported:
            return
        if len(self._reported) >= _MAX_REPORTED:
            self._reported.clear()
        self._reported.add(physical)
        self.corrupt += 1
        log.error("corrupt record physical_offset=%d %s; it is not served", physical, where)

    def raw_at(self, physical: int) -> bytes | None:
        """The whole record at a commit-log offset, or None when there is none that holds."""
        place = self._log.place(physical)
        raw = self._log.slice(physical, place.size) if place is not None else None
        if raw is None:
            return None  # also an offset that is not where a record starts, asked for by hand
        if not is_whole(raw):
            self.report(physical, "asked for by position")
            return None
        return raw
