# SPDX-License-Identifier: Apache-2.0
"""One file of the key index against a plain list: entering, finding by time, cutting after a crash."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import DiskFull, StoreError
from aerobee.store import index_file, index_slots, platform
from aerobee.store.index_file import ENTRY_SIZE, IndexFile
from aerobee.store.segment import reserve_range

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

SLOTS, ENTRIES, BEGAN = 5, 40, 1_700_000_000_123

# hash, milliseconds since the one before
keys = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([0, 1, 876, 877, 1_000, 2_500])), max_size=ENTRIES - 1
)


class Told:
    """What was entered: hash, log offset and time of each, in the order of the log."""

    def __init__(self, told: list[tuple[int, int]]) -> None:
        self.entries: list[tuple[int, int, int]] = []
        time = BEGAN
        for n, (key_hash, later_ms) in enumerate(told):
            time += later_ms if n else 0
            self.entries.append((key_hash, 100 * (n + 1), time))

    def before(self, log_end: int) -> list[tuple[int, int, int]]:
        return [each for each in self.entries if each[1] < log_end]

    def store_time(self, offset: int) -> int:
        return next(time for _, at, time in self.entries if at == offset)


def enter(file: IndexFile, entries: list[tuple[int, int, int]], at_once: int) -> None:
    for at in range(0, len(entries), at_once):
        part = entries[at : at + at_once]
        file.reserve(file.count + len(part))
        file.put_all(
            [key_hash for key_hash, _, _ in part], [("", "", offset, time) for _, offset, time in part]
        )


def save(file: IndexFile) -> None:
    """As a checkpoint does."""
    file.write_header()
    file.save_job()(file.fd)


def opened_again(file: IndexFile) -> IndexFile:
    file.close()
    again = IndexFile(file.path, SLOTS, ENTRIES)
    again.load_header()
    return again


def found(file: IndexFile, key_hash: int, begin: int = 0, end: int = 1 << 60) -> list[int]:
    return list(file.find(key_hash, begin, end))


def expected(entries: list[tuple[int, int, int]], key_hash: int, begin: int, end: int) -> list[int]:
    """Times are kept to the second, counted from the file's first."""
    told = [
        offset
        for each, offset, time in entries
        if each == key_hash and begin - 999 <= BEGAN + (time - BEGAN) // 1000 * 1000 <= end
    ]
    return told[::-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index")


def made(folder: Path) -> IndexFile:
    for old in folder.iterdir():
        old.unlink()
    return IndexFile.create(folder / "20231114221320123", SLOTS, ENTRIES)


def header(file: IndexFile) -> tuple[int, ...]:
    return struct.unpack(">qqqqii", file.path.read_bytes()[:40])


@settings(max_examples=60, deadline=None)
@given(keys, st.integers(1, 7), st.integers(-2_000, 12_000), st.integers(0, 12_000))
def test_keys_are_found_newest_first_within_their_time(
    folder: Path, told: list[tuple[int, int]], at_once: int, begin: int, length: int
) -> None:
    file, model = made(folder), Told(told)
    enter(file, model.entries, at_once)
    for key_hash in range(13):
        assert found(file, key_hash) == expected(model.entries, key_hash, 0, 1 << 60)
        begin_ms, end_ms = BEGAN + begin, BEGAN + begin + length
        assert found(file, key_hash, begin_ms, end_ms) == expected(model.entries, key_hash, begin_ms, end_ms)
    assert file.count == len(told) + 1
    assert file.used_slots == len({key_hash % SLOTS for key_hash, _ in told})
    file.close()


@settings(max_examples=80, deadline=None)
@given(keys, st.integers(0, ENTRIES + 1), st.booleans())
def test_a_cut_file_is_one_that_never_had_more(
    folder: Path, told: list[tuple[int, int]], kept: int, known: bool
) -> None:
    model = Told(told)
    log_end = 100 * kept + 1
    entries = model.before(log_end)
    file = made(folder)
    enter(file, entries, 3)
    save(file)
    file.close()
    wanted = (file.path.read_bytes(), file.count, file.begin_time, file.begin_offset)
    file = made(folder)
    enter(file, model.entries, 3)
    save(file)
    file.cut(log_end, model.store_time if known else lambda offset: 0)
    file.close()
    data = bytearray(file.path.read_bytes())
    if not entries:  # what it began with is written with the first key again
        assert file.count == 1
        assert not any(data[40:])
        return
    assert bytes(data[40:]) == wanted[0][40:]
    began, ended, first, last, used, count = header(file)
    assert (count, first, last) == (len(entries) + 1, entries[0][1], entries[-1][1])
    assert (began, used) == (BEGAN, len({each[0] % SLOTS for each in entries}))
    exactly = entries[-1][2]
    assert ended == (exactly if known else BEGAN + (exactly - BEGAN) // 1000 * 1000)


def test_space_is_taken_before_it_is_needed_and_not_twice(folder: Path) -> None:
    file = made(folder)
    assert file.room == ENTRIES, "a small file at once"
    assert file.size == 40 + SLOTS * 4 + ENTRIES * ENTRY_SIZE == file.path.stat().st_size
    big = IndexFile.create(folder / "big", SLOTS, 200_000)
    first = big.room
    assert 2 <= first < 200_000
    big.reserve(first - 1)
    assert big.room == first
    big.reserve(first)
    assert first < big.room <= 200_000
    big.reserve(199_999)
    assert big.room == 200_000
    for each in (file, big):
        each.close()


def test_space_is_taken_for_every_slot_and_for_the_entries_to_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, int]] = []

    def noted(fd: int, start: int, length: int, what: str) -> None:
        taken.append((start, start + length))
        reserve_range(fd, start, length, what)

    monkeypatch.setattr(index_file, "reserve_range", noted)
    monkeypatch.setattr(index_file, "_EXTENT", 100)
    file = made(folder)
    at = file.entries_at
    assert taken == [(0, at), (at + 20, at + 120)]
    assert file.room == 6
    enter(file, [(n, 100 * (n + 1), BEGAN) for n in range(20)], 10)
    assert taken[2:] == [(at + 120, at + 240), (at + 240, at + 440)]
    file.close()
    again = IndexFile(file.path, SLOTS, ENTRIES)
    again.load_header()
    assert (again.begin_time, again.count) == (BEGAN, 11), "written with the first keys: no entry tells it"
    taken.clear()
    again.reserve(ENTRIES - 1)
    assert taken == [(0, at), (at + 11 * 20, at + ENTRIES * 20)]
    assert again.room == ENTRIES
    again.close()


def test_a_chain_that_was_damaged_ends_the_walk(folder: Path) -> None:
    file = made(folder)
    enter(file, [(3, 100 * n, BEGAN) for n in range(1, 6)], 5)
    save(file)
    file = opened_again(file)
    for older in (4, 5, 9, -1):  # itself, one that is newer, one that is not there, none
        struct.pack_into(">i", file.map, file.entries_at + 4 * ENTRY_SIZE + 16, older)
        assert found(file, 3) == [500, 400]
    file.close()


@pytest.mark.parametrize(
    ("count", "taken"), [(0, 1), (-5, 1), (1, 1), (7, 7), (ENTRIES, ENTRIES), (99, ENTRIES)]
)
def test_a_header_says_no_more_than_a_file_can_hold(folder: Path, count: int, taken: int) -> None:
    file = made(folder)
    file.close()
    with file.path.open("r+b") as raw:
        raw.write(struct.pack(">qqqqii", 1, 2, 3, 4, 5, count))
    again = IndexFile(file.path, SLOTS, ENTRIES)
    again.load_header()
    assert (again.begin_time, again.end_time, again.begin_offset, again.end_offset) == (1, 2, 3, 4)
    assert (again.used_slots, again.count) == (5, taken)
    file.path.write_bytes(b"short")
    torn = IndexFile(file.path, SLOTS, ENTRIES)
    torn.load_header()
    assert (torn.begin_time, torn.count) == (0, 1)


def test_times_before_the_first_or_too_far_behind_it_are_kept_at_the_edge(folder: Path) -> None:
    file = made(folder)
    enter(file, [(1, 100, BEGAN), (2, 200, BEGAN - 5_000), (3, 300, BEGAN + (1 << 41) * 1_000)], 3)
    save(file)
    entries = [
        struct.unpack_from(">iqii", file.map, file.entries_at + number * ENTRY_SIZE) for number in (1, 2, 3)
    ]
    assert [seconds for _, _, seconds, _ in entries] == [0, 0, 0x7FFFFFFF]
    file.close()


def test_a_file_without_space_leaves_no_trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(index_file, "reserve_range", full)
    with pytest.raises(DiskFull):
        IndexFile.create(folder / "new", SLOTS, ENTRIES)
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    ("later_ms", "seconds"), [(0, 0), (999, 0), (1_000, 1), (-5_000, 0), (1 << 50, 0x7FFFFFFF)]
)
def test_keys_of_a_draft_are_counted_on(folder: Path, later_ms: int, seconds: int) -> None:
    file = made(folder)
    enter(file, [(1, 100, BEGAN), (2, 200, BEGAN)], 2)
    given: list[tuple[int, ...]] = []

    def enter_keys(tail: bytearray, slots: mmap.mmap, *where: int) -> int:
        assert struct.unpack_from(">iqii", tail) == (1, 100, 0, 0), "the first of those in memory"
        assert struct.unpack(f">{SLOTS}i", slots[:]) == (0, 1, 2, 0, 0)
        given.append(where)
        return 2

    draft: Any = SimpleNamespace(
        now=BEGAN + later_ms, key_count=3, last_key_offset=777, enter_keys=enter_keys
    )
    file.enter(draft)
    assert given == [(1, 3, seconds)]
    assert (file.count, file.used_slots) == (6, 4)
    assert (file.end_offset, file.end_time) == (777, BEGAN + later_ms)
    file.close()


# -- what is kept in memory until a checkpoint -----------------------------------------------------------------------


def written_plainly(entries: list[tuple[int, int, int]]) -> bytes:
    """Slots and entries of a file that has these."""
    slots, body = [0] * SLOTS, bytearray(ENTRIES * ENTRY_SIZE)
    for number, (key_hash, offset, time) in enumerate(entries, 1):
        slot = key_hash % SLOTS
        struct.pack_into(
            ">iqii", body, number * ENTRY_SIZE, key_hash, offset, (time - BEGAN) // 1000, slots[slot]
        )
        slots[slot] = number
    return struct.pack(f">{SLOTS}i", *slots) + bytes(body)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(keys, st.booleans()), max_size=6),
    st.integers(1, 6),
    st.integers(0, 6),
    st.integers(1, 5),
)
def test_a_checkpoint_leaves_the_file_as_if_all_had_been_written_at_once(
    folder: Path, parts: list[tuple[list[tuple[int, int]], bool]], tail: int, few: int, at_once: int
) -> None:
    """However much is in memory, whether the file is opened again in between, and whether few slots change or many."""
    told = [key for part, _ in parts for key in part][: ENTRIES - 1]
    entries = Told(told).entries
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_file, "_TAIL_BYTES", tail * ENTRY_SIZE)
        patch.setattr(index_slots, "_FEW", few)
        patch.setattr(index_slots, "_PIECE", 4)
        patch.setattr(index_slots, "_AT_ONCE", 7)
        file, done = made(folder), 0
        for part, again in parts:
            enter(file, entries[done : done + len(part)], at_once)
            done += len(part)
            if file.count > 1:
                save(file)
            if again:
                file = opened_again(file)
        assert file.path.read_bytes()[40:] == written_plainly(entries)
        for key_hash in range(13):
            assert found(file, key_hash) == expected(entries, key_hash, 0, 1 << 60)
        file.close()


def test_what_came_after_the_checkpoint_began_is_of_the_next(folder: Path) -> None:
    file, entries = made(folder), Told([(n % 7, 1) for n in range(12)]).entries
    enter(file, entries[:4], 2)
    file.write_header()
    job = file.save_job()
    enter(file, entries[4:9], 5)
    job(file.fd)
    data = file.path.read_bytes()
    assert data[file.entries_at :] == written_plainly(entries[:4])[SLOTS * 4 :]
    enter(file, entries[9:], 1)
    save(file)
    assert file.path.read_bytes()[40:] == written_plainly(entries)
    file.close()


def test_few_keys_change_the_slots_they_are_of_and_no_others(folder: Path) -> None:
    file = IndexFile.create(folder / "wide", 5_000, ENTRIES)
    enter(file, [(2_048, 100, BEGAN), (1, 200, BEGAN)], 2)
    save(file)
    written: list[tuple[int, int]] = []
    pwrite = platform.pwrite

    def noted(fd: int, data: memoryview, at: int) -> int:
        written.append((at, len(data)))
        return pwrite(fd, data, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "pwrite", noted)
        enter(file, [(4_999, 300, BEGAN), (1_023, 400, BEGAN), (0, 500, BEGAN)], 3)
        file.save_job()(file.fd)
        at = file.entries_at
        last = 5_000 * 4 - 4 * 4096
        assert written == [(at + 20, 100), (40, 4096), (40 + 4 * 4096, last)]
        written.clear()
        file.save_job()(file.fd)
        assert written == [(at + 20, 100)], "no key is new"
    assert found(file, 1_023) == [400]
    file.close()


def test_entries_go_to_the_file_when_memory_is_full_of_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_TAIL_BYTES", 4 * ENTRY_SIZE)
    file, entries = made(folder), Told([(n, 1) for n in range(13)]).entries
    assert file.room_at_once == 4
    enter(file, entries[:4], 4)
    assert file.room_at_once == 0
    assert not any(file.path.read_bytes()[file.entries_at :]), "they are in memory"
    enter(file, entries[4:5], 1)
    assert file.room_at_once == 3
    enter(file, entries[5:7], 1)
    assert file.room_at_once == 1
    assert file.path.read_bytes()[file.entries_at :] == written_plainly(entries[:4])[SLOTS * 4 :], (
        "those that follow wait until it is full again"
    )
    enter(file, entries[7:], 6)
    assert file.room_at_once == 0, "a batch brought more: there is room for it, and no more"
    assert [found(file, n) for n in range(13)] == [[100 * (n + 1)] for n in range(13)]
    file.close()


def test_a_disk_that_takes_no_entries_refuses_the_keys_to_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_TAIL_BYTES", 2 * ENTRY_SIZE)
    file = made(folder)
    enter(file, [(1, 100, BEGAN), (2, 200, BEGAN)], 2)

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(platform, "pwrite", broken)
        with pytest.raises(StoreError, match=r"20231114221320123 takes no keys: .*Input/output error"):
            file.reserve(file.count + 1)
    assert (file.count, file.room_at_once) == (3, 0)
    enter(file, [(3, 300, BEGAN)], 1)
    assert [found(file, n) for n in (1, 2, 3)] == [[100], [200], [300]]
    file.close()


def test_a_file_that_is_closed_forgets_what_was_not_saved(folder: Path) -> None:
    file = made(folder)
    enter(file, [(1, 100, BEGAN)], 1)
    save(file)
    enter(file, [(2, 200, BEGAN)], 1)
    again = opened_again(file)
    assert (found(again, 1), found(again, 2)) == ([100], [])
    enter(again, [(3, 300, BEGAN)], 1)
    assert (found(again, 1), found(again, 3)) == ([100], [300])
    again.close()


def test_a_disk_that_takes_little_at_once_gets_all_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = platform.pwrite
    monkeypatch.setattr(platform, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    monkeypatch.setattr(index_file, "_TAIL_BYTES", 4 * ENTRY_SIZE)
    file, entries = made(folder), Told([(n, 1) for n in range(9)]).entries
    enter(file, entries, 3)
    save(file)
    assert file.path.read_bytes()[40:] == written_plainly(entries)
    file.close()


def test_slots_that_changed_while_a_checkpoint_wrote_are_written_by_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of keys that came meanwhile; the file is opened again, so that what it holds is all there is."""
    monkeypatch.setattr(index_slots, "_PIECE", 4)  # each slot on its own
    file, entries = made(folder), Told([(n % 5, 1) for n in range(5)]).entries
    enter(file, entries[:2], 2)
    job = file.save_job()
    enter(file, entries[2:4], 2)
    job(file.fd)
    enter(file, entries[4:], 1)
    save(file)
    assert file.path.read_bytes()[40:] == written_plainly(entries)
    again = opened_again(file)
    assert [found(again, n) for n in range(5)] == [[100 * (n + 1)] for n in range(5)]
    again.close()


def test_entries_that_left_the_memory_while_a_checkpoint_wrote_stay_where_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_TAIL_BYTES", 2 * ENTRY_SIZE)
    file, entries = made(folder), Told([(n, 1) for n in range(4)]).entries
    enter(file, entries[:2], 2)
    job = file.save_job()
    enter(file, entries[2:], 2)  # memory was full of the first two
    job(file.fd)
    assert file.path.read_bytes()[file.entries_at :] == written_plainly(entries[:2])[SLOTS * 4 :]
    assert [found(file, n) for n in range(4)] == [[100 * (n + 1)] for n in range(4)]
    save(file)
    assert file.path.read_bytes()[40:] == written_plainly(entries)
    file.close()


def test_no_more_keys_are_taken_at_once_than_have_space_on_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be memory for more: a full disk would be met when they are written, too late to refuse them."""
    monkeypatch.setattr(index_file, "_EXTENT", 5 * ENTRY_SIZE)
    file = made(folder)
    assert (file.room, file.room_at_once) == (6, 5)
    enter(file, Told([(n, 1) for n in range(3)]).entries, 3)
    assert file.room_at_once == 2
    file.reserve(file.count + 3)
    assert file.room_at_once >= 3
    file.close()
