# SPDX-License-Identifier: Apache-2.0
"""What queue files must hold, written down: against a plain table, over restarts and torn ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store import platform, queue_sums
from aerobee.store.queue_sums import FileSum, QueueSums
from tests.own_files import is_under

if TYPE_CHECKING:
    from pathlib import Path

ENTRY_BYTES = 4 + 22  # and the topic's name

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("note"),
            st.sampled_from(["a", "bb", "数"]),
            st.integers(0, 2),
            st.sampled_from([0, 16, 32, 48]),
            st.integers(0, 16),
        ),
        st.tuples(st.just("forget"), st.sampled_from(["a", "bb"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["save", "take", "open", "small"])),
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sums") / "sums"


def told(sums: QueueSums) -> dict[tuple[str, int], tuple[FileSum, ...]]:
    return {
        (topic, queue_id): sums.of(topic, queue_id)
        for topic in sums.topics()
        for queue_id in sums.queue_ids(topic)
    }


def as_files(model: dict[tuple[str, int], dict[int, FileSum]]) -> dict[tuple[str, int], tuple[FileSum, ...]]:
    return {queue: tuple(files[start] for start in sorted(files)) for queue, files in model.items() if files}


@settings(max_examples=80, deadline=None)
@given(steps)
def test_it_behaves_like_a_table_that_survives_what_was_saved(path: Path, steps: list[Any]) -> None:
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    model: dict[tuple[str, int], dict[int, FileSum]] = {}
    saved: dict[tuple[str, int], tuple[FileSum, ...]] = {}
    is_written = False
    for number, (step, *of) in enumerate(steps):
        if step == "note":
            topic, queue_id, start, units = of
            new = FileSum(start, units, number)
            sums.note(topic, queue_id, new)
            files = model.setdefault((topic, queue_id), {})
            files.pop(start, None)
            if units:
                files[start] = new
        elif step == "forget":
            sums.forget(*of)
            model.pop((of[0], of[1]), None)
        elif step in ("save", "take"):
            dirty = bool(sums._changed)
            if step == "save":
                sums.save()
            else:
                sums.take()()
            is_written |= dirty or step == "take"
            saved = as_files(model)
        elif step == "small":  # grown past its bound: the next one is written anew
            sums._fresh_bytes, sums._bytes = 0, sums._bytes and queue_sums._MIN_BYTES + 1
        else:
            sums = QueueSums(path)
            sums.load()
            assert sums.is_known is is_written
            model = {queue: {file.start: file for file in files} for queue, files in saved.items()}
        assert told(sums) == as_files(model)
    again = QueueSums(path)
    again.load()
    assert told(again) == saved


def test_only_what_changed_is_added_until_that_is_too_much(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_sums, "_MIN_BYTES", 200)
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    grown = []
    for n in range(20):
        sums.note("t", 0, FileSum(0, n + 1, n))
        sums.save()
        grown.append(path.stat().st_size // (ENTRY_BYTES + 1))
    assert grown[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert max(grown) <= 9, "over 200 bytes, and over four times of what it must hold"
    assert grown[8:10] == [1, 2]
    sums.save()
    assert path.stat().st_size // (ENTRY_BYTES + 1) == grown[-1], "nothing changed, nothing is written"


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_torn_end_is_left_out_and_the_next_file_is_whole(path: Path, cut: int) -> None:
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    for start in (0, 16):
        sums.note("t", 0, FileSum(start, 16, start + 7))
        sums.save()
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    torn = QueueSums(path)
    torn.load()
    kept = 2 - -(-cut // (ENTRY_BYTES + 1))
    assert torn.of("t", 0) == tuple(FileSum(start, 16, start + 7) for start in (0, 16)[:kept])
    torn.note("t", 1, FileSum(0, 1, 1))
    torn.save()
    whole = QueueSums(path)
    whole.load()
    assert told(whole) == told(torn)


def test_a_flipped_bit_ends_what_is_believed(path: Path) -> None:
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    for start in (0, 16, 32):
        sums.note("t", 0, FileSum(start, 16, 9))
        sums.save()
    data = bytearray(path.read_bytes())
    for at in range(ENTRY_BYTES + 1, 2 * (ENTRY_BYTES + 1)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        damaged = QueueSums(path)
        damaged.load()
        assert damaged.of("t", 0) == (FileSum(0, 16, 9),)


def test_what_is_cleared_begins_anew(path: Path) -> None:
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    sums.load()
    assert not sums.is_known, "there is no file"
    sums.note("t", 0, FileSum(0, 16, 9))
    sums.save()
    sums = QueueSums(path)
    sums.load()
    assert sums.is_known
    sums.note("gone", 0, FileSum(0, 1, 1))
    sums.clear()
    assert (told(sums), sums.is_known) == ({}, False)
    sums.save()
    assert path.stat().st_size == ENTRY_BYTES + 1, "nothing has changed since"
    sums.note("u", 0, FileSum(0, 2, 2))
    sums.save()
    again = QueueSums(path)
    again.load()
    assert told(again) == {("u", 0): (FileSum(0, 2, 2),)}


def test_a_new_file_takes_the_place_of_the_old_one_in_one_step(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    sums.note("t", 0, FileSum(0, 16, 9))
    order: list[str] = []
    real_replace = os.replace
    monkeypatch.setattr(platform, "sync_data", lambda fd: is_under(path.parent, fd) and order.append("data"))
    monkeypatch.setattr(
        queue_sums, "sync_directory", lambda folder: folder == path.parent and order.append("directory")
    )

    def replace(source: Any, target: Any) -> None:
        if target == path:
            order.append("replace")
        real_replace(source, target)

    monkeypatch.setattr(os, "replace", replace)
    sums.save()
    assert order == ["data", "replace", "directory"]
    order.clear()
    sums.note("t", 0, FileSum(16, 1, 1))
    sums.save()
    assert order == ["data"], "what is added needs no new name"


@pytest.mark.parametrize(("torn", "is_new"), [(b"", False), (b"torn", True)])
def test_what_is_sound_is_added_to_and_what_is_torn_is_written_anew(
    path: Path, torn: bytes, is_new: bool
) -> None:
    path.unlink(missing_ok=True)
    sums = QueueSums(path)
    sums.note("t", 0, FileSum(0, 16, 9))
    sums.save()
    path.write_bytes(path.read_bytes() + torn)
    before = path.stat().st_ino
    again = QueueSums(path)
    again.load()
    again.note("t", 0, FileSum(16, 2, 7))
    again.save()
    assert (path.stat().st_ino != before) is is_new
    loaded = QueueSums(path)
    loaded.load()
    assert told(loaded) == {("t", 0): (FileSum(0, 16, 9), FileSum(16, 2, 7))}


def test_of_two_checkpoints_the_later_counts_whichever_thread_is_first(tmp_path: Path) -> None:
    sums = QueueSums(tmp_path / "sums")
    sums.note("a", 0, FileSum(0, 1, 11))
    earlier = sums.take()
    sums.note("a", 0, FileSum(0, 2, 22))
    later = sums.take()
    later()
    earlier()
    again = QueueSums(tmp_path / "sums")
    again.load()
    assert told(again) == {("a", 0): (FileSum(0, 2, 22),)}


def test_what_was_loaded_is_not_written_again(tmp_path: Path) -> None:
    sums = QueueSums(tmp_path / "sums")
    for start in (0, 16):
        sums.note("a", 0, FileSum(start, 16, 5))
    sums.save()
    before = sums._path.read_bytes()
    again = QueueSums(tmp_path / "sums")
    again.load()
    again.save()
    assert sums._path.read_bytes() == before
    again.note("a", 0, FileSum(16, 17, 6))
    again.save()
    assert len(sums._path.read_bytes()) == len(before) * 3 // 2


def test_an_earlier_file_told_late_stands_before_the_others_and_leaves_them(tmp_path: Path) -> None:
    sums = QueueSums(tmp_path / "sums")
    files = [FileSum(start, 16, start + 1) for start in (0, 16, 32)]
    for file in (files[2], files[0], files[1]):
        sums.note("a", 7, file)
    assert sums.of("a", 7) == tuple(files)
    sums.note("a", 7, FileSum(0, 0, 0))
    assert sums.of("a", 7) == tuple(files[1:])
    sums.forget("a", 7)
    assert (list(sums.topics()), list(sums.queue_ids("a"))) == ([], [])


def test_a_system_that_writes_little_at_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums, write = QueueSums(tmp_path / "sums"), os.write
    for queue_id in range(9):
        sums.note("topic", queue_id, FileSum(0, 16, 5))
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    sums.save()
    again = QueueSums(tmp_path / "sums")
    again.load()
    assert told(again) == told(sums)
