# SPDX-License-Identifier: Apache-2.0
"""Messages by key: `topic#key` for the unique key and every word of KEYS, over a row of index files.

An append leaves its keys in `waiting`; a few hundred at a time they are hashed and entered in one go, which takes a
third of what entering each on its own does. After a crash the log tells them again, so memory is a safe place for them;
whoever looks into the index, or writes down how far it is complete, settles first.
"""

from __future__ import annotations

import datetime
import logging
import os
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

from aerobee.errors import StoreError
from aerobee.protocol.message import stored_at
from aerobee.store import platform
from aerobee.store.directories import make_directory, sync_directory
from aerobee.store.index_file import IndexFile
from aerobee.store.key_hash import KeyHash
from aerobee.store.modes import open_file
from aerobee.store.record_keys import index_keys, tag_unique_keys
from aerobee.store.record_parts import sys_flag, text_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.native.drafts import Draft
    from aerobee.settings import StoreConfig

log = logging.getLogger("aerobee.store")

_AT_ONCE = 256  # keys that wait at most: well under a millisecond of work
RUN_KEYS = 4_096  # more keys than one run of the compiled lane has


def name_for(now: int, taken: set[str]) -> str:
    """yyyyMMddHHmmssSSS of `now` in local time, moved on while a file of that name exists."""
    while True:
        moment = datetime.datetime.fromtimestamp(now / 1000)
        name = f"{moment:%Y%m%d%H%M%S}{now % 1000:03d}"
        if name not in taken:
            return name
        now += 1


class KeyIndex:
    """`left` more keys may wait without asking `room`. Only the newest file is written; older ones open when asked."""

    def __init__(self, directory: Path, config: StoreConfig) -> None:
        make_directory(directory)
        sync_directory(directory)  # as the commit log does
        self._directory = directory
        self._slots = config.index_slots
        self._entries = config.index_entries
        self.hash = KeyHash()
        self.files: list[IndexFile] = []
        self.left = 0
        self.waiting: list[tuple[str, str, int, int]] = []  # topic, key, commit-log offset, store time
        self._current: IndexFile  # the last of `files`, set by `room` before the first put
        self._full: list[IndexFile] = []  # finished since the last sync
        self._syncing: list[IndexFile] = []  # finished before it
        self._spare: IndexFile | None = None  # made ahead for a batch that may need it
        for path in sorted(directory.iterdir()):
            if path.name.isascii() and path.name.isdigit() and path.stat().st_size:
                file = IndexFile(path, self._slots, self._entries)
                if path.stat().st_size != file.size:
                    log.warning("index file=%s has a size of other settings; it is left aside", path)
                    continue
                file.load_header()
                self.files.append(file)

    # -- writing ---------------------------------------------------------------------------------------

    def room(self, keys: int, now: int) -> None:
        """Make space for `keys` more entries, or raise DiskFull and change nothing."""
        self.settle()
        if keys >= self._entries:
            return  # more keys than a file holds: those that fit are indexed
        current = self.files[-1] if self.files else None
        if current is None or current.count + keys > current.entries:
            current = self._next_file(now)
        current.reserve(current.count + keys)
        self._current = current
        self.left = min(current.room_at_once, max(keys, _AT_ONCE))

    def prepare(self, keys: int, now: int) -> None:
        """Make sure that asking for room, record by record up to `keys` in all, will not fail. DiskFull."""
        self.settle()
        current = self.files[-1] if self.files else None
        if current is not None:
            current.reserve(min(current.count + keys, current.entries - 1))
        if current is None or current.count + keys > current.entries:
            # The next file is begun when a record does not fit, not before: a rebuild splits files the same way.
            self._spare = self._spare or self._create(now)
            self._spare.reserve(min(1 + keys, self._entries - 1))

    def _create(self, now: int) -> IndexFile:
        path = self._directory / name_for(now, {file.path.name for file in self.files})
        file = IndexFile.create(path, self._slots, self._entries)
        sync_directory(self._directory)
        return file

    def _next_file(self, now: int) -> IndexFile:
        file, self._spare = self._spare or self._create(now), None
        if self.files:
            self.files[-1].write_header()
            self._full.append(self.files[-1])
        self.files.append(file)
        return file

    def put(self, topic: str, key: str, offset: int, store_time: int) -> None:
        """The caller has asked for room."""
        if self.left > 0:
            self.left -= 1
            self.waiting.append((topic, key, offset, store_time))

    def put_all(self, topic: str, words: list[list[str]], offsets: list[int], store_time: int) -> None:
        """The keys of each message of a batch. The caller has prepared."""
        if set(map(len, words)) == {1} and len(words) <= self.left:  # the unique key only: the usual batch
            self.left -= len(words)
            self.waiting.extend(zip(repeat(topic), [key for (key,) in words], offsets, repeat(store_time)))
            return
        for keys, offset in zip(words, offsets, strict=True):
            if self.left < len(keys):
                self.room(len(keys), store_time)
            for key in keys:
                self.put(topic, key, offset, store_time)

    def room_for_draft(self) -> int:
        """How many keys `enter` may bring; none while the file is new, whose first key makes its begin."""
        if self.waiting:
            self.settle()
        current = self.files[-1] if self.files else None
        if current is None or current.count == 1:
            return 0
        if current.room_at_once < RUN_KEYS:
            with suppress(StoreError):  # whoever needs it is told why
                current.reserve(min(current.count + RUN_KEYS, current.entries - 1))
        return current.room_at_once

    def enter(self, draft: Draft) -> None:
        """The keys of a draft, for which there is room."""
        if draft.key_count:
            self.files[-1].enter(draft)
            self.left = 0  # whoever comes next counts anew

    def tell(self, offset: int, raw: bytes) -> None:
        """The keys of a record that is in the log already."""
        topic, text = text_parts(raw)
        _, unique, keys = tag_unique_keys(text)
        words, time = index_keys(sys_flag(raw), unique, keys), stored_at(raw)
        if words and self.left < len(words):
            self.room(len(words), time)
        for word in words:
            self.put(topic, word, offset, time)

    def settle(self) -> None:
        """Enter the keys that wait."""
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            self._current.put_all(self.hash.all(waiting), waiting)

    # -- reading ---------------------------------------------------------------------------------------

    def find(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Commit-log offsets that may hold the key (hashes meet by chance too), newest first."""
        self.settle()
        key_hash = self.hash(topic, key)
        for file in reversed(self.files):
            if file.count > 1 and file.begin_time <= end and file.end_time >= begin:
                try:
                    yield from file.find(key_hash, begin, end)
                finally:
                    if file is not self.files[-1] and file not in self._full and file not in self._syncing:
                        file.close()

    @property
    def last_update(self) -> tuple[int, int]:
        self.settle()
        return (self.files[-1].end_time, self.files[-1].end_offset) if self.files else (0, 0)

    # -- keeping ---------------------------------------------------------------------------------------

    def cut(self, log_end: int, store_time: Callable[[int], int]) -> None:
        """Drop entries at or past `log_end`; used after a crash, when headers and slots may be half written."""
        while self.files:
            last = self.files[-1]
            last.cut(log_end, store_time)
            if last.count > 1:
                break
            self.files.pop().delete()
        self.left = 0

    def clear(self) -> None:
        """Begin anew, without any file."""
        self.waiting.clear()
        for file in self.files:
            file.delete()
        self.files, self._full, self._syncing, self.left = [], [], [], 0

    def trim(self, log_min: int) -> int:
        """Delete files all of whose messages are gone; the newest stays."""
        removed = 0
        while len(self.files) > 1 and self.files[0].end_offset < log_min:
            self.files.pop(0).delete()
            removed += 1
        return removed

    def sync_job(self) -> Callable[[], None]:
        """What a checkpoint has to do, in a thread; the one before is over."""
        self.settle()
        if self.files and self.files[-1].count > 1:
            self.files[-1].write_header()
        for file in self._syncing:
            file.close()
        self._syncing, self._full = [file for file in self._full if file in self.files], []
        # Not duplicates: where there is no call to write at a place, these share one.
        work = [(open_file(file.path), file.save_job()) for file in (*self._syncing, *self.files[-1:])]

        def job() -> None:
            try:
                for fd, save in work:
                    save(fd)
                    platform.sync_data(fd)
            finally:
                for fd, _ in work:
                    os.close(fd)

        return job

    def close(self) -> None:
        if self._spare is not None:
            self._spare.delete()
        for file in self.files:
            file.close()
