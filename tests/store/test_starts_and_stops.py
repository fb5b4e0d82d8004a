# SPDX-License-Identifier: Apache-2.0
"""What one run of a store leaves to the next: killed, closed, without space, with another broker's run in between."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, StoreError
from aerobee.store import checkpoint as checkpoints
from aerobee.store import platform
from aerobee.store.checkpoint import Checkpoint
from aerobee.store.commit_log import file_name
from aerobee.store.index_file import HEADER, IndexFile
from aerobee.store.lock_file import StoreLock
from aerobee.store.platform import Disk
from aerobee.store.segment import Segment
from tests.own_files import is_under

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.message_store import MessageStore

SEGMENT = 1 << 16
FOREVER = 1 << 62


def log_file(kit: Any, base: int = 0) -> Path:
    path: Path = kit.root / "commitlog" / f"{base:020d}"
    return path


def write_at(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def filled(kit: Any, count: int = 10, size: int = 0) -> MessageStore:
    store: MessageStore = kit.open()
    for n in range(count):
        store.append(kit.message(body=b"%d" % n + bytes(size), text=f"KEYS\x01k{n}\x02"))
    return store


def found(store: MessageStore, key: str) -> int:
    return len(store.find_by_key("orders", key, 99, 0, FOREVER))


def another_broker_wrote_the_times(kit: Any) -> None:
    write_at(kit.root / "checkpoint", 0, struct.pack(">q", 1))


# -- where a start begins to look --------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_place_in_files_that_another_broker_deleted_is_none_to_start_at(kit: Any, stop: str) -> None:
    """Ours is older than the oldest file that is left."""
    store = filled(kit, 30, 8_000)
    first = [body[:2].strip(b"\0") for body in kit.bodies(store)]
    store.flush()
    store.close() if stop == "close" else kit.crash(store)
    checkpoints.save(kit.root / "checkpoint", Checkpoint(1, 1, 1, 500, 500))
    another_broker_wrote_the_times(kit)
    log_file(kit).unlink()
    log_file(kit, SEGMENT).unlink()
    again = kit.open()
    assert again.log_min == 2 * SEGMENT
    low = again.min_offset("orders", 0)
    assert 0 < low < again.max_offset("orders", 0) == 30
    assert [body[:2].strip(b"\0") for body in kit.bodies(again)] == first[low:]


def test_after_a_clean_stop_of_another_broker_its_last_file_is_looked_at_and_no_other(kit: Any) -> None:
    store = filled(kit, 20, 8_000)
    last = store._log.segments[-1].base
    store.close()
    (kit.root / "checkpoint").write_bytes(bytes(4096))
    again = kit.open()
    assert (again.recovery.scanned_from, len(kit.bodies(again))) == (last, 20)
    assert last > 0


def test_our_own_place_is_believed_whatever_lies_there(kit: Any) -> None:
    """A page that the power took: its record is not whole, nothing behind it was promised, and it is no damage."""
    store = filled(kit)
    store.flush()
    position = store.log_max
    for n in range(3):
        store.append(kit.message(body=b"late%d" % n))
    kit.crash(store)
    write_at(log_file(kit), position + 60, b"\xff" * 20)
    again = kit.open()
    assert (again.recovery.scanned_from, again.recovery.corrupt) == (position, 0)
    assert (again.log_max, len(kit.bodies(again))) == (position, 10)


def test_the_last_records_of_two_files_are_looked_at_after_a_clean_stop(kit: Any) -> None:
    store = filled(kit, 6, 8_000)
    store.flush()
    for n in range(6, 12):
        store.append(kit.message(body=b"%d" % n + bytes(8_000)))
    kit.clock.advance(1_000)
    store.append(kit.message(body=b"12"))
    assert len(store._log.segments) == 2
    last = store.store_time("orders", 0, 12)
    store.close()
    again = kit.open()
    assert (again.recovery.clean, again.recovery.messages) == (True, 7)
    assert again._appender.last_store_time == last


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_no_message_of_the_next_run_is_stored_before_the_last_of_this_one(kit: Any, stop: str) -> None:
    """Also where the clock was set back while nothing ran."""
    store, wall = filled(kit), kit.clock.wall()
    kit.clock.set_wall(wall + 60_000)
    store.append(kit.message())
    store.close() if stop == "close" else kit.crash(store)
    kit.clock.set_wall(wall)
    again = kit.open()
    again.append(kit.message())
    assert again.store_time("orders", 0, 11) == wall + 60_000


def test_keys_are_found_after_a_kill_that_came_right_after_a_checkpoint(kit: Any) -> None:
    """Nothing is to be told again, yet header and slots of the newest file are not what they should be."""
    store = filled(kit)
    store.flush()
    kit.crash(store)
    (index,) = (kit.root / "index").iterdir()
    slots = kit.config.index_slots * 4
    write_at(index, 0, bytes(HEADER.size + slots))
    again = kit.open()
    assert [found(again, f"k{n}") for n in range(10)] == [1] * 10
    assert again.index_last_update[1] == again.unit("orders", 0, 9).physical_offset


# -- without space -----------------------------------------------------------------------------------------------


def test_keys_that_find_no_space_are_told_by_the_start_that_has_some(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are served all the same; how far the disk is complete is not written down before the keys are there."""
    store = filled(kit)
    store.flush()
    at_first = checkpoints.load(kit.root / "checkpoint")
    for n in range(10, 20):
        store.append(kit.message(body=b"%d" % n, text=f"KEYS\x01k{n}\x02"))
    kit.crash(store)
    reserve = platform.reserve

    def reserved(fd: int, start: int, length: int) -> None:
        if is_under(kit.root / "index", fd):
            raise OSError(errno.ENOSPC, "full")
        reserve(fd, start, length)

    with monkeypatch.context() as full:
        full.setattr(platform, "reserve", reserved)
        for stop in ("crash", "close", "close"):
            store = kit.open()
            assert kit.bodies(store) == [b"%d" % n for n in range(20)]
            store.tick(kit.clock.now())
            store.flush()
            kit.crash(store) if stop == "crash" else store.close()
            assert checkpoints.load(kit.root / "checkpoint") == at_first
            assert (kit.root / "abort").exists()
    store = kit.open()
    assert [found(store, f"k{n}") for n in range(20)] == [1] * 20
    store.close()
    assert not (kit.root / "abort").exists()


def test_a_store_whose_units_find_no_space_at_its_end_can_be_opened_again(
    kit: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    store = filled(kit)

    def pwrite(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(platform, "pwrite", pwrite)
        store.close()
    assert "closed without a checkpoint" in caplog.text
    assert (kit.root / "abort").exists()
    again = kit.open()
    assert (again.recovery.clean, len(kit.bodies(again))) == (False, 10)


async def test_a_failed_sync_is_told_before_a_full_disk(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Space may come back; the disk is not believed again before a restart."""
    store = filled(kit)
    with monkeypatch.context() as broken:
        broken.setattr(
            platform, "sync_data", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error"))
        )
        with pytest.raises(StoreError):
            await store.on_disk(store.log_max)
    for disk in (Disk(used=99, free=1), Disk(used=10, free=90)):
        kit.disk = disk
        kit.clock.advance(1_000)
        store.tick(kit.clock.now())
        assert not isinstance(store.refusal, DiskFull)
        with pytest.raises(StoreError, match="Input/output error"):
            store.append(kit.message())


# -- the end of a run --------------------------------------------------------------------------------------------


def test_the_units_of_however_many_queues_are_in_files_when_a_store_is_closed(kit: Any) -> None:
    store = kit.open(open_files=20)
    for n in range(300):
        store.append(kit.message(f"topic{n}", body=b"%d" % n))
    store.flush()
    assert checkpoints.load(kit.root / "checkpoint").position == store.log_max
    for n in range(300):
        store.append(kit.message(f"topic{n}", body=b"more"))
    end = store.log_max
    store.close()
    assert checkpoints.load(kit.root / "checkpoint").position == end
    again = kit.open()
    assert again.recovery.dispatched == 0
    assert all(kit.bodies(again, f"topic{n}") == [b"%d" % n, b"more"] for n in range(300))


def test_the_lock_goes_last(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it opens the store that moment: all is written, nothing is open, the stop was clean."""
    store, seen = filled(kit), []
    release = StoreLock.release

    def released(lock: StoreLock) -> None:
        position = checkpoints.load(kit.root / "checkpoint").position
        seen.append((position, (kit.root / "abort").exists(), sorted(open_below(kit.root))))
        release(lock)

    monkeypatch.setattr(StoreLock, "release", released)
    end = store.log_max
    store.close()
    assert seen == [(end, False, [str(kit.root / "lock")])]


def open_below(root: Path) -> list[str]:
    links = []
    for each in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{each}"))
        except FileNotFoundError:
            continue
    return [link for link in links if link.startswith(f"{root}/")]


def test_the_process_that_has_a_store_is_named_alone(kit: Any) -> None:
    """The number of one that was killed may have been longer."""
    kit.root.mkdir()
    (kit.root / "abort").write_text("12345678901234567890")
    store = kit.open()
    assert (kit.root / "abort").read_text() == str(os.getpid())
    assert not store.recovery.clean


# -- syncs -------------------------------------------------------------------------------------------------------


class Slow:
    """Syncs of a store that wait until they are allowed."""

    def __init__(self, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = threading.Event()
        self.begun = 0

        def sync(fd: int) -> None:
            if is_under(kit.root / "commitlog", fd):
                self.begun += 1
                assert self.allowed.wait(30)

        monkeypatch.setattr(platform, "sync_data", sync)


async def test_no_tick_begins_a_sync_while_one_is_under_way(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, slow = filled(kit), Slow(kit, monkeypatch)
    waiter = asyncio.ensure_future(store.on_disk(store.log_max))
    await asyncio.sleep(0)
    job = store._flush._job
    for _ in range(3):
        store.append(kit.message())
        kit.clock.advance(6_000)
        store.tick(kit.clock.now())
        assert store._flush._job is job
    slow.allowed.set()
    await waiter
    assert slow.begun == 1


def test_a_store_that_is_closed_while_it_syncs_waits_for_it(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, slow = filled(kit), Slow(kit, monkeypatch)
    store.tick(kit.clock.now())
    store.append(kit.message(body=b"late"))
    threading.Timer(0.05, slow.allowed.set).start()
    store.close()
    assert checkpoints.load(kit.root / "checkpoint").position == store.log_max
    assert not (kit.root / "abort").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_sync_leaves_nothing_open(kit: Any, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Of a log of several files, one of which the disk may refuse."""
    store = filled(kit, 40, 8_000)
    before = len(open_below(kit.root))

    def sync(fd: int) -> None:
        if fails:
            raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(platform, "sync_data", sync)
        store._flush.start(None)
        store._flush.wait()
    assert len(open_below(kit.root)) == before
    assert (store._flush.failure is not None) is fails


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_how_long_messages_take_is_told_as_the_flush_mode_has_it(kit: Any, mode: str) -> None:
    store = kit.open(flush=mode)
    store.append(kit.message())
    await store.durable(store.log_max, 5)
    for shown in (5 if mode == "sync" else 1, 0):
        kit.clock.advance(60_000)
        store.tick(kit.clock.now())
        store._flush.wait()
        assert sum(store.put_times.distribution().values()) == shown


def test_a_process_without_standard_input_closes_the_file_that_has_its_number(tmp_path: Path) -> None:
    """The first file opened then has the number 0."""

    def is_open() -> bool:
        return os.path.exists("/proc/self/fd/0")

    (tmp_path / "index").mkdir()
    (tmp_path / file_name(0)).write_bytes(bytes(SEGMENT))
    kept = os.dup(0)
    try:
        os.close(0)
        for file in (Segment(tmp_path / file_name(0), SEGMENT), IndexFile(tmp_path / "index" / "1", 64, 64)):
            assert file.fd == file.fd == 0
            file.close()
            assert not is_open(), file
        lock = StoreLock(tmp_path)
        assert is_open()
        lock.release()
        assert not is_open()
    finally:
        os.dup2(kept, 0)
        os.close(kept)
