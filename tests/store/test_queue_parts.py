# SPDX-License-Identifier: Apache-2.0
"""Queues all together and queues put right, one step at a time: what is looked at, written, remembered to be synced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, MessageIllegal
from aerobee.protocol.message import MAGIC_V1, MAGIC_V2, decode
from aerobee.store import queue_care, queue_loading, queues
from aerobee.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from aerobee.store.log_walk import places
from aerobee.store.message_store import ReadLimit
from aerobee.store.queue_loading import Damage, holds
from aerobee.store.queue_sums import FileSum

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore

COUNT = 40  # 16 units a file


@pytest.fixture
def store(kit: Any) -> MessageStore:
    """Two queues whose messages take turns in the log."""
    store: MessageStore = kit.open()
    for n in range(COUNT):
        store.append(kit.message(body=b"%d" % n, text="TAGS\x01a\x02"))
        store.append(kit.message("other", body=b"other%d" % n))
    return store


def queue_of(store: MessageStore, topic: str = "orders") -> ConsumeQueue:
    queue = store._queues.find(topic, 0)
    assert queue is not None
    return queue


def units_of(store: MessageStore, topic: str = "orders") -> list[Any]:
    return [store.unit(topic, 0, n) for n in range(store.max_offset(topic, 0))]


def spoil_record(store: MessageStore, n: int, topic: str = "orders") -> None:
    """A byte of its body is another."""
    unit = store.unit(topic, 0, n)
    assert unit is not None
    at = unit.physical_offset + 88
    log_map: Any = store._log.map
    log_map[at : at + 1] = bytes([log_map[at] ^ 1])


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


# -- put right -------------------------------------------------------------------------------------------------------


def test_a_rebuild_tells_every_damaged_queue_from_where_it_is_damaged(store: MessageStore) -> None:
    before = units_of(store), units_of(store, "other")
    store.flush()
    store._queues.take_unsynced()
    for topic, n in (("orders", 20), ("other", 2)):
        queue_of(store, topic).replace(n, UNIT.pack(1, 2, 3))
    store.append(decode(store.raw_at(before[0][0].physical_offset)))  # type: ignore[arg-type]
    store.rebuild_queues([("orders", 0, 20), ("other", 0, 2)])
    assert units_of(store)[:COUNT] == before[0]
    assert units_of(store, "other") == before[1]
    assert len(units_of(store)) == COUNT + 1
    assert not store._queues.dirty, "all is in files"
    assert len(store._queues.written_paths) == 5, "which a checkpoint has to sync"


def test_a_rebuild_writes_on_the_way_and_says_when_the_disk_is_full(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = units_of(store)
    waiting: list[int] = []
    write_tail = ConsumeQueue.write_tail

    def noted(queue: ConsumeQueue) -> list[str]:
        waiting.append(len(queue.tail) // 20)
        return write_tail(queue)

    def full(queue: ConsumeQueue) -> list[str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(queue_care, "_WRITE_EVERY", 15)
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "write_tail", noted)
        store.rebuild_queues([("orders", 0, 0)])
    assert waiting == [15, 15, 10]
    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "write_tail", full)
        with pytest.raises(DiskFull, match="cannot rebuild damaged consume queues"):
            store.rebuild_queues([("orders", 0, 0)])
    store.rebuild_queues([("orders", 0, 0)])
    assert units_of(store) == before


def test_a_damaged_record_is_no_unit_of_a_queue_that_is_rebuilt(store: MessageStore) -> None:
    spoil_record(store, 20)
    store.rebuild_queues([("orders", 0, 16)])
    assert [n for n in range(COUNT) if store.unit("orders", 0, n) is None] == [20]
    assert store.max_offset("orders", 0) == COUNT


def test_offsets_that_were_given_stay_given_when_the_log_has_lost_them(kit: Any, store: MessageStore) -> None:
    queue = queue_of(store)
    store._care.mend([Damage(queue, 0, COUNT + 8)], store.log_max)
    assert queue.max_offset == COUNT + 8
    last = queue.unit(COUNT + 7)
    assert last is not None
    assert last[:2] == (store.log_max - 1, FILLER_SIZE)
    assert store._queues.written_paths
    store.close()
    again = kit.open()
    assert again.max_offset("orders", 0) == COUNT + 8
    record = kit.message()
    again.append(record)
    assert record.queue_offset == COUNT + 8


def test_a_damaged_queue_that_is_met_has_all_others_looked_at(kit: Any, store: MessageStore) -> None:
    before = units_of(store)
    store.close()
    again = kit.open()
    for topic in ("orders", "other"):
        path = kit.root / "consumequeue" / topic / "0" / f"{32 * 20:020d}"
        path.write_bytes(bytes(16 * 20))
    assert units_of(again) == before
    assert ("other", 0) in again._queues.loaded
    assert again.max_offset("other", 0) == COUNT


@pytest.mark.parametrize("read_from", [0, 3, 20, 35])
def test_older_files_are_compared_with_their_sums_once_by_whoever_reads_them(
    kit: Any, store: MessageStore, read_from: int
) -> None:
    """A bit of a tag's code: neither the ends of the file nor the record give it away."""
    store.close()
    for start, unit in ((0, 5), (16, 25)):
        path = kit.root / "consumequeue" / "orders" / "0" / f"{start * 20:020d}"
        data = bytearray(path.read_bytes())
        data[(unit - start) * 20 + 19] ^= 1
        path.write_bytes(data)
    again = kit.open()
    queue = queue_of(again)
    assert sorted(queue.unread) == [0, 16]
    again.read("orders", 0, read_from, ReadLimit(max_messages=3))
    first = again.unit("orders", 0, 0)
    codes = {n: again.unit("orders", 0, n).tags_code == first.tags_code for n in (5, 25)}  # type: ignore[union-attr]
    told_again = {0: (True, True), 3: (True, True), 20: (False, True), 35: (False, False)}[read_from]
    assert (codes[5], codes[25]) == told_again
    assert queue.max_offset == COUNT
    left = {0: [], 3: [], 20: [0], 35: [0, 16]}[read_from]
    assert sorted(queue.unread) == left, "what was told again is right"


def test_files_that_are_sound_are_compared_once(
    kit: Any, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    again = kit.open()
    queue, looked = queue_of(again), []
    monkeypatch.setattr(
        queue_care, "holds", lambda queue, file: (looked.append(file.start), holds(queue, file))[1]
    )
    for offset, count, files in ((20, 2, [16]), (20, 2, []), (10, 6, [0]), (10, 7, []), (0, 40, [])):
        again._care.compare(queue, offset, count)
        assert looked == files
        looked.clear()


@pytest.mark.parametrize("wrong", [[0], [1], [7], [20], [38], [39], [7, 8, 9], [0, 1], [38, 39]])
@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_wrong_unit_is_looked_for_between_its_neighbours_only(
    kit: Any, store: MessageStore, monkeypatch: pytest.MonkeyPatch, wrong: list[int], where: str
) -> None:
    before = units_of(store)
    queue = queue_of(store)
    if where == "file":
        store.flush()
        store._queues.take_unsynced()
    for n in wrong:
        queue.replace(n, UNIT.pack(50, 60, 70))
    walked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        queue_care, "places", lambda log, at, end: (walked.append((at, end)), places(log, at, end))[1]
    )
    for n in wrong:
        assert store._care.right_unit(queue, n) == before[n]
        right = [k for k in range(COUNT) if k not in wrong or (k in wrong and k < n)]
        earlier = max((k for k in right if k < n), default=None)
        later = min((k for k in right if k > n), default=None)
        assert walked.pop() == (
            0 if earlier is None else before[earlier].physical_offset + before[earlier].size,
            store.log_max if later is None else before[later].physical_offset,
        )
    assert units_of(store) == before, "and written where it belongs"
    assert bool(store._queues.written_paths) is (where == "file")


def test_a_unit_is_not_put_right_by_a_damaged_record_or_by_one_of_another_topic(store: MessageStore) -> None:
    queue = queue_of(store)
    spoil_record(store, 7)
    queue.replace(7, UNIT.pack(50, 60, 70))
    at = store.log_max
    assert store._care.right_unit(queue, 7) is None, (
        "though `other` has its seventh between the same neighbours"
    )
    assert store.unit("orders", 0, 7)[0] == 50  # type: ignore[index]
    assert store.log_max == at


def test_what_fills_a_queue_without_a_log_is_as_good_as_gone(kit: Any) -> None:
    store = kit.open()
    queue = store._queues.obtain("a", 0)
    store._care.mend([Damage(queue, 0, 5)], 0)
    assert (queue.max_offset, queue.kept_from(0)) == (5, 5)


@pytest.mark.parametrize(
    ("units", "alive"),
    [
        ([], 0),
        ([(0, 100, 0)], 1),
        ([(0x5800, 0x5858, 0x58)], 1),  # bytes that are letters are bytes
        ([(100, 100, 0), (200, 100, 0)], 2),
        ([(100, 100, 0), (299, 100, 0), (300, 100, 0)], 2),  # at the log's end
        ([(100, 100, 0), (0, 0, 0), (200, 100, 0)], 3),
        ([(100, 100, 0), (200, 0, 7)], 1),
        ([(100, 100, 0), (200, -1, 7)], 1),
        ([(400, 100, 0)], 0),
    ],
)
def test_units_are_alive_up_to_the_last_that_points_into_the_log(
    units: list[tuple[int, int, int]], alive: int
) -> None:
    end = 300 if all(physical < 1000 for physical, _, _ in units) else 1 << 40
    for zeros in (0, 20, 27):
        assert queue_loading._alive(b"".join(UNIT.pack(*unit) for unit in units) + bytes(zeros), end) == alive
