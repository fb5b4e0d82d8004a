# SPDX-License-Identifier: Apache-2.0
"""The timer log's files against plain arithmetic, for every size of file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull
from aerobee.store import timer_log
from aerobee.store.segment import Segment
from aerobee.store.timer_log import NONE, PLAIN, RECORD_BYTES, ROLL, Entry, TimerLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_700_000_000_000
SECOND = NOW // 1000
DAY_S = 24 * 3600
THREE = 3 * RECORD_BYTES + 16  # three records and the word that ends a file
COUNT = 10


def entry(n: int, previous: int = NONE) -> Entry:
    return Entry(RECORD_BYTES, previous, PLAIN, NOW + n, 5_000, 100 * n, 77, n)


class Logs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[TimerLog] = []

    def open(self, file_bytes: int) -> TimerLog:
        log = TimerLog(self.folder, file_bytes)
        self._opened.append(log)
        return log

    def filled(self, file_bytes: int) -> tuple[TimerLog, list[int]]:
        """Ten records, and where they must be."""
        log, per_file = self.open(file_bytes), (file_bytes - 16) // RECORD_BYTES
        places = [n // per_file * file_bytes + n % per_file * RECORD_BYTES for n in range(COUNT)]
        assert [log.append(entry(n)) for n in range(COUNT)] == places
        return log, places

    def close(self) -> None:
        for log in self._opened:
            log.close()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    found = Logs(tmp_path / "timerlog")
    yield found
    found.close()


sizes = pytest.mark.parametrize("file_bytes", [THREE - 1, THREE, THREE + 1, THREE + 51, THREE + 52, 4096])


@sizes
def test_records_are_where_they_fit_and_are_read_and_scanned_there(logs: Logs, file_bytes: int) -> None:
    log, places = logs.filled(file_bytes)
    written = [(place, entry(n)) for n, place in enumerate(places)]
    assert log.end == places[-1] + RECORD_BYTES
    assert [(place, log.read(place)) for place in places] == written
    again = logs.open(file_bytes)
    for n, place in enumerate(places):
        assert list(again.scan(place)) == written[n:]
    assert again.end == again.start == 0
    assert [again.read(at) for at in (-1, 1, log.end, log.end + file_bytes)] == [None] * 4


@sizes
def test_a_place_and_the_one_before_are_those_of_records(logs: Logs, file_bytes: int) -> None:
    log, places = logs.filled(file_bytes)
    can_begin = {*places, *(place + RECORD_BYTES for place in places)}
    for at in range(log.end):
        assert log.boundary(at) == max(place for place in can_begin if place <= at)
    for earlier, place in zip([NONE, *places], [*places, log.end], strict=False):
        assert log.before(place) == earlier
    assert log.boundary(-5) == 0


@sizes
def test_the_rest_of_a_file_says_that_the_next_goes_on(logs: Logs, file_bytes: int) -> None:
    logs.filled(file_bytes)
    per_file = (file_bytes - 16) // RECORD_BYTES
    files = sorted(logs.folder.iterdir())
    assert len(files) == -(-COUNT // per_file)
    for path in files[:-1]:
        at, data = per_file * RECORD_BYTES, path.read_bytes()
        assert data[at : at + 16] == (file_bytes - at).to_bytes(4, "big") + bytes(8) + b"\xcb\xd4\x31\x94"
        assert len(data) == file_bytes


@pytest.mark.parametrize("wrong", [b"\0\0\0\1", b"\0" * 8 + b"\0\0\0\0"])
def test_a_scan_ends_where_a_file_does_not_say_so(logs: Logs, wrong: bytes) -> None:
    _, places = logs.filled(THREE)
    with sorted(logs.folder.iterdir())[1].open("r+b") as file:
        file.seek(3 * RECORD_BYTES + (4 if len(wrong) > 4 else 0))
        file.write(wrong)
    assert [place for place, _ in logs.open(THREE).scan(0)] == places[:6]


@pytest.mark.parametrize("kept", range(COUNT))
def test_what_was_cut_is_never_read_again(logs: Logs, kept: int) -> None:
    log, places = logs.filled(THREE)
    log.cut(places[kept])
    assert [place for place, _ in logs.open(THREE).scan(0)] == places[:kept]
    assert log.end == places[kept]
    assert log.append(entry(50)) == places[kept]
    assert [found.topic_hash for _, found in log.scan(0)] == [*range(kept), 50]
    assert len(list(logs.folder.iterdir())) == kept // 3 + 1


@pytest.mark.parametrize(
    ("field", "value", "is_sound"),
    [
        ("size", 51, False), ("size", 53, False),
        ("previous", NONE, True), ("previous", NONE - 1, False), ("previous", 0, True), ("previous", 51, True),
        ("previous", 52, False), ("previous", 53, False),
        ("kind", 0, False), ("kind", ROLL, False), ("kind", 15, True), ("kind", 17, False),
        ("delay", 0, True), ("delay", -1, False),
        ("physical_offset", 0, True), ("physical_offset", -1, False),
        ("message_size", 1, True), ("message_size", 0, False),
    ],
)  # fmt: skip
def test_a_record_is_believed_when_its_fields_can_be(
    logs: Logs, field: str, value: int, is_sound: bool
) -> None:
    log, told = logs.open(4096), entry(2)._replace(**{field: value})
    log.append(entry(1))
    assert log.append(told) == 52
    assert log.read(52) == (told if is_sound else None)
    assert len(list(log.scan(0))) == 1 + is_sound


def test_times_add_up_to_the_second_they_mean() -> None:
    assert entry(0)._replace(write_time=1_999, delay=1).second == 2
    assert entry(0)._replace(write_time=1_500, delay=499).second == 1


@pytest.mark.parametrize(("time", "left"), [(2, 4), (3, 3), (5, 3), (6, 2), (9, 1), (100, 1)])
def test_files_go_when_all_in_them_were_written_before(logs: Logs, time: int, left: int) -> None:
    log, places = logs.filled(THREE)
    assert log.delete_written_before(NOW + time) == 4 - left
    assert len(list(logs.folder.iterdir())) == left
    assert log.start == (4 - left) * THREE
    assert [log.read(place) is not None for place in places] == [place >= log.start for place in places]
    assert log.before(log.start) == NONE
    assert log.boundary(0) == log.start
    assert log.append(entry(11)) == log.end - RECORD_BYTES


def test_files_from_a_place_on_are_synced(logs: Logs) -> None:
    log, _ = logs.filled(THREE)
    for position, count in (
        (0, 4),
        (THREE - 1, 4),
        (THREE, 3),
        (3 * THREE, 1),
        (4 * THREE - 1, 1),
        (4 * THREE, 0),
    ):
        names = [os.path.basename(os.readlink(f"/proc/self/fd/{fd}")) for fd in log.descriptors(position)]
        assert names == [f"{n * THREE:020d}" for n in range(4)][4 - count :]


def test_few_files_are_open_those_read_last_and_one_is_mapped(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_log, "_OPEN_FILES", 2)
    log, places = logs.filled(THREE)
    assert [each.mapped is not None for each in log._segments.values()] == [False, False, False, True]
    for place in places:
        log.read(place)
    log.read(places[3])
    log.read(places[0])
    assert [each._fd >= 0 for each in log._segments.values()] == [True, True, False, True]


def test_a_file_that_gets_no_space_is_not_there(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, end: int) -> None:
        raise DiskFull("no")

    log = logs.open(THREE)
    with monkeypatch.context() as broken:
        broken.setattr(Segment, "reserve", full)
        with pytest.raises(DiskFull):
            log.append(entry(1))
    assert list(logs.folder.iterdir()) == []
    synced: list[Any] = []
    monkeypatch.setattr(timer_log, "sync_directory", synced.append)
    assert log.append(entry(1)) == 0
    assert synced == [logs.folder], "its name stays"


def test_other_names_in_the_folder_are_nobodys(logs: Logs) -> None:
    logs.folder.mkdir()
    for name in ("notes.txt", "0", f"{5 * THREE:020d}", f"{4 * THREE:020d}"):
        (logs.folder / name).touch()
    log = logs.open(THREE)
    assert list(log._segments) == [4 * THREE, 5 * THREE]
    assert log.start == 4 * THREE


def test_a_roll_that_gets_no_space_changes_nothing_and_is_made_up_for(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word that ends a file comes before the next file is used: without it a start would look no further."""
    log = logs.open(THREE)
    for n in range(3):
        log.append(entry(n))
    reserve = Segment.reserve

    def full(self: Segment, end: int) -> None:
        if self.base:
            raise DiskFull("no space")
        reserve(self, end)

    with monkeypatch.context() as broken:
        broken.setattr(Segment, "reserve", full)
        for _ in range(2):
            with pytest.raises(DiskFull):
                log.append(entry(3))
            assert log.end == 3 * RECORD_BYTES
    assert log.append(entry(3)) == THREE
    assert [found for _, found in logs.open(THREE).scan(0)] == [entry(n) for n in range(4)]


def test_the_word_that_ends_a_file_has_its_space_before_the_next_is_made(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []
    reserve = Segment.reserve

    def noted(self: Segment, end: int) -> None:
        taken.append((self.base, end))
        reserve(self, end)

    monkeypatch.setattr(Segment, "reserve", noted)
    log = logs.open(THREE)
    for n in range(4):
        log.append(entry(n))
    assert (0, THREE) in taken
    assert taken.index((0, THREE)) < min(at for at, (base, _) in enumerate(taken) if base == THREE)


def test_the_last_file_stays_however_old_and_full_it_is(logs: Logs) -> None:
    """It knows where the log ends."""
    log = logs.open(THREE)
    for n in range(6):
        log.append(entry(n))
    assert log.delete_written_before(NOW + 1_000_000) == 1
    assert (log.start, log.end) == (THREE, THREE + 3 * RECORD_BYTES)
    assert log.append(entry(6)) == 2 * THREE
    assert [found for _, found in log.scan(THREE)] == [entry(n) for n in range(3, 7)]
