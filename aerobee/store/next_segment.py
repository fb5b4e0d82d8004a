# SPDX-License-Identifier: Apache-2.0
"""The file after the current one of the commit log, made in a thread before it is needed.

To make a file of a gigabyte, take its first space and have its name on disk takes milliseconds, for which the loop would
stand still. A file that is made and not used yet holds zeros only: recovery removes it, as it does those that RocketMQ
makes ahead, and so does a clean stop.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from aerobee.errors import StoreError
from aerobee.store.directories import sync_directory
from aerobee.store.segment import Segment

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("aerobee.store")

_FIRST_BYTES = 1 << 20


class NextSegment:
    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._path: Path | None = None
        self._made: Future[Segment | None] | None = None

    def make(self, path: Path, size: int) -> None:
        """Begin with it, unless that was done."""
        if path == self._path:
            return
        self.discard()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="aerobee-next-segment")
        self._path, self._made = path, self._thread.submit(_made, path, size)

    def take(self, path: Path) -> Segment | None:
        """The file, if it was made; waits for one that is half made, for two must not make it."""
        if path != self._path or self._made is None:
            return None
        segment = self._made.result()
        self._path = self._made = None
        return segment

    def discard(self) -> None:
        """It is not wanted any more."""
        if self._path is not None and (segment := self.take(self._path)) is not None:
            segment.delete()

    def close(self) -> None:
        self.discard()
        if self._thread is not None:
            self._thread.shutdown()


def _made(path: Path, size: int) -> Segment | None:
    """None when the disk refuses: who needs the file tries again, and tells why."""
    segment = Segment(path, size)
    try:
        segment.reserve(min(size, _FIRST_BYTES))
        sync_directory(path.parent)
    except (StoreError, OSError) as error:
        log.warning("commit log file=%s cannot be made ahead: %s", path, error)
        segment.delete()
        return None
    return segment
