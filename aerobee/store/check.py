# SPDX-License-Identifier: Apache-2.0
"""A store compared with itself, in full and offline: every record of the log with its check, its unit and its keys.

The log is read once; queues and index are compared with it on the way. Nothing is written, so a store of RocketMQ, a
backup on a read-only disk or a store in use can be looked at.

What a start will do anyhow is no damage. Of a store that was not stopped cleanly, or copied while in use, it keeps
what comes before the checkpoint's position; behind it the log ends at the first record that is not whole, and units
and keys are forgotten and told again (recovery.py). So there they may be missing, half written, or ahead of the log.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import StoreError
from aerobee.store import checkpoint as checkpoints
from aerobee.store import platform
from aerobee.store.check_index import EVERYTHING, IndexCheck, IndexReport
from aerobee.store.check_queues import QueueCheck, QueueReport
from aerobee.store.commit_log import CommitLog
from aerobee.store.log_walk import walk
from aerobee.store.queue_sums import QueueSums
from aerobee.store.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.settings import StoreConfig
    from aerobee.store.checkpoint import Checkpoint
    from aerobee.store.log_walk import Step

_MAX_LISTED = 1_000


class DamagedBytes(msgspec.Struct):
    """A stretch of the log that holds no whole record, between some that are."""

    file: str
    physical_offset: int
    size_bytes: int


class LogReport(msgspec.Struct):
    files: int = 0
    size_bytes: int = 0
    messages: int = 0
    torn_bytes: int = 0  # behind the last whole record: cut off by the next start
    lost_messages: int = 0  # queue offsets that no whole record has, between some that do
    damaged: list[DamagedBytes] = []
    short_files: list[str] = []


class StoreReport(msgspec.Struct):
    root: str
    was_clean: bool
    log: LogReport
    queues: QueueReport
    index: IndexReport
    checkpoint: str  # "sound", or what is wrong with it

    @property
    def log_is_sound(self) -> bool:
        return not (self.log.damaged or self.log.short_files or self.log.lost_messages)

    @property
    def is_sound(self) -> bool:
        return self.log_is_sound and self.rest_is_sound

    @property
    def rest_is_sound(self) -> bool:
        """All that can be made again from the log."""
        return self.queues.is_sound and self.index.is_sound and self.checkpoint == "sound"


class ReadOnlySegment(Segment):
    """A log file as it is; what a file that was cut short lacks reads as zeros."""

    __slots__ = ()

    @property
    def map(self) -> mmap.mmap:
        if self.mapped is None:
            found = os.fstat(self.fd).st_size
            if found >= self.size:
                self.mapped = mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ)
            else:
                self.mapped = mmap.mmap(-1, self.size)
                self.mapped[:found] = platform.pread(self.fd, found, 0)
        return self.mapped

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDONLY | platform.CLOSE_ON_EXEC)
        return self._fd


def segment_bytes_of(root: Path, configured: int) -> int:
    """The size of a log file: one that is alone says it best."""
    sizes = [path.stat().st_size for path in (root / "commitlog").glob("[0-9]" * 20)]
    return sizes[0] if len(sizes) == 1 and sizes[0] else configured


def open_log(root: Path, segment_bytes: int) -> CommitLog:
    commit_log = CommitLog(root / "commitlog", segment_bytes_of(root, segment_bytes))
    commit_log.segments = [ReadOnlySegment(each.path, each.size) for each in commit_log.segments]
    commit_log.end = commit_log.segments[-1].base + commit_log.segment_bytes if commit_log.segments else 0
    return commit_log


class StoreCheck:
    """`size_bytes` is what there is to read; `run` tells how much it has."""

    def __init__(self, root: Path, config: StoreConfig) -> None:
        if not (root / "commitlog").is_dir():
            raise StoreError(f"{root} is no store: it has no directory 'commitlog'; name the data directory")
        self._root = root
        self._log = open_log(root, config.commit_log_segment_bytes)
        self._checkpoint = checkpoints.load(root / "checkpoint")
        self._was_clean = not (root / "abort").exists()
        sums = QueueSums(root / "consumequeue.sums")
        if self._checkpoint.is_latest:
            sums.load()
        self._told_until = EVERYTHING if self._was_clean else self._recovered_from()
        self._queues = QueueCheck(root / "consumequeue", config, sums, self._told_until)
        self._index = IndexCheck(root / "index", config, self._log.min_offset, self._told_until)
        self._report = LogReport(files=len(self._log.segments))

    @property
    def size_bytes(self) -> int:
        return self._log.end - self._log.min_offset

    def run(self, progress: Callable[[int], None] = lambda done: None) -> StoreReport:
        begin, told = self._log.min_offset, 0
        self._look_at_sizes()
        end = begin
        for step in walk(self._log, begin, self._log.end):
            if step.at - told > 1 << 22:
                told = step.at
                progress(step.at - begin)
            if step.raw is None:
                self._damaged(step)
                if step.at >= self._told_until:
                    break  # as recovery does: whatever follows was promised to nobody
                continue
            end = step.following
            self._report.messages += 1
            self._queues.compare(step.at, step.raw)
            self._index.compare(step.at, step.raw)
        self._report.size_bytes = end - begin
        queues = self._queues.finish(end)
        self._report.lost_messages = self._queues.lost
        report = StoreReport(
            str(self._root),
            self._was_clean,
            self._report,
            queues,
            self._index.finish(),
            self._position(end),
        )
        self._log.close()
        return report

    def _look_at_sizes(self) -> None:
        for segment in self._log.segments[:-1]:
            if segment.path.stat().st_size < segment.size:
                self._report.short_files.append(segment.path.name)

    def _damaged(self, step: Step) -> None:
        """Zeros up to the end are the file's unused rest; other bytes there are a torn record."""
        segment = self._log.segment_at(step.at)
        assert segment is not None
        start = step.at - segment.base
        left = segment.map[start : max(start, min(segment.data_end(), step.following - segment.base))].rstrip(
            b"\0"
        )
        if step.following == self._log.end or step.at >= self._told_until:
            self._report.torn_bytes = len(left)
            if not left or not self._was_clean:
                return
        if len(self._report.damaged) < _MAX_LISTED:
            self._report.damaged.append(DamagedBytes(segment.path.name, step.at, step.following - step.at))

    def _recovered_from(self) -> int:
        """Before it all units and keys must be on disk: not only in the memory of a broker that was killed, or runs."""
        if self._checkpoint.is_latest:
            return self._checkpoint.position
        # RocketMQ's rule: the newest file that begins before what log and queues both have on disk.
        until = min(self._checkpoint.log_time, self._checkpoint.queue_time) - 3_000
        bases = (each.base for each in reversed(self._log.segments))
        return next((base for base in bases if 0 < self._log.store_time(base) <= until), self._log.min_offset)

    def _position(self, end: int) -> str:
        return _judged(self._checkpoint, end)


def _judged(checkpoint: Checkpoint, end: int) -> str:
    if checkpoint.position > end:
        return f"position {checkpoint.position} is behind the log's end {end}"
    return "sound"
