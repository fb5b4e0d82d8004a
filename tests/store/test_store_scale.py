# SPDX-License-Identifier: Apache-2.0
"""10,000 topics with 8 queues each: no open file, no mapping, little memory for any of them."""

import os
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.protocol.message import Record
from aerobee.store.queue_sums import QueueSums

TOPICS, QUEUES = 10_000, 8


def open_files():
    return len(os.listdir("/proc/self/fd"))


def mappings():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


@pytest.fixture
def in_memory(kit: Any) -> Iterator[None]:
    """160,000 directories and files: on tmpfs they take seconds, on a busy disk minutes."""
    shared = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="aerobee-scale", dir=shared if shared.is_dir() else None))
    kit.root = root / "store"
    yield
    kit.close()
    shutil.rmtree(root)


@pytest.fixture
def listed(kit: Any, in_memory: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the store that were looked into."""
    found: list[str] = []

    def noting(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(path: Any) -> Any:
            if not isinstance(path, int) and Path(path).is_relative_to(kit.root):
                found.append(str(path))
            return real(path)

        return noted

    monkeypatch.setattr(os, "listdir", noting(os.listdir))
    monkeypatch.setattr(os, "scandir", noting(os.scandir))
    return found


def needed_to_open(root: Path) -> None:
    """What an open cannot do without: every topic's name, and what every queue file held."""
    names = sorted(entry.name for entry in os.scandir(root / "consumequeue") if entry.is_dir())
    sums = QueueSums(root / "consumequeue.sums")
    sums.load()
    assert sorted(sums.topics()) == names


@pytest.mark.slow
@pytest.mark.usefixtures("in_memory")
def test_eighty_thousand_queues_cost_neither_files_nor_mappings_nor_much_memory(kit, listed):
    files_before, maps_before = open_files(), mappings()
    store = kit.open(commit_log_segment_bytes=1 << 26, open_files=64, consume_queue_units=300_000)
    names = [f"topic{n:05d}" for n in range(TOPICS)]
    tracemalloc.start()
    for queue_id in range(QUEUES):
        for name in names:
            store.append(Record(name, b"x", "", queue_id))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / (TOPICS * QUEUES) < 1024  # bytes a queue, its waiting unit included
    assert open_files() - files_before < 16
    # Into files: a bounded number a tick, with a bounded number of them open.
    ticks = 0
    while store.tick(kit.clock.now()) <= 200 and store._queues.dirty:
        ticks += 1
        assert open_files() - files_before < 64 + 16
    assert ticks <= TOPICS * QUEUES // 256 + 1
    assert mappings() - maps_before < 64
    store.close()
    least, took = [], []
    for _ in range(3):
        began = time.thread_time()  # of this thread: servers of other tests may run in theirs
        needed_to_open(kit.root)
        least.append(time.thread_time() - began)
        listed.clear()
        began = time.thread_time()
        store = kit.open()
        took.append(time.thread_time() - began)
        assert len(store.topics()) == TOPICS
        assert not store._queues.loaded  # nothing is loaded before it is asked for
        assert len(listed) < 16, "no topic's folder is looked into"
        if len(took) < 3:
            store.close()
    assert min(took) < 3 * min(least), "little more than reading the names and sums once"
    assert store.max_offset("topic07777", 3) == 1
    assert store.queue_ids("topic00042") == list(range(QUEUES))
    assert open_files() - files_before < 64 + 16
    kit.crash(store)
    store = kit.open()  # after a crash every queue is looked at, and forgotten again
    assert len(store._queues.loaded) < 10
    assert store.max_offset("topic07777", 3) == 1
