# SPDX-License-Identifier: Apache-2.0
"""Keys by the thousand, through a store with small index files: from file to file, refused for want of space, told
again, gone with their log."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.message import pack_host
from aerobee.protocol.properties import java_hash
from aerobee.store import index_file, platform
from aerobee.store.key_hash import KeyHash
from tests.own_files import is_under

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.protocol.message import Record
    from aerobee.store.message_store import MessageStore

ENTRIES = 256  # of a file, of which the first is not used
FOREVER = 1 << 60


class Sent:
    """Messages with keys no other has, by three ways in turn; remembers where each key's message is."""

    def __init__(self, kit: Any, store: MessageStore) -> None:
        self.kit = kit
        self.store = store
        self.keys: dict[str, int] = {}
        self._number = 0

    def message(self, keys: int) -> tuple[Record, list[str]]:
        names = [f"k{self._number + n}" for n in range(keys)]
        self._number += keys
        return self.kit.message(text=f"KEYS\x01{' '.join(names)}\x02"), names

    def alone(self, keys: int) -> None:
        record, names = self.message(keys)
        self.store.append(record)
        self.keys.update(dict.fromkeys(names, record.physical_offset))

    def batch(self, *keys: int) -> None:
        both = [self.message(count) for count in keys]
        self.store.append_batch([record for record, _ in both])
        for record, names in both:
            self.keys.update(dict.fromkeys(names, record.physical_offset))

    def columns(self, *keys: int) -> None:
        both = [self.message(count) for count in keys]
        texts = [record.properties_text for record, _ in both]
        columns = Columns([0] * len(both), [b"body"] * len(both), texts)
        places = self.store.append_columns(Batch("orders", 0, columns, born_host=pack_host("10.0.0.9", 7)))
        for (_, names), at in zip(both, places.physical_offsets, strict=True):
            self.keys.update(dict.fromkeys(names, at))

    def missing(self, store: MessageStore | None = None) -> list[str]:
        found = (store or self.store)._index.find
        return [key for key, at in self.keys.items() if list(found("orders", key, 0, FOREVER)) != [at]]


def files(kit: Any) -> list[str]:
    return sorted(path.name for path in (kit.root / "index").iterdir())


@pytest.fixture
def sent(kit: Any) -> Sent:
    return Sent(kit, kit.open())


@pytest.mark.parametrize("way", ["alone", "batch", "columns"])
@pytest.mark.parametrize("keys", [1, 7, 85, 100])
def test_every_key_is_found_however_many_files_they_take(kit: Any, sent: Sent, way: str, keys: int) -> None:
    """And after a kill: a start makes the same files of the same keys."""
    send = getattr(sent, way)
    while len(sent.keys) < 4 * ENTRIES:
        send(keys) if way == "alone" else send(*[keys] * 5)
        kit.clock.advance(1)
    assert not sent.missing()
    in_a_file = (ENTRIES - 1) // keys * keys
    assert len(files(kit)) == len(sent.store._index.files) == -(-len(sent.keys) // in_a_file)
    newest = max(sent.keys.values())
    assert sent.store.index_last_update[1] == newest
    if way == "alone":
        kit.crash(sent.store)
    else:
        sent.store.close()
    again = kit.open()
    assert not sent.missing(again)
    assert again.index_last_update[1] == newest
    assert len(files(kit)) == -(-len(sent.keys) // in_a_file)


def test_a_file_is_filled_to_its_last_entry(kit: Any, sent: Sent) -> None:
    for _ in range(ENTRIES - 1):
        sent.alone(1)
    sent.store._index.settle()
    assert len(files(kit)) == 1
    sent.alone(1)
    assert len(files(kit)) == 2
    assert not sent.missing()


@pytest.mark.parametrize("way", ["alone", "batch", "columns"])
def test_a_file_of_an_earlier_run_is_filled_to_its_last_entry(kit: Any, sent: Sent, way: str) -> None:
    """Room for the very last is asked for by itself."""
    for left in (2, 1):
        while len(sent.keys) < ENTRIES - 1 - left:
            sent.alone(1)
        sent.store.close()
        sent.store = kit.open()
        getattr(sent, way)(1)
        assert len(files(kit)) == 1
    getattr(sent, way)(1)
    assert len(files(kit)) == 2
    assert not sent.missing()


@pytest.mark.parametrize("keys", [ENTRIES, ENTRIES + 1, 3 * ENTRIES])
def test_more_keys_than_a_file_has_fill_the_file_there_is_and_begin_none(
    kit: Any, sent: Sent, keys: int
) -> None:
    sent.alone(1)
    for _ in range(3):
        sent.store.append(sent.message(keys)[0])
    sent.alone(1)
    assert len(files(kit)) == 2
    assert not sent.missing()


@pytest.mark.parametrize("way", ["batch", "columns"])
@pytest.mark.parametrize("before", [1, 200])
def test_a_batch_whose_keys_find_no_space_is_not_stored(
    kit: Any, sent: Sent, way: str, before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space is taken piece by piece: of the file that is written, and of the next."""
    monkeypatch.setattr(index_file, "_EXTENT", 20 * 20)
    sent.alone(before)
    end, reserve, given = sent.store.log_max, platform.reserve, [2]

    def reserved(fd: int, start: int, length: int) -> None:
        if is_under(kit.root / "index", fd):
            given[0] -= 1
            if given[0] < 0:
                raise OSError(errno.ENOSPC, "full")
        reserve(fd, start, length)

    monkeypatch.setattr(platform, "reserve", reserved)
    for space in (0, 1, 2, 3):
        given[0] = space
        known = dict(sent.keys)
        try:
            getattr(sent, way)(40, 40, 40)
        except DiskFull:
            assert sent.store.log_max == end
            assert sent.keys == known
            killed = kit.open(kit.copy(tmp_path / f"space{space}"))
            assert killed.log_max == end, "nor found by a start after a kill"
            killed.close()
        else:
            break
    given[0] = 1 << 30
    getattr(sent, way)(40, 40, 40)
    assert not sent.missing()
    kit.crash(sent.store)
    assert not sent.missing(kit.open())


def test_a_file_made_for_a_batch_that_was_refused_is_the_next_ones_and_not_left_behind(
    kit: Any, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent.alone(200)
    room = sent.store._log.room

    def full(size: int) -> int:
        raise DiskFull("no space")

    monkeypatch.setattr(sent.store._log, "room", full)
    for _ in range(3):
        with pytest.raises(DiskFull):
            sent.batch(40, 40)
        kit.clock.advance(1)
    assert len(files(kit)) <= 2
    monkeypatch.setattr(sent.store._log, "room", room)
    sent.batch(10)
    sent.store.close()
    assert len(files(kit)) == 1
    assert not open_below(kit.root)
    assert not sent.missing(kit.open())


def test_an_index_that_is_built_anew_takes_what_comes_after(kit: Any, sent: Sent) -> None:
    for _ in range(40):
        sent.alone(3)
    sent.store.rebuild_index()
    assert not sent.missing()
    sent.store.rebuild_index()
    sent.alone(1)
    sent.batch(2, 2)
    assert not sent.missing()
    for _ in range(100):
        sent.alone(3)
    sent.store.flush()
    sent.store.rebuild_index()
    sent.store.flush()
    assert not sent.missing()
    sent.store.close()
    assert not sent.missing(kit.open())


def test_a_file_goes_with_the_last_message_it_knows(sent: Sent) -> None:
    while len(sent.store._index.files) < 3:
        sent.alone(5)
    sent.store.flush()
    keys = sent.store._index
    first, second, third = keys.files
    assert keys.trim(first.begin_offset + 1) == 0
    assert keys.trim(first.end_offset) == 0, "its last message is there"
    assert keys.trim(first.end_offset + 1) == 1
    assert keys.files == [second, third]
    assert not first.path.exists()
    assert keys.trim(FOREVER) == 1, "the newest stays"
    assert keys.files == [third]


def open_below(root: Path) -> list[str]:
    links = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{each}"))
    return [link for link in links if link.startswith(f"{root}/")]


# -- hashes ------------------------------------------------------------------------------------------------------


def slow(topic: str, key: str) -> int:
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 1 << 31 else value


def with_hash(start: str, wanted: int) -> str:
    """The start and seven characters by which Java's hash is what is wanted."""
    rest = (wanted - java_hash(start) * 31**7 - sum(65 * 31**n for n in range(7))) % (1 << 32)
    return start + "".join(chr(65 + rest // 31**n % 31) for n in range(6, -1, -1))


@pytest.mark.parametrize("start", ["orders#", "orders#" + "0123456789ABCDEF012345678"])
def test_the_one_hash_without_an_amount_is_zero(start: str) -> None:
    key = with_hash(start, 1 << 31).removeprefix("orders#")
    assert java_hash(f"orders#{key}") in (-(1 << 31), 1 << 31)
    assert KeyHash()("orders", key) == 0
    beside = with_hash(start, (1 << 31) + 1).removeprefix("orders#")
    assert KeyHash()("orders", beside) == (1 << 31) - 1


def test_one_run_of_keys_in_several_topics_has_a_hash_for_each() -> None:
    run = "7F000001" * 3 + "0000"
    waiting = [(topic, f"{run}{n:04X}", 0, 0) for n in range(3) for topic in ("orders", "bills", "orders")]
    assert KeyHash().all(waiting) == [slow(topic, key) for topic, key, _, _ in waiting]


@pytest.mark.parametrize("key", ["é" * 32, "😀" * 32, "a" * 31 + "😀", "😀" * 16, "字" * 30 + "ab", "a" * 32])
def test_characters_beyond_ascii_count_as_java_counts_them(key: str) -> None:
    fast = KeyHash()
    assert fast.all([("orders", "a" * 32, 0, 0), ("orders", key, 0, 0)])[1] == slow("orders", key)
