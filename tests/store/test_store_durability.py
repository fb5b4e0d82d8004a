# SPDX-License-Identifier: Apache-2.0
"""What must be on disk before what, and where a start after a crash begins to look."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.store import checkpoint as checkpoints
from tests.chaos.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEGMENT = 1 << 16


@pytest.fixture
def synced(kit: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the log files synced, in their order."""
    names: list[str] = []

    def fdatasync(fd: int) -> None:
        inode = os.fstat(fd).st_ino
        names.extend(p.name for p in (kit.root / "commitlog").iterdir() if p.stat().st_ino == inode)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return names


def name_of(base: int) -> str:
    return f"{base:020d}"


# -- the log -------------------------------------------------------------------------------------------------


async def test_the_end_of_the_previous_log_file_is_synced_before_what_follows_it(
    kit: Any, synced: list[str]
) -> None:
    """A record in the second file is promised: what lies before it in the first, its filler too, must be there."""
    store = kit.open(flush="sync")
    store.append(kit.message(body=bytes(30_000)))
    await store.durable(store.log_max)
    assert synced == [name_of(0)]
    synced.clear()
    for _ in range(2):  # the second of them in a new file
        store.append(kit.message(body=bytes(30_000)))
    await store.durable(store.log_max)
    assert sorted(synced) == [name_of(0), name_of(SEGMENT)]
    synced.clear()
    store.append(kit.message(body=bytes(100)))
    await store.durable(store.log_max)
    assert synced == [name_of(SEGMENT)]


async def test_the_filler_of_a_full_file_is_synced_by_the_start_that_found_it(
    kit: Any, synced: list[str]
) -> None:
    """The crash came between the filler and the next file: the log ends where the first file does."""
    store = kit.open(flush="sync")
    for _ in range(3):
        store.append(kit.message(body=bytes(30_000)))
    kit.crash(store)
    (kit.root / "commitlog" / name_of(SEGMENT)).unlink()
    store = kit.open()
    assert store.log_max == SEGMENT
    synced.clear()
    store.append(kit.message(body=b"next"))
    await store.durable(store.log_max)
    assert sorted(synced) == [name_of(0), name_of(SEGMENT)]


# -- the checkpoint --------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    with disk.installed():
        yield disk
    disk.close()


def test_a_checkpoint_survives_the_power(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "disk" / "checkpoint"
    for number, position in enumerate((100, 200)):
        saved = checkpoints.Checkpoint(1, 2, 3, position, 50)
        checkpoints.save(path, saved)
        disk.image(tmp_path / f"image{number}")
        left = checkpoints.load(tmp_path / f"image{number}" / "checkpoint")
        assert left == saved._replace(is_latest=True)


# -- where a start begins --------------------------------------------------------------------------------------


def files_of_java(kit: Any) -> list[int]:
    """Four log files whose first messages are ten seconds apart, queues on disk; returns when each began."""
    store = kit.open(record_check=False)
    began = []
    for _ in range(4):
        began.append(kit.clock.now())
        for _ in range(2):
            store.append(kit.message(body=bytes(30_000)))
        kit.clock.advance(10_000)
    store.flush()
    kit.crash(store)
    assert store.log_max > 3 * SEGMENT
    return began


def write_times(kit: Any, log_time: int, queue_time: int) -> None:
    """The checkpoint as RocketMQ leaves it: times, and no position."""
    (kit.root / "checkpoint").write_bytes(struct.pack(">qqq", log_time, queue_time, 0).ljust(4096, b"\0"))


@pytest.mark.parametrize(
    ("log_late", "queues_late", "file"),
    [
        (13_000, 13_000, 1),  # three seconds past the beginning of the second file
        (12_999, 13_000, 0),
        (13_000, 12_999, 0),
        (40_000, 24_000, 2),
        (24_000, 40_000, 2),
        (40_000, 40_000, 3),
        (0, 40_000, 0),
    ],
)
def test_without_a_position_a_start_after_a_crash_begins_where_log_and_queues_are_both_on_disk(
    kit: Any, log_late: int, queues_late: int, file: int
) -> None:
    began = files_of_java(kit)
    write_times(kit, began[0] + log_late, began[0] + queues_late)
    store = kit.open()
    assert store.recovery.scanned_from == file * SEGMENT
    assert len(kit.bodies(store)) == 8


def test_without_a_position_a_start_after_a_clean_stop_looks_at_the_last_file(kit: Any) -> None:
    began = files_of_java(kit)
    write_times(kit, began[0], began[0])
    (kit.root / "abort").unlink()
    store = kit.open()
    assert store.recovery.scanned_from == 3 * SEGMENT
    assert len(kit.bodies(store)) == 8


@pytest.mark.parametrize("with_check", [True, False])
def test_a_whole_record_that_is_not_where_it_says_is_none(kit: Any, with_check: bool) -> None:
    """Bytes of an older life of the file, behind the end: whole in themselves, and not of this log."""
    store = kit.open(record_check=with_check)
    for body in (b"one", b"two"):
        store.append(kit.message(body=body))
    first, end = store.unit("orders", 0, 0), store.log_max
    kit.crash(store)
    path = kit.root / "commitlog" / name_of(0)
    data = bytearray(path.read_bytes())
    stale = data[first.physical_offset : first.physical_offset + first.size]
    if not with_check:  # else any change shows
        struct.pack_into(">q", stale, 20, 2)  # the queue offset that would come next
    data[end : end + first.size] = stale
    path.write_bytes(data)
    store = kit.open()
    assert store.log_max == end
    assert kit.bodies(store) == [b"one", b"two"]
