# SPDX-License-Identifier: Apache-2.0
"""A store directory cut into stretches of its log, one for each task, and queues read from their files."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.protocol.message import Record
from aerobee.spark.reading import store_scan
from aerobee.spark.reading.plan import Range
from aerobee.spark.reading.store_scan import Queue, physical_split, real_units

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUEUES, COUNT = 3, 300


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.spark.conftest import _write_store

    found = tmp_path_factory.mktemp("stretches") / "store"
    _write_store(found, [Record("t", b"x" * (n % 50), "", queue_id=n % 7 % QUEUES) for n in range(COUNT)])
    return found


def queue(root: Path, number: int) -> Queue:
    return Queue(root / "consumequeue" / "t" / str(number))


def whole(root: Path) -> list[Range]:
    return [Range("t", "store", number, *queue(root, number).bounds) for number in range(QUEUES)]


@pytest.mark.parametrize("samples", [200_000, 10])
@settings(max_examples=25, deadline=None)
@given(
    tasks=st.integers(1, 12),
    cuts=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 130)), min_size=3, max_size=3),
)
def test_tasks_have_every_offset_once_and_one_stretch_of_the_log_each(
    root: Path, samples: int, tasks: int, cuts: list[tuple[int, int]]
) -> None:
    before, store_scan.SAMPLES = store_scan.SAMPLES, samples
    try:
        parts = [
            Range("t", "store", part.queue, start, min(part.end, start + length))
            for part, (start, length) in zip(whole(root), cuts, strict=True)
            if start < min(part.end, start + length)
        ]
        groups = physical_split(root, parts, tasks)
    finally:
        store_scan.SAMPLES = before
    assert len(groups) <= tasks
    assert all(groups)
    read = [(p.queue, at) for group in groups for p in group for at in range(p.start, p.end)]
    assert sorted(read) == sorted((p.queue, at) for p in parts for at in range(p.start, p.end))
    stretches = []
    for group in groups:
        positions = [int(at) for p in group for at in queue(root, p.queue).units(p.start, p.end)["position"]]
        stretches.append((min(positions), max(positions)))
    assert all(earlier[1] < later[0] for earlier, later in itertools.pairwise(stretches))


def test_tasks_are_of_about_equal_size(root: Path) -> None:
    groups = physical_split(root, whole(root), 5)
    assert [sum(map(len, group)) for group in groups] == [60] * 5


def test_queues_whose_files_went_away_after_the_plan_are_still_read_and_so_missed(
    root: Path, tmp_path: Path
) -> None:
    parts = whole(root)
    copy = tmp_path / "store"
    shutil.copytree(root, copy)
    shutil.rmtree(copy / "consumequeue" / "t")
    for tasks in (1, 4):
        groups = physical_split(copy, parts, tasks)
        assert sorted(part for group in groups for part in group) == parts
    assert physical_split(copy, [], 4) == []


def test_the_first_offset_at_a_place_of_the_log_is_found(root: Path) -> None:
    for number in range(QUEUES):
        units = queue(root, number).units(*queue(root, number).bounds)["position"].tolist()
        for at in {0, 1, *units, *(position + 1 for position in units)}:
            for low, high in ((0, len(units)), (10, 40), (40, 40)):
                expected = next((n for n in range(low, high) if units[n] >= at), high)
                assert queue(root, number).first_at(at, low, high) == expected


def test_units_are_those_of_their_offsets_whichever_file_holds_them(root: Path) -> None:
    one = queue(root, 0)
    low, high = one.bounds
    assert low == 0
    every = one.units(low, high)
    assert len(every) == high == len(real_units(every))
    for start, end in ((0, 1), (49, 51), (50, 100), (10, high), (high - 1, high + 30)):
        assert (
            one.units(start, end)["position"].tolist()[: high - start]
            == every["position"][start:end].tolist()
        )
        found = one.positions(start, min(end, high), 7).tolist()
        assert set(found) <= set(every["position"][start:end].tolist())
        assert found[0] == every["position"][start]
    assert len(one.units(5, 5)) == 0
    assert Queue(root / "nowhere").bounds == (0, 0)


def test_a_queue_begins_behind_what_fills_its_gap(
    tmp_path: Path, write_store: Callable[[Path, list[Record]], None]
) -> None:
    write_store(tmp_path / "s", [Record("t", b"x", "", queue_id=0) for _ in range(120)])
    folder = tmp_path / "s" / "consumequeue" / "t" / "0"
    first = folder / f"{0:020d}"
    filler = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + (0).to_bytes(8, "big")
    first.write_bytes(filler * 3 + first.read_bytes()[60:])
    assert Queue(folder).bounds == (3, 120)
    assert len(real_units(Queue(folder).units(0, 10))) == 7


@pytest.mark.parametrize("units", [1, 2])
def test_a_queue_file_of_a_unit_or_two_has_these(
    tmp_path: Path, write_store: Callable[[Path, list[Record]], None], units: int
) -> None:
    write_store(tmp_path / "s", [Record("t", b"x", "", queue_id=0) for _ in range(50 + units)])
    folder = tmp_path / "s" / "consumequeue" / "t" / "0"
    last = folder / f"{1000:020d}"
    last.write_bytes(last.read_bytes()[: units * 20])
    assert Queue(folder).bounds == (0, 50 + units)
    last.write_bytes(b"\0" * 19)
    assert Queue(folder).bounds == (0, 50), "less than one is none"
