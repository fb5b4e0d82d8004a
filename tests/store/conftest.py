# SPDX-License-Identifier: Apache-2.0
"""Small stores: files of a few kilobytes, so that rolling over, trimming and cutting happen within a test."""

from __future__ import annotations

import os
import shutil
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.clock import ManualClock
from aerobee.protocol.message import Record, decode
from aerobee.settings import StoreConfig
from aerobee.store import platform
from aerobee.store.message_store import MessageStore, ReadLimit
from aerobee.store.platform import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 16, consume_queue_units=16, index_slots=64, index_entries=256, open_files=4
)
ROOMY = Disk(used=10, free=90)


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test() -> Iterator[None]:
    """A store that is left open goes on writing while the next tests count what is written."""
    before = set(threading.enumerate())
    yield
    left = [each.name for each in threading.enumerate() if each not in before]
    assert not [name for name in left if name.startswith("aerobee-")], left


class Kit:
    """Opens stores in one directory, on one clock, on a disk the test can fill; closes what is left open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.config = SMALL
        self.disk = ROOMY
        self._opened: list[MessageStore] = []

    def open(self, root: Path | None = None, **settings: Any) -> MessageStore:
        self.config = msgspec.structs.replace(self.config, **settings)
        store = MessageStore.open(root or self.root, self.config, self.clock, disk=lambda: self.disk)
        self._opened.append(store)
        return store

    def message(self, topic: str = "orders", body: bytes = b"body", text: str = "", **fields: Any) -> Record:
        return Record(topic, body, text, **fields)

    def crash(self, store: MessageStore) -> None:
        """What kill -9 leaves: the files as they are, `abort` among them, nothing flushed from memory."""
        store._flush.wait()
        store._flush.close()
        store._queues.close()
        store._index.close()
        store._log.close()
        store._lock.release()
        store._is_open = False

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.root, to)
        return to

    def bodies(
        self, store: MessageStore, topic: str = "orders", queue_id: int = 0, offset: int = 0
    ) -> list[bytes]:
        """Every message served from `offset` on."""
        found: list[bytes] = []
        offset = max(offset, store.min_offset(topic, queue_id))
        while offset < store.max_offset(topic, queue_id):
            answer = store.read(topic, queue_id, offset, ReadLimit())
            assert answer.next_offset > offset
            found += [decode(raw).body for raw in answer.messages]
            offset = answer.next_offset
        return found

    def snapshot(self, store: MessageStore) -> dict[str, object]:
        """Queues and index as values, to compare a recovered store with one built from scratch."""
        units = {
            (topic, queue_id): [
                store.unit(topic, queue_id, at) for at in range(store.max_offset(topic, queue_id))
            ]
            for topic in store.topics()
            for queue_id in store.queue_ids(topic)
        }
        store.flush()
        index = [path.read_bytes() for path in sorted((store._root / "index").iterdir())]
        return {"units": {key: value for key, value in units.items() if value}, "index": index}

    def rebuilt(self, to: Path) -> MessageStore:
        """The same log, everything else built anew."""
        to.mkdir(parents=True)
        shutil.copytree(self.root / "commitlog", to / "commitlog")
        return self.open(to)

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    # These tests never cut the power, and a shared disk takes its time: thousands of syncs would be most of the run.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    monkeypatch.setattr(platform, "sync_all", lambda root: None)
    kit = Kit(tmp_path / "store")
    yield kit
    kit.close()
