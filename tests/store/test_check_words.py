# SPDX-License-Identifier: Apache-2.0
"""What a check calls damage and what not, one thing wrong at a time; and what a repair leaves alone."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.store import message_store
from aerobee.store.check import DamagedBytes, LogReport, StoreCheck, StoreReport, segment_bytes_of
from aerobee.store.check_index import IndexReport
from aerobee.store.check_queues import DamagedQueue, QueueReport, units_of
from aerobee.store.consume_queue import UNIT
from aerobee.store.index_file import ENTRY, HEADER
from aerobee.store.platform import Disk
from aerobee.store.repair import repair

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore

SEGMENT = 1 << 16


def filled(kit: Any, count: int = 10, size: int = 0, **settings: Any) -> MessageStore:
    store: MessageStore = kit.open(**settings)
    for n in range(count):
        store.append(kit.message(body=b"%d" % n + bytes(size), text=f"KEYS\x01k{n}\x02"))
    return store


def check(kit: Any, **settings: Any) -> StoreReport:
    return StoreCheck(kit.root, msgspec.structs.replace(kit.config, **settings)).run()


def write_at(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def log_file(kit: Any, base: int = 0) -> Path:
    return Path(kit.root / "commitlog" / f"{base:020d}")


def place(store: MessageStore, n: int) -> int:
    unit = store.unit("orders", 0, n)
    assert unit is not None
    return unit.physical_offset


@pytest.mark.parametrize(
    ("log", "queues", "index", "checkpoint", "log_is_sound", "rest_is_sound"),
    [
        (LogReport(torn_bytes=5), QueueReport(untold=5), IndexReport(untold=5), "sound", True, True),
        (LogReport(lost_messages=1), QueueReport(), IndexReport(), "sound", False, True),
        (LogReport(short_files=["0"]), QueueReport(), IndexReport(), "sound", False, True),
        (LogReport(damaged=[DamagedBytes("0", 0, 9)]), QueueReport(), IndexReport(), "sound", False, True),
        (LogReport(), QueueReport(damaged=[DamagedQueue("t", 0, 0)]), IndexReport(), "sound", True, False),
        (LogReport(), QueueReport(without_files=["t"]), IndexReport(left_aside=["0"]), "sound", True, True),
        (LogReport(), QueueReport(), IndexReport(missing=1), "sound", True, False),
        (LogReport(), QueueReport(), IndexReport(wrong=1), "sound", True, False),
        (LogReport(), QueueReport(), IndexReport(), "behind", True, False),
    ],
)
def test_one_thing_that_is_wrong_is_enough(
    log: LogReport,
    queues: QueueReport,
    index: IndexReport,
    checkpoint: str,
    log_is_sound: bool,
    rest_is_sound: bool,
) -> None:
    report = StoreReport("root", True, log, queues, index, checkpoint)
    assert (report.log_is_sound, report.rest_is_sound) == (log_is_sound, rest_is_sound)
    assert report.is_sound is (log_is_sound and rest_is_sound)


# -- the log -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "found"), [([], 99), ([7], 7), ([0], 99), ([7, 7], 99), ([7, 8, 9], 99)])
def test_only_a_file_that_is_alone_says_its_size_by_itself(
    tmp_path: Path, sizes: list[int], found: int
) -> None:
    (tmp_path / "commitlog").mkdir()
    for n, size in enumerate(sizes):
        (tmp_path / "commitlog" / f"{n:020d}").write_bytes(bytes(size))
    assert segment_bytes_of(tmp_path, 99) == found


def test_what_follows_a_torn_record_behind_the_checkpoint_is_nobodys(kit: Any) -> None:
    store = filled(kit)
    store.flush()
    end = store.log_max
    for n in range(3):
        store.append(kit.message(body=b"late%d" % n))
    kit.crash(store)
    write_at(log_file(kit), end + 90, b"x")
    report = check(kit)
    assert report.is_sound
    assert (report.log.messages, report.queues.untold, report.log.lost_messages) == (10, 0, 0)
    assert report.log.torn_bytes > 0
    assert len(kit.bodies(kit.open())) == 10, "as a start sees it"


def test_bytes_behind_the_end_are_damage_after_a_clean_stop(kit: Any) -> None:
    store = filled(kit)
    end = store.log_max
    store.close()
    write_at(log_file(kit), end, b"z" * 50)
    report = check(kit)
    assert (report.log_is_sound, report.rest_is_sound, report.log.torn_bytes) == (False, True, 50)
    assert [each.physical_offset for each in report.log.damaged] == [end]


def test_a_last_file_that_was_copied_without_its_unused_rest_is_not_short(kit: Any) -> None:
    store = filled(kit, 12, 8_000)
    end = store.log_max
    store.close()
    with log_file(kit, SEGMENT).open("r+b") as file:
        file.truncate(end - SEGMENT)
    report = check(kit)
    assert report.is_sound
    assert (report.log.messages, report.log.short_files) == (12, [])
    with log_file(kit).open("r+b") as file:
        file.truncate(SEGMENT - 1)
    assert check(kit).log.short_files == [f"{0:020d}"]


# -- queues ------------------------------------------------------------------------------------------------------


def test_a_topic_that_another_broker_deleted_is_not_missed(kit: Any) -> None:
    """Our sums tell of its queue; they are of the past."""
    store = filled(kit)
    store.append(kit.message("deleted"))
    store.append(kit.message())
    store.close()
    shutil.rmtree(kit.root / "consumequeue/deleted")
    assert not check(kit).queues.is_sound, "nobody said so: it was lost"
    write_at(kit.root / "checkpoint", 0, struct.pack(">q", 1))  # its own times
    report = check(kit)
    assert report.queues.is_sound
    assert report.queues.without_files == ["deleted"]


def test_a_queue_of_one_message_may_begin_again(kit: Any) -> None:
    store = kit.open()
    for body in (b"old", b"new"):
        store.append(kit.message(body=body))
        if body == b"old":
            store.delete_topic("orders")
    store.close()
    report = check(kit)
    assert report.is_sound
    assert (report.queues.units, report.log.lost_messages) == (2, 0)


@pytest.mark.parametrize("lost", [1, 3])
def test_messages_between_two_of_a_queue_are_counted_as_lost(kit: Any, lost: int) -> None:
    store = filled(kit)
    start, end = place(store, 4), place(store, 4 + lost)
    store.close()
    write_at(log_file(kit), start, bytes(end - start))
    report = check(kit)
    assert (report.log.messages, report.log.lost_messages) == (10 - lost, lost)
    assert [each.size_bytes for each in report.log.damaged] == [end - start]


def test_when_a_delayed_message_is_due_depends_on_who_stored_it(kit: Any) -> None:
    store = kit.open()
    store.append(kit.message(SCHEDULE_TOPIC, queue_id=2))
    store.close()
    assert check(kit, delay_levels="1h 2h 3h 4h").is_sound
    path = next((kit.root / "consumequeue" / SCHEDULE_TOPIC / "2").iterdir())
    write_at(path, 8, struct.pack(">i", 5))
    assert [each.wrong for each in check(kit, delay_levels="1h 2h 3h 4h").queues.damaged] == [1]


def test_a_late_unit_that_no_start_forgets_is_damage(kit: Any) -> None:
    """It points before the checkpoint's place: a start takes it for one that was synced."""
    store = filled(kit)
    store.flush()
    store.append(kit.message())
    store.append(kit.message())
    store._queues.write_oldest(9)
    last = store.unit("orders", 0, 10)
    assert last is not None
    kit.crash(store)
    path = kit.root / "consumequeue/orders/0" / f"{0:020d}"
    assert check(kit).is_sound
    write_at(path, 10 * 20, UNIT.pack(last.physical_offset + 1, 77, 0))
    assert check(kit).is_sound, "forgotten and told again"
    write_at(path, 10 * 20, UNIT.pack(5, 77, 0))
    assert [each.first_offset for each in check(kit).queues.damaged] == [10]


def test_units_of_a_queue_that_the_log_never_had_are_surplus(kit: Any) -> None:
    store = filled(kit)
    end = store.log_max
    store.close()
    shutil.copytree(kit.root / "consumequeue/orders", kit.root / "consumequeue/bills")
    path = kit.root / "consumequeue/bills/0" / f"{0:020d}"
    path.write_bytes((UNIT.pack(end, 100, 0) + UNIT.pack(end + 100, 100, 0)).ljust(320, b"\0"))
    report = check(kit)
    assert report.queues.queues == 2
    assert [(each.topic, each.surplus) for each in report.queues.damaged] == [("bills", 2)]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], 16),
        ([(0, 320), (0, 200), (0, 200)], 16),  # one is as the settings say
        ([(0, 200), (200, 200)], 10),
        ([(0, 200), (0, 200), (0, 77)], 10),
        ([(0, 205), (0, 205)], 16),
        ([(0, 200), (160, 200)], 16),  # begins where no file of that size would
        ([(0, 0), (0, 0)], 16),
    ],
)
def test_how_many_units_a_file_has_is_believed_when_it_can_be(
    tmp_path: Path, files: list[tuple[int, int]], found: int
) -> None:
    for n, (start, size) in enumerate(files):
        path = tmp_path / f"topic{n}" / "0" / f"{start:020d}"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(size))
    assert units_of(tmp_path, 16) == found


# -- keys --------------------------------------------------------------------------------------------------------


def entry_at(kit: Any, number: int) -> tuple[Path, int]:
    (path,) = (kit.root / "index").iterdir()
    return path, HEADER.size + kit.config.index_slots * 4 + number * ENTRY.size


def test_an_entry_that_points_between_records_is_wrong_and_its_key_missing(kit: Any) -> None:
    store = filled(kit)
    at = place(store, 4)
    store.close()
    path, entry = entry_at(kit, 5)
    write_at(path, entry + 4, struct.pack(">q", at + 1))
    report = check(kit).index
    assert (report.entries, report.missing, report.wrong) == (10, 1, 1)


def test_an_entry_whose_chain_leads_elsewhere_is_wrong(kit: Any) -> None:
    filled(kit).close()
    path, entry = entry_at(kit, 7)
    assert check(kit).is_sound
    (older,) = struct.unpack_from(">i", path.read_bytes(), entry + 16)
    write_at(path, entry + 16, struct.pack(">i", older + 1))
    assert check(kit).index.wrong == 1


def test_what_is_not_named_as_an_index_file_is_none(kit: Any) -> None:
    filled(kit).close()
    path, _ = entry_at(kit, 0)
    shutil.copy(path, path.with_name("copy"))
    path.with_name("notes.txt").write_text("by whoever was here")
    path.with_name("20000101000000000").write_bytes(b"of other settings")
    path.with_name("20000101000000001").touch()
    report = check(kit).index
    assert report.is_sound
    assert (report.files, report.entries, report.left_aside) == (1, 10, ["20000101000000000"])
    assert [each.path for each in kit.open()._index.files] == [path], "nor to a start"


def test_keys_of_messages_that_went_with_their_log_are_not_wrong(kit: Any) -> None:
    """An index file stays until the last message it knows is gone."""
    store = filled(kit, 30, 8_000, retention_bytes=2 * SEGMENT)
    for _ in range(3):
        kit.clock.advance(1_000)
        store.tick(kit.clock.now())
    assert store.log_min > 0
    store.close()
    report = check(kit)
    assert report.index.entries == 30
    assert report.is_sound


# -- repair ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"retention_hours": 1}, {"retention_bytes": 1}, {}])
def test_a_repair_deletes_no_message_whatever_the_settings_say(
    kit: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(kit, 30, 8_000)
    store.close()
    kit.clock.advance(hours=10_000)
    path = kit.root / "consumequeue/orders/0" / f"{0:020d}"
    write_at(path, 3 * 20, bytes(20))
    report = check(kit)
    assert [each.missing for each in report.queues.damaged] == [1]
    before = sorted(each.name for each in (kit.root / "commitlog").iterdir())
    assert len(before) > 2
    full = Disk(10, 90) if settings else Disk(99, 1)
    monkeypatch.setattr(message_store, "disk_of", lambda root: full)
    config = msgspec.structs.replace(kit.config, **{"retention_hours": 800_000, **settings})
    repair(kit.root, config, kit.clock, report)
    assert sorted(each.name for each in (kit.root / "commitlog").iterdir()) == before
    assert check(kit).is_sound
