# SPDX-License-Identifier: Apache-2.0
"""From a queue's files to a queue that can be trusted: where it begins and ends, and whether its units are those that
were written.

Where sums are known (queue_sums.py) the files must be there and the last one must have its CRC; older ones are looked at
when they are first read. Where they are not (RocketMQ's store, an older Aerobee's) the last file's units must follow
each other, and the first and last unit of every file must be those of their records. That is cheap and happens when a
queue is first used. `aerobee store check` compares every unit with its record.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store import platform
from aerobee.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE, whole_units
from aerobee.store.queue_sums import FileSum

if TYPE_CHECKING:
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.queue_sums import QueueSums


class Damage(NamedTuple):
    """A queue whose units from `start`, the first of a file, on are not to be believed; at least to `end` there were
    some."""

    queue: ConsumeQueue
    start: int
    end: int


class QueueLoading:
    def __init__(self, commit_log: CommitLog, sums: QueueSums) -> None:
        self._log = commit_log
        self._sums = sums

    def load(self, queue: ConsumeQueue, log_end: int) -> Damage | None:
        """Find first and last unit. Units at or past `log_end` do not count: their records are gone."""
        known = self._sums.of(queue.topic, queue.queue_id)
        starts = queue.file_starts()
        if known:
            found = self._compare(queue, known, starts, log_end)
        else:
            found = None if self._sums.is_known else self._examine(queue, starts, log_end)
        if found is not None:
            return Damage(queue, found, known[-1].start + known[-1].units if known else 0)
        self._find_end(queue, known, starts, log_end)
        return None

    def _find_end(
        self, queue: ConsumeQueue, known: tuple[FileSum, ...], starts: list[int], log_end: int
    ) -> None:
        """Usually in the last file; an empty one (or one with dead units only) moves it back."""
        limits = {file.start: file.units for file in known}
        if self._sums.is_known:
            starts = [file.start for file in known]
        if not starts:
            return
        queue.first_unit = starts[0]
        for start in reversed(starts):
            data = _units_in(queue, start, limits.get(start, queue.file_units))
            count = _alive(data, log_end)
            if count or start == starts[0]:
                queue.max_offset = start + count
                queue.crc = zlib.crc32(data[: count * UNIT_SIZE])
                return

    # -- with sums -------------------------------------------------------------------------------------

    def _compare(
        self, queue: ConsumeQueue, known: tuple[FileSum, ...], starts: list[int], log_end: int
    ) -> int | None:
        """The first file that is not what was written, or None."""
        for file in known:
            if file.start not in starts:
                return file.start
            if file is known[-1]:
                is_sound = holds(queue, file)
            else:
                is_sound = _size_of(queue, file.start) == queue.file_units * UNIT_SIZE and self._ends_fit(
                    queue, file.start, file.units, log_end
                )
                if file.crc:
                    queue.unread = {**queue.unread, file.start: file}
            if not is_sound:
                return file.start
        return None

    # -- without ---------------------------------------------------------------------------------------

    def _examine(self, queue: ConsumeQueue, starts: list[int], log_end: int) -> int | None:
        for n, start in enumerate(starts):
            if start != starts[0] + n * queue.file_units:
                return starts[0] + n * queue.file_units
            if _size_of(queue, start) != queue.file_units * UNIT_SIZE:
                return start
            units = queue.file_units
            if start == starts[-1]:
                data = _units_in(queue, start, queue.file_units)
                units = _alive(data, log_end)
                if not _follow_each_other(data[: units * UNIT_SIZE]):
                    return start
            if units and not self._ends_fit(queue, start, units, log_end):
                return start
        return None

    def _ends_fit(self, queue: ConsumeQueue, start: int, units: int, log_end: int) -> bool:
        """The first and the last unit of a file are those of their records, where the log has these."""
        fd = queue.files.existing(queue.path(start))
        for offset in {start, start + units - 1}:
            data = platform.pread(fd, UNIT_SIZE, (offset - start) * UNIT_SIZE)
            if len(data) < UNIT_SIZE or not self._fits(queue, offset, data, log_end):
                return False
        return True

    def _fits(self, queue: ConsumeQueue, offset: int, unit: bytes, log_end: int) -> bool:
        physical, size, _ = UNIT.unpack(unit)
        if size == FILLER_SIZE:
            return True
        if size > 0 and (0 <= physical < self._log.min_offset or log_end <= physical < self._log.end):
            return True  # its record is gone, or not to be believed itself
        return self._log.place(physical) == (size, queue.queue_id, offset)

    # -- after a crash ---------------------------------------------------------------------------------

    def cut(self, queue: ConsumeQueue, log_end: int) -> Damage | None:
        """Remove units at or past `log_end` from the files for good; called before the queue is used."""
        damage = self.load(queue, log_end)
        if damage is not None:
            return damage
        for start in queue.file_starts():
            if start > queue.max_offset or (start == queue.max_offset and start > queue.first_unit):
                queue.remove_file(start)
            elif start <= queue.max_offset < start + queue.file_units:
                self._cut_file(queue, start)
        return None

    def _cut_file(self, queue: ConsumeQueue, start: int) -> None:
        fd, units = queue.files.existing(queue.path(start)), queue.max_offset - start
        behind = platform.pread(fd, max(0, _data_end(fd) - units * UNIT_SIZE), units * UNIT_SIZE)
        if behind.strip(b"\0"):
            os.ftruncate(fd, units * UNIT_SIZE)
        if os.fstat(fd).st_size != queue.file_units * UNIT_SIZE:
            os.ftruncate(fd, queue.file_units * UNIT_SIZE)
        self._sums.note(queue.topic, queue.queue_id, FileSum(start, units, queue.crc))

    def note(self, queue: ConsumeQueue, damage: Damage | None) -> None:
        """Write down what a queue without sums was found to hold, before its damage: what is not written down by the
        end of a start is taken for no file of the queue."""
        end = queue.max_offset if damage is None else damage.start
        for start in queue.file_starts():
            units = min(queue.file_units, end - start)
            crc = queue.crc if start + queue.file_units > end else 0
            self._sums.note(queue.topic, queue.queue_id, FileSum(start, max(0, units), crc))


def holds(queue: ConsumeQueue, file: FileSum) -> bool:
    """The file has the units that were written to it."""
    fd = queue.files.existing(queue.path(file.start))
    data = platform.pread(fd, file.units * UNIT_SIZE, 0)
    return len(data) == file.units * UNIT_SIZE and (not file.crc or zlib.crc32(data) == file.crc)


def _size_of(queue: ConsumeQueue, start: int) -> int:
    return os.fstat(queue.files.existing(queue.path(start))).st_size


def _units_in(queue: ConsumeQueue, start: int, count: int) -> bytes:
    """The first `count` units of a file, as far as it was written at all."""
    fd = queue.files.existing(queue.path(start))
    return whole_units(
        platform.pread(
            fd,
            min(count * UNIT_SIZE, -(-_data_end(fd) // UNIT_SIZE) * UNIT_SIZE),
            0,
        )
    )


def _data_end(fd: int) -> int:
    """Where the file's last written bytes end, to the page; what follows is a hole."""
    return platform.data_end(fd, os.fstat(fd).st_size)


def _alive(data: bytes, log_end: int) -> int:
    """How many units there are up to the last one that points into the log."""
    count = -(-len(data.rstrip(b"\0")) // UNIT_SIZE)
    while count:
        physical, size, _ = UNIT.unpack_from(data, (count - 1) * UNIT_SIZE)
        if size > 0 and physical < log_end:
            break
        count -= 1
    return count


def _follow_each_other(units: bytes) -> bool:
    last = -1
    for physical, size, _ in UNIT.iter_unpack(units):
        if size <= 0 or (size != FILLER_SIZE and physical <= last):
            return False
        if physical or size != FILLER_SIZE:
            last = max(last, physical - (size == FILLER_SIZE))
    return True
