# SPDX-License-Identifier: Apache-2.0
import mmap
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aerobee.errors import StoreError
from aerobee.protocol.message import decode
from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.protocol.properties import tag_code
from aerobee.store import read_side
from aerobee.store.consume_queue import UNIT
from aerobee.store.message_store import MessageStore, ReadLimit, ReadStatus


class Only(msgspec.Struct):
    codes: frozenset[int] | None = None
    properties: Callable[[dict[str, str]], bool] | None = None


def tagged(*tags: str) -> Only:
    return Only(frozenset(map(tag_code, tags)))


@pytest.fixture
def store(kit: Any) -> MessageStore:
    """Ten messages, tags a b a b ..., numbers 0 to 9."""
    store = kit.open()
    for n in range(10):
        store.append(kit.message(body=b"%d" % n, text=f"TAGS\x01{'ab'[n % 2]}\x02n\x01{n}\x02"))
    return store


@pytest.mark.seed("S004-15", "S004-16", "S004-49")
def test_a_read_gives_the_messages_from_the_offset_on(store):
    found = store.read("orders", 0, 3, ReadLimit(max_messages=4))
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
        ReadStatus.FOUND,
        7,
        0,
        10,
    )
    assert [decode(raw).body for raw in found.messages] == [b"3", b"4", b"5", b"6"]
    assert found.offsets == [3, 4, 5, 6]
    assert found.size_bytes == sum(map(len, found.messages))


def test_a_read_tells_how_far_behind_the_logs_end_it_stopped(store):
    found = store.read("orders", 0, 0, ReadLimit())
    assert found.behind_bytes == 0
    found = store.read("orders", 0, 0, ReadLimit(max_messages=9))
    assert found.behind_bytes == store.unit("orders", 0, 9).size


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset", "status", "following"),
    [
        ("nothing", 0, 5, ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ("orders", 1, 0, ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0),
        ("orders", 0, -1, ReadStatus.OFFSET_TOO_SMALL, 0),
        ("orders", 0, 10, ReadStatus.OFFSET_OVERFLOW_ONE, 10),
        ("orders", 0, 11, ReadStatus.OFFSET_OVERFLOW_BADLY, 10),
    ],
)
def test_an_offset_outside_the_queue_is_answered_with_the_nearest(
    store, topic, queue_id, offset, status, following
):
    found = store.read(topic, queue_id, offset, ReadLimit())
    assert (found.status, found.next_offset, found.messages) == (status, following, [])


def test_a_queue_that_has_no_message_yet(store):
    store._queues.obtain("orders", 2)  # a queue is made by its first message; RocketMQ knows it empty, too
    found = store.read("orders", 2, 7, ReadLimit())
    assert (found.status, found.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.seed("S004-74")
def test_filtered_messages_count_as_read(store):
    found = store.read("orders", 0, 1, ReadLimit(max_messages=2), tagged("a"))
    assert [decode(raw).body for raw in found.messages] == [b"2", b"4"]
    assert (found.next_offset, found.offsets) == (5, [2, 4])
    assert store.read("orders", 0, 1, ReadLimit(), tagged("a")).next_offset == 10, "9 has another tag"
    found = store.read("orders", 0, 1, ReadLimit(), tagged("none"))
    assert (found.status, found.next_offset, found.messages) == (ReadStatus.NO_MATCHED_MESSAGE, 10, [])


def test_several_tags_and_no_tags(store):
    assert len(store.read("orders", 0, 0, ReadLimit(), tagged("a", "b")).messages) == 10
    assert len(store.read("orders", 0, 0, ReadLimit(), Only()).messages) == 10


def test_properties_decide_after_tags(store):
    accept = Only(frozenset([tag_code("a")]), lambda p: int(p["n"]) > 3)
    found = store.read("orders", 0, 0, ReadLimit(), accept)
    assert [decode(raw).body for raw in found.messages] == [b"4", b"6", b"8"]
    found = store.read("orders", 0, 0, ReadLimit(), Only(None, lambda p: False))
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)


def test_tags_codes_are_compared_as_32_bits(kit):
    """The unit of a delayed message holds a time; Java casts it to int."""
    store = kit.open()
    store.append(kit.message(SCHEDULE_TOPIC))
    due = store.unit(SCHEDULE_TOPIC, 0, 0).tags_code
    low = (due & 0xFFFFFFFF) - (1 << 32 if due & 0x80000000 else 0)
    assert store.read(SCHEDULE_TOPIC, 0, 0, ReadLimit(), Only(frozenset([low]))).status is ReadStatus.FOUND


def test_the_scan_ends_at_its_limit(kit):
    store = kit.open(consume_queue_units=2000)
    store.append_batch([kit.message(body=b"") for _ in range(500)])
    store.append_batch([kit.message(body=b"") for _ in range(400)])
    found = store.read("orders", 0, 10, ReadLimit(), tagged("x"))
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 810)
    found = store.read("orders", 0, 0, ReadLimit(max_messages=850, max_bytes=1 << 30))
    assert len(found.messages) == 850  # a bigger count widens the scan


@pytest.mark.seed("S004-72")
def test_byte_and_count_limits_hold_after_the_first_message(kit):
    store = kit.open()
    for size in (10_000, 10, 10, 10_000):
        store.append(kit.message(body=bytes(size)))
    limit = ReadLimit(max_messages=32, max_bytes=1000)
    assert [store.read("orders", 0, at, limit).next_offset for at in (0, 1, 3)] == [1, 3, 4]
    assert store.read("orders", 0, 0, ReadLimit(max_messages=0)).next_offset == 1


@pytest.mark.seed("S004-58", "S004-73")
def test_messages_that_left_memory_have_their_own_limits(store):
    """Bytes behind the end above 40 % of the memory count as being on disk."""
    limit = ReadLimit(cold_messages=2, cold_bytes=65_536)
    assert len(store.read("orders", 0, 0, limit).messages) == 10
    store.memory_bytes = 300
    found = store.read("orders", 0, 0, limit)
    assert len(found.messages) == 2
    assert found.behind_bytes == store.log_max - store.unit("orders", 0, 2).physical_offset


@pytest.mark.seed("S004-58")
def test_forty_of_a_hundred_bytes_of_the_machines_memory_are_counted_on(kit, tmp_path, monkeypatch):
    monkeypatch.setattr(read_side, "machine_memory", lambda: 1_001)
    assert kit.open(tmp_path / "as shipped").memory_bytes == 400
    assert kit.open(tmp_path / "set", memory_percent=50).memory_bytes == 500


@pytest.mark.seed("S004-58")
def test_the_last_byte_within_that_distance_is_in_memory_and_the_one_before_is_not(store):
    store.memory_bytes = 300
    assert store.in_memory(store.log_max - 300)
    assert not store.in_memory(store.log_max - 301)
    limit, whole = ReadLimit(cold_messages=2), store.log_max - store.unit("orders", 0, 0).physical_offset
    for memory_bytes, read in ((whole, 10), (whole - 1, 2)):
        store.memory_bytes = memory_bytes
        assert len(store.read("orders", 0, 0, limit).messages) == read


@pytest.mark.seed("S004-78")
def test_a_store_that_must_not_be_read_says_so(store):
    store.readable = False
    with pytest.raises(StoreError, match="not readable"):
        store.read("orders", 0, 0, ReadLimit())


def test_a_read_goes_on_over_every_seam(kit):
    """Files of 16 units, the last three units in memory only: whatever it crosses, a read brings what was asked for."""
    store = kit.open()
    store.append_batch([kit.message(body=b"%d" % n) for n in range(40)])
    store.tick(kit.clock.now())
    store.append_batch([kit.message(body=b"%d" % n) for n in range(40, 43)])
    for at in range(43):
        for count in (1, 5, 16, 17, 33, 99):
            found = store.read("orders", 0, at, ReadLimit(max_messages=count))
            assert found.offsets == list(range(at, min(43, at + count)))
            assert [decode(raw).body for raw in found.messages] == [b"%d" % n for n in found.offsets]
    assert len(store.units("orders", 0, 3, 99)) == 40 * 20


def test_a_read_ends_before_a_lost_queue_file(kit):
    store = kit.open()
    store.append_batch([kit.message() for _ in range(40)])
    store.tick(kit.clock.now())
    (kit.root / "consumequeue/orders/0" / f"{16 * 20:020d}").unlink()
    store._queues.files.close()
    found = store.read("orders", 0, 10, ReadLimit(max_messages=30))
    assert found.offsets == list(range(10, 16))


class CountingMap(mmap.mmap):
    """A mapped file that counts the bytes that are copied out of it."""

    copied = 0

    def __getitem__(self, part):
        data = super().__getitem__(part)
        self.copied += len(data)
        return data


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0x7FFFFFFE, 60_000, 1 << 16, 0, -1, -0x80000000, 90, 17])
@pytest.mark.parametrize("checked", [True, False])
def test_a_read_over_damaged_units_copies_what_it_returns_and_a_record_a_unit(kit, size, checked):
    """Whatever size a unit claims: one that its record does not have costs nothing."""
    store = kit.open()
    store.append(
        kit.message("other")
    )  # a gap that begins at the log's first byte is no gap: nothing was there
    store.append_batch([kit.message(body=b"%d" % n) for n in range(30)])
    queue = store._queues.find("orders", 0)
    for n in range(29):
        physical, _, code = UNIT.unpack_from(queue.tail, n * 20)
        UNIT.pack_into(queue.tail, n * 20, physical, size, code)
    segment = store._log.segments[-1]
    segment.mapped = counted = CountingMap(segment.fd, segment.size)
    found = store.read("orders", 0, 0, ReadLimit(), checked=checked)
    record = store.unit("orders", 0, 29).size
    assert counted.copied <= found.size_bytes + 30 * max(record, 4096)


@pytest.mark.parametrize("physical", [-1, -(1 << 63), 1 << 62, 1 << 16, 70_000])
def test_a_unit_that_points_nowhere_hides_itself_only(kit, physical):
    store = kit.open()
    store.append_batch([kit.message(body=b"%d" % n) for n in range(5)])
    queue = store._queues.find("orders", 0)
    UNIT.pack_into(queue.tail, 2 * 20, physical, 130, 0)
    found = store.read("orders", 0, 0, ReadLimit())
    assert {0, 1, 3, 4} <= set(found.offsets)


def test_a_queue_file_that_is_lost_under_a_running_store_is_stepped_over(kit):
    store = kit.open()
    store.append_batch([kit.message() for _ in range(40)])
    store.flush()
    (kit.root / "consumequeue/orders/0" / f"{16 * 20:020d}").unlink()
    store._queues.files.close()
    found = store.read("orders", 0, 20, ReadLimit())
    assert (found.status, found.next_offset, found.messages) == (ReadStatus.OFFSET_FOUND_NULL, 32, [])


@pytest.mark.seed("S004-75")
def test_a_lost_log_file_is_skipped_to_the_start_of_the_next(kit):
    store = kit.open()
    records = [kit.message(body=bytes(10_000)) for _ in range(20)]
    for record in records:
        store.append(record)
    lost = [record for record in records if record.physical_offset < 2 << 16]
    store.min_offset("orders", 0)
    queue = store._queues.find("orders", 0)
    queue.min_offset(0)
    store._log.delete_first()
    store._log.delete_first()
    queue._min_for, queue._min_offset = store.log_min, 0  # the reader is faster than the trimming
    found = store.read("orders", 0, 0, ReadLimit(max_messages=1), None)
    assert found.status is ReadStatus.FOUND
    assert found.offsets == [len(lost)]
    found = store.read("orders", 0, 0, ReadLimit(max_messages=1, max_scan=5))
    assert (found.status, found.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 5)


def test_record_and_unit_by_offset(store):
    record = store.record_of("orders", 0, 4)
    assert record is not None and record.body == b"4"
    assert store.record_of("orders", 0, 10) is None
    assert store.record_of("orders", 9, 0) is None
    assert store.record_at(record.physical_offset) == record
    assert store.record_at(record.physical_offset + 1) is None
    assert store.record_at(store.log_max) is None
    assert store.record_at(-1) is None
    assert store.raw_at(1 << 50) is None
