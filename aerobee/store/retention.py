# SPDX-License-Identifier: Apache-2.0
"""What is deleted, and when writing stops: by age, by size, by how full the disk is.

Only whole commit-log files go, oldest first, never the one being written. Queues and index follow the log.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.settings import InForce, StoreConfig
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.platform import Disk
    from aerobee.store.queues import ConsumeQueues

log = logging.getLogger("aerobee.store")

_QUEUES_A_TICK = 200
_FILES_A_TICK = 4


class Retention:
    """Told `now` and how full the disk is. `refusal` is why nothing may be written, or empty."""

    def __init__(
        self,
        settings: InForce[StoreConfig],
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        disk: Callable[[], Disk],
    ) -> None:
        self._settings = settings
        self._log = commit_log
        self._queues = queues
        self._index = index
        self.disk = disk
        self.refusal = ""
        self._trimming: Iterator[ConsumeQueue] | None = None
        self._trimmed_to = commit_log.min_offset

    def tick(self, now: int) -> bool:
        """Delete what is due; True when there is more to do soon."""
        deleted = 0
        while deleted < _FILES_A_TICK and (reason := self._why_delete(now)):
            segment = self._log.delete_first()
            deleted += 1
            log.info("deleted commit log file=%s reason=%s", segment.path, reason)
        if self._log.min_offset > self._trimmed_to and self._trimming is None:
            self._trimmed_to = self._log.min_offset
            self._index.trim(self._trimmed_to)
            self._trimming = self._queues.everything()
        self._watch()
        return self._trim_some() or deleted == _FILES_A_TICK

    def _why_delete(self, now: int) -> str:
        segments = self._log.segments
        if len(segments) < 2:
            return ""
        config = self._settings.value
        # A file's youngest message is not younger than the first of the next file.
        born = self._log.store_time(segments[1].base)
        if 0 < born <= now - config.retention_hours * 3_600_000:
            return "age"
        limit = config.retention_bytes
        if limit and len(segments) * self._log.segment_bytes > limit:
            return "size"
        return "disk" if self.disk().ratio >= config.disk_clean_ratio else ""

    def _trim_some(self) -> bool:
        """A few queues at a time: with 80,000 a whole round would stop the loop for a second."""
        if self._trimming is None:
            return False
        looked_at = 0
        for queue in islice(self._trimming, _QUEUES_A_TICK):
            queue.trim(self._trimmed_to)
            looked_at += 1
        if looked_at < _QUEUES_A_TICK:
            self._trimming = None
        return self._trimming is not None

    def _watch(self) -> None:
        disk, config = self.disk(), self._settings.value
        refusal = ""
        if disk.ratio >= config.disk_full_ratio:
            refusal = (
                f"disk {disk.ratio:.0%} full, sends stop at {config.disk_full_ratio:.0%} (disk_full_ratio)"
            )
        elif disk.free < config.min_free_bytes:
            refusal = f"{disk.free} bytes free, sends stop below {config.min_free_bytes} (min_free_bytes)"
        if refusal and not self.refusal:
            log.error("store takes no more writes: %s; free space, reads go on", refusal)
        elif self.refusal and not refusal:
            log.warning("store takes writes again disk_ratio=%.3f", disk.ratio)
        self.refusal = refusal
