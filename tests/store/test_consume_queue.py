# SPDX-License-Identifier: Apache-2.0
"""One consume queue against a list of units: put, written to files, read over every seam, trimmed, begun again."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store import consume_queue, platform
from aerobee.store.consume_queue import FILLER, FILLER_SIZE, UNIT, ConsumeQueue, Shelf
from aerobee.store.open_files import OpenFiles
from aerobee.store.queue_sums import QueueSums

if TYPE_CHECKING:
    from pathlib import Path

UNITS = 4  # of a file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("queue")


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "sync_data", lambda fd: None)


def made(folder: Path) -> ConsumeQueue:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shelf = Shelf(UNITS, OpenFiles(3), QueueSums(folder / "sums"))
    return ConsumeQueue("t", 7, str(folder / "t" / "7"), shelf)


def unit(physical: int, size: int = 100, code: int = 5) -> bytes:
    return UNIT.pack(physical, size, code)


def on_disk(queue: ConsumeQueue) -> dict[int, bytes]:
    """What the files hold, by their first unit."""
    found = {}
    for start in queue.file_starts():
        with open(queue.path(start), "rb") as file:
            found[start] = file.read()
    return found


class Model:
    """Units by offset; `first` is the oldest that a file has."""

    def __init__(self) -> None:
        self.units: dict[int, bytes] = {}
        self.first = 0
        self.end = 0
        self.position = 0

    def put(self, offset: int) -> bytes:
        self.position += 100
        new = unit(self.position)
        if offset < self.end:
            self.units, self.first, self.end = {}, 0, 0
        if offset > self.end:
            if not self.end:
                self.first = self.end = offset - offset % UNITS
                filler = FILLER
            else:
                filler = UNIT.pack(self.position, FILLER_SIZE, 0)
            for at in range(self.end, offset):
                self.units[at] = filler
        self.units[offset] = new
        self.end = offset + 1
        return new

    def read(self, offset: int, count: int) -> bytes:
        return b"".join(self.units[at] for at in range(offset, min(offset + count, self.end)))

    def kept_from(self, log_min: int) -> int:
        def is_gone(at: int) -> bool:
            physical, size, _ = UNIT.unpack(self.units[at])
            return bool(physical < log_min or (size == FILLER_SIZE and not physical))

        return next((at for at in range(self.first, self.end) if not is_gone(at)), self.end)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9)),  # so far behind the end
        st.tuples(st.just("again"), st.integers(0, 6)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("replace"), st.integers(0, 30)),
        st.tuples(st.just("trim"), st.integers(0, 30)),
        st.tuples(st.just("drop"), st.integers(0, 30)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_it_behaves_like_a_list_of_units(folder: Path, steps: list[tuple[str, int]]) -> None:
    queue, model = made(folder), Model()
    log_min = 0
    for step, number in steps:
        if step == "put":
            far = number - 5 if number > 6 else 0  # mostly the very next
            offset = model.end + far
            queue.put(offset, model.put(offset))
        elif step == "again" and number < model.end:
            log_min = 0
            queue.put(number, model.put(number))
        elif step == "write":
            paths = queue.write_tail()
            assert len(paths) == len(set(paths))
            assert queue.written == model.end
        elif step == "replace" and model.end > model.first:
            offset = model.first + number % (model.end - model.first)
            physical = UNIT.unpack(model.units[offset])[0]
            if not physical:  # what fills the place of messages that were never here stays
                continue
            model.units[offset] = unit(physical, 77, 6)
            before = queue.written
            path = queue.replace(offset, model.units[offset])
            assert path == (queue.path(offset) if offset < before else "")
        elif step == "trim":
            log_min = max(log_min, number * 100)
            model.position = max(model.position, log_min)  # what comes is behind all that is gone
            queue.trim(log_min)
            while model.first + UNITS < queue.written:
                if UNIT.unpack(model.units[model.first + UNITS - 1])[0] >= log_min:
                    break
                model.first += UNITS
        elif step == "drop" and queue.file_starts():
            start = queue.file_starts()[number % len(queue.file_starts())]
            if start == queue.file_starts()[0]:
                model.units, model.first, model.end, log_min = {}, 0, 0, 0
            else:
                model.end = start
            queue.drop_from(start)
        check(queue, model, log_min)
    queue.files.close()


def check(queue: ConsumeQueue, model: Model, log_min: int) -> None:
    assert (queue.first_unit, queue.max_offset) == (model.first, model.end)
    for offset, count in ((model.first, 99), (model.end - 1, 5), (model.first + 1, 2), (model.first + 3, 6)):
        if model.first <= offset < model.end:
            assert queue.read(offset, count) == model.read(offset, count)
            assert tuple(queue.unit(offset) or ()) == UNIT.unpack(model.units[offset])
    assert queue.unit(model.end) is None
    assert queue.unit(model.first - 1) is None
    assert queue.kept_from(log_min) == model.kept_from(log_min)
    sums = {file.start: file for file in queue.sums.of("t", 7)}
    assert sorted(sums) == queue.file_starts()
    for start, data in on_disk(queue).items():
        units = min(UNITS, queue.written - start)
        assert data == model.read(start, units).ljust(UNITS * 20, b"\0")
        assert (sums[start].units, sums[start].crc) == (units, zlib.crc32(data[: units * 20]))


def test_what_was_put_since_is_told_by_its_place_in_the_log(folder: Path) -> None:
    queue = made(folder)
    assert not queue.moved_since(0)
    queue.put(0, unit(500))
    assert [queue.moved_since(at) for at in (499, 500, 501)] == [True, True, False]
    queue.write_tail()
    assert [queue.moved_since(at) for at in (499, 500, 501)] == [True, True, False]
    queue.put(1, unit(700))
    queue.put(2, unit(900))
    assert [queue.moved_since(at) for at in (900, 901)] == [True, False]
    queue.files.close()


def test_a_large_hole_is_filled_some_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_queue, "_FILL_AT_ONCE", 6)
    queue = made(folder)
    queue.put(0, unit(100))
    paths = queue.put(20, unit(300))
    assert set(paths) == {queue.path(start) for start in (0, 4, 8, 12, 16)}
    assert len(queue.tail) == 20, "the unit itself waits"
    assert queue.read(0, 99) == unit(100) + UNIT.pack(300, FILLER_SIZE, 0) * 19 + unit(300)
    queue.files.close()


@pytest.mark.parametrize(
    ("taken", "kept"), [(0, 0), (19, 0), (20, 1), (39, 1), (40, 2), (79, 3)], ids=lambda each: str(each)
)
def test_a_full_disk_keeps_what_it_did_not_take_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, taken: int, kept: int
) -> None:
    queue = made(folder)
    for n in range(6):
        queue.put(n, unit(100 * (n + 1)))
    real, left = platform.pwrite, [taken]

    def pwrite(fd: int, data: bytes, at: int) -> int:
        done = min(len(data), left[0])
        left[0] -= done
        return real(fd, data[:done], at) if done else 0

    with monkeypatch.context() as patch:
        patch.setattr(platform, "pwrite", pwrite)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            queue.write_tail()
    assert queue.written == kept
    assert queue.read(0, 6) == b"".join(unit(100 * (n + 1)) for n in range(6))
    queue.write_tail()
    assert queue.written == 6
    assert queue.read(0, 6) == b"".join(unit(100 * (n + 1)) for n in range(6))
    assert [file.units for file in queue.sums.of("t", 7)] == [4, 2]
    queue.files.close()


def test_what_is_no_longer_served_is_kept_all_the_same(folder: Path) -> None:
    queue = made(folder)
    for n in range(10):
        queue.put(n, unit(100 * (n + 1)))
    queue.served_from = 5
    assert (queue.min_offset(0), queue.kept_from(0)) == (5, 0)
    assert (queue.min_offset(801), queue.kept_from(801)) == (8, 8)
    assert queue.next_file(5) == 8
    assert queue.next_file(4) == 8
    queue.write_tail()
    queue.drop_from(4)
    assert (queue.served_from, queue.max_offset, queue.min_offset(0)) == (4, 4, 4)
    queue.remove_files()
    assert (queue.served_from, queue.max_offset, queue.file_starts()) == (0, 0, [])
    assert queue.sums.of("t", 7) == ()
    queue.files.close()


def test_a_read_ends_where_a_file_is_gone_or_cut(folder: Path) -> None:
    queue = made(folder)
    for n in range(12):
        queue.put(n, unit(100 * (n + 1)))
    queue.write_tail()
    every = queue.read(0, 12)
    os.truncate(queue.path(4), 50)
    assert queue.read(0, 12) == every[: 6 * 20]
    assert queue.read(6, 3) == b""
    queue.files.drop(queue.path(4))
    os.unlink(queue.path(4))
    assert queue.read(2, 9) == every[2 * 20 : 4 * 20]
    assert queue.read(5, 1) == b""
    assert queue.unit(5) is None
    assert queue.read(8, 99) == every[8 * 20 :]
    queue.files.close()


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    files = OpenFiles(2)
    for name in "abc":
        files.created(f"{tmp_path}/x/{name}", 10)
        assert os.stat(f"{tmp_path}/x/{name}").st_size == 10
    assert len(files) == 2
    assert files.changed_directories == {f"{tmp_path}/x", str(tmp_path)}
    fd = files.existing(f"{tmp_path}/x/b")
    files.existing(f"{tmp_path}/x/a")  # c was asked for longer ago than b
    assert files.existing(f"{tmp_path}/x/b") == fd
    files.drop(f"{tmp_path}/x/b")
    files.drop(f"{tmp_path}/x/none")
    assert len(files) == 1
    with pytest.raises(FileNotFoundError):
        files.existing(f"{tmp_path}/x/none")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    files.close()
    assert len(files) == 0
    one: Any = OpenFiles(0)
    one.created(f"{tmp_path}/x/a", 10)
    assert len(one) == 1, "the one in use"
    one.close()


def test_who_asked_a_queue_before_it_had_anything_is_told_anew_where_it_begins(folder: Path) -> None:
    queue = made(folder)
    assert (queue.min_offset(0), queue.kept_from(0)) == (0, 0)
    queue.put(9, unit(100))
    assert (queue.min_offset(0), queue.max_offset) == (9, 10)
