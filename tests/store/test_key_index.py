# SPDX-License-Identifier: Apache-2.0
"""The row of index files without a store around it: what a checkpoint takes along, what a look into it may not do, and
what is left open."""

from __future__ import annotations

import gc
import os
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.settings import StoreConfig
from aerobee.store import platform
from aerobee.store.key_index import KeyIndex

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGAN, FOREVER = 1_700_000_000_000, 1 << 60
CONFIG = StoreConfig(index_slots=64, index_entries=8)
IN_A_FILE = 7  # entry 0 is not used


class Index:
    """Keys k0, k1, ... of one topic; key n is of the record at 100 * n, stored n seconds after the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[KeyIndex] = []
        self.keys = self.open()
        self.told = 0

    def open(self) -> KeyIndex:
        self.opened.append(KeyIndex(self.folder, CONFIG))
        return self.opened[-1]

    def tell(self, count: int) -> None:
        for n in range(self.told, self.told + count):
            if not self.keys.left:
                self.keys.room(1, BEGAN + 1_000 * n)
            self.keys.put("orders", f"k{n}", 100 * n, BEGAN + 1_000 * n)
        self.told += count
        self.keys.settle()

    def found(self, keys: KeyIndex | None = None) -> list[int]:
        """Which of the keys that were told are found, and nothing else under their names."""
        found = []
        for n in range(self.told):
            offsets = list((keys or self.keys).find("orders", f"k{n}", 0, FOREVER))
            assert offsets in ([], [100 * n])
            found += [n] * len(offsets)
        return found

    def descriptors(self) -> list[str]:
        """The names of the index files that are open, each as often as it is."""
        links = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError:  # the one of the listing
                continue
        return sorted(
            os.path.basename(link) for link in links if link.startswith(str(self.folder.resolve()) + "/")
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    index = Index(tmp_path / "index")
    yield index
    for each in index.opened:
        each.close()


def everything(count: int) -> list[int]:
    return list(range(count))


# -- looks into it -----------------------------------------------------------------------------------------------


def test_a_look_into_a_full_file_takes_nothing_from_the_checkpoint_to_come(index: Index) -> None:
    """Its newest keys are in memory only, until then."""
    index.tell(IN_A_FILE + 2)
    for _ in range(2):
        assert index.found() == everything(IN_A_FILE + 2)
    index.keys.sync_job()()
    assert index.found(index.open()) == everything(IN_A_FILE + 2)


def test_keys_are_found_while_a_checkpoint_writes_them(index: Index) -> None:
    index.tell(IN_A_FILE + 2)
    job = index.keys.sync_job()
    for _ in range(2):
        assert index.found() == everything(IN_A_FILE + 2), "the thread has not got to it yet"
    job()
    assert index.found() == everything(IN_A_FILE + 2)


@pytest.mark.parametrize("whole", [True, False])
def test_an_older_file_is_open_for_as_long_as_it_is_looked_at(index: Index, whole: bool) -> None:
    index.tell(2 * IN_A_FILE + 1)
    index.keys.sync_job()()
    index.keys.close()
    index.keys = index.open()
    walk = index.keys.find("orders", "k0", 0, FOREVER)
    assert next(walk) == 0
    newest = index.keys.files[-1].path.name
    assert set(index.descriptors()) > {newest}
    if whole:
        assert list(walk) == []
    else:
        walk.close()  # type: ignore[attr-defined]
    assert set(index.descriptors()) <= {newest}


# -- checkpoints -------------------------------------------------------------------------------------------------


def test_the_keys_of_a_full_file_and_of_the_newest_are_in_the_files_before_these_are_synced(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.tell(IN_A_FILE + 2)
    synced: dict[str, bytes] = {}

    def noted(fd: int) -> None:
        synced[os.readlink(f"/proc/self/fd/{fd}")] = os.pread(fd, 1 << 20, 0)

    monkeypatch.setattr(platform, "sync_data", noted)
    index.keys.sync_job()()
    assert synced == {str(file.path.resolve()): file.path.read_bytes() for file in index.keys.files}
    assert len(synced) == 2
    assert index.found(index.open()) == everything(IN_A_FILE + 2)


def test_a_full_file_costs_nothing_after_the_checkpoint_that_follows_its_own(index: Index) -> None:
    """Neither a descriptor nor the memory of its slots: there may be hundreds of such files."""
    index.tell(IN_A_FILE + 2)
    full, newest = (file.path.name for file in index.keys.files)
    slots = weakref.ref(index.keys.files[0]._slots)  # type: ignore[arg-type]
    index.keys.sync_job()()
    assert full in index.descriptors(), "it was being written until now"
    index.keys.sync_job()()
    gc.collect()
    assert set(index.descriptors()) == {newest}
    assert slots() is None
    assert index.found() == everything(IN_A_FILE + 2)
    assert set(index.descriptors()) == {newest}


def test_a_full_file_that_is_removed_before_its_checkpoint_stays_away(index: Index) -> None:
    index.tell(IN_A_FILE + 2)
    gone, newest = (file.path for file in index.keys.files)
    assert index.keys.trim(100 * IN_A_FILE) == 1
    index.keys.sync_job()()
    assert list(index.folder.iterdir()) == [newest]
    assert not gone.exists()
    assert index.found() == [IN_A_FILE, IN_A_FILE + 1]


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_checkpoint_that_fails_leaves_no_file_open_that_it_opened(
    index: Index, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    index.tell(IN_A_FILE + 2)
    before, synced = index.descriptors(), 0

    def broken(fd: int) -> None:
        nonlocal synced
        synced += 1
        if synced > fails_at:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(platform, "sync_data", broken)
    with pytest.raises(OSError, match="Input/output"):
        index.keys.sync_job()()
    assert index.descriptors() == before


def test_keys_that_wait_are_part_of_a_checkpoint(index: Index) -> None:
    index.tell(2)
    index.keys.put("orders", "k2", 200, BEGAN + 2_000)
    assert index.keys.waiting
    index.keys.sync_job()()
    index.told = 3
    assert index.found(index.open()) == [0, 1, 2]


def test_the_newest_key_is_known_while_it_waits(index: Index) -> None:
    index.tell(2)
    index.keys.put("orders", "k2", 200, BEGAN + 2_000)
    assert index.keys.last_update == (BEGAN + 2_000, 200)


@pytest.mark.parametrize("kept", [1, 2, IN_A_FILE, IN_A_FILE + 1, IN_A_FILE + 2])
def test_a_cut_keeps_every_key_before_it_and_files_for_them_alone(index: Index, kept: int) -> None:
    """Also where a file is left with one."""
    index.tell(IN_A_FILE + 2)
    index.keys.sync_job()()
    index.keys.close()
    index.keys = index.open()
    index.keys.cut(100 * kept, lambda offset: BEGAN + 10 * offset)
    assert index.found() == everything(kept)
    assert len(list(index.folder.iterdir())) == (1 if kept <= IN_A_FILE else 2)


def test_an_index_begun_anew_has_no_key_from_before(index: Index) -> None:
    index.tell(IN_A_FILE + 1)
    index.keys.put("orders", "waits", 9_000, BEGAN)
    index.keys.clear()
    assert list(index.folder.iterdir()) == []
    assert (index.descriptors(), index.keys.last_update) == ([], (0, 0))
    assert index.found() == []
    index.keys.room(1, BEGAN)
    index.keys.put("orders", "k0", 0, BEGAN)
    assert list(index.keys.find("orders", "waits", 0, FOREVER)) == []
    assert index.found() == [0]
    index.keys.sync_job()()
    assert index.found(index.open()) == [0]


# -- room --------------------------------------------------------------------------------------------------------


def test_a_draft_is_offered_no_room_while_a_file_has_no_key(index: Index) -> None:
    """A file's begin is its first key's, which a draft does not tell."""
    assert index.keys.room_for_draft() == 0
    index.keys.room(1, BEGAN)
    assert index.keys.room_for_draft() == 0
    index.keys.put("orders", "k0", 0, BEGAN)
    assert index.keys.room_for_draft() == IN_A_FILE - 1, "keys that wait count as entered"
    assert not index.keys.waiting


def test_whoever_follows_a_draft_asks_for_room_again(index: Index) -> None:
    index.tell(1)
    assert index.keys.left > 0

    class Draft:
        now, key_count, last_key_offset = BEGAN, 3, 300

        def enter_keys(self, *_: Any) -> int:
            return 3

    index.keys.enter(Draft())  # type: ignore[arg-type]
    assert (index.keys.left, index.keys.files[-1].count) == (0, 5)


def test_an_index_that_is_opened_again_has_room_for_nothing_before_it_is_asked_for(index: Index) -> None:
    index.tell(2)
    index.keys.sync_job()()
    index.keys.close()
    index.keys = index.open()
    assert index.keys.left == 0
    index.tell(1)
    assert index.found() == [0, 1, 2]
