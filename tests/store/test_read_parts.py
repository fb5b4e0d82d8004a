# SPDX-License-Identifier: Apache-2.0
"""What reads, keys and syncs count and put right, one small thing at a time."""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.errors import StoreError
from aerobee.protocol.properties import tag_code
from aerobee.store import flush as flushes
from aerobee.store import platform, reader
from aerobee.store.consume_queue import FILLER_SIZE, UNIT
from aerobee.store.message_store import ReadLimit, ReadStatus
from aerobee.store.reader import units_wanted
from tests.own_files import is_under

if TYPE_CHECKING:
    from collections.abc import Callable

SEGMENT = 1 << 16


class Wanted(msgspec.Struct):
    codes: frozenset[int] = frozenset()
    properties: Callable[[dict[str, str]], bool] | None = None


def filled(kit: Any, count: int = 10, **settings: Any) -> Any:
    store = kit.open(**settings)
    for n in range(count):
        store.append(kit.message(body=b"%d" % n))
    return store


# -- reads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "limit", "units"),
    [
        (None, ReadLimit(5, max_scan=100), 5),
        (Wanted(), ReadLimit(5, max_scan=100), 5),
        (Wanted(frozenset([1])), ReadLimit(5, max_scan=100), 100),
        (Wanted(properties=lambda _: True), ReadLimit(5, max_scan=100), 100),
        (Wanted(frozenset([1])), ReadLimit(5, max_scan=3), 5),
        (None, ReadLimit(0, max_scan=0), 1),
    ],
)
def test_a_filter_looks_at_more_units_than_are_wanted(accept: Any, limit: ReadLimit, units: int) -> None:
    assert units_wanted(limit, accept) == units


def test_a_read_that_finds_nothing_is_not_behind(kit: Any) -> None:
    store = filled(kit)
    for checked in (True, False):
        found = store.read("orders", 0, 0, ReadLimit(), Wanted(frozenset([tag_code("x")])), checked=checked)
        assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)
        assert (found.behind_bytes, found.size_bytes) == (0, 0)
        found = store.read("orders", 0, 0, ReadLimit(4), checked=checked)
        size = store.log_max // 10
        assert (found.status, found.next_offset) == (ReadStatus.FOUND, 4)
        assert (found.behind_bytes, found.size_bytes) == (6 * size, 4 * size)


def test_units_that_stand_for_nothing_are_no_damage(kit: Any) -> None:
    store = filled(kit, 3)
    queue = store._queues.find("orders", 0)
    queue.fill(8, UNIT.pack(store.log_max - 1, FILLER_SIZE, 0))
    store.append(kit.message(body=b"last"))
    assert kit.bodies(store) == [b"0", b"1", b"2", b"last"]
    assert store.corrupt_records == 0


@pytest.mark.parametrize("size", [100, 4_096, 4_097, 50_000, FILLER_SIZE - 1, 0, -5])
@pytest.mark.parametrize(
    ("wrong", "physical"),
    [
        (4, -1),  # the first unit so is as good as gone: where a queue begins is not looked up in the log
        *((n, at) for n in (0, 4) for at in (0, SEGMENT - 20, SEGMENT - 1, SEGMENT + 10, 1 << 50)),
    ],
)
def test_a_unit_with_a_wrong_size_or_place_is_put_right(
    kit: Any, wrong: int, physical: int, size: int
) -> None:
    store = filled(kit)
    store.append(kit.message(body=bytes(64_000)))  # a second file
    store._queues.find("orders", 0).replace(wrong, UNIT.pack(physical, size, 0))
    assert kit.bodies(store)[:10] == [b"%d" % n for n in range(10)]
    assert store.corrupt_records == 0


def test_a_unit_that_means_another_message_is_put_right(kit: Any) -> None:
    store = filled(kit)
    for n in range(3):
        store.append(kit.message("other", body=b"other%d" % n, queue_id=n))
    queue = store._queues.find("orders", 0)
    queue.replace(4, UNIT.pack(*store.unit("orders", 0, 5)))
    queue.replace(7, UNIT.pack(*store.unit("other", 0, 0)))
    assert kit.bodies(store) == [b"%d" % n for n in range(10)]
    assert store.corrupt_records == 0


def test_a_damaged_record_asked_for_by_its_place_is_told_once(kit: Any) -> None:
    store = filled(kit)
    at = store.unit("orders", 0, 4).physical_offset
    store._log.map[at + 88 : at + 89] = b"x"
    for _ in range(2):
        assert store.raw_at(at) is None
        assert store.corrupt_records == 1
    assert store.raw_at(at + 1) is None
    assert store.corrupt_records == 1, "where no record begins none is damaged"


def test_a_lost_record_is_told_and_looked_for_once(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(kit)
    at = store.unit("orders", 0, 4).physical_offset + 88
    store._log.map[at : at + 1] = b"x"
    looked: list[int] = []
    right_unit = store._care.right_unit
    monkeypatch.setattr(
        store._care, "right_unit", lambda queue, offset: (looked.append(offset), right_unit(queue, offset))[1]
    )
    for _ in range(3):
        assert len(kit.bodies(store)) == 9
    assert looked == [4]
    assert store.corrupt_records == 1
    assert store.raw_at(at - 88) is None
    assert store.corrupt_records == 1


def test_each_damaged_record_is_told_and_looked_for_once_and_very_many_are_not_remembered(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(kit)
    places = [store.unit("orders", 0, n).physical_offset for n in range(6)]
    for at in places:
        store._log.map[at + 88 : at + 89] = b"x"
    looked: list[int] = []
    monkeypatch.setattr(store._care, "right_unit", lambda _, offset: looked.append(offset))
    for _ in range(3):
        assert len(kit.bodies(store)) == 4
        assert [store.raw_at(at) for at in places] == [None] * 6
    assert looked == [*range(6)]
    assert store.corrupt_records == 6
    monkeypatch.setattr(reader, "_MAX_REPORTED", 3)
    assert kit.bodies(store, offset=5) == kit.bodies(store, offset=6)
    assert store.corrupt_records == 6, "what is known is known"
    at = store.unit("orders", 0, 7).physical_offset
    store._log.map[at + 88 : at + 89] = b"x"
    assert [len(kit.bodies(store)) for _ in range(2)] == [3, 3]
    assert store.corrupt_records > 7, "of those that were forgotten too"
    assert max(len(store._reader._reported), len(store._reader._hopeless)) <= 3


# -- syncs -----------------------------------------------------------------------------------------------------------


async def test_nothing_is_synced_again_after_a_failure(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked, is_broken = filled(kit, flush="sync"), [], [True]

    def sync(fd: int) -> None:
        if is_under(kit.root, fd):
            asked.append(fd)
            if is_broken:
                raise OSError(5, "Input/output error")

    monkeypatch.setattr(platform, "sync_data", sync)
    with pytest.raises(StoreError):
        await store.durable(store.log_max)
    is_broken.clear()
    count = len(asked)
    for _ in range(2):
        with pytest.raises(StoreError, match="check the disk"):
            await store.durable(store.log_max)
    assert len(asked) == count, "the kernel may have dropped what it could not write"
    with pytest.raises(StoreError, match="check the disk"):
        store.flush()


def test_a_flush_that_fails_says_so_at_once(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(kit)
    with monkeypatch.context() as broken:
        broken.setattr(
            platform,
            "sync_data",
            lambda fd: is_under(kit.root, fd) and (_ for _ in ()).throw(OSError(5, "no")),
        )
        with pytest.raises(StoreError, match="check the disk"):
            store.flush()
    assert not store.writable


async def test_one_who_gave_up_while_a_sync_ran_keeps_nobody_waiting(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, allowed = filled(kit, flush="sync"), threading.Semaphore(0)
    monkeypatch.setattr(
        platform, "sync_data", lambda fd: is_under(kit.root, fd) and allowed.acquire(timeout=30)
    )
    first, second = (asyncio.ensure_future(store.durable(store.log_max)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    allowed.release(100)
    await second
    assert first.cancelled()


def test_a_loop_that_ended_before_a_sync_is_not_told(kit: Any) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    flushes._call_soon(loop, kit.close)


def test_a_job_that_is_over_is_noticed_by_who_asks(kit: Any) -> None:
    flush = filled(kit)._flush
    flush.start(None)
    assert flush._job.exception(timeout=30) is None
    assert not flush.is_busy
    assert flush.synced == flush._log.end


def test_syncs_are_timed_in_milliseconds(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, times = filled(kit), iter([1_000_000, 8_500_000])
    monkeypatch.setattr(flushes, "perf_counter_ns", lambda: next(times))
    store._flush.now(None)
    assert store.sync_ms.sum == 7.5
    assert store.sync_ms.counts[store.sync_ms.ends.index(10)] == 1


async def test_who_waits_for_less_than_the_next_is_woken_first(kit: Any) -> None:
    store = filled(kit, flush="sync")
    flush = store._flush
    flush._waiters = []
    near, far = asyncio.ensure_future(flush.durable(store.log_max)), store.log_max + 1
    later = asyncio.ensure_future(flush.durable(far))
    await near
    assert not later.done()
    store.append(kit.message())
    await later
    assert flush._waiters == []
    assert flush.synced >= far


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_read_in_bulk_goes_on_over_units_that_stand_for_nothing(kit: Any) -> None:
    store = filled(kit, 3)
    store._queues.find("orders", 0).fill(8, UNIT.pack(store.log_max - 1, FILLER_SIZE, 0))
    store.append(kit.message(body=b"last"))
    found = store.read("orders", 0, 0, ReadLimit(), checked=False)
    assert (len(found.stored.records), found.next_offset) == (4, 9)


def test_older_index_files_are_closed_when_they_were_looked_into(kit: Any) -> None:
    store = kit.open(index_entries=8)
    for n in range(30):
        kit.clock.advance(1)
        store.append(kit.message(text=f"UNIQ_KEY\x01u{n}\x02KEYS\x01all\x02"))
    store.flush()
    before = len(os.listdir("/proc/self/fd"))
    assert len(store.find_by_key("orders", "all", 99, 0, 1 << 62)) == 30
    assert len(store.find_by_key("orders", "all", 1, 0, 1 << 62)) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_compiled_lane_may_not_begin_where_python_must_have_a_look(kit: Any) -> None:
    store, nobody = kit.open(), SimpleNamespace(goes_on=lambda *now: False, lease=lambda *room: None)
    assert not store.begin(nobody), "there is neither a log file nor a key"
    store.append(kit.message(text="UNIQ_KEY\x01u\x02"))
    store._appender.refused = lambda: StoreError("no")
    assert not store.begin(nobody)
    begun: list[Any] = []
    store._appender.refused, nobody.begin = None, lambda *given: begun.append(given)
    assert store.begin(nobody)
    ((end, room, keys, now, *_),) = begun
    assert (end, now) == (store.log_max, kit.clock.wall())
    assert room > end
    assert keys > 0
    assert store.root == kit.root


def test_a_key_for_which_there_is_no_room_is_left_out(kit: Any) -> None:
    index = filled(kit)._index
    index.room(2, kit.clock.wall())
    index.left = 1
    for key in ("a", "b"):
        index.put("orders", key, 0, 1)
    assert (index.left, [key for _, key, _, _ in index.waiting]) == (0, ["a"])
