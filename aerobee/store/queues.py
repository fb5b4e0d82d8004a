# SPDX-License-Identifier: Apache-2.0
"""All consume queues: which exist, which are loaded, which have units no file has yet.

A directory with 80,000 queues costs one listing of topic names at start; a topic's queue ids are listed when
the topic is first asked for, a queue's files when the queue is.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from aerobee.errors import MessageIllegal
from aerobee.protocol.message import MAGIC_V1, MAGIC_V2
from aerobee.protocol.names import may_exist
from aerobee.protocol.properties import whole_number
from aerobee.store.consume_queue import UNIT, ConsumeQueue
from aerobee.store.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.settings import StoreConfig

log = logging.getLogger("aerobee.store")

_MAX_QUEUE_ID = (1 << 31) - 1


class ConsumeQueues:
    def __init__(self, directory: Path, config: StoreConfig) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = str(directory)
        self._file_units = config.consume_queue_units
        self.files = OpenFiles(config.open_files)
        self.loaded: dict[tuple[str, int], ConsumeQueue] = {}
        # Queues with a tail, the one whose first waiting unit is oldest first.
        self.dirty: dict[ConsumeQueue, None] = {}
        self.log_end = 0  # units at or past it, found when a queue is loaded, are not believed
        with os.scandir(directory) as entries:
            self._ids: dict[str, set[int] | None] = {
                entry.name: None for entry in entries if may_exist(entry.name) and entry.is_dir()
            }
        self.written_paths: set[str] = set()

    # -- finding ---------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(self._ids)

    def queue_ids(self, topic: str) -> list[int]:
        return sorted(self._ids_of(topic) or ())

    def _ids_of(self, topic: str) -> set[int] | None:
        if topic not in self._ids:
            return None
        ids = self._ids[topic]
        if ids is None:
            listed = os.listdir(self._topic_path(topic))
            ids = self._ids[topic] = {
                number for name in listed if (number := whole_number(name, 0, _MAX_QUEUE_ID)) is not None
            }
        return ids

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, loaded if need be; None when it never had a message."""
        queue = self.loaded.get((topic, queue_id))
        if queue is None and queue_id in (self._ids_of(topic) or ()):
            queue = self._new(topic, queue_id)
            queue.load(self.log_end)
        return queue

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, new when it does not exist. Nothing touches the disk for a new one until units are
        written."""
        queue = self.find(topic, queue_id)
        if queue is None:
            queue = self._new(topic, queue_id)
            ids = self._ids_of(topic)
            if ids is None:
                self._ids[topic] = {queue_id}
            else:
                ids.add(queue_id)
        return queue

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = self._queue_path(topic, queue_id)
        queue = ConsumeQueue(topic, queue_id, directory, self._file_units, self.files)
        name = topic.encode()
        short = len(name) <= 127
        queue.magic = MAGIC_V1 if short else MAGIC_V2
        queue.topic_field = len(name).to_bytes(1 if short else 2, "big") + name
        self.loaded[topic, queue_id] = queue
        return queue

    def _topic_path(self, topic: str) -> str:
        """Always one step below this directory, whatever the topic is called: everything here goes through it."""
        if not may_exist(topic):
            raise MessageIllegal(
                f"topic {topic[:64]!r} is no name of one directory; the limit is 255 bytes, and no path"
            )
        return f"{self._directory}/{topic}"

    def _queue_path(self, topic: str, queue_id: int) -> str:
        path = self._topic_path(topic)
        if not 0 <= queue_id <= _MAX_QUEUE_ID:
            raise MessageIllegal(
                f"topic {topic!r} cannot have a queue {queue_id}; 0 to {_MAX_QUEUE_ID} are allowed"
            )
        return f"{path}/{queue_id}"

    def everything(self) -> Iterator[ConsumeQueue]:
        """Every queue there is; those it has to load are forgotten again, so the walk needs no memory."""
        for topic in self.topics():
            for queue_id in self.queue_ids(topic):
                known = (topic, queue_id) in self.loaded
                queue = self.find(topic, queue_id)
                if queue is not None:
                    yield queue
                    if not known and not queue.tail:
                        self.loaded.pop((topic, queue_id), None)

    # -- writing ---------------------------------------------------------------------------------------

    def put(self, queue: ConsumeQueue, offset: int, unit: bytes) -> None:
        queue.put(offset, unit)
        self.dirty.setdefault(queue)

    def write_oldest(self, count: int) -> None:
        """Write the tails of the `count` queues that wait longest. One that cannot be written keeps no other from
        it: its OSError comes after the rest."""
        failure: OSError | None = None
        for queue in list(islice(self.dirty, count)):
            try:
                self.written_paths.update(queue.write_tail())
            except OSError as error:
                failure = failure or error
                continue
            del self.dirty[queue]
        if failure is not None:
            raise failure

    def dispatched_to(self, log_end: int) -> int:
        """Every record before this position has its unit in a file."""
        for queue in self.dirty:
            oldest: int = UNIT.unpack_from(queue.tail)[0]
            return min(oldest, log_end)
        return log_end

    @property
    def has_files(self) -> bool:
        with os.scandir(self._directory) as entries:
            return any(entries)

    def cut(self, log_end: int) -> int:
        """Remove units at or past `log_end` from every queue on disk; how many queues were looked at."""
        self.log_end = log_end
        looked_at = 0
        for topic in self.topics():
            for queue_id in self.queue_ids(topic):
                queue = ConsumeQueue(
                    topic, queue_id, self._queue_path(topic, queue_id), self._file_units, self.files
                )
                queue.cut(log_end)
                looked_at += 1
        return looked_at

    # -- removing --------------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Links among its directories are removed, what they point to is not."""
        path = self._topic_path(topic)
        for queue_id in self.queue_ids(topic):
            queue = self.find(topic, queue_id)
            if queue is not None:
                queue.close_files()
                self.dirty.pop(queue, None)
                del self.loaded[topic, queue_id]
        self._ids.pop(topic, None)
        if os.path.islink(path):
            os.unlink(path)
        else:
            with suppress(FileNotFoundError):  # it never got as far as a file
                shutil.rmtree(path)

    def close(self) -> None:
        self.files.close()
