# SPDX-License-Identifier: Apache-2.0
"""What a store promises beside storing: times that never go back, keys that outlive a crash, topics that stay deleted,
readers who are told how far behind they are."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from aerobee.store import commit_log
from aerobee.store.appender import clean
from aerobee.store.consume_queue import UNIT
from aerobee.store.message_store import ReadLimit, ReadStatus

HOUR, DAY = 3_600_000, 24 * 3_600_000


# -- times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("back", "held"), [(1, True), (HOUR, True), (DAY, True), (DAY + 1, False), (-5, False), (0, False)]
)
def test_store_times_wait_for_a_clock_that_was_set_back_by_a_day_at_most(
    kit: Any, back: int, held: bool
) -> None:
    store, wall = kit.open(), kit.clock.wall()
    store.append(kit.message())
    kit.clock.set_wall(wall - back)
    one, batch = kit.message(), [kit.message(), kit.message()]
    store.append(one)
    store.append_batch(batch)
    expected = wall if held else wall - back
    assert [record.store_timestamp for record in (one, *batch)] == [expected] * 3


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_store_times_do_not_go_back_over_a_restart(kit: Any, stop: str) -> None:
    store, wall = kit.open(), kit.clock.wall()
    store.append(kit.message())
    store.close() if stop == "close" else kit.crash(store)
    kit.clock.set_wall(wall - HOUR)
    store, record = kit.open(), kit.message()
    store.append(record)
    assert record.store_timestamp == wall


# -- records -----------------------------------------------------------------------------------------------------


def test_flags_that_say_how_long_hosts_are_are_the_stores_own(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message(sys_flag=0x30 | 2))
    stored = store.record_of("orders", 0, 0)
    assert stored.sys_flag == 2
    assert kit.bodies(store) == [b"body"]


def test_half_messages_take_no_place_in_a_queue(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message())
    for flag in (4, 12):
        half = kit.message(sys_flag=flag)
        store.append(half)
        assert half.queue_offset == 0
        batch = [kit.message(sys_flag=flag), kit.message(sys_flag=flag)]
        store.append_batch(batch)
        assert [each.queue_offset for each in batch] == [0, 0]
    last = kit.message()
    store.append(last)
    assert (last.queue_offset, store.max_offset("orders", 0)) == (1, 2)


# -- topics and queues -------------------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_with_units_in_memory_does_not_come_back(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message("a"))
    store.append(kit.message("b"))
    store.delete_topic("a")
    store.append(kit.message("b"))
    store.tick(kit.clock.now())
    store.flush()
    assert store.topics() == ["b"]
    assert not (kit.root / "consumequeue" / "a").exists()
    kit.crash(store)
    store = kit.open()
    assert (store.topics(), len(kit.bodies(store, "b"))) == (["b"], 2)


def test_who_moved_is_known_in_memory_and_in_files(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message("a"))
    middle = store.log_max
    store.append(kit.message("b", queue_id=3))
    for _ in range(2):
        assert sorted(store.moved_since(0)) == [("a", 0), ("b", 3)]
        assert store.moved_since(middle) == [("b", 3)]
        assert store.moved_since(store.log_max) == []
        store.flush()


def test_one_queue_that_cannot_be_written_keeps_no_other_from_it(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kit.open()
    for topic in "abc":
        store.append(kit.message(topic))
    stuck = store._queues.find("a", 0)
    write = type(stuck).write_tail

    def full_for_one(self: Any) -> list[str]:
        if self is stuck:
            raise OSError(errno.ENOSPC, "full")
        return write(self)  # type: ignore[no-any-return]

    with monkeypatch.context() as broken:
        broken.setattr(type(stuck), "write_tail", full_for_one)
        with pytest.raises(OSError, match="full"):
            store._queues.write_oldest(10)
    assert list(store._queues.dirty) == [stuck]
    store._queues.write_oldest(10)
    assert not store._queues.dirty


def test_few_files_of_the_log_are_mapped_and_the_current_one_always(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "_MAX_MAPPED", 2)
    store = kit.open()
    for _ in range(5):
        store.append(kit.message(body=bytes(60_000)))
    for _ in range(2):
        assert len(kit.bodies(store)) == 5
    mapped = [segment for segment in store._log.segments if segment.mapped is not None]
    assert len(mapped) <= 2
    assert store._log.segments[-1] in mapped
    store.append(kit.message())
    assert kit.bodies(store, offset=5) == [b"body"]


# -- keys --------------------------------------------------------------------------------------------------------


def test_keys_that_a_checkpoint_tells_of_are_in_the_index(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message(text="KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02"))
    store.flush()
    assert store.index_last_update == (kit.clock.wall(), 0)
    kit.crash(store)
    store = kit.open()
    assert store.recovery.dispatched == 0, "all of it was told"
    for key in ("k1", "k2", "u"):
        assert len(store.find_by_key("orders", key, 10, 0, 1 << 62)) == 1


def test_an_index_file_that_was_made_ahead_and_not_needed_is_removed(kit: Any) -> None:
    store = kit.open(index_entries=8)
    for n in range(5):
        store.append(kit.message(text=f"UNIQ_KEY\x01{n}\x02"))
    store._index.prepare(4, kit.clock.wall())
    assert len(list((kit.root / "index").iterdir())) == 2
    store.close()
    assert len(list((kit.root / "index").iterdir())) == 1


@pytest.mark.parametrize(
    ("begin", "end", "found"), [(0, 0, 1), (0, 10, 2), (1, 9, 0), (1, 10, 1), (11, 20, 0)]
)
def test_keys_are_found_between_two_times_both_included(kit: Any, begin: int, end: int, found: int) -> None:
    store, wall = kit.open(), kit.clock.wall()
    store.append(kit.message(text="KEYS\x01k\x02"))
    kit.clock.advance(10)
    store.append(kit.message(text="KEYS\x01k\x02"))
    assert len(store.find_by_key("orders", "k", 10, wall + begin, wall + end)) == found


# -- readers -----------------------------------------------------------------------------------------------------


def test_what_has_left_the_memory_is_read_a_little_at_a_time(kit: Any) -> None:
    store = kit.open()
    for _ in range(6):
        store.append(kit.message())
    one = store.log_max // 6
    limit = ReadLimit(max_messages=4, cold_messages=2)
    store.memory_bytes = 6 * one
    assert (len(store.read("orders", 0, 0, limit).messages), store.cold_reads) == (4, 0)
    store.memory_bytes = 6 * one - 1
    assert (len(store.read("orders", 0, 0, limit).messages), store.cold_reads) == (2, 1)
    assert (len(store.read("orders", 0, 1, limit).messages), store.cold_reads) == (4, 1)
    assert [store.in_memory(at * one) for at in (0, 1)] == [False, True]
    store.memory_bytes = 6 * one
    assert store.in_memory(0)
    small = ReadLimit(max_messages=4, max_bytes=4 * one, cold_bytes=one)
    store.memory_bytes = 0
    assert len(store.read("orders", 0, 0, small).messages) == 1
    assert len(store.read("orders", 0, 0, ReadLimit(max_messages=4)).messages) == 4, "nobody asked for less"
    few = ReadLimit(max_messages=4, max_bytes=2 * one, cold_messages=3)
    assert len(store.read("orders", 0, 0, few).messages) == 2, "as many bytes as of what is in memory"


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0), (0, ReadStatus.FOUND, 2), (2, ReadStatus.OFFSET_OVERFLOW_ONE, 2),
        (3, ReadStatus.OFFSET_OVERFLOW_BADLY, 2),
    ],
)  # fmt: skip
def test_a_read_says_where_to_go_on(kit: Any, offset: int, status: ReadStatus, following: int) -> None:
    store = kit.open()
    for _ in range(2):
        store.append(kit.message())
    found = store.read("orders", 0, offset, ReadLimit())
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (status, following, 0, 2)


def test_a_queue_may_be_served_from_another_time_again(kit: Any) -> None:
    store, wall = kit.open(), kit.clock.wall()
    for _ in range(4):
        store.append(kit.message())
        kit.clock.advance(10)
    for since, first in ((30, 3), (10, 1), (40, 4), (0, 0)):
        store.serve_since("orders", 0, wall + since if since else 0)
        assert store.min_offset("orders", 0) == first
        assert store.kept_from("orders", 0) == 0
    store.serve_since("nowhere", 0, wall)


def test_who_chooses_records_himself_gets_units_and_the_log_they_point_to(kit: Any) -> None:
    store = kit.open()
    for _ in range(4):
        store.append(kit.message())
    place, one = ("orders", 0), store.log_max // 4
    units, log, base, low, queue = store.stretch(place, 1, 2)
    assert (base, low, queue.max_offset) == (0, 0, 4)
    assert [UNIT.unpack_from(units, at)[0] for at in (0, UNIT.size)] == [one, 2 * one]
    assert log[one : 2 * one] == store.raw_at(one)
    for offset in (-1, 4, 5):
        assert store.stretch(place, offset, 2) is None, "`read` says why"
    assert store.stretch(("nowhere", 0), 0, 2) is None
    store.memory_bytes = 3 * one
    assert store.stretch(place, 0, 2) is None, "it has left the memory: `read` gives less at once"
    assert store.stretch(place, 1, 2) is not None
    store.readable = False
    assert store.stretch(place, 1, 2) is None


def test_a_stretch_whose_first_record_is_not_in_the_log_is_for_read_to_look_at(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message())
    store._queues.find("orders", 0).tail[:] = UNIT.pack(1 << 40, 100, 0)
    assert store.stretch(("orders", 0), 0, 1) is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\x01b\x02__CRC32#\x010123456789\x02c\x01d\x02", "a\x01b\x02c\x01d\x02"),
        ("__CRC32#\x010123456789\x02c\x01d\x02", "c\x01d\x02"),
        ("a\x01b\x02__CRC32#\x010123456789\x02", "a\x01b\x02"),
        ("a\x01b", "a\x01b\x02"),
        ("", ""),
    ],
)
def test_an_older_check_goes_before_a_record_gets_its_own(text: str, kept: str) -> None:
    assert clean(text) == kept


@pytest.mark.parametrize("place", [("orders", 0), ("orders", 1), ("unknown", 0)])
def test_a_queues_begin_and_end_are_told_at_once_as_one_by_one(kit: Any, place: tuple[str, int]) -> None:
    store = kit.open(retention_bytes=1 << 17)
    for at_once in (1, 40):
        assert store.bounds(*place) == (store.min_offset(*place), store.max_offset(*place))
        for _ in range(at_once):
            store.append(kit.message(body=bytes(8_000)))
        for _ in range(3):
            kit.clock.advance(1_000)
            store.tick(kit.clock.now())
    low, high = store.bounds(*place)
    assert (low, high) == (store.min_offset(*place), store.max_offset(*place))
    if place == ("orders", 0):
        assert 0 < low < high == 41
    else:
        assert (low, high) == (0, 0)
