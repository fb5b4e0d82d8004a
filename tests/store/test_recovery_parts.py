# SPDX-License-Identifier: Apache-2.0
"""What a start makes of odd ends and odd records, what reads and syncs count, one small thing at a time."""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.errors import StoreError
from aerobee.protocol.properties import tag_code
from aerobee.store import checkpoint as checkpoints
from aerobee.store import flush as flushes
from aerobee.store import platform, recovery
from aerobee.store.check import StoreCheck
from aerobee.store.checkpoint import Checkpoint
from aerobee.store.consume_queue import FILLER_SIZE, UNIT
from aerobee.store.message_store import ReadLimit, ReadStatus
from aerobee.store.reader import units_wanted
from aerobee.store.segment import Segment
from tests.own_files import is_under

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEGMENT = 1 << 16


class Wanted(msgspec.Struct):
    codes: frozenset[int] = frozenset()
    properties: Callable[[dict[str, str]], bool] | None = None


def log_file(kit: Any, base: int = 0) -> Path:
    path: Path = kit.root / "commitlog" / f"{base:020d}"
    return path


def log_files(kit: Any) -> list[str]:
    return os.listdir(kit.root / "commitlog")


def write_at(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def filled(kit: Any, count: int = 10, **settings: Any) -> Any:
    store = kit.open(**settings)
    for n in range(count):
        store.append(kit.message(body=b"%d" % n))
    return store


def as_another_broker_left_it(kit: Any, times: tuple[int, ...] = (0, 0, 0, 0, 0)) -> None:
    """Its times are there, nothing of ours."""
    (kit.root / "checkpoint").write_bytes(struct.pack(">qqqqq", *times).ljust(4096, b"\0"))


# -- a start ---------------------------------------------------------------------------------------------------------


def test_torn_bytes_are_counted_from_the_end_of_the_log_in_every_file(kit: Any, caplog: Any) -> None:
    store = filled(kit)
    end = store.log_max
    kit.crash(store)
    kit.crash(kit.open())
    assert "torn_bytes" not in caplog.text
    write_at(log_file(kit), end + 8, b"x" * 50)  # never published: its first eight bytes are zeros
    log_file(kit, SEGMENT).write_bytes(bytes(SEGMENT))
    write_at(log_file(kit, SEGMENT), 100, b"y" * 7)
    again = kit.open()
    assert again.recovery.truncated_bytes == 58 + 107
    assert f"commit log cut at offset={end} torn_bytes=165" in caplog.text
    assert (again.log_max, len(kit.bodies(again))) == (end, 10)
    assert not log_file(kit, SEGMENT).exists()
    assert set(log_file(kit).read_bytes()[end:]) == {0}


@pytest.mark.parametrize("clean", [True, False])
def test_a_record_of_zeros_within_the_log_of_another_broker(kit: Any, clean: bool) -> None:
    """After a clean stop it is damage, and what follows is served; after a crash the log ends there."""
    store = filled(kit)
    unit = store.unit("orders", 0, 4)
    store.close() if clean else kit.crash(store)
    as_another_broker_left_it(kit)
    (kit.root / "consumequeue.sums").unlink(missing_ok=True)
    write_at(log_file(kit), unit.physical_offset, bytes(unit.size))
    again = kit.open()
    assert again.recovery.clean is clean
    assert again.recovery.corrupt == clean
    expected = [b"%d" % n for n in range(10) if n != 4 and (clean or n < 4)]
    assert kit.bodies(again) == expected


@pytest.mark.parametrize(("log_time", "queue_time", "file"), [
    (3_000, 9_000, 0), (9_000, 3_000, 0), (13_000, 99_000, 1), (99_000, 12_999, 0), (23_000, 23_000, 2), (0, 0, 0),
])  # fmt: skip
def test_of_another_brokers_store_the_newest_file_before_its_times_is_where_to_start(
    kit: Any, log_time: int, queue_time: int, file: int
) -> None:
    """Times count from the first message; files begin ten seconds apart, and three seconds are what was on its way."""
    store = kit.open()
    first = kit.clock.wall()
    for n in range(6):
        store.append(kit.message(body=b"%d" % n + bytes(30_000)))
        if n % 2:
            kit.clock.advance(10_000)
    assert len(store._log.segments) == 3
    store.flush()
    kit.crash(store)
    as_another_broker_left_it(kit, (first + log_time, first + queue_time, 0, 0, 0))
    assert StoreCheck(kit.root, kit.config)._recovered_from() == file * SEGMENT
    again = kit.open()
    assert again.recovery.scanned_from == file * SEGMENT
    assert len(kit.bodies(again)) == 6


@pytest.mark.parametrize(("moved", "starts_there"), [("end", True), ("boundary", True), ("within", False)])
def test_a_position_of_ours_holds_after_another_broker_ran_if_a_record_or_nothing_is_there(
    kit: Any, moved: str, starts_there: bool
) -> None:
    store = filled(kit)
    store.flush()
    position = store.log_max - (5 if moved == "within" else 0)
    if moved == "boundary":
        store.append(kit.message())
    kit.crash(store)
    checkpoints.save(kit.root / "checkpoint", Checkpoint(0, 0, 0, position, position))
    write_at(kit.root / "checkpoint", 0, struct.pack(">q", 1))  # its own times
    again = kit.open()
    assert again.recovery.scanned_from == (position if starts_there else 0)
    assert len(kit.bodies(again)) == 10 + (moved == "boundary")


def test_a_file_that_another_broker_made_ahead_is_no_place_to_start(kit: Any) -> None:
    store = filled(kit)
    store.flush()
    kit.crash(store)
    log_file(kit, SEGMENT).write_bytes(bytes(SEGMENT))
    as_another_broker_left_it(kit, (1 << 50, 1 << 50, 0, 0, 0))
    again = kit.open()
    assert (again.recovery.scanned_from, again.recovery.messages) == (0, 10)


@pytest.mark.parametrize("flags", [0, 4])
def test_a_damaged_record_keeps_its_place_if_it_had_one(kit: Any, flags: int) -> None:
    """One that was prepared has no unit: its queue goes on as if it had not been."""
    store = filled(kit, 3)
    store.append(kit.message("damaged", body=b"d", sys_flag=flags))
    store.append(kit.message("damaged", body=b"e"))
    at = store.log_max - 2 * (store.log_max - store.unit("damaged", 0, 0 if flags else 1).physical_offset)
    store.close()
    as_another_broker_left_it(kit)
    shutil.rmtree(kit.root / "consumequeue")
    write_at(log_file(kit), at + 88, b"x")
    again = kit.open()
    assert again.recovery.corrupt == 1
    assert again.max_offset("damaged", 0) == (1 if flags else 2)
    assert kit.bodies(again, "damaged") == [b"e"]


@pytest.mark.parametrize("part", ["topic", "name"])
def test_a_record_whose_topic_cannot_be_one_is_stepped_over(kit: Any, part: str) -> None:
    store = filled(kit, record_check=False)
    unit = store.unit("orders", 0, 4)
    kit.crash(store)
    data = log_file(kit).read_bytes()
    at = data.index(b"orders", unit.physical_offset)
    write_at(log_file(kit), at, b"\xff" if part == "topic" else b"a/b")
    again = kit.open()
    assert (again.recovery.corrupt, again.recovery.messages) == (1, 10)
    assert kit.bodies(again) == [b"%d" % n for n in range(10) if n != 4]
    assert again.recovery.dispatched == 9


def test_every_key_of_a_crashed_store_is_told_again(kit: Any) -> None:
    store = kit.open(index_entries=2_048)
    for n in range(200):
        store.append(kit.message(text=f"UNIQ_KEY\x01u{n}\x02KEYS\x01a{n} b{n}\x02"))
    kit.crash(store)
    again = kit.open()
    for n in range(200):
        for key in (f"u{n}", f"a{n}", f"b{n}"):
            assert len(again.find_by_key("orders", key, 9, 0, 1 << 62)) == 1, key


def test_a_long_walk_writes_its_units_on_the_way(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(kit)
    kit.crash(store)
    monkeypatch.setattr(recovery, "_WRITE_EVERY", 4)
    again = kit.open()
    queue = again._queues.find("orders", 0)
    assert (queue.written, queue.max_offset) == (8, 10)


def test_a_walk_gives_pages_back_every_so_often(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(kit, 30)
    kit.crash(store)
    size = store.unit("orders", 0, 0).size
    given: list[int] = []
    monkeypatch.setattr(recovery, "_FORGET_EVERY", 5 * size)
    monkeypatch.setattr(Segment, "forget_pages", lambda _, end: given.append(end))
    kit.open()
    assert 3 <= len(given) <= 5


def test_an_empty_store_begins_at_nothing(kit: Any) -> None:
    for _ in range(3):
        store = kit.open()
        assert (store.log_min, store.log_max, store.recovery.messages) == (0, 0, 0)
        assert store._queues.sums.is_known
        store.close()


def test_how_much_of_a_cleanly_closed_log_is_looked_at(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(kit)
    size, end = store.log_max // 10, store.log_max
    last = store._log.store_time(store.unit("orders", 0, 9).physical_offset)
    store.close()
    times = checkpoints.load(kit.root / "checkpoint")[:3]
    for checked_from, messages in ((end - 3 * size, 3), (end, 0), (end - 4 * size - 1, 0), (-1, 0)):
        monkeypatch.setattr(recovery, "_LOOK_BACK", 4 * size)
        checkpoints.save(kit.root / "checkpoint", Checkpoint(*times, end, checked_from))
        again = kit.open()
        assert again.recovery.messages == messages
        assert again._appender.last_store_time == (last if messages else 0)
        again._may_checkpoint = False
        kit.crash(again)
        (kit.root / "abort").unlink()


def test_damage_among_the_last_records_is_told_after_a_clean_stop(kit: Any) -> None:
    store = filled(kit)
    unit = store.unit("orders", 0, 4)
    store.close()
    write_at(log_file(kit), unit.physical_offset + 88, b"x")
    again = kit.open()
    assert (again.recovery.clean, again.recovery.corrupt, again.recovery.messages) == (True, 1, 4)
    assert kit.bodies(again) == [b"%d" % n for n in range(10) if n != 4]


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


# -- the rest --------------------------------------------------------------------------------------------------------


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
    store, nobody = kit.open(), SimpleNamespace()
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


def test_a_check_reads_what_the_log_has(kit: Any) -> None:
    store = kit.open()
    for _ in range(6):
        store.append(kit.message(body=bytes(30_000)))
    store._log.delete_first()
    end = store.log_max
    store.close()
    assert StoreCheck(kit.root, kit.config).size_bytes == len(log_files(kit)) * SEGMENT
    assert end > SEGMENT


def test_a_key_for_which_there_is_no_room_is_left_out(kit: Any) -> None:
    index = filled(kit)._index
    index.room(2, kit.clock.wall())
    index.left = 1
    for key in ("a", "b"):
        index.put("orders", key, 0, 1)
    assert (index.left, [key for _, key, _, _ in index.waiting]) == (0, ["a"])


def test_keys_that_a_start_would_tell_again_are_not_checked(kit: Any) -> None:
    store = kit.open()
    for n in range(5):
        store.append(kit.message(text=f"UNIQ_KEY\x01u{n}\x02"))
    store.flush()
    store.append(kit.message(text="UNIQ_KEY\x01later\x02"))
    store._index.settle()
    kit.crash(store)
    report = StoreCheck(kit.root, kit.config).run()
    assert (report.index.entries, report.index.untold, report.index.wrong) == (5, 1, 0)


def test_a_key_of_a_record_that_is_lost_is_wrong(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message(text="UNIQ_KEY\x01u\x02"))
    end = store.log_max
    store.close()
    write_at(log_file(kit), 0, bytes(end))
    assert StoreCheck(kit.root, kit.config).run().index.wrong == 1
