# SPDX-License-Identifier: Apache-2.0
import asyncio
import os
import sys
import threading

import pytest

from aerobee.errors import StoreError
from aerobee.store import checkpoint as checkpoints
from aerobee.store import platform
from tests.own_files import is_under


@pytest.fixture
def syncs(kit, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts what is synced of this test's store."""
    calls: list[int] = []
    real = os.fdatasync

    def fdatasync(fd):
        if is_under(kit.root, fd):
            calls.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return calls


@pytest.mark.seed("S004-57")
async def test_async_flush_does_not_wait(kit, syncs):
    store = kit.open()
    store.append(kit.message())
    assert not store.needs_sync
    await store.durable(store.log_max)
    assert syncs == []


async def test_sync_flush_returns_when_the_log_is_on_disk(kit, syncs):
    store = kit.open(flush="sync")
    assert store.needs_sync
    store.append(kit.message())
    await store.durable(store.log_max)
    assert store._flush.synced == store.log_max
    assert len(syncs) == 1
    await store.durable(store.log_max)
    assert len(syncs) == 1


async def test_all_who_wait_share_a_sync(kit, syncs):
    store = kit.open(flush="sync")

    async def send():
        store.append(kit.message())
        await store.durable(store.log_max)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(send())
    assert store._flush.synced == store.log_max
    assert 1 <= len(syncs) <= 5  # the first goes alone, those who came meanwhile go together


async def test_a_waiter_that_gave_up_harms_no_other(kit):
    store = kit.open(flush="sync")
    store.append(kit.message())
    first = asyncio.create_task(store.durable(store.log_max))
    second = asyncio.create_task(store.durable(store.log_max))
    await asyncio.sleep(0)
    first.cancel()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failed_sync_stops_writes_and_keeps_reads(kit, monkeypatch, caplog):
    store = kit.open(flush="sync")
    store.append(kit.message())

    def broken(fd):
        if is_under(kit.root, fd):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    waiters = [asyncio.create_task(store.durable(store.log_max)) for _ in range(3)]
    for waiter in waiters:
        with pytest.raises(StoreError, match="check the disk"):
            await waiter
    assert not store.writable
    assert "takes no more writes" in caplog.text
    with pytest.raises(StoreError, match="Input/output error"):
        store.append(kit.message())
    with pytest.raises(StoreError, match="Input/output error"):
        await store.durable(store.log_max + 1)
    assert kit.bodies(store) == [b"body"]
    store.close()
    assert (kit.root / "abort").exists()  # the next start looks at everything again


def test_ticks_sync_the_log_at_its_interval_and_write_checkpoints(kit, syncs):
    store = kit.open(flush_interval_ms=500)
    store.tick(kit.clock.now())  # the first tick writes a checkpoint
    store._flush.wait()
    del syncs[:]
    store.append(kit.message())
    kit.clock.advance(499)
    assert store.tick(kit.clock.now()) <= 50
    store._flush.wait()
    assert syncs == []
    kit.clock.advance(1)
    store.tick(kit.clock.now())
    store._flush.wait()
    assert (len(syncs), store._flush.synced) == (1, store.log_max)
    assert checkpoints.load(kit.root / "checkpoint").position == 0
    kit.clock.advance(5000)
    store.tick(kit.clock.now())
    store._flush.wait()
    saved = checkpoints.load(kit.root / "checkpoint")
    assert (saved.position, saved.log_time) == (store.log_max, kit.clock.now() - 5500)


def test_an_idle_store_asks_for_few_ticks(kit):
    store = kit.open()
    store.tick(kit.clock.now())
    store._flush.wait()
    assert store.tick(kit.clock.now()) >= 500


def test_a_checkpoint_never_passes_units_that_wait_in_memory(kit):
    store = kit.open()
    for n in range(300):
        store.append(kit.message(f"topic{n}"))
    waiting = store.tick(kit.clock.now())  # 256 queues a tick
    store._flush.wait()
    assert waiting == 200
    first_waiting = store.unit("topic256", 0, 0).physical_offset
    assert checkpoints.load(kit.root / "checkpoint").position == first_waiting
    kit.crash(store)
    store = kit.open()
    assert store.recovery.dispatched == 44
    assert all(kit.bodies(store, f"topic{n}") == [b"body"] for n in range(300))


async def test_many_queue_files_are_synced_at_once(kit, monkeypatch):
    store = kit.open()
    for n in range(100):
        store.append(kit.message(f"topic{n}"))
    calls = []
    real = platform.sync_all
    monkeypatch.setattr(platform, "sync_all", lambda root: calls.append(root) or real(root))
    store.flush()
    assert calls.count(kit.root) == 1


def test_a_few_queue_files_and_their_folders_are_synced_one_by_one_before_the_checkpoint(kit, monkeypatch):
    store = kit.open()
    store.flush()
    store.append(kit.message("a"))
    store.append(kit.message("b", queue_id=3))
    order = []

    def note(fd: int) -> None:
        if is_under(kit.root, fd):
            order.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), kit.root))

    real = checkpoints.save
    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", note)

    def save(path, checkpoint):
        if path.parent == kit.root:
            order.append("checkpoint")
        real(path, checkpoint)

    monkeypatch.setattr(checkpoints, "save", save)
    store.flush()
    files = [f"consumequeue/{place}/{0:020}" for place in ("a/0", "b/3")]
    folders = ["consumequeue", "consumequeue/a", "consumequeue/a/0", "consumequeue/b", "consumequeue/b/3"]
    before = order[: order.index("checkpoint")]
    assert {*files, *folders, f"commitlog/{0:020}"} <= set(before)
    del order[:]
    store.append(kit.message("a"))
    store.flush()
    again = order[: order.index("checkpoint")]
    assert files[0] in again
    assert not {files[1], *folders} & set(again), "what has not changed is not synced again"


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
async def test_a_sync_that_nobody_waits_for_lets_others_go_first(kit, monkeypatch):
    nice: list[int] = []
    real = platform.sync_data

    def sync_data(fd):
        nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        real(fd)

    monkeypatch.setattr(platform, "sync_data", sync_data)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    store = kit.open(flush="async")
    store.append(kit.message())
    store._flush.start(store._checkpoint())
    store._flush.wait()
    assert set(nice) == {min(usual + 10, 19)}
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual, "the loop's own is as it was"
    nice.clear()
    store.append(kit.message())
    await store._flush.durable(store.log_max)
    store.append(kit.message())
    store._flush.start(store._checkpoint())
    store._flush.wait()
    assert set(nice) == {usual}, "who waited once will wait again"


async def test_what_was_on_disk_before_a_sync_failed_still_is(kit, monkeypatch):
    """Who asks for it again is told so: the failure is of what came later."""
    store = kit.open(flush="sync")
    store.append(kit.message())
    kept = store.log_max
    await store.durable(kept)
    store.append(kit.message())
    with monkeypatch.context() as broken:
        broken.setattr(platform, "sync_data", lambda fd: (_ for _ in ()).throw(OSError(5, "no")))
        with pytest.raises(StoreError):
            await store.durable(store.log_max)
    await store.durable(kept)
    with pytest.raises(StoreError):
        await store.durable(kept + 1)


@pytest.mark.parametrize("where", ["commitlog", "index", "consumequeue", "consumequeue.sums"])
def test_whichever_file_cannot_be_synced_no_checkpoint_tells_of_it_and_none_is_left_open(
    kit, monkeypatch, where
):
    store = kit.open()
    store.append(kit.message(text="KEYS\x01k\x02"))
    store.tick(kit.clock.now())  # the queue's file is kept open from here on
    store._flush.wait()
    store.append(kit.message(text="KEYS\x01k\x02"))
    before, told = len(os.listdir("/proc/self/fd")), (kit.root / "checkpoint").read_bytes()
    real = platform.sync_data

    def sync_data(fd):
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), kit.root)
        if path.startswith(f"{where}/") or path == where:
            raise OSError(5, "Input/output error")
        real(fd)

    with monkeypatch.context() as broken:
        broken.setattr(platform, "sync_data", sync_data)
        with pytest.raises(StoreError, match="Input/output error; check the disk"):
            store.flush()
    assert not store.writable
    assert (kit.root / "checkpoint").read_bytes() == told
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("others", [0, 100])
def test_files_that_went_with_their_topic_before_a_checkpoint_are_no_fault_of_the_disk(kit, others):
    store = kit.open()
    store.flush()
    for topic in ("gone", "stays", *map(str, range(others))):
        store.append(kit.message(topic))
    store._queues.write_oldest(1_000)
    store.delete_topic("gone")
    assert store.writable
    assert checkpoints.load(kit.root / "checkpoint").position == store.log_max
    kit.crash(store)
    store = kit.open()
    assert (kit.bodies(store, "stays"), kit.bodies(store, "gone")) == ([b"body"], [])


def test_a_flush_by_hand_begins_when_the_job_under_way_is_over(kit, monkeypatch):
    store = kit.open()
    store.append(kit.message())
    allowed, under_way = threading.Event(), []
    monkeypatch.setattr(platform, "sync_data", lambda fd: allowed.wait(30))
    flush = store._flush
    wait, work = flush.wait, flush._work
    flush.start(None)

    def waited():
        allowed.set()
        wait()

    def begun(checkpoint):
        under_way.append(flush._job)
        allowed.set()
        return work(checkpoint)

    monkeypatch.setattr(flush, "wait", waited)
    monkeypatch.setattr(flush, "_work", begun)
    store.flush()
    assert under_way == [None]
    assert flush.synced == store.log_max


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_a_system_that_lets_no_thread_step_back_has_its_checkpoints_all_the_same(kit, monkeypatch):
    """A unit of systemd without @resources forbids the call; that is no fault of the disk."""

    def forbidden(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", forbidden)
    store = kit.open()
    store.append(kit.message())
    store.tick(kit.clock.now())
    store._flush.wait()
    assert store.writable
    assert checkpoints.load(kit.root / "checkpoint").position == store.log_max
