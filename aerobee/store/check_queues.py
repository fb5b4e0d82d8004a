# SPDX-License-Identifier: Apache-2.0
"""Every unit of every consume queue against the record it stands for, in the order of the log."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.delay import parse_levels
from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.store import platform
from aerobee.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE
from aerobee.store.record_keys import TagCodes, unit_of

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.settings import StoreConfig
    from aerobee.store.queue_sums import QueueSums

_SAMPLE = 1_000
_AT_ONCE = 128  # units of a queue in memory: 80,000 queues may be compared side by side


class DamagedQueue(msgspec.Struct):
    topic: str
    queue: int
    first_offset: int  # of what is damaged
    missing: int = 0  # units that are not there
    wrong: int = 0  # units that point elsewhere, or have another size or tag
    surplus: int = 0  # units without a record


class QueueReport(msgspec.Struct):
    queues: int = 0
    units: int = 0  # compared
    untold: int = 0  # not on disk yet, told again by the next start
    without_files: list[str] = []  # topics in the log that have no queue: deleted ones
    damaged: list[DamagedQueue] = []

    @property
    def is_sound(self) -> bool:
        return not self.damaged


class _Queue:
    """One queue on the way through the log."""

    def __init__(self, topic: str, queue_id: int, directory: Path, file_units: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.found = DamagedQueue(topic, queue_id, -1)
        self.next_offset = -1  # after the last record, -1 = none yet
        self.lost = 0
        self._directory = directory
        self._file_units = file_units
        self._units = b""
        self._from = 0

    def begin_again(self) -> None:
        """The topic was deleted at this point of the log: what came before is nobody's."""
        self.found, self.next_offset, self.lost = DamagedQueue(self.topic, self.queue_id, -1), -1, 0

    def unit(self, offset: int) -> bytes:
        at = (offset - self._from) * UNIT_SIZE
        if not 0 <= at < len(self._units):
            self._from, self._units, at = offset, self._read(offset), 0
        return self._units[at : at + UNIT_SIZE]

    def _read(self, offset: int) -> bytes:
        in_file = offset % self._file_units
        count = min(_AT_ONCE, self._file_units - in_file)
        path = self._directory / f"{(offset - in_file) * UNIT_SIZE:020d}"
        try:
            fd = os.open(path, os.O_RDONLY | platform.CLOSE_ON_EXEC)
        except FileNotFoundError:
            return bytes(count * UNIT_SIZE)
        try:
            return platform.pread(fd, count * UNIT_SIZE, in_file * UNIT_SIZE).ljust(count * UNIT_SIZE, b"\0")
        finally:
            os.close(fd)

    def damaged_at(self, offset: int) -> None:
        if self.found.first_offset < 0:
            self.found.first_offset = offset

    def look_behind(self, log_end: int, told_until: int) -> None:
        """Units after the last record's that stand for something, and that no start forgets."""
        offset = max(0, self.next_offset)
        while True:
            units = self._read(offset)
            if not units.strip(b"\0"):
                return
            for n, (physical, size, _) in enumerate(UNIT.iter_unpack(units)):
                if not size or size == FILLER_SIZE or physical >= told_until:
                    continue
                if self.next_offset >= 0 or physical >= log_end:
                    self.found.surplus += 1
                    self.damaged_at(offset + n)
            offset += len(units) // UNIT_SIZE


class QueueCheck:
    """Units of records at or past `told_until` are forgotten and told again by a start."""

    def __init__(self, directory: Path, config: StoreConfig, sums: QueueSums, told_until: int) -> None:
        self._directory = directory
        self._told_until = told_until
        self._sums = sums
        self._codes = TagCodes(parse_levels(config.delay_levels))
        self._file_units = units_of(directory, config.consume_queue_units)
        self._queues: dict[tuple[str, int], _Queue | None] = {}
        self._report = QueueReport()

    @property
    def lost(self) -> int:
        return sum(queue.lost for queue in self._queues.values() if queue is not None)

    def compare(self, at: int, raw: bytes) -> None:
        expected = unit_of(raw, self._codes)
        if expected is None:
            return
        key = expected.topic, expected.queue_id
        queue = self._queues[key] if key in self._queues else self._queue(*key)
        if queue is None:
            return
        if expected.offset < queue.next_offset:
            queue.begin_again()
        elif queue.next_offset >= 0:
            queue.lost += expected.offset - queue.next_offset
        queue.next_offset = expected.offset + 1
        unit = queue.unit(expected.offset)
        right = UNIT.pack(at, len(raw), expected.code)
        # The code of a delayed message is the time it is due, by the levels of the broker that stored it.
        is_right = unit[:12] == right[:12] if expected.topic == SCHEDULE_TOPIC else unit == right
        self._report.units += 1
        if is_right:
            return
        if at >= self._told_until and self._is_forgotten(unit):
            self._report.untold += 1
            return
        queue.damaged_at(expected.offset)
        if unit.strip(b"\0"):
            queue.found.wrong += 1
        else:
            queue.found.missing += 1

    def _is_forgotten(self, unit: bytes) -> bool:
        return not unit.strip(b"\0") or UNIT.unpack(unit)[0] >= self._told_until

    def _queue(self, topic: str, queue_id: int) -> _Queue | None:
        """None for a queue that is not on disk and need not be."""
        directory = self._directory / topic / str(queue_id)
        queue = None
        if directory.is_dir() or self._sums.of(topic, queue_id):
            queue = _Queue(topic, queue_id, directory, self._file_units)
        elif topic not in self._report.without_files and not directory.parent.is_dir():
            self._report.without_files.append(topic)
        self._queues[topic, queue_id] = queue
        return queue

    def finish(self, log_end: int) -> QueueReport:
        with suppress(FileNotFoundError):
            for topic in sorted(os.listdir(self._directory)):
                for name in os.listdir(self._directory / topic):
                    if name.isdigit() and (topic, int(name)) not in self._queues:
                        self._queue(topic, int(name))
        for queue in self._queues.values():
            if queue is None:
                continue
            queue.look_behind(log_end, self._told_until)
            self._report.queues += 1
            if queue.found.first_offset >= 0:
                self._report.damaged.append(queue.found)
        self._report.damaged.sort(key=lambda found: (found.topic, found.queue))
        return self._report


def units_of(directory: Path, configured: int) -> int:
    """How many units a queue file has: what the settings say, unless the files are unanimous about another number."""
    paths = list(islice(directory.glob("*/*/" + "[0-9]" * 20), _SAMPLE))
    sizes = Counter(path.stat().st_size for path in paths)
    starts = {int(path.name) for path in paths} - {0}
    if not paths or sizes[configured * UNIT_SIZE]:
        return configured
    common = sizes.most_common(1)[0][0]
    is_plausible = common > 0 and common % UNIT_SIZE == 0 and all(start % common == 0 for start in starts)
    return common // UNIT_SIZE if is_plausible else configured
