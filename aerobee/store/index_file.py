# SPDX-License-Identifier: Apache-2.0
"""One file of the key index: a hash table on disk whose chains run from new to old.

    header 40:  begin time 8 | end time 8 | begin offset 8 | end offset 8 | used slots 4 | next entry 4
    slots:      4 bytes each, the newest entry with that hash, 0 = none
    entries:    key hash 4 | commit-log offset 8 | seconds since begin time 4 | older entry of the slot 4

Entry 0 is never used. Entries are in the order of the log, so everything after a commit-log offset can be
dropped and told again. Of the file that is written, header, slots (`index_slots.py`) and the newest entries are kept
in memory until a checkpoint or, the entries, until they are many. After a crash header and slots are not believed; the
entries are, as far as the checkpoint reaches, and what follows is told from the log.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from typing import TYPE_CHECKING

from aerobee.errors import StoreError
from aerobee.store import platform
from aerobee.store.index_slots import SLOT_SIZE, IndexSlots, are_few, write_all
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
_TAIL_BYTES = 8_192 * ENTRY_SIZE  # of entries in memory, more where one batch brings more
_get_slot = SLOT.unpack_from
_put_slot = SLOT.pack_into
_pack_entry = ENTRY.pack


class IndexFile:
    """`count` is the number of the next entry, as RocketMQ's header has it."""

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.entries_at = HEADER.size + slots * SLOT_SIZE
        self.size = self.entries_at + entries * ENTRY_SIZE
        self.begin_time = self.end_time = self.begin_offset = self.end_offset = 0
        self.used_slots = 0
        self.count = 1
        self.room = 0  # entries below this number have space on disk
        self._fd = -1
        self._map: mmap.mmap | None = None
        # Of a file that is written to:
        self._slots: IndexSlots | None = None
        self._slots_written = 1  # those of entries below this number are in the file
        self._tail = bytearray()  # room for entries that are not in the file yet
        self._first = 1  # the number of the first of them

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
        """For reading, and for the header."""
        if self._map is None:
            self._map = mmap.mmap(self.fd, self.size)
            platform.expect_no_order(self._map, 0)  # chains lead anywhere
        return self._map

    def reserve(self, entry: int) -> None:
        """Space for all slots and for entries up to `entry`, on disk and in memory; DiskFull otherwise."""
        if not self.room:
            self._begin()
        if self.room <= entry and self.room < self.entries:
            start = self.entries_at + self.room * ENTRY_SIZE
            wanted = min(self.size, max(start + _EXTENT, self.entries_at + (entry + 1) * ENTRY_SIZE))
            reserve_range(self.fd, start, wanted - start, str(self.path))
            self.room = (wanted - self.entries_at) // ENTRY_SIZE
        if (entry - self._first) * ENTRY_SIZE > len(self._tail):
            self._write_tail()
            self._tail.extend(bytes(max(0, (entry - self._first) * ENTRY_SIZE - len(self._tail))))

    def _begin(self) -> None:
        """To write."""
        reserve_range(self.fd, 0, self.entries_at, str(self.path))
        self._slots = IndexSlots(self.slots, HEADER.size)
        if self.count > 1:
            self._slots.load(self.fd)
        self._slots_written = self._first = self.room = self.count
        self._tail = bytearray(_TAIL_BYTES)

    @property
    def room_at_once(self) -> int:
        """How many entries fit without asking for more."""
        return min(self.room - self.count, len(self._tail) // ENTRY_SIZE - (self.count - self._first))

    def _write_tail(self) -> None:
        entries = self._entries_in_memory()
        try:
            write_all(self.fd, memoryview(entries), self.entries_at + self._first * ENTRY_SIZE)
        except OSError as error:
            raise StoreError(f"{self.path} takes no keys: {error}") from error
        self._first = self.count

    def _entries_in_memory(self) -> bytes:
        return bytes(memoryview(self._tail)[: (self.count - self._first) * ENTRY_SIZE])

    # -- entries ---------------------------------------------------------------------------------------

    def put_all(self, hashes: list[int], keys: list[tuple[str, str, int, int]]) -> None:
        """Enter keys in the order of the log: topic, key (both in the hash already), commit-log offset, store time. The
        caller has reserved."""
        slots, number, entries = self.slots, self.count, []
        slot_table = self._slots.table  # type: ignore[union-attr]
        if number == 1:
            self.begin_offset, self.begin_time = keys[0][2:]
        begin = self.begin_time
        for key_hash, (_, _, offset, time) in zip(hashes, keys, strict=True):
            slot_at = key_hash % slots * 4
            (older,) = _get_slot(slot_table, slot_at)
            if not 0 < older < number:
                older = 0
                self.used_slots += 1
            seconds = (time - begin) // 1000
            if not 0 <= seconds <= 0x7FFFFFFF:
                seconds = 0 if seconds < 0 else 0x7FFFFFFF
            entries.append(_pack_entry(key_hash, offset, seconds, older))
            _put_slot(slot_table, slot_at, number)
            number += 1
        at = (self.count - self._first) * 20
        self._tail[at : at + 20 * len(entries)] = b"".join(entries)
        is_first = self.count == 1
        self.count = number
        self.end_offset, self.end_time = keys[-1][2:]
        if is_first:
            self.write_header()  # the begin time cannot be found again from the entries

    def enter(self, draft: Draft) -> None:
        """The same for the keys of a draft, all of one time. The file has entries, and room for these."""
        now, slot_table = draft.now, self._slots.table  # type: ignore[union-attr]
        seconds = (now - self.begin_time) // 1000
        if not 0 <= seconds <= 0x7FFFFFFF:
            seconds = 0 if seconds < 0 else 0x7FFFFFFF
        self.used_slots += draft.enter_keys(self._tail, slot_table, self._first, self.count, seconds)
        self.count += draft.key_count
        self.end_offset, self.end_time = draft.last_key_offset, now

    def find(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """Commit-log offsets of entries with that hash and a time in [begin, end] to the second, newest
        first."""
        slot_at = key_hash % self.slots * SLOT_SIZE
        (number,) = (
            SLOT.unpack_from(self.map, HEADER.size + slot_at)
            if self._slots is None
            else SLOT.unpack_from(self._slots.table, slot_at)
        )
        previous = self.count
        while 0 < number < previous:  # chains only go down; anything else is damage and ends the walk
            found, offset, seconds, older = self._entry(number)
            # The entry knows the second only, so the message may be up to 999 ms later.
            time = self.begin_time + seconds * 1000
            if found == key_hash and begin - 999 <= time <= end:
                yield offset
            if time < begin - 999:
                return
            previous, number = number, older

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        in_memory = number - self._first
        entry: tuple[int, int, int, int] = (
            ENTRY.unpack_from(self._tail, in_memory * ENTRY_SIZE)
            if self._tail and in_memory >= 0
            else ENTRY.unpack_from(self.map, self.entries_at + number * ENTRY_SIZE)
        )
        return entry

    # -- recovery --------------------------------------------------------------------------------------

    def cut(self, log_end: int, store_time: Callable[[int], int]) -> None:
        """Keep the entries before `log_end` only, and make slots and header from them alone."""
        low, high = 1, self.entries
        while low < high:
            middle = (low + high) // 2
            key_hash, offset, seconds, older = self._entry(middle)
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

    def _zero_after_last(self) -> None:
        self.close()
        os.ftruncate(self.fd, self.entries_at + self.count * ENTRY_SIZE)
        os.ftruncate(self.fd, self.size)

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

    def save_job(self) -> Callable[[int], None]:
        """Writes what there is now, by a descriptor of the file. A thread may do it while more is entered: nothing of
        what it reads changes but slots, and these one by one."""
        entries, first, count, slots = self._entries_in_memory(), self._first, self.count, self._slots
        done = self._slots_written

        def save(fd: int) -> None:
            write_all(fd, memoryview(entries), self.entries_at + first * ENTRY_SIZE)
            if slots is None or done == count:
                return
            changed = None
            if are_few(count - done):
                data = platform.pread(fd, (count - done) * ENTRY_SIZE, self.entries_at + done * ENTRY_SIZE)
                changed = slots.pieces(key_hash for key_hash, _, _, _ in ENTRY.iter_unpack(data))
            slots.write(fd, changed)
            self._slots_written = count

        return save

    def close(self) -> None:
        """What is not written is forgotten."""
        self._slots, self._tail, self.room = None, bytearray(), 0
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
