# SPDX-License-Identifier: Apache-2.0
"""The store told the time: what is due when, what is not done twice, and what a clock that was set means to it."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import StoreError
from aerobee.store import checkpoint as checkpoints
from aerobee.store import message_store, platform
from tests.own_files import is_under

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore

HOUR = 3_600_000


class Ticks:
    """Ticks a store and waits for what they begin; counts syncs of the log."""

    def __init__(self, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kit = kit
        self.syncs = 0
        monkeypatch.setattr(platform, "sync_data", self._sync)

    def _sync(self, fd: int) -> None:
        if is_under(self.kit.root / "commitlog", fd):
            self.syncs += 1

    def after(self, store: MessageStore, ms: int) -> tuple[int, int]:
        """When it wants to be called again, and how many syncs there were."""
        self.kit.clock.advance(ms)
        self.syncs = 0
        wanted = store.tick(self.kit.clock.now())
        store._flush.wait()
        return wanted, self.syncs


@pytest.fixture
def ticks(kit: Any, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks(kit, monkeypatch)


def test_an_idle_store_syncs_nothing_between_checkpoints(kit: Any, ticks: Ticks) -> None:
    store = kit.open(flush_interval_ms=500)
    store.append(kit.message())
    assert ticks.after(store, 0)[1] == 1
    for _ in range(8):
        assert ticks.after(store, 500)[1] == 0
    store.append(kit.message())
    assert ticks.after(store, 500) == (500, 1)


def test_a_checkpoint_comes_every_five_seconds(
    kit: Any, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = checkpoints.save

    def noted(path: Any, checkpoint: Any) -> None:
        if path.parent == kit.root:
            saved.append(kit.clock.now() - start)
        save(path, checkpoint)

    monkeypatch.setattr(checkpoints, "save", noted)
    store, start = kit.open(), kit.clock.now()
    for _ in range(25):
        ticks.after(store, 500)
    assert saved == [500, 5_500, 10_500]


def test_space_is_looked_at_every_second(kit: Any, ticks: Ticks) -> None:
    store = kit.open()
    ticks.after(store, 0)
    kit.disk = platform.Disk(used=99, free=1)
    ticks.after(store, 999)
    assert store.writable
    ticks.after(store, 1)
    assert not store.writable
    assert "disk 99% full" in str(store.refusal)
    kit.disk = platform.Disk(used=10, free=90)
    ticks.after(store, 1_000)
    assert store.writable
    assert store.refusal is None


def test_age_is_counted_by_the_wall_clock(kit: Any, ticks: Ticks) -> None:
    store = kit.open(retention_hours=2)
    for _ in range(3):
        store.append(kit.message(body=bytes(60_000)))
    ticks.after(store, 1_000)
    assert store.log_min == 0
    kit.clock.set_wall(kit.clock.wall() + 2 * HOUR)
    ticks.after(store, 1_000)
    assert store.log_min == 2 * (1 << 16), "it was set on by more than messages are kept for"


def test_units_that_cannot_be_written_do_not_hurry_the_ticks(
    kit: Any, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kit.open(flush_interval_ms=1_000)
    ticks.after(store, 0)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    store.append(kit.message())
    with monkeypatch.context() as broken:
        broken.setattr(platform, "pwrite", full)
        assert ticks.after(store, 0)[0] == 1_000, "trying five times a second would help nobody"
    assert kit.bodies(store) == [b"body"]
    assert ticks.after(store, 1_000)[0] == 1_000
    assert not store._queues.dirty


def test_a_store_with_more_to_write_is_called_soon(kit: Any, ticks: Ticks) -> None:
    store = kit.open(flush_interval_ms=5_000)
    for n in range(message_store._QUEUES_A_TICK + 1):
        store.append(kit.message(f"topic{n}"))
    assert ticks.after(store, 0)[0] == 200
    assert ticks.after(store, 0)[0] == 1_000


# -- what has been synced ----------------------------------------------------------------------------------------


async def test_all_that_was_appended_can_be_waited_for_whatever_the_mode(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message())
    first = store.log_max
    store.append(kit.message())
    assert store.unsynced_bytes == store.log_max
    await store.durable(store.log_max)
    assert store.unsynced_bytes == store.log_max, "asynchronous: nobody waits for each"
    await store.on_disk(first)
    assert store.unsynced_bytes == 0
    store.append(kit.message())
    assert store.unsynced_bytes == store.log_max - 2 * first
    await store.log_on_disk()
    assert store.unsynced_bytes == 0


async def test_who_comes_while_a_sync_is_under_way_waits_for_the_next(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was appended meanwhile is not part of the one that runs."""
    store = kit.open(flush="sync")
    store.append(kit.message())
    allowed = threading.Semaphore(0)
    monkeypatch.setattr(
        platform, "sync_data", lambda fd: is_under(kit.root, fd) and allowed.acquire(timeout=30)
    )
    first = asyncio.ensure_future(store.durable(store.log_max))
    await asyncio.sleep(0)
    store.append(kit.message())
    second = asyncio.ensure_future(store.durable(store.log_max))
    await asyncio.sleep(0)
    allowed.release()
    await first
    assert store.unsynced_bytes == store.log_max // 2
    assert not second.done()
    allowed.release()
    await second
    assert store.unsynced_bytes == 0
    allowed.release(100)


async def test_a_disk_that_failed_once_is_not_believed_again(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kit.open(flush="sync")
    store.append(kit.message())
    with monkeypatch.context() as broken:
        broken.setattr(
            platform, "sync_data", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error"))
        )
        with pytest.raises(StoreError):
            await store.durable(store.log_max)
    with pytest.raises(StoreError, match="check the disk and restart"):
        await store.durable(store.log_max)
    with pytest.raises(StoreError):
        store.append(kit.message())
    kit.clock.advance(10_000)
    store.tick(kit.clock.now())
    assert not store._flush.is_busy, "nor is it tried"
    assert not (kit.root / "checkpoint").exists()


def test_a_run_of_requests_is_timed_by_its_share(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, added = kit.open(), []
    monkeypatch.setattr(store._appender, "dispatch", lambda draft: None)
    monkeypatch.setattr(store._append_times, "add", lambda took, calls: added.append((took, calls)))
    monkeypatch.setattr(message_store, "perf_counter_ns", lambda: 9_000)
    assert store.dispatch(object(), 4, 1_000) == 8_000
    assert added == [(2_000, 4)]


# -- a clock that is set -----------------------------------------------------------------------------------------


def test_what_was_reckoned_before_the_clock_was_set_is_told_in_time_of_this_run(kit: Any) -> None:
    store, wall = kit.open(), kit.clock.wall()
    store.append(kit.message())
    early = store.record_of("orders", 0, 0).physical_offset
    kit.clock.set_wall(wall + HOUR)
    store.append(kit.message())
    late = store.record_of("orders", 0, 1).physical_offset
    assert store.run_time(wall + 5, early) == wall + 5
    assert store.run_time(wall + HOUR + 5, late) == wall + 5
    kit.clock.set_wall(wall - HOUR)
    assert store.run_time(wall + HOUR + 5, late) == wall + 5, "it was stored before that"
    assert store.run_time(wall - HOUR + 5, store.log_max) == wall + 5


def test_a_clock_that_is_set_all_the_time_costs_no_memory(kit: Any) -> None:
    store, wall = kit.open(), kit.clock.wall()
    for n in range(500):
        kit.clock.set_wall(wall + n)
        store.append(kit.message())
    assert len(store._aheads) == 101
    assert store.run_time(wall, 0) == wall, "of the first it is still known"
    assert store.run_time(wall + 499, store.log_max - 1) == wall


def test_a_store_that_is_closed_is_told_of_no_clock(kit: Any) -> None:
    store = kit.open()
    assert len(kit.clock.on_jump) == 1
    store.close()
    assert kit.clock.on_jump == []
    store.close()


# -- checkpoints -------------------------------------------------------------------------------------------------


def test_a_checkpoint_says_from_where_to_look_at_the_last_records(kit: Any) -> None:
    store = kit.open()
    store.flush()

    def saved() -> tuple[int, int]:
        found = checkpoints.load(kit.root / "checkpoint")
        return found.position, found.checked_from

    assert saved() == (0, 0)
    store.append(kit.message())
    store.flush()
    one = store.log_max
    assert saved() == (one, 0)
    store.append(kit.message())
    store.flush()
    assert saved() == (2 * one, one)
    store.flush()
    assert saved() == (2 * one, one), "nothing came: the same records"


def test_where_to_look_from_is_never_past_what_is_told(kit: Any) -> None:
    """Recovery left units in memory that an earlier checkpoint had in files."""
    store = kit.open()
    for _ in range(3):
        store.append(kit.message())
        store.flush()
    store._checked_from = store.log_max
    store.append(kit.message())
    found = store._checkpoint()
    assert found is not None
    assert found.checked_from <= found.position < store.log_max


def test_the_times_of_a_checkpoint_are_those_of_its_position(kit: Any) -> None:
    """RocketMQ begins by them: later ones would have it leave out what waits in memory."""
    store, wall = kit.open(), kit.clock.wall()
    store.append(kit.message())
    kit.clock.advance(5_000)
    store.append(kit.message())
    assert store._checkpoint()[:4] == (wall, wall, wall, 0)
    store._queues.write_oldest(10)
    assert store._checkpoint()[:4] == (*[wall + 5_000] * 3, store.log_max)
