# SPDX-License-Identifier: Apache-2.0
"""A store compared with itself, and what can be made again made again."""

import os
import shutil

import pytest

from aerobee.errors import StoreError, StoreInUse
from aerobee.store import checkpoint as checkpoints
from aerobee.store.check import StoreCheck
from aerobee.store.repair import repair


def fill(kit, store, count=60):
    for n in range(count):
        text = f"UNIQ_KEY\x01{n:032X}\x02TAGS\x01{'ab'[n % 2]}\x02KEYS\x01k{n % 7} j\x02"
        store.append(kit.message(f"topic{n % 3}", b"%d" % n * 20, text, queue_id=n % 2))


def stopped(kit, **settings):
    store = kit.open(**settings)
    fill(kit, store)
    store.close()


def check(kit):
    return StoreCheck(kit.root, kit.config).run()


def contents(kit):
    store = kit.open()
    found = {
        (topic, queue_id): kit.bodies(store, topic, queue_id)
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
    }
    keys = len(store.find_by_key("topic0", "k0", 99, 0, 1 << 60))
    store.close()
    return found, keys


def queue_file(kit, start=0):
    return kit.root / "consumequeue/topic1/1" / f"{start * 20:020d}"


def patched(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def image(root):
    return {
        path: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.stat().st_size < 1 << 20
    }


@pytest.mark.parametrize("record_check", [True, False])
def test_a_sound_store_is_found_sound_and_left_alone(kit, record_check):
    stopped(kit, record_check=record_check)
    before = image(kit.root)
    report = check(kit)
    assert report.is_sound
    assert (report.log.messages, report.queues.units, report.queues.queues) == (60, 60, 6)
    assert report.index.entries == 180
    assert (report.log.torn_bytes, report.log.lost_messages, report.checkpoint) == (0, 0, "sound")
    assert image(kit.root) == before


def test_a_store_on_a_read_only_disk_can_be_looked_at(kit, monkeypatch):
    stopped(kit)
    opened = os.open

    def read_only(path, flags, *rest, **named):
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), path
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", read_only)
    assert check(kit).is_sound


@pytest.mark.parametrize(
    ("damage", "missing", "wrong"),
    [
        (lambda kit: patched(queue_file(kit), 3 * 20, bytes(20)), 1, 0),
        (lambda kit: patched(queue_file(kit), 3 * 20 + 19, b"\x55"), 0, 1),
        (lambda kit: patched(queue_file(kit), 9 * 20, bytes(20)), 1, 0),
        (lambda kit: patched(queue_file(kit), 3 * 20 + 7, b"\x01"), 0, 1),
        (lambda kit: queue_file(kit).write_bytes(b""), 10, 0),
        (lambda kit: os.truncate(queue_file(kit), 100), 5, 0),
        (lambda kit: shutil.rmtree(queue_file(kit).parent), 10, 0),
    ],
)
def test_what_is_wrong_with_a_queue_is_told_and_repaired(kit, damage, missing, wrong):
    stopped(kit)
    before = contents(kit)
    damage(kit)
    report = check(kit)
    assert not report.is_sound
    (found,) = report.queues.damaged
    assert (found.topic, found.queue, found.missing, found.wrong) == ("topic1", 1, missing, wrong)
    assert report.log_is_sound
    assert report.index.is_sound
    repair(kit.root, kit.config, kit.clock, report)
    assert check(kit).is_sound
    assert contents(kit) == before


def test_units_without_a_record_are_surplus(kit):
    stopped(kit)
    unit = queue_file(kit).read_bytes()[:20]
    patched(queue_file(kit), 10 * 20, unit * 2)
    (found,) = check(kit).queues.damaged
    assert (found.surplus, found.first_offset) == (2, 10)


@pytest.mark.parametrize("at", [0, 3 * 4 + 40 + 2, 40 + 64 * 4 + 20 * 5 + 1, 40 + 64 * 4 + 20 * 5 + 9])
def test_a_damaged_index_is_made_again(kit, at):
    """A slot, a hash, an offset."""
    stopped(kit)
    before = contents(kit)
    path = min((kit.root / "index").iterdir())
    if at == 0:
        path.unlink()
        next((kit.root / "index").iterdir(), kit.root / "index" / "20200101000000000").write_bytes(
            bytes(40 + 64 * 4 + 256 * 20)
        )
    else:
        patched(path, at, b"\x33")
    report = check(kit)
    assert report.index.missing or report.index.wrong
    assert report.queues.is_sound
    repair(kit.root, kit.config, kit.clock, report)
    assert check(kit).is_sound
    assert contents(kit) == before


def test_each_slot_that_is_wrong_counts_once(kit):
    stopped(kit)
    path = min((kit.root / "index").iterdir())
    for slot, number in ((0, 200), (9, 201), (63, 202)):  # none of them has an entry of that number
        patched(path, 40 + slot * 4, number.to_bytes(4, "big"))
    report = check(kit)
    assert (report.index.wrong, report.index.missing) == (3, 0)


def test_damage_of_the_log_is_told_with_its_place_and_cannot_be_repaired(kit):
    stopped(kit)
    store = kit.open()
    unit = store.unit("topic1", 1, 4)
    store.close()
    patched(kit.root / "commitlog" / ("0" * 20), unit.physical_offset + 100, b"oops")
    report = check(kit)
    (found,) = report.log.damaged
    assert (found.physical_offset, found.size_bytes, found.file) == (
        unit.physical_offset,
        unit.size,
        "0" * 20,
    )
    assert (report.log.messages, report.log.lost_messages) == (59, 1)
    assert not report.log_is_sound
    assert report.queues.is_sound
    repair(kit.root, kit.config, kit.clock, report)
    again = check(kit)
    assert again.rest_is_sound
    assert not again.is_sound


def test_what_a_start_puts_in_order_is_no_damage(kit):
    store = kit.open()
    fill(kit, store)
    store.flush()
    fill(kit, store, 10)  # units and keys are in memory only
    store._log.map[store.log_max + 50 : store.log_max + 60] = b"torn bytes"
    kit.crash(store)
    report = check(kit)
    assert report.is_sound
    assert not report.was_clean
    assert (report.log.messages, report.queues.untold) == (70, 10)
    assert report.log.torn_bytes == 60


@pytest.fixture
def live_copy(kit):
    """As the documented commands make one under load: the checkpoint first, and while the index is copied, and the log,
    more is written. So its header is older than its slots, and a record is cut in two."""
    store = kit.open()
    fill(kit, store)
    store.flush()
    checkpoint = (kit.root / "checkpoint").read_bytes()
    (index,) = (kit.root / "index").iterdir()
    header = index.read_bytes()[:40]
    fill(kit, store, 20)
    store.flush()
    torn = store.unit("topic1", 1, store.max_offset("topic1", 1) - 2).physical_offset
    store.close()
    (kit.root / "checkpoint").write_bytes(checkpoint)
    (kit.root / "abort").touch()
    patched(index, 0, header)
    patched(queue_file(kit), 12 * 20 + 10, b"\x55")
    patched(kit.root / "commitlog" / ("0" * 20), torn + 100, bytes(40))
    return kit


def test_a_copy_of_a_store_in_use_is_sound_for_a_start_makes_again_what_follows_the_checkpoint(live_copy):
    report = check(live_copy)
    assert report.is_sound, report
    assert not report.was_clean
    assert report.log.torn_bytes > 0
    live_copy.open().close()
    again = check(live_copy)
    assert (again.is_sound, again.was_clean) == (True, True)
    assert again.log.messages == report.log.messages, "the start ends the log where the check did"


@pytest.mark.parametrize("part", ["index", "queue", "log"])
def test_damage_before_the_checkpoint_is_damage_in_a_copy_too(live_copy, part):
    (index,) = (live_copy.root / "index").iterdir()
    match part:
        case "index":
            patched(index, 40 + 64 * 4 + 20 * 5 + 9, b"\x33")
        case "queue":
            patched(queue_file(live_copy), 3 * 20, bytes(20))
        case "log":
            patched(live_copy.root / "commitlog" / ("0" * 20), 130, b"oops")
    report = check(live_copy)
    damaged = {
        "index": not report.index.is_sound,
        "queue": not report.queues.is_sound,
        "log": not report.log_is_sound,
    }
    assert damaged[part]
    assert not report.is_sound


def test_the_last_file_may_be_anywhere_in_its_life(kit):
    store = kit.open()
    for n in range(40):
        store.append(kit.message(body=bytes([n]) * 5000))
    store.close()
    assert check(kit).is_sound
    report = check(kit)
    assert (report.log.files, report.log.messages) == (4, 40)


def test_a_log_file_that_was_cut_short_is_named(kit):
    store = kit.open()
    for n in range(40):
        store.append(kit.message(body=bytes([n + 1]) * 5000))
    store.close()
    os.truncate(kit.root / "commitlog" / f"{1 << 16:020d}", 20_000)
    report = check(kit)
    assert report.log.short_files == [f"{1 << 16:020d}"]
    assert 5 < report.log.lost_messages < 12


def test_deleted_topics_are_not_damage(kit):
    store = kit.open()
    fill(kit, store)
    store.delete_topic("topic0")
    store.delete_topic("topic1")
    store.append(kit.message("topic1", b"again", queue_id=1))
    store.close()
    report = check(kit)
    assert report.is_sound
    assert report.queues.without_files == ["topic0"]


def test_a_store_that_another_broker_wrote(kit):
    stopped(kit, record_check=False)
    before = contents(kit)
    (kit.root / "consumequeue.sums").unlink()
    path = kit.root / "checkpoint"
    path.write_bytes(path.read_bytes()[:40].ljust(4096, b"\0"))
    assert check(kit).is_sound
    patched(queue_file(kit), 5 * 20, bytes(20))
    report = check(kit)
    assert [found.first_offset for found in report.queues.damaged] == [5]
    repair(kit.root, kit.config, kit.clock, report)
    assert check(kit).is_sound
    assert contents(kit) == before


def test_a_position_behind_the_log_is_told(kit):
    stopped(kit)
    checkpoints.save(kit.root / "checkpoint", checkpoints.Checkpoint(1, 1, 1, 1 << 15, 0))
    assert "behind the log's end" in check(kit).checkpoint


def test_a_store_in_use_is_not_repaired(kit):
    stopped(kit)
    report = check(kit)
    kit.open()
    with pytest.raises(StoreInUse):
        repair(kit.root, kit.config, kit.clock, report)


def test_a_directory_that_is_no_store_is_refused(kit, tmp_path):
    with pytest.raises(StoreError, match="is no store"):
        StoreCheck(tmp_path, kit.config)


def test_sizes_are_taken_from_the_files(kit):
    """The settings of the broker need not be at hand."""
    stopped(kit)
    report = StoreCheck(kit.root, type(kit.config)(index_slots=64, index_entries=256)).run()
    assert report.is_sound
    assert report.queues.units == 60


def test_the_size_is_that_of_the_messages_there_are_from_the_oldest_file_on(kit):
    store = kit.open(retention_bytes=3 << 16)
    for _ in range(60):
        store.append(kit.message(body=bytes(8000)))
    for _ in range(4):
        kit.clock.advance(1000)
        store.tick(kit.clock.now())
        store._flush.wait()
    begin, end = store.log_min, store.log_max
    assert begin > 0
    store.close()
    checked = StoreCheck(kit.root, kit.config)
    assert checked.run().log.size_bytes == end - begin


@pytest.mark.slow
def test_who_waits_is_told_how_far_it_is_every_four_mebibytes(kit):
    store = kit.open(commit_log_segment_bytes=1 << 24)
    for _ in range(8):
        store.append(kit.message(body=bytes(1_500_000)))
    places = [store.unit("orders", 0, n).physical_offset for n in range(8)]
    store.close()
    told: list[int] = []
    check = StoreCheck(kit.root, kit.config)
    assert check.run(told.append).is_sound
    assert told == [places[3], places[6]]
