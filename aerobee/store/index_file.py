# SPDX-License-Identifier: Apache-2.0
"""One file of the key index: a hash table on disk whose chains run from new to old.

    header 40:  begin time 8 | end time 8 | begin offset 8 | end offset 8 | used slots 4 | next entry 4
    slots:      4 bytes each, the newest entry with that hash, 0 = none
    entries:    key hash 4 | commit-log offset 8 | seconds since begin time 4 | older entry of the slot 4

Entry 0 is never used. Entries are in the order of the log, so everything after a commit-log offset can be
dropped and told again. The header is kept in memory and written by `write_header`; after a crash it is not
believed, the entries are.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from typing import TYPE_CHECKING

from aerobee.store import platform
from aerobee.store.modes import open_file
from aerobee.store.segment import reserve_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.native.drafts import Draft

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
ENTRY_SIZE = ENTRY.size
SLOT = struct.Struct(">i")
_EXTENT = 1 << 20
_get_slot = SLOT.unpack_from
_put_slot = SLOT.pack_into
_pack_entry = ENTRY.pack


class IndexFile:
    """`count` is the number of the next entry, as RocketMQ's header has it."""

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.entries_at = HEADER.size + slots * SLOT.size
        self.size = self.entries_at + entries * ENTRY_SIZE
        self.begin_time = self.end_time = self.begin_offset = self.end_offset = 0
        self.used_slots = 0
        self.count = 1
        self.room = 0  # entries below this number have space on disk
        self._fd = -1
        self._map: mmap.mmap | None = None

    # -- opening ---------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, slots: int, entries: int) -> IndexFile:
        file = cls(path, slots, entries)
        try:
            file.reserve(file.count)
        except BaseException:
            file.delete()
            raise
        return file

    def load_header(self) -> None:
        with self.path.open("rb") as file:
            data = file.read(HEADER.size)
        if len(data) == HEADER.size:
            (self.begin_time, self.end_time, self.begin_offset, self.end_offset, self.used_slots, count) = (
                HEADER.unpack(data)
            )
            self.count = min(max(1, count), self.entries)

    def _open_for_writing(self) -> None:
        self._fd = open_file(self.path)
        if os.fstat(self._fd).st_size != self.size:
            os.ftruncate(self._fd, self.size)

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._open_for_writing()
        return self._fd

    @property
    def map(self) -> mmap.mmap:
        if self._map is None:
            self._map = mmap.mmap(self.fd, self.size)
        return self._map

    def reserve(self, entry: int) -> None:
        """Space for all slots and for entries up to `entry`; DiskFull otherwise."""
        if not self.room:
            reserve_range(self.fd, 0, self.entries_at, str(self.path))
            platform.expect_writes(self.map, 0)
            self.room = self.count
        if entry < self.room:
            return
        start = self.entries_at + self.room * ENTRY_SIZE
        wanted = min(self.size, max(start + _EXTENT, self.entries_at + (entry + 1) * ENTRY_SIZE))
        reserve_range(self.fd, start, wanted - start, str(self.path))
        self.room = (wanted - self.entries_at) // ENTRY_SIZE

    # -- entries ---------------------------------------------------------------------------------------

    def put_all(self, hashes: list[int], keys: list[tuple[str, str, int, int]]) -> None:
        """Enter keys in the order of the log: topic, key (both in the hash already), commit-log offset, store time. The
        caller has reserved."""
        table, slots, number, entries = self._map or self.map, self.slots, self.count, []
        if number == 1:
            self.begin_offset, self.begin_time = keys[0][2:]
        begin = self.begin_time
        for key_hash, (_, _, offset, time) in zip(hashes, keys, strict=True):
            slot_at = 40 + key_hash % slots * 4
            (older,) = _get_slot(table, slot_at)
            if not 0 < older < number:
                older = 0
                self.used_slots += 1
            seconds = (time - begin) // 1000
            if not 0 <= seconds <= 0x7FFFFFFF:
                seconds = 0 if seconds < 0 else 0x7FFFFFFF
            entries.append(_pack_entry(key_hash, offset, seconds, older))
            _put_slot(table, slot_at, number)
            number += 1
        at = self.entries_at + self.count * 20
        table[at : at + 20 * len(entries)] = b"".join(entries)
        is_first = self.count == 1
        self.count = number
        self.end_offset, self.end_time = keys[-1][2:]
        if is_first:
            self.write_header()  # the begin time cannot be found again from the entries

    def enter(self, draft: Draft) -> None:
        """The same for the keys of a draft, all of one time. The file has entries, and room for these."""
        now, table = draft.now, self._map or self.map
        seconds = (now - self.begin_time) // 1000
        if not 0 <= seconds <= 0x7FFFFFFF:
            seconds = 0 if seconds < 0 else 0x7FFFFFFF
        self.used_slots += draft.enter_keys(table, self.slots, self.entries_at, self.count, seconds)
        self.count += draft.key_count
        self.end_offset, self.end_time = draft.last_key_offset, now

    def find(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """Commit-log offsets of entries with that hash and a time in [begin, end] to the second, newest
        first."""
        table = self.map
        (number,) = SLOT.unpack_from(table, 40 + key_hash % self.slots * 4)
        previous = self.count
        while 0 < number < previous:  # chains only go down; anything else is damage and ends the walk
            found, offset, seconds, older = ENTRY.unpack_from(table, self.entries_at + number * ENTRY_SIZE)
            # The entry knows the second only, so the message may be up to 999 ms later.
            time = self.begin_time + seconds * 1000
            if found == key_hash and begin - 999 <= time <= end:
                yield offset
            if time < begin - 999:
                return
            previous, number = number, older

    # -- recovery --------------------------------------------------------------------------------------

    def cut(self, log_end: int, store_time: Callable[[int], int]) -> None:
        """Keep the entries before `log_end` only, and make slots and header from them alone."""
        table = self.map
        low, high = 1, self.entries
        while low < high:
            middle = (low + high) // 2
            key_hash, offset, seconds, older = ENTRY.unpack_from(table, self.entries_at + middle * ENTRY_SIZE)
            if offset < log_end and (key_hash or offset or seconds or older):
                low = middle + 1
            else:
                high = middle
        self.count = low
        self._zero_after_last()
        self._rebuild_slots()
        if self.count > 1:
            self.begin_offset = self._entry(1)[1]
            self.end_offset = self._entry(self.count - 1)[1]
            end_time = store_time(self.end_offset)
            self.end_time = (
                end_time if end_time > 0 else self.begin_time + self._entry(self.count - 1)[2] * 1000
            )
            self.write_header()

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        entry: tuple[int, int, int, int] = ENTRY.unpack_from(self.map, self.entries_at + number * ENTRY_SIZE)
        return entry

    def _zero_after_last(self) -> None:
        self.close()
        os.ftruncate(self.fd, self.entries_at + self.count * ENTRY_SIZE)
        os.ftruncate(self.fd, self.size)
        self.room = 0

    def _rebuild_slots(self) -> None:
        slots = array("i", bytes(4 * self.slots))
        number, count = 1, self.slots
        while number < self.count:
            upto = min(self.count, number + 50_000)
            at = self.entries_at + number * ENTRY_SIZE
            for key_hash, _, _, _ in ENTRY.iter_unpack(self.map[at : at + (upto - number) * ENTRY_SIZE]):
                slots[key_hash % count] = number
                number += 1
        self.used_slots = count - slots.count(0)
        slots.byteswap()
        platform.pwrite(self.fd, slots.tobytes(), HEADER.size)

    # -- writing ---------------------------------------------------------------------------------------

    def write_header(self) -> None:
        HEADER.pack_into(
            self.map, 0,
            self.begin_time, self.end_time, self.begin_offset, self.end_offset, self.used_slots, self.count,
        )  # fmt: skip

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
