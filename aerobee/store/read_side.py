# SPDX-License-Identifier: Apache-2.0
"""What a reader asks the store: messages of a queue, where queues begin and end, messages by key, by time, by place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.clock import perf_counter_ns
from aerobee.errors import StoreError
from aerobee.protocol import message
from aerobee.store.consume_queue import FILLER_SIZE
from aerobee.store.reader import Reader, machine_memory
from aerobee.store.record_keys import index_keys, tag_unique_keys
from aerobee.store.record_parts import text_parts
from aerobee.store.results import Boundary, Found, ReadLimit, ReadStatus, Unit

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.protocol.message import Record
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.queue_care import QueueCare
    from aerobee.store.queues import ConsumeQueues
    from aerobee.store.results import Accept, Stretch


class ReadSide:
    """The half of a store that changes nothing of it."""

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        care: QueueCare,
        memory_percent: int,
    ) -> None:
        self._root = root
        self._log = log
        self._queues = queues
        self._index = index
        self._care = care
        self._reader = Reader(log, care, machine_memory() * memory_percent // 100)
        self._longest_read_ns = 0
        self.readable = True

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.loaded.get((topic, queue_id)) or self._queues.find(topic, queue_id)

    # -- messages of a queue ---------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limit: ReadLimit,
        accept: Accept | None = None,
        *,
        checked: bool = True,
    ) -> Found:
        if not self.readable:
            raise self._unreadable()
        queue = self._queue(topic, queue_id)
        if queue is None:
            return Found(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        high = queue.max_offset
        low = queue.min_offset(self._log.min_offset)
        if high == 0:
            return Found(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return Found(ReadStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return Found(ReadStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return Found(ReadStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        began = perf_counter_ns()
        found = Found(ReadStatus.FOUND, offset, low, high, [], [])
        self._reader.read(found, queue, limit, accept, checked=checked)
        self.took(perf_counter_ns() - began)
        return found

    def stretch(self, place: tuple[str, int], offset: int, count: int) -> Stretch | None:
        """Units of a topic and queue, for who chooses the records himself; None for what `read` must have a look at."""
        queue = self._queues.loaded.get(place)
        return self._reader.stretch(queue, offset, count) if queue is not None and self.readable else None

    @property
    def stands(self) -> tuple[bool, int, int, int]:
        """Equal to what it was as long as a stretch that was given is what `stretch` would begin with, but for what has
        come behind a queue's end, and for `served_from`."""
        return self.readable, self._log.min_offset, self._queues.unloaded, self._care.mended

    def took(self, read_ns: int) -> None:
        """A read, be it one that was made of a stretch."""
        if read_ns > self._longest_read_ns:
            self._longest_read_ns = read_ns

    @property
    def longest_read_ms(self) -> int:
        return self._longest_read_ns // 1_000_000

    @property
    def memory_bytes(self) -> int:
        """So much of the log's end is taken to be in memory, as RocketMQ estimates it."""
        return self._reader.memory_bytes

    @memory_bytes.setter
    def memory_bytes(self, size: int) -> None:
        self._reader.memory_bytes = size

    def in_memory(self, physical_offset: int) -> bool:
        return self._log.end - physical_offset <= self._reader.memory_bytes

    def _unreadable(self) -> StoreError:
        return StoreError(f"store {self._root} is not readable now")

    def raw_at(self, physical_offset: int) -> bytes | None:
        return self._reader.raw_at(physical_offset)

    def record_at(self, physical_offset: int) -> Record | None:
        raw = self._reader.raw_at(physical_offset)
        return None if raw is None else message.decode(raw)

    def record_of(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """Exactly the message at that queue offset, or None."""
        unit = self.unit(topic, queue_id, offset)
        record = self.record_at(unit.physical_offset) if unit else None
        return record if record and record.queue_offset == offset and record.topic == topic else None

    # -- offsets ---------------------------------------------------------------------------------------

    def unit(self, topic: str, queue_id: int, offset: int) -> Unit | None:
        """None also where a filler stands for a message that is lost: it has the place of another one."""
        queue = self._queue(topic, queue_id)
        unit = queue.unit(offset) if queue else None
        return None if unit is None or unit.size == FILLER_SIZE else unit

    def units(self, topic: str, queue_id: int, offset: int, count: int, step: int = 1) -> bytes:
        """Of the units [offset, offset + count) those that there are, as stored; or every `step`th of them."""
        if not self.readable:
            raise self._unreadable()
        queue = self._queue(topic, queue_id)
        if queue is None:
            return b""
        at = max(offset, queue.min_offset(self._log.min_offset))
        end = min(offset + count, queue.max_offset)
        if step > 1:
            return b"".join([queue.read(one, 1) for one in range(at, end, step)])
        return queue.read(at, end - at) if at < end else b""

    def log_from(self, position: int, size: int) -> memoryview | bytes:
        """Bytes of the log as they are. Not to be kept: see `CommitLog.bytes_from`."""
        if not self.readable:
            raise self._unreadable()
        return self._log.bytes_from(position, size)

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return queue.min_offset(self._log.min_offset) if queue else 0

    def kept_from(self, topic: str, queue_id: int) -> int:
        """As min_offset, with what its topic no longer serves: it may have been handed out before."""
        queue = self._queue(topic, queue_id)
        return queue.kept_from(self._log.min_offset) if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset the next message gets."""
        queue = self._queue(topic, queue_id)
        return queue.max_offset if queue else 0

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Both at once."""
        queue = self._queue(topic, queue_id)
        return (queue.min_offset(self._log.min_offset), queue.max_offset) if queue else (0, 0)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """LOWER: the first message stored at or after the time, else the end. UPPER: the last stored at or
        before
        it, else the first."""
        low, high = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        first = low
        upper = boundary is Boundary.UPPER
        while low < high:
            middle = (low + high) // 2
            time = self._time_from(topic, queue_id, middle, high)
            if time is not None and (time < timestamp or (upper and time == timestamp)):
                low = middle + 1
            else:
                high = middle
        return max(first, low - 1) if upper else low

    def serve_since(self, topic: str, queue_id: int, timestamp: int) -> None:
        """From now on the queue begins at the first message stored at or after the time; 0: at what the log has."""
        queue = self._queue(topic, queue_id)
        if queue is not None:
            queue.served_from = 0
            queue.served_from = self.offset_by_time(topic, queue_id, timestamp) if timestamp else 0

    def _time_from(self, topic: str, queue_id: int, offset: int, before: int) -> int | None:
        """The store time of the message at `offset`, or of the next one that has a readable time."""
        for at in range(offset, before):
            time = self.store_time(topic, queue_id, at)
            if time >= 0:
                return time
        return None

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        unit = self.unit(topic, queue_id, offset)
        return self._log.store_time(unit.physical_offset) if unit else -1

    # -- keys -----------------------------------------------------------------------------------------

    def find_by_key(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> list[bytes]:
        """The newest messages with that key stored in [begin, end], oldest first."""
        found: list[bytes] = []
        for physical in self._index.find(topic, key, begin, end):
            if len(found) >= max_messages:
                break
            raw = self._reader.raw_at(physical)
            if raw is None or not begin <= self._log.store_time(physical) <= end:
                continue
            there, text = text_parts(raw)
            _, unique, keys = tag_unique_keys(text)
            if there == topic and key in index_keys(0, unique, keys):
                found.append(raw)
        return found[::-1]
