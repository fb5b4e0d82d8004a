# SPDX-License-Identifier: Apache-2.0
"""Queues all together and one by one, a step at a time: what is looked at, written, remembered to be synced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import MessageIllegal
from aerobee.protocol.message import MAGIC_V1, MAGIC_V2
from aerobee.store import queues
from aerobee.store.consume_queue import UNIT, ConsumeQueue
from aerobee.store.queue_loading import _follow_each_other
from aerobee.store.queue_sums import FileSum
from tests.store.taking_turns import COUNT, two_queues, units_of

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore


@pytest.fixture
def store(kit: Any) -> MessageStore:
    return two_queues(kit)


# -- all of them -----------------------------------------------------------------------------------------------------


def test_only_folders_that_can_be_topics_are_topics(kit: Any) -> None:
    kit.open().close()
    (kit.root / "consumequeue" / "a-file").write_text("x")
    for name in ("b", "a", "c"):
        (kit.root / "consumequeue" / name).mkdir()
    (kit.root / "consumequeue" / "a" / "2").mkdir()
    for name in ("0", "10", "-1", "x", "2147483648", "2147483647"):
        (kit.root / "consumequeue" / "b" / name).mkdir()
    store = kit.open()
    assert store.topics() == ["a", "b", "c"]
    assert store.queue_ids("b") == [0, 10, 2147483647]
    assert (store.queue_ids("a"), store.queue_ids("c"), store.queue_ids("d")) == ([2], [], [])


def test_a_queues_number_is_one_that_java_has(kit: Any) -> None:
    found = kit.open()._queues
    for number in (0, 1, (1 << 31) - 1):
        assert found.obtain("a", number).queue_id == number
    assert found.queue_ids("a") == [0, 1, (1 << 31) - 1]
    for number in (-1, 1 << 31):
        with pytest.raises(MessageIllegal, match="cannot have a queue"):
            found.obtain("a", number)
    for name in ("", ".", "..", "a/b", "x" * 256):
        with pytest.raises(MessageIllegal, match="no name of one directory"):
            found.obtain(name, 0)


@pytest.mark.parametrize(
    ("topic", "magic", "field"),
    [
        ("a" * 127, MAGIC_V1, b"\x7f"),
        ("a" * 128, MAGIC_V2, b"\0\x80"),
        ("é" * 63, MAGIC_V1, b"\x7e"),
        ("é" * 64, MAGIC_V2, b"\0\x80"),
    ],
)
def test_a_long_name_has_two_bytes_of_length(kit: Any, topic: str, magic: int, field: bytes) -> None:
    queue = kit.open()._queues.obtain(topic, 0)
    assert (queue.magic, queue.topic_field) == (magic, field + topic.encode())


def test_units_past_the_end_of_the_log_are_not_believed(kit: Any, store: MessageStore) -> None:
    third = store.unit("orders", 0, 3)
    assert third is not None
    store.close()
    again = kit.open()
    assert not again._queues.loaded
    again._queues.log_end = third.physical_offset
    assert again.max_offset("orders", 0) == 3


def test_a_walk_over_all_keeps_what_it_must_and_forgets_the_rest(kit: Any, store: MessageStore) -> None:
    store.append(kit.message("third"))
    store.close()
    again = kit.open()
    again.max_offset("other", 0)
    before = again._queues.unloaded
    for queue in again._queues.everything():
        if queue.topic == "orders":
            again.append(kit.message("orders"))
        assert (queue.topic, 0) in again._queues.loaded
    assert set(again._queues.loaded) == {("orders", 0), ("other", 0)}, (
        "loaded before, or with a unit to write"
    )
    assert again._queues.unloaded == before + 1
    assert [queue.topic for queue in again._queues.everything()] == ["orders", "other", "third"]
    for queue in again._queues.everything():
        again.delete_topic(queue.topic)
    assert (again.topics(), again._queues.loaded) == ([], {})


def test_the_queues_that_wait_longest_are_written_first(kit: Any) -> None:
    store = kit.open()
    for topic, units in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(units):
            store.append(kit.message(topic))
    found = store._queues
    first = store.unit("a", 0, 0)
    assert found.dispatched_to(store.log_max) == first.physical_offset
    assert found.write_oldest(2) == 40, "bytes each had, as a mean"
    assert [queue.topic for queue in found.dirty] == ["c"]
    assert found.dispatched_to(store.log_max) == store.unit("c", 0, 0).physical_offset
    paths, folders = found.take_unsynced()
    assert len(paths) == 2
    assert len(folders) == 5
    assert found.take_unsynced() == (set(), set()), "each is told once"
    assert found.write_oldest(9) == 40
    assert found.write_oldest(9) == 0
    assert found.dispatched_to(77) == 77
    store.append(kit.message("a"))
    store.append(kit.message("b"))
    found.dirty = dict.fromkeys(reversed(found.dirty))
    assert found.dispatched_to(store.log_max) == store.unit("a", 0, 1).physical_offset, "whatever the order"


def test_a_queue_that_cannot_be_written_keeps_its_turn_and_its_paths(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kit.open()
    for topic in "abc":
        store.append(kit.message(topic))
    write_tail = ConsumeQueue.write_tail

    def refuse(queue: ConsumeQueue) -> list[str]:
        if queue.topic in "ab":
            raise OSError(28, f"no space for {queue.topic}")
        return write_tail(queue)

    with monkeypatch.context() as broken:
        broken.setattr(ConsumeQueue, "write_tail", refuse)
        with pytest.raises(OSError, match="no space for a"):
            store._queues.write_oldest(3)
    assert [queue.topic for queue in store._queues.dirty] == ["a", "b"]
    assert len(store._queues.written_paths) == 1


@pytest.mark.parametrize(("few", "are"), [(2, False), (3, True), (4, True)])
def test_few_queues_are_looked_at_before_the_first_request(
    kit: Any, monkeypatch: pytest.MonkeyPatch, few: int, are: bool
) -> None:
    monkeypatch.setattr(queues, "_FEW", few)
    store = kit.open()
    for topic, queue_id in (("a", 0), ("a", 1), ("b", 0)):
        store.append(kit.message(topic, queue_id=queue_id))
    assert store._queues.are_few is are


def test_who_got_something_since_is_told(kit: Any, store: MessageStore) -> None:
    store.flush()
    end = store.log_max
    assert store.moved_since(end) == []
    last = store.unit("other", 0, COUNT - 1)
    assert last is not None
    assert store.moved_since(last.physical_offset) == [("other", 0)]
    assert store.moved_since(last.physical_offset + 1) == []
    store.append(kit.message())
    assert store.moved_since(end) == [("orders", 0)]
    assert sorted(store.moved_since(0)) == [("orders", 0), ("other", 0)]


def test_a_topic_that_is_deleted_leaves_nothing_to_write(kit: Any, store: MessageStore) -> None:
    store.delete_topic("orders")
    assert [queue.topic for queue in store._queues.dirty] == []
    assert store.topics() == ["other"]
    assert store.max_offset("orders", 0) == 0
    store.append(kit.message())
    store.close()
    assert kit.bodies(kit.open()) == [b"body"]


@pytest.mark.parametrize("few", [0, 1_000])
def test_sums_are_written_down_for_queues_that_had_none(
    kit: Any, store: MessageStore, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(queues, "_FEW", few)
    before = units_of(store)
    store.close()
    (kit.root / "consumequeue.sums").unlink()
    again = kit.open()
    assert again.recovery.clean
    sums = again._queues.sums
    assert sums.is_known
    assert [(file.start, file.units) for file in sums.of("orders", 0)] == [(0, 16), (16, 16), (32, 8)]
    assert sums.of("orders", 0)[2].crc
    assert units_of(again) == before


@pytest.mark.parametrize(("few", "at_once"), [(0, False), (1_000, True)])
def test_damage_of_few_queues_is_found_before_the_first_request(
    kit: Any, store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: Any, few: int, at_once: bool
) -> None:
    monkeypatch.setattr(queues, "_FEW", few)
    store.close()
    (kit.root / "consumequeue" / "orders" / "0" / f"{32 * 20:020d}").write_bytes(bytes(16 * 20))
    again = kit.open()
    assert ("is damaged" in caplog.text) is at_once
    assert again.max_offset("orders", 0) == COUNT


# -- one of them -----------------------------------------------------------------------------------------------------


def test_fillers_among_units_are_no_lost_beginning(kit: Any) -> None:
    queue = kit.open()._queues.obtain("a", 0)
    queue.put(0, UNIT.pack(100, 50, 0))
    queue.put(3, UNIT.pack(400, 50, 0))
    assert [queue.kept_from(log_min) for log_min in (0, 100, 101, 400, 401)] == [0, 0, 1, 1, 4]


def test_a_queue_that_begins_above_zero_has_its_oldest_message_there(kit: Any) -> None:
    queue = kit.open()._queues.obtain("a", 0)
    queue.put(5, UNIT.pack(100, 50, 0))
    assert (queue.kept_from(0), queue.max_offset) == (5, 6)


def test_the_oldest_message_is_looked_for_once(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = kit.open()._queues.obtain("a", 0)
    for n in range(9):
        queue.put(n, UNIT.pack(100 * (n + 1), 50, 0))
    assert queue.kept_from(450) == 4
    monkeypatch.delattr(ConsumeQueue, "unit")
    assert (queue.kept_from(450), queue.min_offset(450)) == (4, 4)


def test_the_last_file_stays_while_later_units_are_only_in_memory(kit: Any) -> None:
    queue = kit.open()._queues.obtain("a", 0)
    for n in range(16):
        queue.put(n, UNIT.pack(100 * (n + 1), 50, 0))
    queue.write_tail()
    for n in range(16, 20):
        queue.put(n, UNIT.pack(100 * (n + 1), 50, 0))
    assert queue.trim(1 << 40) == 0
    queue.write_tail()
    assert queue.trim(1 << 40) == 1
    assert queue.file_starts() == [16]


def test_a_queue_that_begins_anew_remembers_nothing(kit: Any) -> None:
    queue = kit.open()._queues.obtain("a", 0)
    for n in range(20):
        queue.put(n, UNIT.pack(100 * (n + 1), 50, 0))
    queue.write_tail()
    queue.put(20, UNIT.pack(9_000, 50, 0))
    queue.unread, queue.served_from = {0: FileSum(0, 16, 1)}, 5
    assert queue.min_offset(700) == 6
    queue.remove_files()
    assert (queue.tail, queue.max_offset, queue.first_unit, queue.served_from) == (b"", 0, 0, 0)
    assert (queue.unread, queue.min_offset(700), queue.file_starts()) == ({}, 0, [])
    assert queue.sums.of("a", 0) == ()


def test_units_from_a_file_on_are_forgotten_with_all_that_is_known_of_them(kit: Any) -> None:
    queue = kit.open()._queues.obtain("a", 0)
    for n in range(40):
        queue.put(n, UNIT.pack(100 * (n + 1), 50, 0))
    queue.write_tail()
    queue.put(40, UNIT.pack(9_000, 50, 0))
    queue.unread = {0: FileSum(0, 16, 1), 16: FileSum(16, 16, 1)}
    queue.served_from = 35
    assert queue.min_offset(0) == 35
    queue.drop_from(16)
    assert (queue.tail, queue.max_offset, queue.served_from) == (b"", 16, 16)
    assert list(queue.unread) == [0]
    assert queue.file_starts() == [0]
    assert [file.start for file in queue.sums.of("a", 0)] == [0]


FILLER = (1 << 31) - 1


@pytest.mark.parametrize(
    ("units", "follow"),
    [
        ([], True),
        ([(0, 10), (10, 10), (20, 10)], True),
        ([(0, 10), (0, 10), (20, 10)], False),  # the first of the log, twice
        ([(10, 10), (10, 10)], False),
        ([(10, 10), (9, 10)], False),
        ([(0, 10), (10, 0)], False),
        ([(0, 10), (10, -1)], False),
        ([(0, FILLER), (0, FILLER), (0, 10)], True),  # a queue that starts above 0
        ([(5, 10), (30, FILLER), (30, FILLER), (30, 10)], True),  # a hole: as what comes after it
        ([(5, 10), (30, FILLER), (29, 10)], False),
        ([(5, 10), (0, FILLER), (5, 10)], False),
    ],
)
def test_units_without_sums_must_rise_and_fillers_may_stand_between_them(
    units: list[tuple[int, int]], follow: bool
) -> None:
    assert _follow_each_other(b"".join(UNIT.pack(*unit, 0) for unit in units)) is follow
