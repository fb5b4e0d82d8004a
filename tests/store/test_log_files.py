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

from aerobee.protocol.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from aerobee.store import commit_log, segment
from aerobee.store.commit_log import PLACE, CommitLog, Place, file_name
from tests.own_files import is_under
from tests.store.asked import SEGMENT, Asked, Logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = mmap.PAGESIZE
MEGA = 1 << 20


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


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("first", [PAGE, 100, 2 * SEGMENT])
def test_distances_of_names_say_what_size_files_have(logs: Logs, count: int, first: int) -> None:
    """Whatever they have, one that was cut short or copied with more."""
    logs.made(*range(PAGE, count * PAGE, PAGE), size=PAGE)
    logs.made(0, size=first)
    log = logs.open((count - 1) * PAGE + 10)
    assert (log.segment_bytes, len(log.segments)) == (PAGE, count)


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


def test_in_a_later_file_nothing_is_read_ahead_from_where_its_own_records_end(
    logs: Logs, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "_FIRST_EXTENT", PAGE)
    log = logs.open(SEGMENT)
    append(log, bytes(SEGMENT - 8))
    append(log, bytes(PAGE))
    asked.expected.clear()
    append(log, bytes(PAGE))
    assert (asked.expected, log.end - log.base) == ([PAGE], 2 * PAGE)


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
