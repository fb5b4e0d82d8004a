# SPDX-License-Identifier: Apache-2.0
"""What a start makes of odd ends and odd records, one small thing at a time; and what a check says of the same."""

from __future__ import annotations

import os
import shutil
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.store import checkpoint as checkpoints
from aerobee.store import log_walk, recovery
from aerobee.store.check import StoreCheck
from aerobee.store.checkpoint import Checkpoint
from aerobee.store.log_walk import places
from aerobee.store.segment import Segment

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


def test_a_file_whose_last_record_leaves_no_room_for_a_filler_ends_the_log(kit: Any) -> None:
    """No broker writes one; a disk that lost the file's last bytes leaves it."""
    store = filled(kit, 50)
    end = store.log_max
    kit.crash(store)
    os.truncate(log_file(kit), end + 4)
    store = kit.open(commit_log_segment_bytes=end + 4)
    assert (store.log_max, len(kit.bodies(store))) == (end, 50)


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


@pytest.mark.parametrize("way", ["a start", "a rebuild of the index"])
def test_pages_given_back_are_those_that_were_read(
    kit: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    store, count = kit.open(), 25
    for n in range(count):
        store.append(kit.message(body=bytes(9_000 + n)))
    units = [store.unit("orders", 0, n) for n in range(count)]
    expected, last = [], 0
    for unit in units:
        end = unit.physical_offset + unit.size
        if end - last > 20_000:
            expected.append((unit.physical_offset // SEGMENT * SEGMENT, end % SEGMENT))
            last = end
    assert {base for base, _ in expected} == {0, SEGMENT, 2 * SEGMENT, 3 * SEGMENT}
    for module in (recovery, log_walk):
        monkeypatch.setattr(module, "_FORGET_EVERY", 20_000)
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(Segment, "forget_pages", lambda segment, end: given.append((segment.base, end)))
    if way == "a start":
        kit.crash(store)
        kit.open()
    else:
        store.rebuild_index()
    assert given == expected


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


def test_a_check_reads_what_the_log_has(kit: Any) -> None:
    store = kit.open()
    for _ in range(6):
        store.append(kit.message(body=bytes(30_000)))
    store._log.delete_first()
    end = store.log_max
    store.close()
    assert StoreCheck(kit.root, kit.config).size_bytes == len(log_files(kit)) * SEGMENT
    assert end > SEGMENT


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


def test_units_that_a_start_took_back_are_not_missed_by_the_next(kit: Any, caplog: Any) -> None:
    """A checkpoint may tell of a queue's units behind its own position; a start forgets them, and is killed itself."""
    store = kit.open()
    store.append(kit.message("waits"))
    for _ in range(3):
        store.append(kit.message("written"))
    queue = store._queues.find("written", 0)
    store._queues.written_paths.update(queue.write_tail())
    del store._queues.dirty[queue]
    store._flush.now(store._checkpoint())
    assert checkpoints.load(kit.root / "checkpoint").position == 0
    for _ in range(2):
        kit.crash(store)
        store = kit.open()
        assert [len(kit.bodies(store, topic)) for topic in ("waits", "written")] == [1, 3]
    assert "is damaged" not in caplog.text


@pytest.mark.parametrize(("too_far", "looked_at"), [(0, 10), (1, 0)])
def test_no_more_of_a_cleanly_closed_log_is_looked_at_than_is_quickly_done(
    kit: Any, monkeypatch: pytest.MonkeyPatch, too_far: int, looked_at: int
) -> None:
    store = filled(kit)
    store.close()
    monkeypatch.setattr(recovery, "_LOOK_BACK", store.log_max - too_far)
    assert kit.open().recovery.messages == looked_at


@pytest.mark.parametrize(("more", "looked_at"), [(0, 5), (1, 0)])
def test_sixteen_mebibytes_of_a_cleanly_closed_log_are_looked_at_and_not_a_byte_more(
    kit: Any, more: int, looked_at: int
) -> None:
    store = kit.open(commit_log_segment_bytes=32 << 20)
    for _ in range(4):
        store.append(kit.message(body=bytes(4_000_000)))
    head = store.log_max // 4 - 4_000_000
    store.append(kit.message(body=bytes((16 << 20) - store.log_max - head + more)))
    assert store.log_max == (16 << 20) + more
    store.close()
    assert kit.open().recovery.messages == looked_at


def test_a_walk_by_the_records_own_words_goes_on_behind_damage(kit: Any) -> None:
    store = filled(kit)

    def found_without(offset: int) -> list[int]:
        """What is found when that record does not say any more what it is."""
        at = store.unit("orders", 0, offset).physical_offset
        store._log.map[at : at + 8] = bytes(8)
        return [place.offset for _, place in places(store._log, 0, store.log_max)]

    assert found_without(4) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert found_without(9) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert found_without(0) == [1, 2, 3, 5, 6, 7, 8]


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_queues_that_were_removed_by_hand_are_built_again_and_not_called_damaged(
    kit: Any, caplog: Any, stop: str
) -> None:
    store = filled(kit)
    store.flush()
    store.close() if stop == "close" else kit.crash(store)
    shutil.rmtree(kit.root / "consumequeue")
    store = kit.open()
    assert len(kit.bodies(store)) == 10
    assert "is damaged" not in caplog.text


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_topic_that_another_broker_deleted_since_does_not_come_back(kit: Any, stop: str) -> None:
    """Our sums still tell of its queue, but the checkpoint's times are another's: they are of the past."""
    store = filled(kit)
    store.append(kit.message("deleted", body=b"gone"))
    store.append(kit.message(body=b"10"))
    store.flush()
    store.close() if stop == "close" else kit.crash(store)
    shutil.rmtree(kit.root / "consumequeue/deleted")
    write_at(kit.root / "checkpoint", 0, struct.pack(">q", 1))  # its own times
    again = kit.open()
    assert (again.topics(), again.max_offset("deleted", 0)) == (["orders"], 0)
    assert len(kit.bodies(again)) == 11
    again.append(kit.message("deleted", body=b"anew"))
    assert kit.bodies(again, "deleted") == [b"anew"]


def test_a_store_that_is_closed_has_nothing_open(kit: Any) -> None:
    """Neither file nor folder, nor a map: of log, queues, index and timers, also of those that were only read."""
    store = kit.open()
    for n in range(60):
        store.append(kit.message(body=b"%d" % n * 2_000, queue_id=n % 3, text=f"KEYS\x01{'k ' * 9}k{n}\x02"))
        store.tick(kit.clock.now() + n * 1_000)
    store.flush()
    kit.bodies(store)
    store.find_by_key("orders", "k1", 9, 0, 1 << 62)
    store._log.delete_first()
    store.append_batch([kit.message(text="KEYS\x01" + " ".join(f"b{n}" for n in range(200)) + "\x02")] * 2)
    store.close()
    assert not held(kit.root)
    for _ in range(2):  # a start that was killed, and one after it
        store = kit.open()
        kit.bodies(store)
        store.append(kit.message())
        store.close()
        assert not held(kit.root)


def held(root: Path) -> list[str]:
    """What this process has open or mapped below a folder."""
    links = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{each}"))
    with open("/proc/self/maps") as maps:
        links += [line.split(maxsplit=5)[5].strip() for line in maps if len(line.split()) > 5]
    return [link for link in links if f"{link}/".startswith(f"{root.resolve()}/")]
