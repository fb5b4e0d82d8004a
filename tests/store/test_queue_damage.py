# SPDX-License-Identifier: Apache-2.0
"""A damaged consume queue hides nothing: the log has the messages, and the queue is told again from it."""

import os
import random
import shutil
import struct

import msgspec
import pytest

from aerobee.protocol.properties import tag_code
from aerobee.store import platform, queues
from aerobee.store.message_store import ReadLimit, ReadStatus

COUNT = 40  # 16 units a file: two full ones and half of a third
QUEUE = "consumequeue/orders/0"


class Tagged(msgspec.Struct):
    codes: frozenset[int]
    properties: None = None


def fill(kit, store, padding=0):
    for n in range(COUNT):
        text = f"TAGS\x01{'ab'[n % 2]}\x02" + f"padding\x01{'x' * padding}\x02" * bool(padding)
        store.append(kit.message(body=b"%d" % n, text=text))
        store.append(kit.message("other", body=b"other%d" % n))


def bodies(count=COUNT):
    return [b"%d" % n for n in range(count)]


def path_of(kit, unit):
    return kit.root / QUEUE / f"{unit // 16 * 16 * 20:020d}"


def write_at(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def zero_unit(unit):
    def damage(kit):
        write_at(path_of(kit, unit), unit % 16 * 20, bytes(20))

    damage.__name__ = f"zero_unit_{unit}"
    return damage


def truncated(unit):
    def damage(kit):
        with path_of(kit, unit).open("r+b") as file:
            file.truncate(unit % 16 * 20)

    damage.__name__ = f"truncated_{unit}"
    return damage


def emptied(unit):
    def damage(kit):
        path_of(kit, unit).write_bytes(b"")

    damage.__name__ = f"emptied_{unit}"
    return damage


def all_zeros(unit):
    def damage(kit):
        path_of(kit, unit).write_bytes(bytes(16 * 20))

    damage.__name__ = f"all_zeros_{unit}"
    return damage


def removed(unit):
    def damage(kit):
        path_of(kit, unit).unlink()

    damage.__name__ = f"removed_{unit}"
    return damage


def queue_removed(kit):
    shutil.rmtree(kit.root / QUEUE)


def topic_removed(kit):
    shutil.rmtree(kit.root / "consumequeue/orders")


def swapped(kit):
    first, second = path_of(kit, 0).read_bytes(), path_of(kit, 16).read_bytes()
    path_of(kit, 0).write_bytes(second)
    path_of(kit, 16).write_bytes(first)


DAMAGES = [
    *(zero_unit(unit) for unit in (0, 7, 15, 16, 20, 32, 35, 39)),
    *(make(unit) for make in (truncated, emptied, all_zeros, removed) for unit in (5, 20, 37)),
    queue_removed,
    topic_removed,
    swapped,
]


def assert_as_before(kit, units):
    """Everything is served, in bulk and by tag, and a new message gets the next offset."""
    store = kit.open()
    assert kit.bodies(store) == bodies()
    for tag in "ab":
        found, at = [], 0
        while at < COUNT:
            answer = store.read("orders", 0, at, ReadLimit(), Tagged(frozenset([tag_code(tag)])))
            found += answer.offsets
            at = answer.next_offset
        assert found == list(range("ab".index(tag), COUNT, 2))
    assert [store.unit("orders", 0, n) for n in range(COUNT)] == units
    record = kit.message(body=b"next")
    store.append(record)
    assert record.queue_offset == COUNT
    store.close()
    store = kit.open()
    assert kit.bodies(store) == [*bodies(), b"next"]
    return store


def stopped(kit, *, clean, padding=0):
    store = kit.open()
    fill(kit, store, padding)
    units = [store.unit("orders", 0, n) for n in range(COUNT)]
    if clean:
        store.close()
    else:
        store.flush()
        kit.crash(store)
    return units


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_queue_hides_nothing(kit, caplog, damage, clean):
    units = stopped(kit, clean=clean)
    damage(kit)
    assert_as_before(kit, units)
    assert "orders" in caplog.text


@pytest.mark.parametrize("damage", DAMAGES[::3], ids=lambda damage: damage.__name__)
def test_of_many_queues_each_is_looked_at_when_it_is_first_used(kit, damage, monkeypatch, caplog):
    monkeypatch.setattr(queues, "_FEW", 0)
    units = stopped(kit, clean=True)
    damage(kit)
    store = kit.open()
    assert "damaged" not in caplog.text
    store.close()
    assert_as_before(kit, units)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("bit", range(0, 160, 13))
@pytest.mark.parametrize("unit", [0, 9, 31, 39])
def test_a_flipped_bit_hides_nothing(kit, unit, bit, clean):
    units = stopped(kit, clean=clean)
    path, at = path_of(kit, unit), unit % 16 * 20 + bit // 8
    write_at(path, at, bytes([path.read_bytes()[at] ^ 1 << bit % 8]))
    assert_as_before(kit, units)


def as_another_broker_left_it(kit):
    """No sums, and no position of ours in the checkpoint."""
    (kit.root / "consumequeue.sums").unlink()
    path = kit.root / "checkpoint"
    path.write_bytes(path.read_bytes()[:40].ljust(4096, b"\0"))


@pytest.mark.parametrize(
    "damage",
    [
        d
        for d in DAMAGES
        if d.__name__ not in ("queue_removed", "topic_removed", "zero_unit_39", "all_zeros_37", "removed_37")
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_queue_without_sums_is_compared_with_its_records(kit, damage):
    """RocketMQ's store, or one of an older version: only what left no trace at all cannot be seen without sums."""
    units = stopped(kit, clean=True)
    as_another_broker_left_it(kit)
    damage(kit)
    assert_as_before(kit, units)


@pytest.mark.parametrize(
    "damage",
    [
        make(unit)
        for make in (zero_unit, truncated, emptied, all_zeros, removed)
        for unit in (0, 5, 16, 20)
        if make is not removed or unit > 15  # else it begins with the next file, as one that was trimmed
    ]
    + [swapped],
    ids=lambda damage: damage.__name__,
)
@pytest.mark.parametrize("few", [0, 1_000])
def test_so_it_is_where_only_the_last_file_of_the_log_is_told_again(kit, damage, few, monkeypatch):
    """After a clean stop of another broker: what is damaged is about messages of older files."""
    monkeypatch.setattr(queues, "_FEW", few)
    units = stopped(kit, clean=True, padding=6_000)
    as_another_broker_left_it(kit)
    damage(kit)
    store = kit.open()
    last = store.recovery.scanned_from
    assert units[0].physical_offset < units[24].physical_offset < last < units[39].physical_offset
    store.close()
    assert_as_before(kit, units)


@pytest.mark.parametrize("few", [0, 1_000])
def test_many_damaged_queues_take_one_pass_over_the_log(kit, caplog, monkeypatch, few):
    monkeypatch.setattr(queues, "_FEW", few)
    store = kit.open()
    for n in range(60):
        store.append(kit.message(f"topic{n % 6}", body=b"%d" % n, queue_id=n % 3))
    store.close()
    for path in (kit.root / "consumequeue").glob("*/*/*"):
        path.write_bytes(b"")
    store = kit.open()
    for topic in range(6):
        assert kit.bodies(store, f"topic{topic}", topic % 3) == [b"%d" % n for n in range(topic, 60, 6)]
    assert caplog.text.count("consume queues rebuilt=6") == 1
    assert caplog.text.count("consume queues rebuilt") == 1


def test_offsets_are_not_given_again_when_queue_and_log_lost_the_message(kit):
    stopped(kit, clean=True)
    store = kit.open()
    last = store.unit("orders", 0, COUNT - 1)
    store._log.map[last.physical_offset + 100 : last.physical_offset + 104] = b"oops"
    store.close()
    path_of(kit, 37).write_bytes(b"")
    store = kit.open()
    assert kit.bodies(store) == bodies(COUNT - 1)
    record = kit.message(body=b"next")
    store.append(record)
    assert record.queue_offset == COUNT
    store.close()
    assert kit.bodies(kit.open()) == [*bodies(COUNT - 1), b"next"]


def test_a_deleted_topic_is_not_taken_for_a_lost_one(kit):
    store = kit.open()
    fill(kit, store)
    store.tick(kit.clock.now())
    store.delete_topic("orders")
    kit.crash(store)
    store = kit.open()
    assert store.topics() == ["other"]
    assert len(kit.bodies(store, "other")) == COUNT


def test_a_queue_of_a_topic_that_began_again_is_rebuilt_as_it_is(kit):
    store = kit.open()
    fill(kit, store)
    store.delete_topic("orders")
    for n in range(5):
        store.append(kit.message(body=b"new%d" % n))
    store.close()
    path_of(kit, 0).write_bytes(b"")
    assert kit.bodies(kit.open()) == [b"new%d" % n for n in range(5)]


@pytest.mark.parametrize("clean", [True, False])
def test_trimmed_files_are_not_missed(kit, clean, caplog):
    store = kit.open(retention_hours=0.5)
    for n in range(60):
        store.append(kit.message(body=b"%02d" % n * 3000))
        kit.clock.advance(60_000)
    for _ in range(20):
        store.tick(kit.clock.now())
        kit.clock.advance(1_000)
    assert store.min_offset("orders", 0) > 0
    first = store._queues.find("orders", 0).first_unit
    left = kit.bodies(store)
    store.close() if clean else kit.crash(store)
    store = kit.open()
    assert store._queues.find("orders", 0).first_unit == first
    assert kit.bodies(store) == left
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("damaged", [1, 0x7FFFFFFE, -1, 0])
def test_a_reader_that_meets_a_wrong_unit_finds_the_record(kit, caplog, damaged):
    """Damage under a running broker: one line in the log, and the message is served."""
    store = kit.open()
    fill(kit, store)
    store.flush()
    for unit in (3, 18, 39):
        write_at(path_of(kit, unit), unit % 16 * 20 + 8, struct.pack(">i", damaged))
    write_at(path_of(kit, 33), 33 % 16 * 20, bytes(20))
    write_at(path_of(kit, 34), 34 % 16 * 20, struct.pack(">q", 12345))
    for _ in range(2):
        assert kit.bodies(store) == bodies()
    assert caplog.text.count("is put right from the log") == 5
    assert store.corrupt_records == 0
    store.close()
    assert kit.bodies(kit.open()) == bodies()


def test_random_damage_of_queue_files_loses_nothing(kit, tmp_path):
    dice = random.Random(7)
    stopped(kit, clean=True)
    for round_ in range(20):
        copy = kit.copy(tmp_path / f"copy{round_}")
        for path in (copy / "consumequeue").glob("*/*/0*"):
            data = bytearray(path.read_bytes())
            for _ in range(dice.choice((0, 1, 3))):
                at = dice.randrange(len(data))
                data[at : at + dice.choice((1, 20, 100))] = dice.randbytes(dice.choice((1, 20)))
            path.write_bytes(data[: dice.choice((len(data), len(data), 77))])
        store = kit.open(copy)
        assert kit.bodies(store) == bodies()
        assert len(kit.bodies(store, "other")) == COUNT
        store.close()


@pytest.mark.parametrize("synced", [3, 20, 32])
@pytest.mark.parametrize("count", [33, 40, 70])
def test_sums_that_power_loss_left_ahead_of_the_files_hide_nothing(kit, tmp_path, synced, count):
    """Deleting a topic writes sums at once, a checkpoint syncs the queue files later: power may go in between."""
    store = kit.open()
    for n in range(synced):
        store.append(kit.message(body=b"%d" % n))
    store.flush()
    before = kit.copy(tmp_path / "synced")
    for n in range(synced, count):
        store.append(kit.message(body=b"%d" % n))
    store._queues.write_oldest(100)
    store._queues.sums.save()
    kit.crash(store)
    for kept in ("checkpoint", "consumequeue"):  # as they were when they were last synced
        path = kit.root / kept
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.move(before / kept, path)
    store = kit.open()
    assert kit.bodies(store) == bodies(count)
    store.append(kit.message(body=b"next"))
    assert store.max_offset("orders", 0) == count + 1
    store.close()
    assert kit.bodies(kit.open()) == [*bodies(count), b"next"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_lost_the_oldest_file_it_had_begins_where_its_log_does(kit, clean):
    """As it did before: the units of messages that are gone with the log are not made up for."""
    store = kit.open(retention_hours=0.5)
    for n in range(60):
        store.append(kit.message(body=b"%02d" % n * 3000))
        kit.clock.advance(60_000)
    for _ in range(20):
        store.tick(kit.clock.now())
        kit.clock.advance(1_000)
    store.flush()
    before = store.min_offset("orders", 0), store.max_offset("orders", 0), kit.bodies(store)
    first = store._queues.find("orders", 0).first_unit
    assert first > 0
    assert before[0] % 16
    store.close() if clean else kit.crash(store)
    path_of(kit, first).write_bytes(b"")
    store = kit.open()
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0), kit.bodies(store)) == before
    assert store.read("orders", 0, first, ReadLimit()).status is ReadStatus.OFFSET_TOO_SMALL


@pytest.mark.parametrize("wrong", [3, 39])
def test_a_unit_put_right_makes_no_damage_of_what_is_written_after_it(kit, caplog, wrong):
    store = kit.open()
    fill(kit, store)
    store.flush()
    write_at(path_of(kit, wrong), wrong % 16 * 20 + 8, struct.pack(">i", 1))
    assert kit.bodies(store) == bodies()
    for n in range(COUNT, COUNT + 20):
        store.append(kit.message(body=b"%d" % n))
        store.tick(kit.clock.now())
    store.close()
    assert kit.bodies(kit.open()) == bodies(COUNT + 20)
    assert caplog.text.count("is put right from the log") == 1
    assert "is damaged" not in caplog.text


def test_late_messages_of_a_damaged_queue_are_told_once_after_a_kill(kit):
    """The queue is rebuilt up to the checkpoint, and the walk over what follows tells the rest."""
    store = kit.open()
    fill(kit, store)
    store.flush()
    for n in range(COUNT, COUNT + 5):
        store.append(kit.message(body=b"%d" % n))
    kit.crash(store)
    path_of(kit, 20).write_bytes(b"")
    store = kit.open()
    assert kit.bodies(store) == bodies(COUNT + 5)
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (0, COUNT + 5)


def test_a_reader_that_finds_an_older_file_damaged_has_no_offset_given_again(kit):
    """The log lost the last message, and only the queue knows that there was one."""
    store = kit.open()
    fill(kit, store)
    last = store.unit("orders", 0, COUNT - 1)
    store._log.map[last.physical_offset + 90 : last.physical_offset + 91] = b"x"
    store.close()
    write_at(path_of(kit, 3), 3 * 20 + 19, b"\x77")  # a tag's code: neither end of the file
    store = kit.open()
    assert kit.bodies(store) == bodies(COUNT - 1)
    record = kit.message(body=b"next")
    store.append(record)
    assert record.queue_offset == COUNT


def test_a_wrong_unit_is_not_put_right_by_a_message_of_the_same_offset_elsewhere(kit, caplog):
    """Of another queue of its topic, or of another topic's queue of its number, that lies before it in the log."""
    store = kit.open()
    places = [("orders", 0), ("bills", 1), ("orders", 1), ("bills", 0)]
    for n in range(10):
        for topic, queue_id in places:
            store.append(kit.message(topic, b"%s-%d-%d" % (topic.encode(), queue_id, n), queue_id=queue_id))
    store.flush()
    for topic, queue_id in places:
        path = kit.root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
        write_at(path, 5 * 20 + 8, struct.pack(">i", 1))
    for topic, queue_id in places:
        expected = [b"%s-%d-%d" % (topic.encode(), queue_id, n) for n in range(10)]
        assert kit.bodies(store, topic, queue_id) == expected
    assert caplog.text.count("is put right from the log") == 4
    assert store.corrupt_records == 0


def test_all_that_putting_right_wrote_is_on_disk_with_the_next_checkpoint(kit, monkeypatch):
    """Also fillers: for messages that the log lost in the middle, and for those it lost at its end."""
    store = kit.open()
    for n in range(6 * 16):
        store.append(kit.message(body=b"%d" % n))
    for n in [*range(10, 58), *range(75, 96)]:
        at = store.unit("orders", 0, n).physical_offset
        store._log.map[at + 88 : at + 89] = b"x"
    store.close()
    for path in (kit.root / QUEUE).iterdir():
        path.write_bytes(b"")
    store = kit.open()
    assert store.max_offset("orders", 0) == 6 * 16
    synced = []
    sync = platform.sync_data

    def noted(fd):
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(platform, "sync_data", noted)
    store.flush()
    files = {str(path) for path in (kit.root / QUEUE).iterdir()}
    assert len(files) == 6
    assert files <= set(synced[: synced.index(str(kit.root / "checkpoint"))])
