# SPDX-License-Identifier: Apache-2.0
"""The key index against the keys of the records, both in the order of the log."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from aerobee.store.index_file import ENTRY, ENTRY_SIZE, HEADER
from aerobee.store.key_hash import KeyHash
from aerobee.store.record_keys import index_keys, tag_unique_keys
from aerobee.store.record_parts import sys_flag, text_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.settings import StoreConfig

_AT_ONCE = 4_096
EVERYTHING = 1 << 63  # was told, and nothing is forgotten: after a clean stop
_UNIQUE = "UNIQ_KEY\x01"


class IndexReport(msgspec.Struct):
    files: int = 0
    entries: int = 0
    missing: int = 0  # keys of messages that the index does not have
    wrong: int = 0  # entries that stand for no message, hash slots that lead elsewhere
    untold: int = 0
    left_aside: list[str] = []  # files of another size than the settings say

    @property
    def is_sound(self) -> bool:
        return not (self.missing or self.wrong)


class IndexCheck:
    """Without any file there is nothing to compare: RocketMQ can be told to keep no index."""

    def __init__(self, directory: Path, config: StoreConfig, log_min: int, told_until: int) -> None:
        """Entries of records before `log_min` went with the log: their file stays for those that follow. Entries at or
        past `told_until` are forgotten by a start, which then makes the slots again."""
        self._log_min = log_min
        self._told_until = told_until
        self._slots = config.index_slots
        self._number = config.index_entries
        self._entries_at = HEADER.size + config.index_slots * 4
        self._size = self._entries_at + config.index_entries * ENTRY_SIZE
        self._report = IndexReport()
        self._hash = KeyHash()
        self._paths: list[Path] = []
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if path.name.isdigit() and (size := path.stat().st_size):
                (
                    self._paths.append(path)
                    if size == self._size
                    else self._report.left_aside.append(path.name)
                )
        self._report.files = len(self._paths)
        self._entries = self._all_entries()
        self._next = next(self._entries, None)

    def compare(self, at: int, raw: bytes) -> None:
        if not self._paths:
            return
        try:
            topic, text = text_parts(raw)
        except UnicodeDecodeError:
            return
        _, unique, keys = tag_unique_keys(text)
        expected = [self._hash(topic, key) for key in index_keys(sys_flag(raw), unique, keys)]
        also = self._as_java_told(topic, unique, text)
        self._skip_to(at)
        while self._next is not None and self._next[1] == at:
            key_hash = also.get(self._next[0], self._next[0])
            if key_hash in expected:
                expected.remove(key_hash)
            else:
                self._report.wrong += 1
            self._next = next(self._entries, None)
        if at < self._told_until:
            self._report.missing += len(expected)
        else:
            self._report.untold += len(expected)

    def _as_java_told(self, topic: str, unique: str | None, text: str) -> dict[int, int]:
        """RocketMQ writes the id of a batch after the id of each of its messages, and indexes by that one."""
        if unique is None or text.count(_UNIQUE) < 2:
            return {}
        last = text.rpartition(_UNIQUE)[2].partition("\x02")[0]
        return {self._hash(topic, last): self._hash(topic, unique)}

    def finish(self) -> IndexReport:
        self._skip_to(EVERYTHING)
        return self._report

    def _skip_to(self, at: int) -> None:
        """Entries before `at` stand for no record that there is."""
        while self._next is not None and self._next[1] < at:
            self._report.wrong += self._next[1] >= self._log_min
            self._next = next(self._entries, None)

    def _all_entries(self) -> Iterator[tuple[int, int]]:
        """Hash and commit-log offset of every entry there is; the slots are looked at on the way."""
        last = self._last_kept()
        for place, path in enumerate(self._paths):
            with path.open("rb") as file:
                count = HEADER.unpack(file.read(HEADER.size))[-1]
                found = array("i", file.read(self._slots * 4))
                found.byteswap()
                if place >= last:
                    count = self._kept(file)
                slots, number = array("i", bytes(self._slots * 4)), 1
                file.seek(self._entries_at + ENTRY_SIZE)  # entry 0 is not used
                while number < count and (data := file.read(min(_AT_ONCE, count - number) * ENTRY_SIZE)):
                    for key_hash, offset, _, older in ENTRY.iter_unpack(
                        data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]
                    ):
                        slot = key_hash % self._slots
                        self._report.entries += 1
                        self._report.wrong += older != slots[slot]
                        slots[slot] = number
                        number += 1
                        yield key_hash, offset
                if place < last and found != slots:
                    self._report.wrong += sum(1 for a, b in zip(found, slots, strict=True) if a != b)

    def _last_kept(self) -> int:
        """The file that a start makes header and slots of again: the last one that has an entry to be kept. All are
        judged as they are after a clean stop, or when a start would keep them whole."""
        if self._told_until == EVERYTHING:
            return len(self._paths)
        for place in range(len(self._paths) - 1, -1, -1):
            with self._paths[place].open("rb") as file:
                if self._kept(file) > 1:
                    return place
        return 0

    def _kept(self, file: BinaryIO) -> int:
        """The number of the first entry that a start forgets; entries are in the order of the log."""

        def is_kept(number: int) -> bool:
            file.seek(self._entries_at + number * ENTRY_SIZE)
            entry = ENTRY.unpack(file.read(ENTRY_SIZE))
            return bool(any(entry) and entry[1] < self._told_until)

        return bisect_left(range(self._number), True, 1, key=lambda number: not is_kept(number))
