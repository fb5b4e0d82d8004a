# SPDX-License-Identifier: Apache-2.0
"""Getting bytes to the platter, in a thread, for many at once.

One job runs at a time. A job covers all that was in the log when it started; who comes while it runs waits
for the next. So under load one `fdatasync` answers for every send that arrived during the one before (group
commit), and without load a send waits for one only. A job for a checkpoint also syncs the queue files and
index files written since the last, and the directories that got new names, and then records the position
they are complete to. Whatever a killed process left unsynced is unknown, so the first checkpoint after an
unclean stop syncs the whole file system.

Syncing megabytes takes a CPU for milliseconds. As long as nobody has waited for it, it is done by a thread that lets
all others go first: where every CPU is busy, the loop would else stand still for as long.

A failed sync cannot be repeated (the kernel may have dropped the pages), so the store stops taking writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from aerobee.clock import perf_counter_ns
from aerobee.errors import StoreError
from aerobee.store import checkpoint as checkpoints
from aerobee.store import platform
from aerobee.store.directories import sync_directory
from aerobee.store.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.checkpoint import Checkpoint
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.queues import ConsumeQueues

log = logging.getLogger("aerobee.store")

SYNC_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
_SYNC_ONE_BY_ONE = 64  # more queue files than this: one sync of the whole file system is cheaper


class Flush:
    """`synced` is the log position that survives power loss."""

    def __init__(
        self,
        root: Path,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        on_failure: Callable[[], None],
        *,
        after_crash: bool = False,
    ) -> None:
        self._root = root
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._on_failure = on_failure
        self._sync_everything = after_crash
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="aerobee-flush")
        self._patient = ThreadPoolExecutor(1, "aerobee-flush-patient", platform.let_others_go_first)
        self._is_waited_for = False  # by whoever wants sends to be on disk: they will again
        self._job: Future[float] | None = None
        self._job_end = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.synced = commit_log.end
        self.failure: StoreError | None = None
        self.took_ms = Histogram(SYNC_MS)

    @property
    def is_busy(self) -> bool:
        self._collect()
        return self._job is not None

    async def durable(self, end: int) -> None:
        """Return when the log is on disk up to `end`."""
        if end <= self.synced:
            return
        if self.failure is not None:
            raise self.failure
        self._is_waited_for = True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((end, waiter))
        if not self.is_busy:
            self.start(None)
        await waiter

    def start(self, checkpoint: Checkpoint | None) -> None:
        """Begin a job; the caller has seen that none runs."""
        work = self._work(checkpoint)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # driven by hand: the next look finds the job done
            loop = None
        self._job = (self._executor if self._is_waited_for else self._patient).submit(_timed, work)
        if loop is not None:
            self._job.add_done_callback(lambda _: _call_soon(loop, self._collect))

    def now(self, checkpoint: Checkpoint | None) -> None:
        """The same in this thread; raises StoreError."""
        self.wait()
        work = self._work(checkpoint)
        job: Future[float] = Future()
        self._job = job
        try:
            job.set_result(_timed(work))
        except Exception as error:
            job.set_exception(error)
        self._collect()
        if self.failure is not None:
            raise self.failure

    def wait(self) -> None:
        """Until the job under way, if any, is over."""
        while self._job is not None:
            self._job.exception()
            self._collect()

    def _work(self, checkpoint: Checkpoint | None) -> Callable[[], None]:
        """What a job does, with descriptors of its own: the loop may delete or close files meanwhile."""
        self._job_end = self._log.end
        # The position `synced` itself may be the end of a file that still needs its blank synced.
        fds = [
            os.dup(s.fd)
            for s in self._log.segments
            if s.base + s.size >= self.synced and s.base < self._log.end
        ]
        if checkpoint is None:
            return lambda: _sync_all(fds)
        sync_index = self._index.sync_job()
        paths, directories = self._queues.take_unsynced()
        whole, self._sync_everything = self._sync_everything, False
        save_sums = self._queues.sums.take()
        root = self._root

        def work() -> None:
            try:
                _sync_all(fds)
            finally:
                sync_index()  # whatever became of the log: it has files open
            if whole or len(paths) + len(directories) > _SYNC_ONE_BY_ONE:
                platform.sync_all(root)
            else:
                _sync_paths(paths, directories)
            save_sums()
            checkpoints.save(root / "checkpoint", checkpoint)

        return work

    def _collect(self) -> None:
        """Take the result of a finished job, wake who waited for it, start the next when more wait."""
        job = self._job
        if job is None or not job.done():
            return
        self._job = None
        error = job.exception()
        if error is None:
            self.synced = max(self.synced, self._job_end)
            self.took_ms.add(job.result())
        else:
            log.critical(
                "sync of %s failed: %s; the store takes no more writes, check the disk", self._root, error
            )
            self.failure = StoreError(f"sync of {self._root} failed: {error}; check the disk and restart")
            self._on_failure()
        waiting = []
        for end, waiter in self._waiters:
            if waiter.done():
                continue
            if self.failure is not None:
                waiter.set_exception(self.failure)
            elif end <= self.synced:
                waiter.set_result(None)
            else:
                waiting.append((end, waiter))
        self._waiters = waiting
        if waiting:
            self.start(None)

    def close(self) -> None:
        self.wait()
        self._executor.shutdown()
        self._patient.shutdown()


def _timed(work: Callable[[], None]) -> float:
    """Milliseconds."""
    began = perf_counter_ns()
    work()
    return (perf_counter_ns() - began) / 1_000_000


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop ended first; `close` collects
        loop.call_soon_threadsafe(callback)


def _sync_all(fds: list[int]) -> None:
    try:
        for fd in fds:
            platform.sync_data(fd)
    finally:
        for fd in fds:
            os.close(fd)


def _sync_paths(paths: set[str], directories: set[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # deleted with its topic, or trimmed
            _sync_all([os.open(path, os.O_RDWR | platform.CLOSE_ON_EXEC)])
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            sync_directory(directory)
