# SPDX-License-Identifier: Apache-2.0
"""Queues that are not what the log says are put right: the log has every message, and each knows its place in its queue.

A queue that is found damaged when it is loaded (queue_loading.py) is told again by the log, from its first damaged file
on; where there is one there may be more, so all are looked at, and one pass over the log serves all of them. A single
wrong unit that a reader meets is looked up between its neighbours.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from aerobee.store.consume_queue import FILLER_SIZE, UNIT
from aerobee.store.log_walk import places
from aerobee.store.metadata import disk_error
from aerobee.store.queue_loading import Damage, holds
from aerobee.store.record_keys import unit_of
from aerobee.store.record_parts import is_whole
from aerobee.store.results import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.queues import ConsumeQueues
    from aerobee.store.record_keys import TagCodes

log = logging.getLogger("aerobee.store")

_TELL_EVERY = 1 << 30  # bytes of the log between two lines about a rebuild
_WRITE_EVERY = 100_000  # units told before they are written: bounds the memory of a rebuild
_LOOK_AT = 20_000  # records looked at for one wrong unit: a stop of the loop that nobody notices
_LOOK_BACK = 64  # units


class QueueCare:
    def __init__(self, commit_log: CommitLog, queues: ConsumeQueues, codes: TagCodes) -> None:
        self._log = commit_log
        self._queues = queues
        self._codes = codes
        self.mended = 0  # how often a queue's units became others

    # -- whole queues ----------------------------------------------------------------------------------

    def found(self, damage: Damage) -> None:
        """A queue that was asked for is damaged: it is right when this returns, and so are all others."""
        self.mend([damage, *self._queues.look_at_all()], self._log.end)

    def mend(self, damages: list[Damage], log_end: int) -> None:
        """Offsets that were given are not given again, even where the log has lost the message."""
        self.rebuild(damages, log_end)
        for queue, _, end in damages:
            filler = UNIT.pack(max(0, log_end - 1), FILLER_SIZE, 0)
            self._queues.written_paths.update(queue.fill(end, filler))

    def rebuild(self, damages: list[Damage], upto: int) -> None:
        """Tell the queues again from the log before `upto`."""
        if not damages:
            return
        self.mended += 1
        wanted = {(queue.topic, queue.queue_id): queue for queue, _, _ in damages}
        begin = min(self._good_until(damage) for damage in damages)
        for queue, start, _ in damages:
            log.warning(
                "consume queue topic=%s queue=%d is damaged from offset=%d on; it is rebuilt from the log",
                queue.topic, queue.queue_id, start,
            )  # fmt: skip
            queue.drop_from(start)
        try:
            told = self._tell(wanted, begin, upto)
        except OSError as error:
            raise disk_error(error, "cannot rebuild damaged consume queues") from error
        log.warning("consume queues rebuilt=%d units=%d log_bytes=%d", len(wanted), told, upto - begin)

    def _good_until(self, damage: Damage) -> int:
        """Where in the log the first damaged file's records begin, at the earliest."""
        unit = (
            damage.queue.read(damage.start - 1, 1) if damage.start in damage.queue.file_starts()[1:] else b""
        )
        physical, size, _ = UNIT.unpack(unit) if unit else (0, FILLER_SIZE, 0)
        is_usable = size != FILLER_SIZE and self._log.place(physical) is not None
        return physical + size if is_usable else self._log.min_offset

    def _tell(self, wanted: dict[tuple[str, int], ConsumeQueue], begin: int, upto: int) -> int:
        told, tell_at, ids = 0, begin + _TELL_EVERY, {queue_id for _, queue_id in wanted}
        for at, place in places(self._log, begin, upto):
            if at >= tell_at:
                log.info("consume queues: %.0f%% of the log read", (at - begin) / (upto - begin) * 100)
                tell_at += _TELL_EVERY
            raw = self._log.slice(at, place.size) if place.queue_id in ids else None
            found = unit_of(raw, self._codes) if raw is not None and is_whole(raw) else None
            queue = wanted.get((found.topic, found.queue_id)) if found is not None else None
            if found is None or queue is None or not self._is_new(queue, found.offset, at):
                continue
            unit = UNIT.pack(at, place.size, found.code)
            self._queues.written_paths.update(queue.put(found.offset, unit))
            told += 1
            if told % _WRITE_EVERY == 0:
                self._write(wanted.values())
        self._write(wanted.values())
        return told

    def _is_new(self, queue: ConsumeQueue, offset: int, at: int) -> bool:
        """Not one of those before the damage, which a pass for another queue comes by."""
        if offset >= queue.max_offset:
            return True
        last = queue.unit(queue.max_offset - 1)
        return last is not None and last.physical_offset < at  # the topic was deleted and began again

    def _write(self, queues: Iterable[ConsumeQueue]) -> None:
        for queue in queues:
            self._queues.written_paths.update(queue.write_tail())
            self._queues.dirty.pop(queue, None)

    # -- while reading ---------------------------------------------------------------------------------

    def compare(self, queue: ConsumeQueue, offset: int, count: int) -> None:
        """Older files are compared with their sums when they are read for the first time."""
        first = offset - offset % queue.file_units
        for start in range(first, offset + count, queue.file_units):
            file = queue.unread.get(start)
            if file is None:
                continue
            queue.unread = {known: other for known, other in queue.unread.items() if known != start}
            if not holds(queue, file):
                self.found(Damage(queue, start, queue.max_offset))

    def right_unit(self, queue: ConsumeQueue, offset: int) -> Unit | None:
        """What the unit at `offset` must be, found between its neighbours and written there; None when the log has no
        such record nearby."""
        nearby = places(self._log, self._before(queue, offset), self._behind(queue, offset))
        for at, place in islice(nearby, _LOOK_AT):
            if (place.queue_id, place.offset) != (queue.queue_id, offset):
                continue
            unit = self._unit_at(queue, at, place.size)
            if unit is not None:
                self._put_right(queue, offset, unit)
                return unit
        return None

    def _before(self, queue: ConsumeQueue, offset: int) -> int:
        """The end of the nearest record before that of `offset`."""
        for earlier in range(offset - 1, max(queue.first_unit, offset - _LOOK_BACK) - 1, -1):
            unit = queue.unit(earlier)
            if unit is not None and self._is_right(queue, earlier, unit):
                return unit.physical_offset + unit.size
        return self._log.min_offset

    def _behind(self, queue: ConsumeQueue, offset: int) -> int:
        for later in range(offset + 1, min(queue.max_offset, offset + _LOOK_BACK)):
            unit = queue.unit(later)
            if unit is not None and self._is_right(queue, later, unit):
                return unit.physical_offset
        return self._log.end

    def _is_right(self, queue: ConsumeQueue, offset: int, unit: Unit) -> bool:
        return self._log.place(unit.physical_offset) == (unit.size, queue.queue_id, offset)

    def _unit_at(self, queue: ConsumeQueue, at: int, size: int) -> Unit | None:
        raw = self._log.slice(at, size)
        found = unit_of(raw, self._codes) if raw is not None and is_whole(raw) else None
        return Unit(at, size, found.code) if found is not None and found.topic == queue.topic else None

    def _put_right(self, queue: ConsumeQueue, offset: int, unit: Unit) -> None:
        log.warning(
            "consume queue topic=%s queue=%d offset=%d was wrong; it is put right from the log",
            queue.topic, queue.queue_id, offset,
        )  # fmt: skip
        self.mended += 1
        path = queue.replace(offset, UNIT.pack(*unit))
        if path:
            self._queues.written_paths.add(path)
