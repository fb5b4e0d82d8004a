# SPDX-License-Identifier: Apache-2.0
"""What every consume-queue file held at the last checkpoint: how many units, and a CRC over them.

A queue file alone cannot tell that its last units are gone, or that a bit of one has flipped: then messages would be
hidden and their offsets given again. So each checkpoint writes down the sums of the files written since the one before,
after the files are synced and before its position is. RocketMQ does not know the file and leaves it alone; when it ran
since, the checkpoint says so and the sums are not believed.

    consumequeue.sums    entries, the last one of a file counts:
    crc of what follows 4 | units 4, 0 = file removed | crc of the units 4 | queue id 4 | first unit 8 | size 2, topic

It grows with every checkpoint and is written anew when it is a few times as long as it was when it was new.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store import platform
from aerobee.store.directories import sync_directory
from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">IIIqH")
_MIN_BYTES = 1 << 20
_GROWTH = 4

Place = tuple[str, int, int]  # topic, queue id, first unit


class FileSum(NamedTuple):
    start: int  # first unit of the file
    units: int
    crc: int  # 0 = nobody has read all of it yet


class _Writing(NamedTuple):
    entries: list[tuple[str, int, FileSum]]
    flags: int  # O_APPEND, or O_TRUNC for a new file

    def to(self, path: Path) -> None:
        is_new = self.flags == os.O_TRUNC
        target = path.with_name(path.name + ".tmp") if is_new else path
        fd = open_file(target, os.O_WRONLY | self.flags)
        try:
            view = memoryview(_packed(self.entries))
            while view:
                view = view[os.write(fd, view) :]
            platform.sync_data(fd)
        finally:
            os.close(fd)
        if is_new:
            os.replace(target, path)
            sync_directory(path.parent)


class QueueSums:
    """`is_known` when every queue file of the last checkpoint is here: a queue that is not, is younger."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._topics: dict[str, dict[int, tuple[FileSum, ...]]] = {}
        self._changed: set[Place] = set()
        self._waiting: deque[_Writing] = deque()
        self._writing = threading.Lock()
        self._bytes = 0  # of the file, 0 = to be written anew
        self._fresh_bytes = 0  # what it had when it was
        self.is_known = False

    # -- asking ----------------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return self._topics

    def queue_ids(self, topic: str) -> Iterable[int]:
        return self._topics.get(topic, {})

    def of(self, topic: str, queue_id: int) -> tuple[FileSum, ...]:
        """The files a queue must have, oldest first."""
        return self._topics.get(topic, {}).get(queue_id, ())

    # -- telling ---------------------------------------------------------------------------------------

    def note(self, topic: str, queue_id: int, new: FileSum) -> None:
        """A file was written to, or removed (no units)."""
        queues = self._topics.setdefault(topic, {})
        files = queues.get(queue_id, ())
        kept = tuple(file for file in files if file.start < new.start)
        later = tuple(file for file in files if file.start > new.start)
        queues[queue_id] = files = (*kept, new, *later) if new.units else kept + later
        self._changed.add((topic, queue_id, new.start))
        if not files:
            del queues[queue_id]
        if not queues:
            del self._topics[topic]

    def forget(self, topic: str, queue_id: int) -> None:
        for file in self.of(topic, queue_id):
            self.note(topic, queue_id, FileSum(file.start, 0, 0))

    # -- the file --------------------------------------------------------------------------------------

    def load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        at = 0
        while (entry := _entry_at(data, at)) is not None:
            topic, queue_id, file, at = entry
            self.note(topic, queue_id, file)
        self._changed.clear()
        # A torn end must not lie between entries; how much is of the past nobody knows, so a new one is due soon.
        self._bytes = at if at == len(data) else 0
        self.is_known = True

    def clear(self) -> None:
        """Another broker wrote the queues since, or nobody knows: begin anew with what is written from now on."""
        self._topics, self._bytes, self.is_known = {}, 0, False
        self._changed.clear()

    def take(self) -> Callable[[], None]:
        """What a checkpoint has to do, in its thread, once the files are synced: write down what has changed so far."""
        changed, self._changed = self._changed, set()
        size = self._bytes
        is_new = not size or size > max(_MIN_BYTES, _GROWTH * self._fresh_bytes)
        if is_new:
            entries = [
                (topic, queue_id, file)
                for topic, queues in self._topics.items()
                for queue_id, files in queues.items()
                for file in files
            ]
        else:
            entries = [
                (topic, queue_id, self._file(topic, queue_id, start)) for topic, queue_id, start in changed
            ]
        added = sum(_CRC.size + _ENTRY.size + len(topic.encode()) for topic, _, _ in entries)
        self._bytes = max(1, added if is_new else size + added)
        self._fresh_bytes = added if is_new else self._fresh_bytes
        self._waiting.append(_Writing(entries, os.O_TRUNC if is_new else os.O_APPEND))
        return self._write_waiting

    def save(self) -> None:
        """The same at once, if anything has changed."""
        if self._changed:
            self.take()()

    def _write_waiting(self) -> None:
        with self._writing:  # whichever thread comes first writes for both, in order
            while self._waiting:
                self._waiting.popleft().to(self._path)

    def _file(self, topic: str, queue_id: int, start: int) -> FileSum:
        for file in self.of(topic, queue_id):
            if file.start == start:
                return file
        return FileSum(start, 0, 0)


def _packed(entries: list[tuple[str, int, FileSum]]) -> bytes:
    parts: list[bytes] = []
    for topic, queue_id, file in entries:
        name = topic.encode()
        entry = _ENTRY.pack(file.units, file.crc, queue_id, file.start, len(name)) + name
        parts += (_CRC.pack(zlib.crc32(entry)), entry)
    return b"".join(parts)


def _entry_at(data: bytes, at: int) -> tuple[str, int, FileSum, int] | None:
    """One entry and where the next begins; None at the end and where the rest is torn."""
    head = at + _CRC.size
    if head + _ENTRY.size > len(data):
        return None
    units, crc, queue_id, start, size = _ENTRY.unpack_from(data, head)
    end = head + _ENTRY.size + size
    if end > len(data) or _CRC.unpack_from(data, at)[0] != zlib.crc32(data[head:end]):
        return None
    return data[head + _ENTRY.size : end].decode(), queue_id, FileSum(start, units, crc), end
