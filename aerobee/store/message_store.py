# SPDX-License-Identifier: Apache-2.0
"""The store's door: append, read, offsets, keys, and the tick that keeps it all in order.

    append -> appender.py -> commit_log.py, consume_queue.py, key_index.py -> listeners
    read   -> read_side.py, reader.py -> consume_queue.py (where) -> commit_log.py (what)
    tick   -> queue tails to files, flush.py (sync, checkpoint.py), retention.py

Everything runs on the caller's thread but `fsync`. The files are RocketMQ's (docs/store-format.md).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.clock import perf_counter_ns
from aerobee.errors import DiskFull, StoreError
from aerobee.protocol.delay import parse_levels
from aerobee.settings.in_force import InForce
from aerobee.store import checkpoint as checkpoints
from aerobee.store.appender import Appender
from aerobee.store.checkpoint import Checkpoint
from aerobee.store.commit_log import CommitLog
from aerobee.store.directories import make_root
from aerobee.store.flush import Flush
from aerobee.store.key_index import KeyIndex
from aerobee.store.lock_file import StoreLock
from aerobee.store.log_walk import walk
from aerobee.store.platform import Disk, disk_of
from aerobee.store.put_times import PutTimes
from aerobee.store.queue_care import QueueCare
from aerobee.store.queue_loading import Damage
from aerobee.store.queues import ConsumeQueues
from aerobee.store.read_side import ReadSide
from aerobee.store.record_keys import TagCodes
from aerobee.store.recovery import Recovery
from aerobee.store.results import Boundary, Found, ReadLimit, ReadStatus, RecoveryReport, Unit
from aerobee.store.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.clock import Clock
    from aerobee.native.drafts import Draft
    from aerobee.protocol.batch import Batch
    from aerobee.protocol.message import Record
    from aerobee.settings import StoreConfig
    from aerobee.store.batch_columns import Places
    from aerobee.store.histogram import Histogram
    from aerobee.store.results import Listener

log = logging.getLogger("aerobee.store")

__all__ = ["Boundary", "Disk", "Found", "MessageStore", "ReadLimit", "ReadStatus", "RecoveryReport", "Unit"]

_LOCALHOST = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
_QUEUES_A_TICK = 256
_BUSY_TICK_MS = 200  # 256 files each: 80,000 busy queues are written once a minute
_MIN_TICK_MS = 50
_LONG_TAIL_BYTES = (
    4096  # are written again as soon as may be: the longer they get, the longer sends wait for it
)
_CHECKPOINT_MS = 5_000
_RETENTION_MS = 1_000
_JUMPS_KEPT = 100


class MessageStore(ReadSide):
    def __init__(
        self, root: Path, config: StoreConfig, clock: Clock, disk: Callable[[], Disk] | None
    ) -> None:
        self._root = root
        self.settings = settings = InForce(config)
        self._clock = clock
        make_root(root, config.group_access)
        self._lock = StoreLock(root)
        try:
            self._log = CommitLog(root / "commitlog", config.commit_log_segment_bytes)
            self._queues = ConsumeQueues(root / "consumequeue", config, self._log)
            self._index = KeyIndex(root / "index", config)
            self._delays = parse_levels(config.delay_levels)
            codes = TagCodes(self._delays)
            self._appender = Appender(settings, clock, self._log, self._queues, self._index, codes)
            self._care = QueueCare(self._log, self._queues, codes)
            recovery = self._recover(codes)
            self._queues.on_damage = self._care.found
        except BaseException:
            self._lock.release()
            raise
        self.recovery: RecoveryReport = recovery.report
        self._may_checkpoint = recovery.index_is_complete
        self._appender.last_store_time = recovery.last_store_time
        super().__init__(root, self._log, self._queues, self._index, self._care, config.memory_percent)
        self._flush = Flush(
            root,
            self._log,
            self._queues,
            self._index,
            self._refuse_while_broken,
            after_crash=not recovery.report.clean,
        )
        self._retention = Retention(
            settings, self._log, self._queues, self._index, disk or (lambda: disk_of(root))
        )
        self._next_flush = self._next_checkpoint = self._next_retention = 0
        self._checked_from = self._last_position = self._log.end
        self._is_open = True
        self._aheads = [(0, clock.ahead)]
        clock.on_jump.append(self._clock_was_set)
        self._append_times, self._sync_times = PutTimes(clock.now()), PutTimes(clock.now())
        # Bound once: the two calls everything else waits for cost one Python frame less.
        timed = self._append_times.timed
        self.append: Callable[[Record], None] = timed(self._appender.append)
        self.append_batch: Callable[[list[Record]], None] = timed(self._appender.append_batch)
        self.append_columns: Callable[[Batch], Places] = timed(self._appender.append_columns)
        self.new_draft, self.begin = self._appender.new_draft, self._appender.begin
        self.keep: Callable[[Draft], None] = self._appender.keep

    @classmethod
    def open(
        cls,
        root: Path,
        config: StoreConfig,
        clock: Clock,
        *,
        store_host: bytes = _LOCALHOST,
        disk: Callable[[], Disk] | None = None,
    ) -> MessageStore:
        """Take the directory (StoreInUse when another has it), recover, be ready."""
        store = cls(root, config, clock, disk)
        store.store_host = store_host
        store._retention.tick(clock.wall())
        store._refuse_while_broken()
        return store

    def _recover(self, codes: TagCodes) -> Recovery:
        began = perf_counter_ns()
        clean = self._lock.was_clean
        recovery = Recovery(self._log, self._queues, self._index, self._care, codes)
        self._lock.mark_running()
        recovery.run(checkpoints.load(self._root / "checkpoint"), clean=clean)
        report = recovery.report
        report.took_ms = (perf_counter_ns() - began) // 1_000_000
        log.info(
            "store open root=%s clean=%s checked=%d dispatched=%d torn_bytes=%d corrupt=%d took_ms=%d",
            self._root, clean, report.messages, report.dispatched,
            report.truncated_bytes, report.corrupt, report.took_ms,
        )  # fmt: skip
        return recovery

    @property
    def root(self) -> Path:
        return self._root

    @property
    def config(self) -> StoreConfig:
        """The settings in force now; a change of one puts another struct into `settings`."""
        return self.settings.value

    @property
    def delays(self) -> tuple[int, ...]:
        """Milliseconds of delay level 1, 2, ..."""
        return self._delays

    # -- writing ---------------------------------------------------------------------------------------

    @property
    def store_host(self) -> bytes:
        return self._appender.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self._appender.store_host = host

    @property
    def listeners(self) -> list[Listener]:
        """Who is told of records that are stored."""
        return self._appender.listeners

    def dispatch(self, draft: Draft, calls: int, began_ns: int) -> int:
        """Dispatch a draft that was kept, of so many requests. Their stopwatch was started at `began_ns`; what it shows
        now."""
        self._appender.dispatch(draft)
        took_ns = perf_counter_ns() - began_ns
        self._append_times.add(took_ns // calls, calls)
        return took_ns

    def _refuse_while_broken(self) -> None:
        """Called when a refusal may have come or gone: appends look at one attribute only."""
        failure, refusal = self._flush.failure, self._retention.refusal
        if failure is not None:
            self._appender.refused = lambda: failure
        elif refusal:
            self._appender.refused = lambda: DiskFull(
                f"store {self._root}: {refusal}; free space or lower retention_hours"
            )
        else:
            self._appender.refused = None

    @property
    def writable(self) -> bool:
        return self._appender.refused is None

    @property
    def refusal(self) -> StoreError | None:
        """What an append would raise now; None while they are taken."""
        refused = self._appender.refused
        return None if refused is None else refused()

    @property
    def needs_sync(self) -> bool:
        return self.settings.value.flush == "sync"

    async def durable(self, physical_end: int, calls: int = 1) -> None:
        """Sync flush: until the log is on disk up to there, for so many requests. Async flush: at once."""
        if self.settings.value.flush == "sync":
            began = perf_counter_ns()
            await self._flush.durable(physical_end)
            self._sync_times.add(perf_counter_ns() - began, calls)

    @property
    def put_times(self) -> PutTimes:
        """How long messages take to be stored as the flush mode has it: appended, or on disk too."""
        return self._sync_times if self.needs_sync else self._append_times

    @property
    def refused_puts(self) -> int:
        return self._append_times.failed

    @property
    def sync_ms(self) -> Histogram:
        """How long syncs of the log took."""
        return self._flush.took_ms

    @property
    def cold_reads(self) -> int:
        """Reads that went further back than what is taken to be in memory."""
        return self._reader.cold

    @property
    def unsynced_bytes(self) -> int:
        """What a loss of power now would take."""
        return max(0, self._log.end - self._flush.synced)

    async def on_disk(self, physical_end: int) -> None:
        """Until the log is on disk up to there, whatever the flush mode."""
        await self._flush.durable(physical_end)

    async def log_on_disk(self) -> None:
        """Until all that was appended so far is on disk."""
        await self._flush.durable(self._log.end)

    # -- figures of the disk ----------------------------------------------------------------------------

    @property
    def corrupt_records(self) -> int:
        """Damaged records met since the store was opened."""
        return self._reader.corrupt + self.recovery.corrupt

    def moved_since(self, position: int) -> list[tuple[str, int]]:
        """Topic and queue of all that was appended at or past that position of the log, since the store was opened."""
        return [(queue.topic, queue.queue_id) for queue in self._queues.moved_since(position)]

    # -- keys, topics ----------------------------------------------------------------------------------

    @property
    def index_last_update(self) -> tuple[int, int]:
        """Store time and commit-log offset of the newest indexed message."""
        return self._index.last_update

    def queue_ids(self, topic: str) -> list[int]:
        return self._queues.queue_ids(topic)

    def topics(self) -> list[str]:
        return self._queues.topics()

    def delete_topic(self, topic: str) -> None:
        """Its queues go and begin again at 0. A checkpoint first, so that no recovery tells its messages
        again."""
        self._queues.delete_topic(topic)
        self.flush()

    # -- repair ----------------------------------------------------------------------------------------

    def rebuild_queues(self, places: list[tuple[str, int, int]]) -> None:
        """Tell queues again from the log: topic, queue, and the first offset that is not as it should be."""
        damages = []
        for topic, queue_id, offset in places:
            queue = self._queues.obtain(topic, queue_id)
            damages.append(Damage(queue, offset - offset % queue.file_units, 0))
        self._care.rebuild(damages, self._log.end)

    def rebuild_index(self) -> None:
        self._index.clear()
        for step in walk(self._log, self._log.min_offset, self._log.end):
            if step.raw is not None:
                self._index.tell(step.at, step.raw)

    # -- figures ---------------------------------------------------------------------------------------

    @property
    def log_min(self) -> int:
        return self._log.min_offset

    @property
    def log_max(self) -> int:
        return self._log.end

    def disk_ratio(self) -> float:
        return self._retention.disk().ratio

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, now: int) -> int:
        """Whatever is due: units to files, sync, checkpoint, retention. The ms until it wants to be called
        again."""
        busy, soon = self._write_queues()
        self._log.prepare()
        self._append_times.tick(now)
        self._sync_times.tick(now)
        if now >= self._next_retention:
            busy = self._retention.tick(now + self._clock.ahead) or busy
            self._refuse_while_broken()
            self._next_retention = now + _RETENTION_MS
        if not self._flush.is_busy and not self._flush.failure:
            if now >= self._next_checkpoint:
                self._flush.start(self._checkpoint())
                self._next_checkpoint = now + _CHECKPOINT_MS
                self._next_flush = now + self.settings.value.flush_interval_ms
            elif now >= self._next_flush and self._flush.synced < self._log.end:
                self._flush.start(None)
                self._next_flush = now + self.settings.value.flush_interval_ms
        wait = min(self._next_flush, self._next_checkpoint, self._next_retention) - now
        return max(_MIN_TICK_MS, 0 if soon else min(wait, _BUSY_TICK_MS) if busy else wait)

    def _clock_was_set(self, _jump: int) -> None:
        self._aheads.append((self._log.end, self._clock.ahead))
        del self._aheads[1:-_JUMPS_KEPT]

    def run_time(self, wall: int, physical_offset: int) -> int:
        """A wall time that was reckoned when the record there was stored, as time of this run: what waits for it
        is not moved by a clock that was set since. Of an earlier run's the wall clock alone tells."""
        return wall - next(ahead for begin, ahead in reversed(self._aheads) if begin <= physical_offset)

    def _write_queues(self) -> tuple[bool, bool]:
        """Whether there is more to write, and whether tails were long."""
        try:
            tail_bytes = self._queues.write_oldest(_QUEUES_A_TICK)
        except OSError as error:
            log.error("queue units wait in memory: %s", error)
            return False, False
        return bool(self._queues.dirty), tail_bytes > _LONG_TAIL_BYTES

    def _checkpoint(self) -> Checkpoint | None:
        if not self._may_checkpoint:
            return None
        position = self._queues.dispatched_to(self._log.end)
        time = self._log.store_time(position) if position < self._log.end else self._appender.last_store_time
        if position > self._last_position:
            self._checked_from, self._last_position = self._last_position, position
        checked_from = min(self._checked_from, position)
        return Checkpoint(time, time, time, position, checked_from, self._queues.has_files)

    def flush(self) -> None:
        """Everything to disk, now: queues, index, log, checkpoint."""
        self._queues.write_oldest(len(self._queues.dirty))
        self._flush.now(self._checkpoint())

    def close(self) -> None:
        """Flush all, say that the stop was clean, let the directory go. When the disk refuses, the next start
        recovers as after a crash."""
        if not self._is_open:
            return
        self._is_open = False
        self._clock.on_jump.remove(self._clock_was_set)
        try:
            self.flush()
            if self._may_checkpoint:
                self._lock.mark_clean()
        except (OSError, StoreError) as error:
            log.error("store %s closed without a checkpoint: %s", self._root, error)
        finally:
            self._flush.close()
            self._queues.close()
            self._index.close()
            self._log.close()
            self._lock.release()
