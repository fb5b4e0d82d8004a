# SPDX-License-Identifier: Apache-2.0
"""Queues put right from the log, a step at a time: what is looked at, told again, remembered to be synced."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull
from aerobee.protocol.message import decode
from aerobee.store import queue_care, queue_loading
from aerobee.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from aerobee.store.log_walk import places
from aerobee.store.message_store import ReadLimit
from aerobee.store.queue_loading import Damage, holds
from tests.store.taking_turns import COUNT, queue_of, spoil_record, two_queues, units_of

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore


@pytest.fixture
def store(kit: Any) -> MessageStore:
    return two_queues(kit)


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


def test_how_far_a_rebuild_is_is_said_once_every_stretch_of_the_log(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aerobee.store")

    def said(*places: tuple[str, int, int]) -> list[int]:
        caplog.clear()
        store.rebuild_queues(list(places))
        return [int(found[1]) for each in caplog.records if (found := re.search(r"(\d+)% of", each.message))]

    assert said(("orders", 0, 0)) == []
    monkeypatch.setattr(queue_care, "_TELL_EVERY", store.log_max // 4)
    assert said(("orders", 0, 0)) == pytest.approx([25, 50, 75], abs=2)
    begin = store.unit("orders", 0, 15)
    assert begin is not None
    monkeypatch.setattr(queue_care, "_TELL_EVERY", (store.log_max - begin.physical_offset) // 3)
    assert said(("orders", 0, 16)) == pytest.approx([33, 67], abs=4), "of what has to be read"


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
    assert last == (store.log_max - 1, FILLER_SIZE, 0)
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


@pytest.mark.parametrize("by", ["read", "stretch"])
@pytest.mark.parametrize("read_from", [0, 3, 20, 35])
def test_older_files_are_compared_with_their_sums_once_by_whoever_reads_them(
    kit: Any, store: MessageStore, read_from: int, by: str
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
    if by == "read":
        again.read("orders", 0, read_from, ReadLimit(max_messages=3))
    else:
        assert again.stretch(("orders", 0), read_from, 3) is not None
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
