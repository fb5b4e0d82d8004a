# SPDX-License-Identifier: Apache-2.0
"""One file of the log, and the one that is made ahead: its size, space and pages, and what is left of it."""

from __future__ import annotations

import errno
import mmap
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, StoreError
from aerobee.store import next_segment, platform
from aerobee.store.commit_log import file_name
from aerobee.store.next_segment import NextSegment
from aerobee.store.segment import Segment, is_position
from tests.store.asked import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = mmap.PAGESIZE
SEGMENT = 4 * PAGE
MEGA = 1 << 20


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(tmp_path, monkeypatch)


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
    assert asked.expected == [], "it is not said what is written"
    file.reserve_for(MEGA, 3 * PAGE)
    assert asked.expected == [], "there was space"
    file.reserve_for(MEGA + 1, 3 * PAGE + 1)
    assert asked.expected == [3 * PAGE]
    file.written_from(2 * PAGE - 1)
    assert asked.expected == [3 * PAGE, PAGE]


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
