# SPDX-License-Identifier: Apache-2.0
"""Messages to be delivered at a given second. Told `now`; owns no clock and no task.

Theory of operation. A timed message waits in the topic rmq_sys_wheel_timer. Its driver reads that queue from
`queue_offset` on and adds every message here: a record in the timer log, chained to the others of its second,
whose ends are kept in the slots file. Nothing is held in memory but the records of the one second being
delivered, as positions, 8 bytes each.

- The second T is due when now >= T + 1 s: a message asked for any moment in (T, T + 1 s] (TIMER_OUT_MS is T)
  is never early and at most a second late.
- `due` hands out what is left of the oldest due second, first of all its deletions (recalls), then messages in
  order of arrival; `done` says how many of those were delivered. When all are, the next second's turn comes.
- What is due later than the roll window comes due at the window's end with the bit ROLL: its driver stores it
  in the topic again, so that retention of the commit log does not take it.
- Kill at any moment: mappings survive, so does a slot's count of delivered; each message is delivered once.
  Power loss: the check file is written after the data is synced, so reading the queue again from
  `queue_offset` adds what was lost; what is in the log already is recognised by its commit-log offset, which
  only grows. A slot's count may have reached the disk before the copies it counts, so what it counted before
  a stop is handed out once more as `counted`, and the driver looks whether the log has the copy.
"""

from __future__ import annotations

import logging
import os
import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store import platform
from aerobee.store.directories import make_directory, sync_directory
from aerobee.store.metadata import disk_error
from aerobee.store.modes import open_file
from aerobee.store.timer_log import DELETE, FILE_BYTES, NONE, PLAIN, RECORD_BYTES, ROLL, Entry, TimerLog
from aerobee.store.timer_slots import Slot, TimerSlots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

log = logging.getLogger("aerobee.timer")

ROLL_SECONDS = 2 * 24 * 3600
TICK_MS = 1000
_NO_LIMIT = 1 << 62
_MAX_INT = (1 << 31) - 1
_WORK = 20_000  # slots looked at in one call of `due`
_RECORD_WORK = 32  # slots that a record counts for: it may have to come from the disk
_REMEMBERED = 4096  # records of the second being delivered that need no second look
_LAZY_FLUSH_SECONDS = 60  # mere passing of time is worth a sync this often
_CHECK = struct.Struct(">qqq")  # read time, timer-log end, queue offset
_CHECK_BYTES = 4096
_LAG = struct.Struct(">q")
_LAG_AT = 1024
_MAX_LAG_MS = 10 * 365 * 24 * 3600 * 1000


class Due(NamedTuple):
    physical_offset: int
    size: int
    due_ms: int  # the second's begin, as TIMER_OUT_MS has it
    kind: int  # bits PLAIN, ROLL, DELETE of timer_log
    counted: bool = (
        False  # as delivered before the wheel was opened: to be believed only if the copy is there
    )


class Flushing(NamedTuple):
    """A flush that was prepared: one of the two must be called."""

    run: Callable[[], None]
    drop: Callable[[], None]


class TimerWheel:
    """`open`, then `add`; `due` and `done` in turns; `flush` every second; `close`."""

    def __init__(self, root: Path, now: int, log_file_bytes: int = FILE_BYTES) -> None:
        self._check_path = root / "config" / "timercheck"
        self._log = TimerLog(root / "timerlog", log_file_bytes)
        self._slots = TimerSlots(root / "timerwheel")
        read_time, self._flushed, self.queue_offset = _load_check(self._check_path)
        self._lag = _load_lag(self._check_path)
        self._second = read_time // 1000 or now // 1000  # the next to be delivered
        self._furthest = self._second
        self._known_until = NONE  # commit-log offset of the last message in the log when it was opened
        self.pending = 0  # messages waiting, recalled ones not counted
        # The second being delivered:
        self._is_open = False
        self._walk = NONE  # the record to look at next, going back
        self._ready = array("q")  # positions, in order of arrival once the walk is over
        self._deletes = array("q")  # those among them that cancel others
        self._entries: dict[int, Entry] = {}  # by position, for the first few
        self._next = 0  # how many of _deletes + _ready are delivered
        self._counted = 0  # how many of _ready were, by the count of another run
        self._doubtful: set[int] = set()  # seconds with such a count
        self._dirty = False
        self._flushed_second = self._second

    @classmethod
    def open(
        cls, root: Path, now: int, *, log_max: int = _NO_LIMIT, log_file_bytes: int = FILE_BYTES
    ) -> TimerWheel:
        """Recover what is under `root` (the store's directory). `log_max` is the end of the commit log: a
        record that points past it belongs to a message lost with the power."""
        wheel = cls(root, now, log_file_bytes)
        wheel._recover(log_max)
        return wheel

    @property
    def progress(self) -> int:
        """Everything due before this time (ms) has been delivered."""
        return self._second * 1000

    def slots(self) -> Iterator[tuple[int, int]]:
        """Seconds with messages that wait, and how many, in no order."""
        for second, slot in self._slots.since(self._second):
            if slot.messages > slot.delivered:
                yield second, slot.messages - slot.delivered

    @property
    def lag(self) -> int:
        """How far the wall clock is behind the time the wheel is told (ms): kept with what waits in it."""
        return self._lag

    @lag.setter
    def lag(self, lag: int) -> None:
        if lag != self._lag:
            self._lag = lag
            self._dirty = True

    # -- adding --------------------------------------------------------------------------------------------

    def add(
        self, due_ms: int, physical_offset: int, size: int, topic_hash: int, now: int, kind: int = PLAIN
    ) -> None:
        """A message of the timer topic, in order of its queue. Raises DiskFull and then has done nothing."""
        if physical_offset <= self._known_until:
            return  # read again after a crash
        self._follow_clock(now)
        second, kind = self._place(due_ms, kind)
        due_ms = second * 1000
        if not self._slots.exists:
            self._begin()
        self._slots.reserve(second)
        slot = self._slots.get(second)
        written = max(min(now, due_ms), due_ms - _MAX_INT)
        entry = Entry(
            RECORD_BYTES, slot.last, kind, written, due_ms - written, physical_offset, size, topic_hash
        )
        position = self._log.append(entry)
        self._link(second, slot, position, entry.kind)
        self._dirty = True

    def _begin(self) -> None:
        """The first message ever: from now on a crash must find from which second on to look."""
        try:
            check = _CHECK.pack(self.progress, self._flushed, self.queue_offset)
            _save_check(self._check_path, check, self._lag)
        except OSError as error:
            raise disk_error(error, f"cannot save {self._check_path}") from error

    def _place(self, due_ms: int, kind: int) -> tuple[int, int]:
        earliest = self._second + self._is_open  # what is being delivered takes no more
        second = max(due_ms // 1000, earliest)
        beyond = second - self._second - ROLL_SECONDS
        if beyond < 0:
            return second, kind
        # As RocketMQ: leave the last stretch long enough to be worth a roll.
        steps = ROLL_SECONDS // 2 if beyond < ROLL_SECONDS // 3 else ROLL_SECONDS
        return self._second + steps, kind | ROLL

    def _link(self, second: int, slot: Slot, position: int, kind: int) -> None:
        step = -1 if kind & DELETE else 1  # as RocketMQ counts
        first = slot.first if slot.first != NONE else position
        self._slots.put(second, Slot(first, position, slot.messages + step, slot.delivered))
        self.pending += step

    # -- delivering ----------------------------------------------------------------------------------------

    def due(self, now: int, limit: int = 512) -> list[Due]:
        """The next messages to deliver, the same ones until `done` is told. Empty: nothing is due, or the
        work of one call was used up (`wait_ms` is 0 then)."""
        self._follow_clock(now)
        work = _WORK
        while work > 0:
            if self._is_open:
                if self._walk != NONE:
                    work = self._walk_back(work)
                elif self._next < self._count():
                    return self._batch(limit)
                else:
                    self._finish_second()
            elif now < self.progress + TICK_MS:
                return []
            else:
                work -= self._start_second(min(now // 1000, self._second + work))
        return []

    def _follow_clock(self, now: int) -> None:
        if now < self._second * 1000 and not self._is_open:
            self._second = now // 1000  # it was set back; what was delivered is known by its slot's count

    def wait_ms(self, now: int) -> int:
        """How long until `due` may have something."""
        return 0 if self._is_open else max(0, self.progress + TICK_MS - now)

    def done(self, count: int) -> None:
        """The first `count` of what `due` returned last are delivered, as durably as they need to be."""
        if not 0 <= count <= self._count() - self._next:
            raise ValueError(f"{count} done, but {self._count() - self._next} were due")
        deletes = max(0, min(len(self._deletes) - self._next, count))
        self._next += count
        self._delivered(deletes, count - deletes)
        self._dirty = True
        if self._is_open and self._walk == NONE and self._next == self._count():
            self._finish_second()

    def _delivered(self, deletes: int, messages: int) -> None:
        self.pending -= messages
        if self._second >= self._furthest:  # else the clock was set back: they were counted then
            self.pending += deletes
        if messages:
            slot = self._slots.get(self._second)
            self._slots.put(self._second, slot._replace(delivered=slot.delivered + messages))

    def _count(self) -> int:
        return len(self._deletes) + len(self._ready)

    def _batch(self, limit: int) -> list[Due]:
        deletes = len(self._deletes)
        if self._next < deletes:
            return [self._due_at(p) for p in self._deletes[self._next : self._next + limit]]
        at = self._next - deletes
        found = [self._due_at(p) for p in self._ready[at : at + limit]]
        return [due._replace(counted=at + n < self._counted) for n, due in enumerate(found)]

    def _start_second(self, stop: int) -> int:
        """Begin with the next second before `stop` that has messages; returns how many were looked at."""
        began, self._second = self._second, self._slots.next_used(self._second, stop)
        if self._second < stop:
            self._is_open = True
            self._walk = self._slots.get(self._second).last
        return 1 + self._second - began

    def _walk_back(self, work: int) -> int:
        """Follow the chain; it begins with the newest."""
        while self._walk != NONE and work > 0:
            work -= _RECORD_WORK
            entry = self._log.read(self._walk)
            if entry is None or entry.second != self._second:
                if self._walk >= self._log.start:
                    log.error("second=%d: no record at %d of the timer log", self._second, self._walk)
                self._walk = NONE
                break
            is_delete = entry.kind & (DELETE | ROLL) == DELETE
            (self._deletes if is_delete else self._ready).append(self._walk)
            if len(self._entries) < _REMEMBERED:
                self._entries[self._walk] = entry
            self._walk = entry.previous
        if self._walk == NONE:
            self._arrange()
        return work

    def _arrange(self) -> None:
        """Oldest first, without what this run delivered (the clock was set back since). Deletions are handed out
        again: the messages they cancel may still wait."""
        self._deletes.reverse()
        self._ready.reverse()
        slot = self._slots.get(self._second)
        self._counted = 0
        if self._second in self._doubtful:
            self._doubtful.discard(self._second)
            self._counted = min(slot.delivered, len(self._ready))
            self.pending += slot.delivered
            self._slots.put(self._second, slot._replace(delivered=0))
        else:
            del self._ready[: slot.delivered]

    def _due_at(self, position: int) -> Due:
        entry = self._entries.get(position) or self._log.read(position)
        if entry is None:  # it was there a moment ago; whoever delivers finds no message and goes on
            log.error("second=%d: the record at %d of the timer log is gone", self._second, position)
            return Due(NONE, 0, self._second * 1000, PLAIN)
        return Due(entry.physical_offset, entry.message_size, self._second * 1000, entry.kind)

    def _finish_second(self) -> None:
        self._is_open = False
        self._ready, self._deletes, self._next = array("q"), array("q"), 0
        self._entries.clear()
        self._second += 1
        self._furthest = max(self._furthest, self._second)

    # -- what survives -------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sync. See `prepare_flush` for doing it elsewhere."""
        self.prepare_flush().run()

    def prepare_flush(self) -> Flushing:
        """Take down how far things are; what is returned syncs, in a thread if you like, or is dropped."""
        idle = self._second - self._flushed_second
        if not self._slots.exists or not (self._dirty or idle >= _LAZY_FLUSH_SECONDS):
            return Flushing(_nothing, _nothing)
        self._dirty = False
        self._flushed_second = self._second
        self._log.delete_written_before((self._second - ROLL_SECONDS - 1) * 1000)
        end, lag = self._log.end, self._lag
        check = _CHECK.pack(self._second * 1000, end, self.queue_offset)
        # Own descriptors: a file may be closed or deleted here while it is synced there.
        files = [os.dup(fd) for fd in (*self._log.descriptors(self._flushed), self._slots.descriptor)]

        def sync() -> None:
            try:
                for fd in files:
                    platform.sync_data(fd)
                _save_check(self._check_path, check, lag)
            except OSError as error:
                self._dirty = True
                raise disk_error(error, f"cannot sync the timer files of {self._check_path}") from error
            finally:
                for fd in files:
                    os.close(fd)
            self._flushed = end

        def drop() -> None:
            self._dirty = True
            for fd in files:
                os.close(fd)

        return Flushing(sync, drop)

    def close(self) -> None:
        self._dirty = True
        self.flush()
        self._log.close()
        self._slots.close()

    def _recover(self, log_max: int) -> None:
        end = start = self._log.boundary(self._flushed)
        if not self._slots.exists:
            start = end = self._log.start
        for position, entry in self._log.scan(start):
            if entry.physical_offset >= log_max:
                break
            end = position + RECORD_BYTES
            self._relink(position, entry)
        end = self._known_end(end, log_max)
        self._log.cut(end)
        if end < self._flushed:  # messages of the queue are lost, so its offsets will be given again
            self.queue_offset = max(0, self.queue_offset - (self._flushed - end) // RECORD_BYTES)
            self._flushed = end
        if any(slot.last >= end for _, slot in self._slots.since(self._second)):
            self._rebuild()
        self.pending = sum(slot.messages - slot.delivered for _, slot in self._slots.since(self._second))
        self._doubtful = {second for second, slot in self._slots.since(self._second) if slot.delivered}
        if end > start:
            log.info("recovered timer_log_records=%d pending=%d", (end - start) // RECORD_BYTES, self.pending)

    def _known_end(self, end: int, log_max: int) -> int:
        """Step back over records of lost messages; remember the last one that is known."""
        while (position := self._log.before(end)) != NONE:
            entry = self._log.read(position)
            if entry is not None and entry.physical_offset < log_max:
                self._known_until = entry.physical_offset
                break
            end = position
        return end

    def _relink(self, position: int, entry: Entry) -> None:
        second = entry.second
        slot = self._slots.get(second)
        if second >= self._second and slot.last < position:  # else the slot's page survived
            self._slots.reserve(second)
            self._link(second, slot, position, entry.kind)

    def _rebuild(self) -> None:
        """A slot points past the log's end: its page reached the disk, the record's did not."""
        log.warning("timer wheel does not fit its log after a power loss: building it anew")
        self._slots.clear()
        for position, entry in self._log.scan(self._log.start):
            self._relink(position, entry)


def _nothing() -> None:
    """Nothing to sync."""


def _load_check(path: Path) -> tuple[int, int, int]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0, 0, 0
    read_time, log_end, queue_offset = _CHECK.unpack_from(data.ljust(_CHECK.size, b"\0"))
    return max(0, read_time), max(0, log_end), max(0, queue_offset)


def _load_lag(path: Path) -> int:
    try:
        (lag,) = _LAG.unpack_from(path.read_bytes().ljust(_CHECK_BYTES, b"\0"), _LAG_AT)
    except FileNotFoundError:
        return 0
    return int(lag) if 0 <= lag <= _MAX_LAG_MS else 0


def _save_check(path: Path, check: bytes, lag: int) -> None:
    """In place, bytes of one sector: either the old or the new. Our own follow where RocketMQ has none."""
    is_new = not path.exists()
    make_directory(path.parent)
    fd = open_file(path)
    try:
        try:
            if is_new:
                platform.pwrite(fd, bytes(_CHECK_BYTES), 0)
            # RocketMQ's "master's queue offset" follows ours; it starts from the smaller of the two.
            platform.pwrite(fd, check + check[16:24], 0)
            platform.pwrite(fd, _LAG.pack(lag), _LAG_AT)
            platform.sync_data(fd)
        finally:
            os.close(fd)
        if is_new:
            sync_directory(path.parent)
    except OSError:
        if is_new:  # the next try must make it whole, and its name stay
            path.unlink(missing_ok=True)
        raise
