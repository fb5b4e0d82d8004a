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
from aerobee.store.consume_queue import UNIT, ConsumeQueue, Shelf
from aerobee.store.directories import make_directory
from aerobee.store.open_files import OpenFiles
from aerobee.store.queue_loading import QueueLoading
from aerobee.store.queue_sums import QueueSums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.settings import StoreConfig
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.queue_loading import Damage

log = logging.getLogger("aerobee.store")

_MAX_QUEUE_ID = (1 << 31) - 1
_FEW = 1_000


class ConsumeQueues:
    def __init__(self, directory: Path, config: StoreConfig, commit_log: CommitLog) -> None:
        make_directory(directory)
        self._directory = str(directory)
        self.sums = QueueSums(directory.with_name(directory.name + ".sums"))
        self.files = OpenFiles(config.open_files)
        self._shelf = Shelf(config.consume_queue_units, self.files, self.sums)
        self._loading = QueueLoading(commit_log, self.sums)
        # Told when a queue that is asked for turns out to be damaged; puts it right.
        self.on_damage: Callable[[Damage], None] | None = None
        self.loaded: dict[tuple[str, int], ConsumeQueue] = {}
        self.unloaded = (
            0  # how often one was taken out again: whoever keeps a queue looks whether it still is the one
        )
        # Queues with a tail, the one whose first waiting unit is oldest first.
        self.dirty: dict[ConsumeQueue, None] = {}
        self.log_end = 0  # units at or past it, found when a queue is loaded, are not believed
        with os.scandir(directory) as entries:
            self._ids: dict[str, set[int] | None] = {
                entry.name: None for entry in entries if may_exist(entry.name) and entry.is_dir()
            }
        self.written_paths: set[str] = set()

    def trust(self) -> None:
        """Nobody else wrote the queues since we did: take the sums of the last checkpoint."""
        self.sums.load()
        for topic in self.sums.topics():
            self._ids.setdefault(topic)

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
            ids = self._ids[topic] = set(self.sums.queue_ids(topic))
            with suppress(FileNotFoundError):  # lost, for the sums know it
                listed = os.listdir(self._topic_path(topic))
                ids |= {n for name in listed if (n := whole_number(name, 0, _MAX_QUEUE_ID)) is not None}
        return ids

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, loaded if need be; None when it never had a message."""
        queue = self.loaded.get((topic, queue_id))
        if queue is None and queue_id in (self._ids_of(topic) or ()):
            queue = self._new(topic, queue_id)
            damage = self._loading.load(queue, self.log_end)
            if damage is not None and self.on_damage is not None:
                self.on_damage(damage)
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
        queue = ConsumeQueue(topic, queue_id, self._queue_path(topic, queue_id), self._shelf)
        name = topic.encode()
        short = len(name) <= 127
        queue.magic = MAGIC_V1 if short else MAGIC_V2
        queue.topic_field = len(name).to_bytes(1 if short else 2, "big") + name
        self.loaded[topic, queue_id] = queue
        return queue

    def _unload(self, topic: str, queue_id: int) -> None:
        del self.loaded[topic, queue_id]
        self.unloaded += 1

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
                    if not known and not queue.tail and (topic, queue_id) in self.loaded:
                        self._unload(topic, queue_id)

    def moved_since(self, position: int) -> list[ConsumeQueue]:
        """Those that got a record at or past that position of the log; only loaded ones get any. Most did not, and are
        told by two attributes, without a call."""
        return [
            queue
            for queue in self.loaded.values()
            if (queue.tail or queue.last_written >= position) and queue.moved_since(position)
        ]

    # -- writing ---------------------------------------------------------------------------------------

    def put(self, queue: ConsumeQueue, offset: int, unit: bytes) -> None:
        self.written_paths.update(queue.put(offset, unit))
        self.dirty.setdefault(queue)

    def write_oldest(self, count: int) -> int:
        """Write the tails of the `count` queues that wait longest; how many bytes each had, as a mean. One that cannot
        be written keeps no other from it: its OSError comes after the rest."""
        failure: OSError | None = None
        size_bytes, queues = 0, list(islice(self.dirty, count))
        for queue in queues:
            size_bytes += len(queue.tail)
            try:
                self.written_paths.update(queue.write_tail())
            except OSError as error:
                failure = failure or error
                continue
            del self.dirty[queue]
        if failure is not None:
            raise failure
        return size_bytes // max(1, len(queues))

    def take_unsynced(self) -> tuple[set[str], set[str]]:
        """The files written to and the directories with new or removed names since the last time."""
        paths, self.written_paths = self.written_paths, set()
        directories, self.files.changed_directories = self.files.changed_directories, set()
        return paths, directories

    def dispatched_to(self, log_end: int) -> int:
        """Every record before this position has its unit in a file. All tails are looked at: recovery may have written
        the head of one that waits longest."""
        return min((UNIT.unpack_from(queue.tail)[0] for queue in self.dirty if queue.tail), default=log_end)

    @property
    def has_files(self) -> bool:
        with os.scandir(self._directory) as entries:
            return any(entries)

    @property
    def are_few(self) -> bool:
        """All can be looked at before the first request; of very many each when it is asked for."""
        return len(self._ids) <= _FEW and sum(len(self.queue_ids(topic)) for topic in self._ids) <= _FEW

    def look_at_all(self) -> list[Damage]:
        """The damaged ones among the queues that are not loaded, which are then."""
        damages = []
        for topic in self.topics():
            for queue_id in self.queue_ids(topic):
                if (topic, queue_id) in self.loaded:
                    continue
                queue = self._new(topic, queue_id)
                damage = self._loading.load(queue, self.log_end)
                if not self.sums.is_known:
                    self._loading.note(queue, damage)
                if damage is not None:
                    damages.append(damage)
                    continue
                self._unload(topic, queue_id)
        return damages

    def cut(self, log_end: int) -> list[Damage]:
        """Remove units at or past `log_end` from every queue on disk; those that are damaged."""
        self.log_end = log_end
        damages = []
        for topic in self.topics():
            for queue_id in self.queue_ids(topic):
                queue = self._new(topic, queue_id)
                self._unload(topic, queue_id)
                damage = self._loading.cut(queue, log_end)
                if not self.sums.is_known:
                    self._loading.note(queue, damage)
                if damage is not None:
                    damages.append(damage)
        return damages

    # -- removing --------------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Links among its directories are removed, what they point to is not."""
        path = self._topic_path(topic)
        for queue_id in list(self.sums.queue_ids(topic)):
            self.sums.forget(topic, queue_id)
        self.sums.save()  # first: a topic that is gone must not be taken for one that was lost
        for queue_id in self.queue_ids(topic):
            # Not looked at: a damaged one would be rebuilt before it goes.
            queue = self.loaded.get((topic, queue_id)) or self._new(topic, queue_id)
            queue.close_files()
            self.dirty.pop(queue, None)
            self._unload(topic, queue_id)
        self._ids.pop(topic, None)
        if os.path.islink(path):
            os.unlink(path)
        else:
            with suppress(FileNotFoundError):  # it never got as far as a file
                shutil.rmtree(path)
        self.files.changed_directories.add(self._directory)

    def close(self) -> None:
        self.files.close()
