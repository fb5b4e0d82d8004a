# SPDX-License-Identifier: Apache-2.0
"""Delivers delayed messages of the 18 levels when they are due.

Theory of operation: level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX. All messages of a level have the same
delay, so a queue is in order of due time, which is the tag code of its units; only its head need be looked at.
Delivering is appending a copy to the real topic. How far each level has come is kept in delayOffset.json; after a
crash at most the deliveries since the last save are made again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.deliver import deliver
from aerobee.protocol import names
from aerobee.protocol.bodies import DataVersion, DelayOffsets, decode, encode
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from aerobee.broker.state.stats import Stats
    from aerobee.store.message_store import MessageStore

log = logging.getLogger("aerobee.schedule")

LOOK_MS = 100
PER_TICK = 256  # deliveries of one level before others have their turn


class Schedule(SavedTable):
    def __init__(self, store: MessageStore, stats: Stats) -> None:
        file = JsonFile(store.root / "config" / "delayOffset.json", _decode)
        super().__init__(file, store.log_on_disk)
        self._store = store
        self._stats = stats
        self._skipped = stats.skipped
        self._delays = store.delays  # ms of level 1, 2, ...
        self._version = DataVersion()
        self._offsets = dict.fromkeys(range(1, len(self._delays) + 1), 0)
        data = file.load()
        if data is not None:
            stored = _decode(data)
            self._version = stored.data_version
            self._offsets.update({k: v for k, v in stored.offset_table.items() if k in self._offsets})
        for level, offset in self._offsets.items():
            queue = (names.SCHEDULE_TOPIC, level - 1)
            self._offsets[level] = max(store.min_offset(*queue), min(offset, store.max_offset(*queue)))
        stats.delayed.delivered = self._offsets

    @property
    def offsets(self) -> dict[int, int]:
        """Level -> next offset to deliver."""
        return self._offsets

    def tick(self, now: int) -> int:
        """Deliver what is due; returns the ms until the next look."""
        busy = False
        for level, delay_ms in enumerate(self._delays, 1):
            busy |= self._deliver_level(level, delay_ms, now)
        return 0 if busy else LOOK_MS

    def _deliver_level(self, level: int, delay_ms: int, now: int) -> bool:
        """True when there may be more that is due."""
        store, queue_id, offset = self._store, level - 1, self._offsets[level]
        end = store.max_offset(names.SCHEDULE_TOPIC, queue_id)
        if offset >= end:
            return False
        offset = max(offset, store.min_offset(names.SCHEDULE_TOPIC, queue_id))
        stop = min(end, offset + PER_TICK)
        try:
            while offset < stop:
                unit = store.unit(names.SCHEDULE_TOPIC, queue_id, offset)
                if unit is not None:
                    due = store.run_time(unit.tags_code, unit.physical_offset)
                    # Further off than the whole delay: the clock was set back while we were down. Then it is due now.
                    if now < due <= now + delay_ms:
                        break
                    with self._skipped.over("schedule", level=level, offset=offset):
                        deliver(unit.physical_offset, store, self._stats, now)
                offset += 1
        finally:
            self._moved(level, offset)
        return offset == stop and stop < end

    def _moved(self, level: int, offset: int) -> None:
        if offset != self._offsets[level]:
            self._offsets[level] = offset
            self.changed()

    def text(self) -> bytes:
        """What delayOffset.json is to hold, as a new version of it."""
        self._version = msgspec.structs.replace(self._version, counter=self._version.counter + 1)
        return encode(DelayOffsets(data_version=self._version, offset_table=self._offsets))


def _decode(data: bytes) -> DelayOffsets:
    return decode(data, DelayOffsets)
