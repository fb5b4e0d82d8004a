# SPDX-License-Identifier: Apache-2.0
"""Queue and log files read as they lie on disk, each made here unit by unit. No Spark, no store."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aerobee.spark import options
from aerobee.spark.reading import store_scan
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.store_scan import UNIT, Log, Queue, RecordPlaces, StoreQueues, store_root

if TYPE_CHECKING:
    from pathlib import Path

FILLER = (0, 0x7FFFFFFF, 0)
EMPTY = (0, 0, 0)


def unit(n: int) -> tuple[int, int, int]:
    return (n * 100, 100, n % 3)


def write(folder: Path, first: int, *units: tuple[int, int, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{first * 20:020d}").write_bytes(b"".join(struct.pack(">qiq", *each) for each in units))


def positions(found: np.ndarray) -> list[int]:
    return [int(at) for at in found["position"]]


@pytest.mark.parametrize(
    ("files", "bounds"),
    [
        ({}, (0, 0)),
        ({0: [unit(0)]}, (0, 1)),
        ({0: [unit(0), unit(1), EMPTY]}, (0, 2)),
        ({0: [EMPTY, EMPTY]}, (0, 0)),
        ({10: [unit(10), unit(11)], 12: [unit(12), EMPTY]}, (10, 13)),
        (
            {10: [unit(10), unit(11)], 12: [EMPTY, EMPTY]},
            (10, 12),
        ),  # the next file is there before its first unit
        ({10: [unit(10), unit(11)], 12: []}, (10, 12)),
        ({10: [FILLER, FILLER, unit(12)], 13: [unit(13)]}, (12, 14)),
        ({10: [FILLER, unit(11)]}, (11, 12)),
        ({10: [EMPTY, EMPTY], 12: [EMPTY]}, (10, 10)),
        ({10: []}, (10, 10)),
    ],
)
def test_a_queue_begins_and_ends_where_its_files_say(
    tmp_path: Path, files: dict[int, list[tuple[int, int, int]]], bounds: tuple[int, int]
) -> None:
    for first, units in files.items():
        write(tmp_path / "0", first, *units)
    if files:
        (tmp_path / "0" / "notes.txt").write_text("no file of the queue")
    assert Queue(tmp_path / "0").bounds == bounds


@pytest.mark.parametrize(
    "gap", [store_scan.UNITS_AT_ONCE - 1, store_scan.UNITS_AT_ONCE, 2 * store_scan.UNITS_AT_ONCE + 1]
)
def test_a_long_gap_is_stepped_over(tmp_path: Path, gap: int) -> None:
    units = np.zeros(gap + 2, UNIT)
    units["size"][:gap] = 0x7FFFFFFF
    units["size"][gap:] = 100
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / f"{0:020d}").write_bytes(units.tobytes())
    assert Queue(tmp_path / "0").bounds == (gap, gap + 2)


@pytest.mark.parametrize("length", range(9))
def test_the_units_that_are_written_are_counted(length: int) -> None:
    units = np.array([unit(n) if n < length else EMPTY for n in range(8)], UNIT)
    assert store_scan._used(units) == min(length, 8)


def three_files(folder: Path) -> Queue:
    for first in (10, 14, 18):
        write(folder, first, *(unit(n) for n in range(first, first + 4)))
    return Queue(folder)


@pytest.mark.parametrize(
    ("start", "end"),
    [(10, 22), (10, 11), (13, 15), (14, 18), (13, 19), (21, 22), (12, 12), (5, 12), (20, 40), (1, 3)],
)
def test_units_and_places_are_those_of_their_offsets(tmp_path: Path, start: int, end: int) -> None:
    queue = three_files(tmp_path / "0")
    wanted = [n * 100 for n in range(max(start, 10), min(end, 22))]
    assert positions(queue.units(start, end)) == wanted
    assert queue.positions(start, end, 1).tolist() == wanted
    sampled = queue.positions(start, end, 3).tolist()
    assert sampled == [
        at
        for first in (10, 14, 18)
        for at in [n * 100 for n in range(max(start, first), min(end, first + 4))][::3]
    ]


def test_units_of_a_file_that_went_meanwhile_are_missing(tmp_path: Path) -> None:
    queue = three_files(tmp_path / "0")
    (tmp_path / "0" / f"{14 * 20:020d}").unlink()
    assert positions(queue.units(12, 20)) == [1200, 1300, 1800, 1900]
    assert queue.positions(12, 20, 1).tolist() == [1200, 1300, 1800, 1900]
    gone = three_files(tmp_path / "1")
    for file in (tmp_path / "1").iterdir():
        file.unlink()
    assert gone.bounds == (0, 0)


def test_units_that_stand_for_no_message_are_left_out_and_tags_are_compared() -> None:
    units = np.array([unit(0), EMPTY, FILLER, unit(4), unit(8), (900, -5, 0)], UNIT)
    assert positions(store_scan.real_units(units)) == [0, 400, 800]
    whole = np.array([unit(0), unit(1)], UNIT)
    assert store_scan.real_units(whole) is whole
    found = store_scan._places(units, frozenset({1, -7}))
    assert (found.position.tolist(), found.size.tolist()) == ([400], [100])
    assert store_scan._places(units, None).position.tolist() == [0, 400, 800]
    assert len(store_scan._places(units, frozenset()).position) == 0


def test_places_are_cut_and_joined() -> None:
    four = RecordPlaces(np.array([1, 2, 3, 4]), np.array([10, 20, 30, 40]))
    assert [each.tolist() for each in four.upto(1)] == [[1], [10]]
    assert [each.tolist() for each in four.after(1)] == [[2, 3, 4], [20, 30, 40]]
    assert [each.tolist() for each in four.upto(1).joined(four.after(3))] == [[1, 4], [10, 40]]
    merged = store_scan._merged(
        [four.after(2), RecordPlaces(np.array([0, 9]), np.array([5, 95])), four.upto(2)]
    )
    assert [each.tolist() for each in merged] == [[0, 1, 2, 3, 4, 9], [5, 10, 20, 30, 40, 95]]


@pytest.mark.parametrize(
    ("rows", "size", "cuts"),
    [
        (10, 1_000, [(0, 4)]),
        (10, 100, [(0, 4)]),
        (10, 99, [(0, 4)]),  # the row with which the bytes pass it still belongs to it
        (10, 60, [(0, 3), (3, 4)]),
        (10, 61, [(0, 4)]),
        (10, 10, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (10, 11, [(0, 2), (2, 3), (3, 4)]),
        (10, 1, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (3, 1_000, [(0, 3), (3, 4)]),
        (1, 1_000, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (2, 10, [(0, 1), (1, 2), (2, 3), (3, 4)]),
    ],
)
def test_a_batch_is_closed_by_its_rows_or_when_its_bytes_pass_the_size(
    rows: int, size: int, cuts: list[tuple[int, int]]
) -> None:
    sizes = np.array([10, 20, 30, 40])
    assert list(store_scan._cuts(sizes, rows, size)) == cuts
    assert list(store_scan._cuts(sizes[:0], rows, size)) == []


# -- the log ----------------------------------------------------------------------------------------------------


def record(flag: int, stored: int) -> bytes:
    born_host = bytes(20) if flag & 0x10 else bytes(8)
    return bytes(36) + struct.pack(">iq", flag, 7) + born_host + struct.pack(">q", stored) + bytes(30)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two files of 300 bytes, the first of which begins at 600."""
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{600:020d}").write_bytes((record(0, 11) + record(0x10, 12)).ljust(300, b"\0"))
    (folder / f"{900:020d}").write_bytes(record(0x20, 13))
    (folder / "abort").write_bytes(b"")
    return Log(tmp_path)


def test_a_record_tells_when_it_was_stored(log: Log) -> None:
    assert log.starts.tolist() == [600, 900]
    first = len(record(0, 0))
    assert log.store_time(600) == 11
    assert log.store_time(600 + first) == 12, "its host takes more room"
    assert log.store_time(900) == 13
    assert log.store_time(599) is None
    assert log.store_time(900 + len(record(0x20, 0)) - 10) is None, "it is cut off"


def test_one_log_file_is_mapped_at_a_time(log: Log) -> None:
    assert len(log.bytes(0)) == 300
    assert log.bytes(0) is log.bytes(0)
    assert len(log.bytes(1)) == len(record(0, 0))
    assert log.bytes(1) is log.bytes(1)
    assert len(log.bytes(0)) == 300


def test_a_time_stamp_that_is_only_just_there_is_read(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for flag, size in ((0, 64), (0x10, 76)):
        (tmp_path / "commitlog" / f"{0:020d}").write_bytes(record(flag, 5)[:size])
        assert Log(tmp_path).store_time(0) == 5
        (tmp_path / "commitlog" / f"{0:020d}").write_bytes(record(flag, 5)[: size - 1])
        assert Log(tmp_path).store_time(0) is None


def test_the_store_is_found_in_its_folder_or_in_the_one_around_it(tmp_path: Path) -> None:
    (tmp_path / "data" / "store" / "commitlog").mkdir(parents=True)
    assert store_root(str(tmp_path / "data")) == tmp_path / "data" / "store"
    assert store_root(str(tmp_path / "data" / "store")) == tmp_path / "data" / "store"
    (tmp_path / "data" / "commitlog").mkdir()
    assert store_root(str(tmp_path / "data")) == tmp_path / "data", "the nearest wins"


def test_topics_and_queues_are_the_folders_that_are_named_so(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert StoreQueues(str(tmp_path)).topics() == []
    write(tmp_path / "consumequeue" / "t" / "10", 0, unit(0))
    write(tmp_path / "consumequeue" / "t" / "2", 3, unit(3), unit(4))
    (tmp_path / "consumequeue" / "t" / "lost+found").mkdir()
    (tmp_path / "consumequeue" / "file").write_text("")
    source = StoreQueues(str(tmp_path))
    assert source.topics() == ["t"]
    assert source.queues("t") == {"store": {"10": (0, 1), "2": (3, 5)}}
    look = source.look(["t"], frozenset({("u", "store")}))
    assert (look.failed, look.gone) == ({}, frozenset({("u", "store")}))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loss_is_told_with_its_first_ranges(count: int, caplog: pytest.LogCaptureFixture) -> None:
    parts = [Range("t", "b", n, n, n + 5) for n in range(4)]
    named = "t/0 0..5, t/1 1..6, t/2 2..7"
    strict, tolerant = (
        options.for_batch({"storePath": "x", "subscribe": "t", "failOnDataLoss": each}) for each in ("true", "false")
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        store_scan.report_lost(count, parts, "went", tolerant)
    assert [each.message for each in caplog.records] == (
        [f"{count} messages of {named} went"] if count else []
    )
    if not count:
        store_scan.report_lost(count, parts, "went", strict)
        return
    with pytest.raises(DataLoss) as caught:
        store_scan.report_lost(count, parts, "went", strict)
    assert str(caught.value) == (
        f"{count} messages of {named} went. Set failOnDataLoss=false to go on with what is there"
    )
