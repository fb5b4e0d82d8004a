# SPDX-License-Identifier: Apache-2.0
"""Small parts of the store, each alone: files kept open, the file made ahead, folders, tables, checkpoints."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import StoreInUse
from aerobee.store import checkpoint as checkpoints
from aerobee.store import directories, next_segment, platform
from aerobee.store.checkpoint import Checkpoint
from aerobee.store.lock_file import StoreLock
from aerobee.store.metadata import JsonFile
from aerobee.store.next_segment import NextSegment
from aerobee.store.open_files import OpenFiles
from aerobee.store.retention import Retention
from aerobee.store.saved_table import SavedTable
from aerobee.store.timer_slots import Slot, TimerSlots

if TYPE_CHECKING:
    from pathlib import Path


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- files kept open ---------------------------------------------------------------------------------------------


def test_the_file_that_was_asked_for_longest_ago_is_closed_first(tmp_path: Path) -> None:
    files = OpenFiles(2)
    a, b, c = (str(tmp_path / name) for name in "abc")
    first = files.created(a, 10)
    files.created(b, 10)
    assert files.existing(a) == first
    files.created(c, 10)
    assert len(files) == 2
    assert list(files._open) == [a, c], "b was not asked for since"
    files.close()


def test_a_file_that_gets_no_size_is_not_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, before = OpenFiles(2), open_descriptors()
    monkeypatch.setattr(os, "ftruncate", lambda fd, size: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        files.created(str(tmp_path / "a"), 10)
    assert (len(files), open_descriptors()) == (0, before)


def test_folders_that_are_made_on_the_way_are_all_remembered(tmp_path: Path) -> None:
    files = OpenFiles(2)
    files.created(str(tmp_path / "a" / "b" / "f"), 10)
    assert files.changed_directories == {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")}
    files.changed_directories.clear()
    files.created(str(tmp_path / "a" / "b" / "g"), 10)
    assert str(tmp_path / "a" / "b") in files.changed_directories
    files.close()


def test_every_folder_on_the_way_down_has_a_name_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Any] = []
    monkeypatch.setattr(
        platform, "sync_names", lambda path: path.is_relative_to(tmp_path) and synced.append(path)
    )
    directories.make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    directories.make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2, "one that is there was synced by who made it"


def test_a_folder_whose_name_cannot_be_synced_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as refusing:
        refusing.setattr(platform, "sync_names", lambda path: (_ for _ in ()).throw(OSError(5, "no")))
        with pytest.raises(OSError, match="no"):
            directories.make_directory(tmp_path / "a")
    synced: list[Any] = []
    monkeypatch.setattr(platform, "sync_names", synced.append)
    directories.make_directory(tmp_path / "a")
    assert synced == [tmp_path]


# -- the file made ahead -----------------------------------------------------------------------------------------


def test_a_file_is_made_once_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    real = next_segment._made
    monkeypatch.setattr(next_segment, "_made", lambda path, size: (made.append(path), real(path, size))[1])
    ahead, path = NextSegment(), tmp_path / f"{0:020}"
    for _ in range(3):
        ahead.make(path, 1 << 16)
    assert ahead.take(tmp_path / f"{1:020}") is None, "another than was asked for"
    segment = ahead.take(path)
    assert segment is not None
    assert made == [path]
    assert ahead.take(path) is None, "it has gone to who took it"
    segment.close()
    ahead.close()


# -- the lock ----------------------------------------------------------------------------------------------------


def test_who_does_not_get_a_store_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "lock_first_byte", lambda fd: (_ for _ in ()).throw(OSError(11, "taken")))
    before = open_descriptors()
    with pytest.raises(StoreInUse, match="in use by process unknown"):
        StoreLock(tmp_path)
    assert open_descriptors() == before
    (tmp_path / "abort").write_text("4711\n")
    with pytest.raises(StoreInUse, match="in use by process 4711; stop it"):
        StoreLock(tmp_path)


# -- tables ------------------------------------------------------------------------------------------------------


class Table(SavedTable):
    content = b"{}"

    def text(self) -> bytes:
        return self.content


def test_a_late_write_does_not_take_the_place_of_a_newer_one(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "t.json")
    table = Table(file)
    table.changed()
    table.changed()
    table._put(2, b"{new}")
    table._put(1, b"{old}")
    assert file.load() == b"{new}"


async def test_the_deed_is_on_disk_before_the_word(tmp_path: Path) -> None:
    seen: list[Any] = []
    file = JsonFile(tmp_path / "t.json")

    async def first() -> None:
        seen.append(file.load())

    table = Table(file, first)
    table.changed()
    await table.saved()
    assert (seen, file.load()) == ([None], b"{}")
    await table.saved()
    assert len(seen) == 1, "nothing has changed"


async def test_what_is_changed_while_the_deed_gets_to_the_disk_is_of_the_next_write(tmp_path: Path) -> None:
    file, on_disk, began = JsonFile(tmp_path / "t.json"), asyncio.Event(), asyncio.Event()

    async def first() -> None:
        began.set()
        await on_disk.wait()

    table = Table(file, first)
    table.changed()
    one = asyncio.ensure_future(table.saved())
    await began.wait()
    table.content = b"{newer}"
    table.changed()
    other = asyncio.ensure_future(table.saved())
    on_disk.set()
    await asyncio.gather(one, other)
    assert (file.load(), table.unsaved) == (b"{newer}", {})


# -- the checkpoint's bytes --------------------------------------------------------------------------------------


def test_a_checkpoint_is_believed_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    said = Checkpoint(10, 20, 30, 4_000, 3_000, False, True)
    checkpoints.save(path, said)
    assert checkpoints.load(path) == said
    whole = path.read_bytes()
    for at in range(1_024, 1_024 + 36):
        torn = bytearray(whole)
        torn[at] ^= 1
        path.write_bytes(torn)
        found = checkpoints.load(path)
        assert found == Checkpoint(10, 20, 30, -1, -1, True, False), at
    torn = bytearray(whole)
    torn[7] ^= 1  # RocketMQ ran since: its times are not those we wrote
    path.write_bytes(torn)
    assert checkpoints.load(path) == said._replace(log_time=11, is_latest=False)
    path.write_bytes(whole[:40])
    assert checkpoints.load(path) == Checkpoint(10, 20, 30, -1, -1, True, False)


# -- retention ---------------------------------------------------------------------------------------------------


class Log:
    """Files of 100 bytes, stored an hour after each other."""

    segment_bytes = 100

    def __init__(self, files: int) -> None:
        self.segments = [type("S", (), {"base": n * 100, "path": n})() for n in range(files)]

    @property
    def min_offset(self) -> int:
        return int(self.segments[0].base)

    def store_time(self, base: int) -> int:
        return (base // 100 + 1) * 3_600_000

    def delete_first(self) -> Any:
        return self.segments.pop(0)


def retention(log: Any, disk: Any = None, **settings: Any) -> Any:
    told = {
        "retention_hours": 10**6, "retention_bytes": 0, "disk_clean_ratio": 0.8, "disk_full_ratio": 0.9,
        "min_free_bytes": 0, **settings,
    }  # fmt: skip
    config = type("C", (), told)()
    parts = type("P", (), {"trim": lambda self, to: None, "everything": lambda self: iter(())})()
    roomy = platform.Disk(used=10, free=90)
    return Retention(type("F", (), {"value": config})(), log, parts, parts, lambda: disk or roomy)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "now_h", "disk", "left"),
    [
        ({"retention_hours": 2}, 4, None, 2),  # the second file began at 2 h: just old enough
        ({"retention_hours": 2}, 3.999, None, 3),
        ({"retention_bytes": 300}, 0, None, 3),
        ({"retention_bytes": 299}, 0, None, 2),
        ({}, 0, platform.Disk(used=80, free=20), 1),
        ({}, 0, platform.Disk(used=79, free=21), 3),
    ],
)
def test_what_is_deleted_when(settings: dict[str, int], now_h: float, disk: Any, left: int) -> None:
    log = Log(3)
    retention(log, disk, **settings).tick(int(now_h * 3_600_000))
    assert len(log.segments) == left


def test_a_few_files_go_at_a_time_and_never_the_last() -> None:
    log = Log(6)
    kept = retention(log, platform.Disk(used=85, free=15))
    assert kept.tick(0) is True, "there is more to do soon"
    assert len(log.segments) == 2
    assert kept.tick(0) is False
    assert len(log.segments) == 1


@pytest.mark.parametrize(
    ("disk", "settings", "words"),
    [
        (platform.Disk(used=90, free=10), {}, "disk 90% full, sends stop at 90% (disk_full_ratio)"),
        (platform.Disk(used=89, free=11), {}, ""),
        (platform.Disk(used=10, free=90), {"min_free_bytes": 90}, ""),
        (
            platform.Disk(used=10, free=89),
            {"min_free_bytes": 90},
            "89 bytes free, sends stop below 90 (min_free_bytes)",
        ),
    ],
)
def test_when_nothing_may_be_written(disk: Any, settings: dict[str, int], words: str) -> None:
    kept = retention(Log(1), disk, **settings)
    kept.tick(0)
    assert kept.refusal == words


def test_that_writing_stops_and_goes_on_is_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """A disk may be full for days; an operator looks for the two lines."""
    full, roomy = platform.Disk(used=95, free=5), platform.Disk(used=50, free=50)
    kept, told = retention(Log(1)), list[tuple[str, str]]()
    for disk in (roomy, full, full, platform.Disk(used=96, free=4), roomy, roomy, full):
        caplog.clear()
        kept.disk = lambda disk=disk: disk
        kept.tick(0)
        told += [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    stops, goes_on = (
        ("ERROR", "store takes no more writes"),
        ("WARNING", "store takes writes again disk_ratio=0.500"),
    )
    assert told == [stops, goes_on, stops]


# -- timer slots -------------------------------------------------------------------------------------------------


def test_slots_that_begin_anew_ask_for_their_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[int] = []
    monkeypatch.setattr(
        "aerobee.store.timer_slots.reserve_range", lambda fd, start, *_: reserved.append(start)
    )
    slots = TimerSlots(tmp_path / "wheel")
    for _ in range(2):
        slots.reserve(5)
        slots.reserve(6)
        slots.put(5, Slot(1, 2, 3))
        assert slots.get(5) == Slot(1, 2, 3)
        slots.clear()
        assert not slots.exists
    assert reserved == [0, 0]
