# SPDX-License-Identifier: Apache-2.0
"""What a stop, a crash, a cut and a flipped bit leave, and what the next start makes of it."""

import shutil
import struct

import pytest

from aerobee.protocol.message import decode, pack_host
from aerobee.store import checkpoint as checkpoints
from aerobee.store.message_store import ReadLimit, ReadStatus


def fill(kit, store, count=30):
    """Messages of every shape over three topics, two queues each."""
    for n in range(count):
        store.append(
            kit.message(
                f"topic{n % 3}", b"%d" % n * (n % 7),
                f"UNIQ_KEY\x01u{n}\x02TAGS\x01t{n % 4}\x02KEYS\x01k{n % 5} all\x02",
                queue_id=n % 2, sys_flag=(0, 0, 0, 4, 8, 12)[n % 6],
                born_host=pack_host("::1" if n % 4 == 3 else "10.0.0.1", n),
            )
        )  # fmt: skip
    store.append_batch([kit.message("batch", b"b%d" % n, f"KEYS\x01b{n}\x02") for n in range(5)])


def assert_equals_a_rebuild(kit, store, to):
    """Queues and index are those a start without any gives."""
    assert kit.snapshot(store) == kit.snapshot(kit.rebuilt(to))


def test_everything_is_there_after_a_clean_stop(kit):
    store = kit.open()
    fill(kit, store)
    before = kit.snapshot(store)
    end = store.log_max
    store.close()
    assert not (kit.root / "abort").exists()
    store = kit.open()
    assert (store.recovery.clean, store.recovery.dispatched, store.recovery.corrupt) == (True, 0, 0)
    assert store.recovery.messages == 35  # the last records were looked at
    assert store.log_max == end
    assert kit.snapshot(store) == before
    record = kit.message("topic0")
    offset = store.max_offset("topic0", 0)
    store.append(record)
    assert (record.queue_offset, record.physical_offset) == (offset, end)


def test_everything_is_there_after_a_kill(kit, tmp_path):
    store = kit.open()
    fill(kit, store)
    assert (kit.root / "abort").exists()
    kit.crash(store)
    again = kit.open()
    assert not again.recovery.clean
    assert (again.recovery.messages, again.recovery.dispatched, again.recovery.truncated_bytes) == (35, 35, 0)
    assert_equals_a_rebuild(kit, again, tmp_path / "anew")


@pytest.mark.parametrize("before", [0, 7, 34])
def test_recovery_starts_where_the_last_checkpoint_was(kit, tmp_path, before):
    store = kit.open()
    fill(kit, store, before)
    store.flush()
    position = store.log_max
    fill(kit, store, 12)
    store.tick(kit.clock.now())  # units of the second part are in files too, some of them
    store._flush.wait()
    checkpoints.save(kit.root / "checkpoint", checkpoints.Checkpoint(0, 0, 0, position, position))
    kit.crash(store)
    again = kit.open()
    assert (again.recovery.scanned_from, again.recovery.dispatched) == (position, 17)
    assert_equals_a_rebuild(kit, again, tmp_path / "anew")


@pytest.mark.slow
def test_a_log_cut_at_every_byte_of_its_last_two_records(kit, tmp_path):
    """Whole records before the cut stay, the rest goes and is counted."""
    kit.config = type(kit.config)(
        commit_log_segment_bytes=1 << 13, consume_queue_units=16, index_slots=16, index_entries=128
    )
    store = kit.open()
    fill(kit, store, 20)
    store.flush()
    position = store.log_max  # a checkpoint before the last records: their units are on disk all the same
    first = kit.message("topic0", b"second last", "UNIQ_KEY\x01x\x02TAGS\x01t\x02")
    second = kit.message("topic1", b"last", "KEYS\x01a b\x02", queue_id=1)
    store.append(first)
    store.append(second)
    store._queues.write_oldest(9)
    kit.crash(store)
    checkpoints.save(kit.root / "checkpoint", checkpoints.Checkpoint(0, 0, 0, position, position))
    whole = {0: position, 1: first.physical_offset + first.size, 2: second.physical_offset + second.size}
    data = (kit.root / "commitlog" / ("0" * 20)).read_bytes()
    snapshots = {}
    for cut in range(first.physical_offset, second.physical_offset + second.size + 1):
        copy = kit.copy(tmp_path / "cut")
        path = copy / "commitlog" / ("0" * 20)
        with path.open("r+b") as file:
            file.truncate(cut)
        kept = sum(cut >= whole[n] for n in (1, 2))
        again = kit.open(copy)
        assert again.log_max == whole[kept], cut
        # Zero bytes at the end of what is left of a record cannot be told from the empty file that follows.
        assert again.recovery.truncated_bytes == len(data[whole[kept] : cut].rstrip(b"\0"))
        assert again.recovery.dispatched == kept
        if kept not in snapshots:
            shutil.copytree(copy / "commitlog", tmp_path / f"anew{kept}" / "commitlog")
            snapshots[kept] = kit.snapshot(kit.open(tmp_path / f"anew{kept}"))
        assert kit.snapshot(again) == snapshots[kept], cut
        record = kit.message("topic0")
        again.append(record)
        assert record.physical_offset == whole[kept]
        assert kit.bodies(again, "topic0")[-1] == b"body"
        again.close()
        shutil.rmtree(copy)


def field_positions(raw):
    """Every field of a record by name: offset and width."""
    sizes = {
        "size": 4, "magic": 4, "body_crc": 4, "queue_id": 4, "flag": 4, "queue_offset": 8, "physical_offset": 8,
        "sys_flag": 4, "born_time": 8, "born_host": 8, "store_time": 8, "store_host": 8, "reconsume": 4,
        "prepared": 8, "body_size": 4, "body": len(decode(raw).body), "topic_size": 1, "topic": 6, "text_size": 2,
    }  # fmt: skip
    at, found = 0, {}
    for name, width in sizes.items():
        found[name] = (at, width)
        at += width
    found["properties"] = (at, len(raw) - at - 20)
    found["check"] = (len(raw) - 20, 20)
    return found


def flips():
    """All bits of small fields, in the long ones enough of them."""
    names = (
        "size magic body_crc queue_id flag queue_offset physical_offset sys_flag born_time born_host store_time"
        " store_host reconsume prepared body_size body topic_size topic text_size properties check"
    )
    return names.split()


@pytest.mark.slow
@pytest.mark.parametrize("field", flips())
@pytest.mark.parametrize("when", ["running", "clean", "crash"])
def test_a_flipped_bit_anywhere_is_reported_and_not_served(kit, caplog, field, when, tmp_path):
    store = kit.open()
    for n in range(5):
        store.append(kit.message(body=b"body%d" % n, text=f"UNIQ_KEY\x01u{n}\x02TAGS\x01t\x02"))
    unit = store.unit("orders", 0, 2)
    at, width = field_positions(store.raw_at(unit.physical_offset))[field]
    if when == "clean":
        store.close()
    elif when == "crash":
        kit.crash(store)
    path = kit.root / "commitlog" / ("0" * 20)
    # A start for every bit would take a minute: one bit of each byte there, all of them on the running store.
    for bit in range(width * 8) if when == "running" else range(0, width * 8, 9):
        copy = kit.root if when == "running" else kit.copy(tmp_path / "flipped")
        with (copy / path.relative_to(kit.root)).open("r+b") as file:
            file.seek(unit.physical_offset + at + bit // 8)
            byte = file.read(1)[0]
            file.seek(unit.physical_offset + at + bit // 8)
            file.write(bytes([byte ^ (1 << bit % 8)]))
            file.flush()
            tested = store if when == "running" else kit.open(copy)
            tested._reader._reported.clear()
            assert kit.bodies(tested) == [b"body0", b"body1", b"body3", b"body4"], bit
            assert tested.corrupt_records > 0
            assert tested.record_of("orders", 0, 2) is None
            assert tested.record_at(unit.physical_offset) is None
            assert tested.find_by_key("orders", "u2", 9, 0, 1 << 60) == []
            assert len(tested.find_by_key("orders", "u3", 9, 0, 1 << 60)) == 1
            record = kit.message()
            if when != "running":
                tested.append(record)
                assert record.queue_offset == 5
                tested.close()
                shutil.rmtree(copy)
            file.seek(unit.physical_offset + at + bit // 8)
            file.write(bytes([byte]))
    assert "corrupt record physical_offset=" in caplog.text


def test_a_damaged_record_is_reported_once(kit, caplog):
    store = kit.open()
    for n in range(3):
        store.append(kit.message(body=b"%d" % n))
    store._log.map[130:131] = b"\xff"
    for _ in range(3):
        found = store.read("orders", 0, 0, ReadLimit())
        assert found.offsets == [0, 2]
    assert store.corrupt_records == 1
    assert caplog.text.count("corrupt record") == 1
    found = store.read("orders", 0, 1, ReadLimit(max_messages=1, max_scan=1))
    assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 2)


def test_a_torn_record_in_the_last_file_takes_later_files_with_it(kit):
    store = kit.open()
    for n in range(20):
        store.append(kit.message(body=b"%d" % n * 8000))
    kit.crash(store)
    paths = sorted((kit.root / "commitlog").iterdir())
    for path in paths[1:]:
        path.write_bytes(bytes(1 << 16))
    (kit.root / "checkpoint").unlink(missing_ok=True)
    store = kit.open()
    assert store.log_max == 1 << 16
    record = kit.message()
    store.append(record)
    assert record.physical_offset == 1 << 16
    assert record.queue_offset == len(kit.bodies(store)) - 1


def test_bytes_after_a_cut_never_come_back(kit):
    """Old records behind the end would be found again once new ones reach them; they are zeroed."""
    store = kit.open()
    for n in range(6):
        store.append(kit.message(body=b"old%d" % n))
    kit.crash(store)
    size = 125 - 4 + 4
    path = kit.root / "commitlog" / ("0" * 20)
    with path.open("r+b") as file:
        data = file.read()
        size = struct.unpack_from(">i", data)[0]
        for n in range(2, 6):  # power loss: the pages of four headers never reached the disk
            file.seek(n * size)
            file.write(bytes(8))
    store = kit.open()
    assert store.log_max == 2 * size
    store.append(kit.message(body=b"new2"))
    kit.crash(store)
    assert kit.bodies(kit.open()) == [b"old0", b"old1", b"new2"]


def test_a_hole_in_the_log_keeps_the_place_of_what_was_there(kit):
    store = kit.open()
    for n in range(6):
        store.append(kit.message(body=b"old%d" % n))
    store.flush()  # what was synced once cannot be a torn end
    kit.crash(store)
    path = kit.root / "commitlog" / ("0" * 20)
    size = struct.unpack_from(">i", path.read_bytes())[0]
    with path.open("r+b") as file:
        file.seek(2 * size)
        file.write(bytes(2 * size))
    shutil.rmtree(kit.root / "consumequeue")
    store = kit.open()
    assert store.recovery.corrupt == 1
    assert store.max_offset("orders", 0) == 6
    assert kit.bodies(store) == [b"old0", b"old1", b"old4", b"old5"]
    assert store.min_offset("orders", 0) == 0


def test_units_past_the_logs_end_are_removed(kit, tmp_path):
    store = kit.open()
    for _ in range(40):
        store.append(kit.message(body=bytes(100)))
    store.flush()
    kit.crash(store)
    # The log lost its last half; the queue, synced later, did not.
    checkpoints.save(kit.root / "checkpoint", checkpoints.Checkpoint())
    path = kit.root / "commitlog" / ("0" * 20)
    end = 10 * struct.unpack_from(">i", path.read_bytes())[0]
    with path.open("r+b") as file:
        file.truncate(end + 50)
        file.truncate(1 << 16)
    store = kit.open()
    assert store.max_offset("orders", 0) == 10
    assert len(list((kit.root / "consumequeue/orders/0").iterdir())) == 1
    assert_equals_a_rebuild(kit, store, tmp_path / "anew")


def test_a_queue_whose_first_messages_are_gone_starts_with_fillers(kit, tmp_path):
    store = kit.open()
    for n in range(30):
        store.append(kit.message(body=b"%02d" % n * 3000))
    store.close()
    first = min((kit.root / "commitlog").iterdir())
    first.unlink()
    shutil.rmtree(kit.root / "consumequeue")
    shutil.rmtree(kit.root / "index")
    store = kit.open()
    start = store.min_offset("orders", 0)
    assert start == 10
    assert (store.max_offset("orders", 0), len(kit.bodies(store))) == (30, 20)
    assert store._queues.find("orders", 0).unit(0).size == 0x7FFFFFFF
    assert store.read("orders", 0, 3, ReadLimit()).status is ReadStatus.OFFSET_TOO_SMALL
    store.append(kit.message(body=b"next"))
    assert store.max_offset("orders", 0) == 31


def test_fillers_start_in_the_file_of_the_first_message(kit):
    store = kit.open()
    for n in range(60):
        store.append(kit.message(body=b"%02d" % n * 3000))
    store.close()
    for path in sorted((kit.root / "commitlog").iterdir())[:4]:
        path.unlink()
    shutil.rmtree(kit.root / "consumequeue")
    store = kit.open()
    assert store.min_offset("orders", 0) == 40
    assert store._queues.find("orders", 0).first_unit == 32
    assert store.unit("orders", 0, 31) is None


def test_a_topic_deleted_and_made_again_is_rebuilt_as_it_is(kit, tmp_path):
    store = kit.open()
    store.append_batch([kit.message(body=b"old") for _ in range(5)])
    store.delete_topic("orders")
    store.append_batch([kit.message(body=b"new%d" % n) for n in range(2)])
    again = kit.rebuilt(tmp_path / "anew")
    assert kit.bodies(again) == [b"new0", b"new1"]


def test_the_last_topic_stays_deleted_after_a_kill(kit):
    """An empty queue directory may be the operator's wish for a rebuild, or all that deleting topics left."""
    store = kit.open()
    store.append(kit.message())
    store.delete_topic("orders")
    store.append(kit.message("other"))  # its queue waits in memory
    kit.crash(store)
    store = kit.open()
    assert store.topics() == ["other"]
    assert kit.bodies(store, "other") == [b"body"]


# -- stores of the Java broker -------------------------------------------------------------------------


def as_java_leaves_it(kit, *, clean):
    """No record checks, no position of ours in the checkpoint, no key index beyond what it flushed."""
    store = kit.open(record_check=False)
    fill(kit, store, 60)
    before = kit.snapshot(store)
    end = store.log_max
    if clean:
        store.close()
    else:
        kit.crash(store)
    path = kit.root / "checkpoint"
    path.write_bytes(path.read_bytes()[:40].ljust(4096, b"\0"))
    return before, end


@pytest.mark.parametrize("clean", [True, False])
def test_a_store_without_our_position_opens(kit, clean):
    before, end = as_java_leaves_it(kit, clean=clean)
    store = kit.open(record_check=True)
    assert store.log_max == end
    assert kit.snapshot(store) == before
    store.append(kit.message("topic0", b"ours"))
    assert kit.bodies(store, "topic0")[-1] == b"ours"


def test_java_wrote_on_after_us(kit, tmp_path):
    """A clean stop, but the log goes on behind our position: another broker ran in between."""
    store = kit.open()
    fill(kit, store, 10)
    store.close()
    ours = (kit.root / "checkpoint").read_bytes()
    store = kit.open()
    fill(kit, store, 10)
    before = kit.snapshot(store)
    store.close()
    (kit.root / "checkpoint").write_bytes(ours)
    store = kit.open()
    assert store.recovery.dispatched == 15
    assert kit.snapshot(store) == before


@pytest.mark.parametrize("position", [5, 10_000_000, 1 << 62])
def test_an_implausible_position_is_ignored(kit, position):
    before, end = as_java_leaves_it(kit, clean=False)
    checkpoints.save(kit.root / "checkpoint", checkpoints.Checkpoint(0, 0, 0, position, position))
    with (kit.root / "checkpoint").open("r+b") as file:
        file.write(b"\1")  # the times are another's
    store = kit.open()
    assert store.log_max == end
    assert kit.snapshot(store) == before


def test_a_torn_checkpoint_is_no_position(tmp_path):
    path = tmp_path / "checkpoint"
    assert checkpoints.load(path) == checkpoints.Checkpoint()
    checkpoints.save(path, checkpoints.Checkpoint(1, 2, 3, 400, 300))
    assert checkpoints.load(path) == checkpoints.Checkpoint(1, 2, 3, 400, 300, True, True)
    data = bytearray(path.read_bytes())
    data[1033] ^= 1
    path.write_bytes(data)
    assert checkpoints.load(path) == checkpoints.Checkpoint(1, 2, 3, -1, -1, True, False)
    path.write_bytes(b"short")
    assert checkpoints.load(path).position == -1


def test_the_files_size_wins_over_the_settings(kit, caplog):
    store = kit.open()
    fill(kit, store, 10)
    for _ in range(20):
        store.append(kit.message(body=bytes(8000)))
    store.close()
    store = kit.open(commit_log_segment_bytes=1 << 20)
    assert "not the configured" in caplog.text
    assert len(kit.bodies(store)) == 20


def test_queues_removed_by_hand_are_built_again(kit):
    store = kit.open()
    fill(kit, store)
    before = kit.snapshot(store)
    store.close()
    shutil.rmtree(kit.root / "consumequeue")
    shutil.rmtree(kit.root / "index")
    assert kit.snapshot(kit.open()) == before


def test_an_empty_store_opens_and_closes(kit):
    kit.open().close()
    store = kit.open()
    assert (store.log_min, store.log_max, store.topics(), store.recovery.clean) == (0, 0, [], True)
    kit.crash(store)
    assert kit.open().log_max == 0


@pytest.mark.slow
def test_a_log_without_record_checks_cut_at_every_byte(kit, tmp_path):
    """RocketMQ's own records: the CRC covers the body only, lengths and text have to tell the rest."""
    store = kit.open(record_check=False, commit_log_segment_bytes=1 << 12)
    store.append(kit.message(body=b"kept"))
    last = kit.message(body=b"cut", text="TAGS\x01a\x02KEYS\x01b\x02")
    store.append(last)
    kit.crash(store)
    for cut in range(last.physical_offset, last.physical_offset + last.size):
        copy = kit.copy(tmp_path / "cut")
        with (copy / "commitlog" / ("0" * 20)).open("r+b") as file:
            file.truncate(cut)
        again = kit.open(copy)
        assert kit.bodies(again) == [b"kept"], cut
        again.close()
        shutil.rmtree(copy)
