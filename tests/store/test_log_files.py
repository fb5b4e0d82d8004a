# SPDX-License-Identifier: Apache-2.0
"""The log's writing side alone: which files it takes for its own, where it goes on, what it asks of the disk and when.
No store around it: what a store never does to it in a test is still done to it by a disk."""

from __future__ import annotations

import errno
import mmap
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, StoreError
from aerobee.protocol.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from aerobee.store import commit_log, next_segment, platform, segment
from aerobee.store.commit_log import PLACE, CommitLog, Place, file_name
from aerobee.store.next_segment import NextSegment
from aerobee.store.segment import Segment, is_position
from tests.own_files import is_under

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = mmap.PAGESIZE
SEGMENT = 4 * PAGE
MEGA = 1 << 20


class Logs:
    """Opens logs in one folder and closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[CommitLog] = []

    def made(self, *bases: int, size: int = SEGMENT) -> None:
        self.folder.mkdir(exist_ok=True)
        for base in bases:
            with (self.folder / file_name(base)).open("wb") as file:
                file.truncate(size)

    def open(self, end: int = 0, size: int = SEGMENT) -> CommitLog:
        log = CommitLog(self.folder, size)
        self._opened.append(log)
        log.start_at(end)
        return log

    def files(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir())

    def close(self) -> None:
        for log in self._opened:
            log.close()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    found = Logs(tmp_path / "commitlog")
    yield found
    found.close()


def append(log: CommitLog, data: bytes) -> int:
    at = log.room(len(data))
    log.publish(at, data)
    log.end = at + len(data)
    return at


class Asked:
    """What is asked of the system for files of one folder, and then done."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved: list[tuple[int, int]] = []  # start, end
        self.written: list[tuple[int, int]] = []
        self.forgotten: list[int] = []
        self.expected: list[int] = []
        self.space = 1 << 62  # what the disk still gives at once
        reserve, pwrite = platform.reserve, os.pwrite

        def reserved(fd: int, start: int, length: int) -> None:
            if is_under(folder, fd):
                if length > self.space:
                    raise OSError(errno.ENOSPC, "full")
                self.reserved.append((start, start + length))
            reserve(fd, start, length)

        def written(fd: int, data: Any, at: int) -> int:
            if is_under(folder, fd):
                self.written.append((at, at + len(data)))
            return pwrite(fd, data, at)

        monkeypatch.setattr(platform, "reserve", reserved)
        monkeypatch.setattr(os, "pwrite", written)
        monkeypatch.setattr(platform, "pwrite", written)
        monkeypatch.setattr(platform, "forget_pages", lambda _, length: self.forgotten.append(length))
        monkeypatch.setattr(platform, "expect_writes", lambda _, start: self.expected.append(start))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


# -- which files are the log's ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 3, 4], [0, 1]),
        ([5, 6, 7], [5, 6, 7]),
        ([0, 1, 1.5, 2], [0, 1, 2]),
        ([], []),
    ],
)
def test_a_file_that_does_not_follow_is_left_aside_and_not_deleted(
    logs: Logs, there: list[float], taken: list[float]
) -> None:
    logs.made(*(int(n * SEGMENT) for n in there))
    log = logs.open(int(max(taken, default=0) * SEGMENT) + 10)
    assert [each.base for each in log.segments] == [n * SEGMENT for n in taken]
    assert logs.files() == [n * SEGMENT for n in there]
    assert log.min_offset == (taken[0] * SEGMENT if taken else 10)


@pytest.mark.parametrize("size", [SEGMENT + PAGE, 2 * SEGMENT, 3 * SEGMENT])
def test_a_longer_file_than_configured_keeps_its_size(logs: Logs, size: int) -> None:
    logs.made(0, size=size)
    log = logs.open(100)
    assert log.segment_bytes == size
    append(log, bytes(size - 108 - 8))
    append(log, b"next file" * 2)
    assert logs.files() == [0, size]


def test_a_shorter_file_than_configured_is_one_that_was_being_made(logs: Logs) -> None:
    logs.made(0, size=PAGE)
    log = logs.open(100)
    assert log.segment_bytes == SEGMENT
    append(log, bytes(SEGMENT - 200))
    assert log.segments[0].path.stat().st_size == SEGMENT


def test_distances_of_names_say_what_size_files_have(logs: Logs) -> None:
    logs.made(0, PAGE, 2 * PAGE, size=PAGE)
    log = logs.open(2 * PAGE + 10)
    assert (log.segment_bytes, len(log.segments)) == (PAGE, 3)


def test_names_in_the_logs_folder_are_synced_when_it_is_opened(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was killed may have made a file and not synced its name."""
    logs.made(0)
    synced: list[Any] = []
    monkeypatch.setattr(commit_log, "sync_directory", synced.append)
    logs.open(0)
    assert synced == [logs.folder]


# -- where it goes on ------------------------------------------------------------------------------------------------


def test_files_behind_the_end_go_and_the_one_that_begins_there_stays(logs: Logs) -> None:
    logs.made(0, SEGMENT, 2 * SEGMENT)
    log = logs.open(SEGMENT)
    assert logs.files() == [0, SEGMENT]
    assert append(log, b"record-1" * 2) == SEGMENT
    assert logs.files() == [0, SEGMENT]


def test_a_log_that_ends_with_its_last_file_goes_on_in_a_new_one(logs: Logs) -> None:
    logs.made(0)
    log = logs.open(SEGMENT)
    assert log.map is None
    assert append(log, b"record-1" * 2) == SEGMENT
    assert logs.files() == [0, SEGMENT]
    assert set(log.segments[0].map[:]) == {0}, "nothing is said in a file that has no place for it"


def test_a_file_made_ahead_is_dropped_where_the_log_begins_anew(logs: Logs) -> None:
    log = logs.open()
    append(log, b"record-1" * 2)
    log._next.make(logs.folder / file_name(SEGMENT), SEGMENT)
    log._next._made.result()  # type: ignore[union-attr]
    log.start_at(16)
    assert logs.files() == [0]


def test_the_next_file_is_made_when_little_is_left_and_has_the_name_that_follows(logs: Logs) -> None:
    log = logs.open(SEGMENT)
    log._ahead = PAGE
    log.prepare()
    append(log, bytes(SEGMENT - PAGE))
    log.prepare()
    assert logs.files() == [SEGMENT], "just as much as is wanted is left"
    append(log, b"x" * 16)
    log.prepare()
    assert log._next.take(logs.folder / file_name(2 * SEGMENT)) is not None
    assert logs.files() == [SEGMENT, 2 * SEGMENT]


def test_small_files_are_not_made_ahead_and_large_ones_a_quarter_before_their_end(logs: Logs) -> None:
    assert logs.open()._ahead == 0
    assert CommitLog(logs.folder, 16 * MEGA)._ahead == 4 * MEGA


# -- what is asked of the disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 100])
def test_space_behind_the_end_is_never_taken_for_granted(logs: Logs, asked: Asked, end: int) -> None:
    """What follows the end may be a hole: a store into one on a full disk would kill the process."""
    logs.made(0)
    log = logs.open(end)
    append(log, bytes(100))
    ((start, until),) = asked.reserved
    assert start <= end
    assert until >= end + 100 + 8


def test_the_last_word_of_a_file_has_its_space(logs: Logs, asked: Asked) -> None:
    logs.made(0)
    log = logs.open(PAGE)
    append(log, bytes(SEGMENT - PAGE))  # at once into the next
    assert log.segments[0].reserved >= PAGE + 8
    assert asked.reserved[-1][0] == PAGE
    assert log.segments[0].map[PAGE : PAGE + 8] == (SEGMENT - PAGE).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"


@pytest.mark.parametrize("by", ["record", "draft"])
def test_every_few_pages_those_written_are_given_back(
    logs: Logs, asked: Asked, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(commit_log, "_FORGET_EVERY", 2 * MEGA)
    monkeypatch.setattr(segment, "_FIRST_EXTENT", PAGE)
    logs.made(0, size=16 * MEGA)
    log = logs.open(3 * MEGA, 16 * MEGA)
    for _ in range(100):
        log.room(PAGE) if by == "record" else log.room_for_draft()
        log.segments[-1].reserved = log.end - log.base
        log.end += MEGA // 10
        log.limit = 0
    ends = [length for length in asked.forgotten if length]
    assert 4 <= len(ends) <= 6
    assert ends[0] > 5 * MEGA, "what was there when it was opened is not this run's"
    assert all(2 * MEGA <= later - end < 3 * MEGA for end, later in pairwise(ends))


def test_a_full_file_is_given_back_whole_and_the_next_begins_to_count_anew(
    logs: Logs, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "_FORGET_EVERY", 2 * PAGE)
    log = logs.open(SEGMENT)
    append(log, bytes(SEGMENT - 8))
    asked.expected.clear()
    append(log, bytes(100))
    assert asked.forgotten == [SEGMENT]
    assert asked.expected[0] == SEGMENT, "all of it will be read"
    assert asked.expected[1:], "and of the next one nothing is read ahead"
    for _ in range(2):
        log.limit = 0
        append(log, bytes(PAGE - 100))
    assert asked.forgotten == [SEGMENT]


def test_files_that_were_written_are_unmapped_when_there_are_too_many(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "_MAX_MAPPED", 3)
    log = logs.open()
    for _ in range(8):
        append(log, bytes(SEGMENT - 8))
        assert sum(each.mapped is not None for each in log.segments) <= 3
    kept = [each.mapped for each in log.segments[-3:]]
    for _ in range(5):
        for each in log.segments[-3:]:
            assert log.slice(each.base, 10) == bytes(10)
    assert [each.mapped for each in log.segments[-3:]] == kept, "those in use stay"
    gone = log.segments[0]
    log.slice(0, 10)
    assert log.delete_first() is gone
    assert gone not in log._mapped
    assert not gone.path.exists()


def test_room_for_a_run_is_what_has_space_less_a_last_word(logs: Logs, asked: Asked) -> None:
    log = logs.open(0, 4 * MEGA)
    append(log, bytes(100))
    assert log.room_for_draft() == log.segments[-1].reserved - 8
    assert log.segments[-1].reserved >= 100 + MEGA
    log.end = 4 * MEGA - 1000
    assert log.room_for_draft() == 4 * MEGA - 8
    asked.reserved.clear()
    assert log.room_for_draft() == 4 * MEGA - 8
    assert asked.reserved == [], "all there is is taken"
    asked.space = 0
    log = logs.open(0, 4 * MEGA)
    log.end = MEGA
    assert log.room_for_draft() == log.base + log.segments[-1].reserved - 8, (
        "what there is: nobody is told off"
    )


@pytest.mark.parametrize("size", [1, PAGE - 8, PAGE - 7, PAGE, PAGE + 1, 2 * PAGE])
def test_what_room_was_asked_for_may_be_filled(logs: Logs, asked: Asked, size: int) -> None:
    asked.space = 3 * PAGE  # no more than is needed
    log = logs.open()
    assert log.room(size) == 0
    assert size <= log.limit <= log.segments[-1].reserved - 8


def test_the_last_bytes_of_a_file_are_used(logs: Logs) -> None:
    log = logs.open()
    append(log, bytes(PAGE))
    for size, at in ((SEGMENT - PAGE - 8, PAGE), (SEGMENT - PAGE - 7, SEGMENT)):
        log.limit = 0
        assert log.room(size) == at
    log.close()
    assert log.map is None


@pytest.mark.parametrize(
    ("at", "size", "magic", "there", "is_one"),
    [
        (200, 91, MAGIC_V1, 200, True),
        (200, 91, MAGIC_V2, 200, True),
        (200, 90, MAGIC_V1, 200, False),
        (200, 91, MAGIC_BLANK, 200, False),
        (200, 91, MAGIC_V1 + 1, 200, False),
        (200, 91, MAGIC_V1, 201, False),
        (200, PAGE - 200, MAGIC_V1, 200, True),
        (200, PAGE - 199, MAGIC_V1, 200, False),  # past the log's end
        (SEGMENT - 91, 91, MAGIC_V1, SEGMENT - 91, True),
        (SEGMENT - 91, 92, MAGIC_V1, SEGMENT - 91, False),  # over the edge of the file
        (SEGMENT - 90, 91, MAGIC_V1, SEGMENT - 90, False),
    ],
)
def test_a_place_is_believed_when_all_of_its_words_fit(
    logs: Logs, at: int, size: int, magic: int, there: int, is_one: bool
) -> None:
    logs.made(0, SEGMENT)
    log = logs.open(2 * SEGMENT - 8)
    if at == 200:
        log.end = PAGE
    head = PLACE.pack(size, magic, 3, 7, there).ljust(56, b"\0") + (9).to_bytes(8, "big") + bytes(91)
    log.segments[0].map[at : at + 100] = head[: SEGMENT - at][:100].ljust(min(100, SEGMENT - at), b"\0")
    assert log.place(at) == (Place(size, 3, 7) if is_one else None)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and at + 91 <= SEGMENT
    assert log.store_time(at) == (9 if is_record else -1)


# -- a record is there when its first eight bytes are ----------------------------------------------------------------


class Told:
    """Stands for the map and notes the order of stores."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.stores: list[tuple[int, int]] = []

    def __setitem__(self, place: slice, data: Any) -> None:
        self.stores.append((place.start, place.stop))
        self.real[place] = data

    def __getitem__(self, place: slice) -> Any:
        return self.real[place]


def test_the_first_bytes_of_a_record_are_stored_last(logs: Logs) -> None:
    log = logs.open()
    append(log, bytes(16))
    log.map = told = Told(log.map)  # type: ignore[assignment]
    append(log, b"record-2" * 10)
    assert told.stores == [(24, 96), (16, 24)]


@pytest.mark.parametrize("many", [1, 3])
def test_the_first_bytes_of_what_is_appended_are_stored_last(kit: Any, many: int) -> None:
    store = kit.open()
    store.append(kit.message())
    begin = store.log_max
    store._log.map = told = Told(store._log.map)
    if many == 1:
        store.append(kit.message())
    else:
        store.append_batch([kit.message() for _ in range(many)])
    assert told.stores == [(begin + 8, store.log_max), (begin, begin + 8)]


@pytest.mark.parametrize(
    ("start", "size", "calls"),
    [
        (PAGE, 4095, []),
        (PAGE, 4096, [(PAGE + 8, 2 * PAGE), (PAGE, PAGE + 8)]),
        (2 * PAGE - 8, 4096, [(2 * PAGE, 3 * PAGE - 8), (2 * PAGE - 8, 2 * PAGE)]),
        (2 * PAGE - 7, 4096, [(2 * PAGE + 1, 3 * PAGE - 7)]),
    ],
)
def test_many_bytes_past_the_pages_that_are_ready_go_by_a_call(
    logs: Logs, asked: Asked, start: int, size: int, calls: list[tuple[int, int]]
) -> None:
    """Eight bytes over the edge of a page would be two writes, of which one can get lost: these are stored."""
    log = logs.open()
    append(log, bytes(start))
    data = b"12345678" + b"r" * (size - 8)
    asked.written.clear()
    log.limit = log.end
    log.publish(log.end, data)
    assert asked.written == calls
    assert log.segments[0].map[start : start + size] == data
    asked.written.clear()
    log.limit = log.end + size
    log.publish(log.end, data)
    assert asked.written == [], "into pages that are ready it is a copy"


@pytest.mark.parametrize("taken", [0, 1, 100, -1])
def test_what_a_call_does_not_take_is_stored(logs: Logs, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    log, pwrite = logs.open(), os.pwrite
    append(log, bytes(100))
    data, log.limit = bytes(range(1, 251)) * 20, log.end

    def short(fd: int, view: Any, at: int) -> int:
        if not is_under(logs.folder, fd):
            return pwrite(fd, view, at)
        if taken < 0:
            raise OSError(errno.EIO, "no")
        return pwrite(fd, bytes(view)[:taken], at)

    monkeypatch.setattr(os, "pwrite", short)
    log.publish(log.end, data)
    assert log.segments[0].map[100 : 100 + len(data)] == data


# -- a file of it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Segment]:
    found = Segment(tmp_path / file_name(SEGMENT), 64 * MEGA)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("0" * 20, True),
        ("00000000001073741824", True),
        ("0" * 19, False),
        ("0" * 21, False),
        ("0" * 19 + "x", False),
        ("٠" * 20, False),
        ("", False),
    ],
)
def test_a_file_of_the_log_has_twenty_digits(name: str, holds: bool) -> None:
    assert is_position(name) is holds


@pytest.mark.parametrize("size", [0, 1, 64 * MEGA, 65 * MEGA])
def test_a_file_has_its_size_from_the_start(file: Segment, size: int) -> None:
    with file.path.open("wb") as before:
        before.truncate(size)
    assert (os.fstat(file.fd).st_size, file.base) == (64 * MEGA, SEGMENT)


def test_space_is_taken_in_growing_pieces(file: Segment, asked: Asked) -> None:
    for end in (1, MEGA, MEGA + 1, 3 * MEGA, 35 * MEGA, 50 * MEGA, 64 * MEGA):
        file.reserve(end)
    pieces = [0, 1, 2, 4, 35, 51, 64]
    assert asked.reserved == [(start * MEGA, end * MEGA) for start, end in pairwise(pieces)]
    assert file.reserved == 64 * MEGA


def test_a_disk_without_space_for_a_piece_may_have_it_for_a_record(file: Segment, asked: Asked) -> None:
    asked.space = PAGE
    file.reserve(100)
    assert (asked.reserved, file.reserved) == ([(0, PAGE)], PAGE)
    file.reserve(PAGE + 1)
    assert (asked.reserved[1:], file.reserved) == ([(PAGE, 2 * PAGE)], 2 * PAGE)
    with pytest.raises(DiskFull):
        file.reserve(3 * PAGE + 1)
    assert file.reserved == 2 * PAGE
    asked.space = 1 << 62
    file.reserve(64 * MEGA - 1)
    asked.space = 64 * MEGA - file.reserved
    file.reserve(64 * MEGA)
    assert file.reserved == 64 * MEGA


@pytest.mark.parametrize(
    ("number", "is_full"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EFBIG, True), (errno.EIO, False)],
)
def test_a_disk_that_is_full_is_told_from_one_that_is_broken(
    file: Segment, monkeypatch: pytest.MonkeyPatch, number: int, is_full: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(platform, "reserve", refuse)
    with pytest.raises(StoreError) as refused:
        file.reserve(1)
    assert isinstance(refused.value, DiskFull) is is_full
    assert file.reserved == 0


def test_nothing_is_read_ahead_in_what_is_about_to_be_written(file: Segment, asked: Asked) -> None:
    file.reserve(1)
    assert asked.expected == [], "nothing is mapped"
    assert file.map[0] == 0
    file.reserve(MEGA + 1)
    assert asked.expected == [MEGA]
    file.written_from(2 * PAGE - 1)
    assert asked.expected == [MEGA, PAGE]


@pytest.mark.parametrize(("end", "length"), [(PAGE, PAGE), (2 * PAGE - 1, PAGE), (PAGE - 1, 0), (0, 0)])
def test_whole_pages_are_given_back(file: Segment, asked: Asked, end: int, length: int) -> None:
    file.forget_pages(end)
    assert asked.forgotten == [], "nothing is mapped"
    assert file.map[0] == 0
    file.forget_pages(end)
    assert asked.forgotten == ([length] if length else [])


def test_what_was_cut_has_neither_bytes_nor_space_nor_pages(file: Segment, asked: Asked) -> None:
    file.reserve(3 * PAGE)
    file.make_pages(0, 3 * PAGE)
    file.map[: 3 * PAGE] = b"r" * 3 * PAGE
    file.cut(PAGE + 5)
    assert file.mapped is None
    assert file.path.stat().st_size == 64 * MEGA
    assert (file.reserved, file.paged) == (PAGE + 5, PAGE + 5)
    assert file.map[: 3 * PAGE] == b"r" * (PAGE + 5) + bytes(2 * PAGE - 5)
    file.cut(2 * PAGE)
    assert (file.reserved, file.paged) == (PAGE + 5, PAGE + 5)


def test_pages_end_where_space_does(file: Segment, asked: Asked) -> None:
    asked.space = PAGE
    file.reserve(PAGE)
    assert file.make_pages(0, 100) == PAGE
    assert asked.written == [(0, PAGE)]
    asked.space = MEGA
    file.reserve(MEGA)
    asked.written.clear()
    assert file.make_pages(PAGE, PAGE) == PAGE, "there are enough"
    assert asked.written == []
    assert file.make_pages(PAGE + 1, 2 * PAGE + 300) == 2 * PAGE + (256 << 10)
    assert asked.written == [(2 * PAGE, 2 * PAGE + (256 << 10))], "nothing is written over"


def test_pages_that_are_ready_are_not_made_again(file: Segment, asked: Asked) -> None:
    file.reserve(2 * MEGA)
    ready = file.make_pages(0, 100)
    assert (asked.written, ready) == ([(0, ready)], 256 << 10)
    assert file.make_pages(200, 300) == ready
    assert len(asked.written) == 1
    assert file.make_pages(ready, ready + MEGA) == ready + MEGA, "as far as is asked for"


def test_no_page_is_ready_past_the_space_of_a_file_of_odd_size(tmp_path: Path) -> None:
    odd = Segment(tmp_path / file_name(0), PAGE + 100)
    odd.reserve(PAGE + 100)
    assert odd.make_pages(PAGE + 50, PAGE + 80) == PAGE + 100
    odd.close()


def test_a_file_can_be_closed_and_deleted_twice_and_is_opened_again_when_it_is_used(file: Segment) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file.map[:5] = b"bytes"
    view = memoryview(file.map)
    file.close()
    file.close()
    assert (bytes(view[:5]), file.mapped) == (b"bytes", None), "who still sends it keeps it"
    view.release()
    assert file.map[:5] == b"bytes"
    file.delete()
    file.delete()
    assert not file.path.exists()
    assert len(os.listdir("/proc/self/fd")) == before


# -- one made ahead --------------------------------------------------------------------------------------------------


def test_a_file_made_ahead_has_space_and_a_name_that_stays(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Any] = []
    monkeypatch.setattr(next_segment, "sync_directory", synced.append)
    ahead = NextSegment()
    for n, size in enumerate((4 * MEGA, PAGE)):
        path = tmp_path / file_name(n)
        ahead.make(path, size)
        found = ahead.take(path)
        assert found is not None
        assert (found.path, found.size, found.reserved) == (path, size, min(size, MEGA))
        found.close()
    assert synced == [tmp_path, tmp_path]
    ahead.close()


def test_another_file_is_made_instead_of_one_that_is_not_wanted_any_more(tmp_path: Path) -> None:
    ahead, first, second = NextSegment(), tmp_path / file_name(0), tmp_path / file_name(1)
    ahead.make(first, PAGE)
    ahead.make(second, PAGE)
    assert ahead.take(first) is None
    ahead._made.result()  # type: ignore[union-attr]
    assert os.listdir(tmp_path) == [second.name]
    ahead.close()
    assert os.listdir(tmp_path) == []
    assert ahead.take(second) is None


@pytest.mark.parametrize("refusal", [StoreError("no"), DiskFull("no"), OSError(5, "no")])
def test_a_file_that_cannot_be_made_ahead_is_none_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    def refuse(*_: Any) -> None:
        raise refusal

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as broken:
        broken.setattr(Segment if isinstance(refusal, StoreError) else next_segment,
                       "reserve" if isinstance(refusal, StoreError) else "sync_directory", refuse)  # fmt: skip
        assert next_segment._made(tmp_path / file_name(0), PAGE) is None
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before
