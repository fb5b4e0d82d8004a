# SPDX-License-Identifier: Apache-2.0
"""What the store answers: values only."""

from __future__ import annotations

import struct
from enum import Enum, StrEnum
from mmap import mmap
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

_LAST_UNIT = struct.Struct(">qi")

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from aerobee.protocol.message import Record
    from aerobee.store.consume_queue import ConsumeQueue

    Awaited = Container[tuple[str, int]]  # topics and queues; nothing that is waited for is false


class ReadStatus(StrEnum):
    """How a read ended; the names are RocketMQ's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_RESET = "OFFSET_RESET"  # never by the store itself: a reset that waits for the consumer


class Boundary(Enum):
    """Which end of the messages at one time a search by time means."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class ReadLimit(msgspec.Struct, frozen=True):
    """What one read may cost. Bytes and count hold after the first message, so a big one still gets through."""

    max_messages: int = 32
    max_bytes: int = 262_144
    max_scan: int = 800  # queue units looked at, the filtered ones included
    cold_messages: int = 0  # the same limits for what has left memory, 0 = no difference
    cold_bytes: int = 0


class Accept(Protocol):
    """A filter: tag codes on the queue unit first, then properties of the message."""

    @property
    def codes(self) -> frozenset[int] | None: ...

    @property
    def properties(self) -> Callable[[dict[str, str]], bool] | None: ...


class Stored(msgspec.Struct):
    """Records as they lie in the log, and their queue units. Not to be kept: the records are views of the mapped log,
    copied once, by `joined`."""

    units: bytes
    records: list[memoryview]
    seen: int  # units looked at, those of other tags included

    def joined(self, before: bytes = b"") -> bytes:
        return b"".join((before, self.units, *self.records))

    @property
    def end(self) -> int:
        """Where in the log the last of them ends."""
        position, size = _LAST_UNIT.unpack_from(self.units, len(self.units) - 20)
        return int(position + size)


# Units of a queue from an offset on, the map and the base of the log file that the first one's record is in, the queue's
# first offset, and the queue. It may be kept for as long as `ReadSide.stands` is what it was and the map is open.
Stretch = tuple[bytes, mmap, int, int, "ConsumeQueue"]


class Found(msgspec.Struct):
    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[bytes] = []
    offsets: list[int] = []
    size_bytes: int = 0
    behind_bytes: int = 0  # log bytes between the last message found and the log's end
    stored: Stored | None = None  # of an unchecked read, which puts nothing into messages and offsets


class Listener(Protocol):
    """Who waits for messages to be stored."""

    @property
    def count(self) -> int:
        """How many wait now: while there are none he is told nothing."""
        ...

    def awaited(self) -> Awaited:
        """The queues that they wait for."""
        ...

    def arrived(self, record: Record, tags_code: int) -> None: ...


class _EveryQueue:
    def __contains__(self, place: object) -> bool:
        return True


EVERY_QUEUE = _EveryQueue()


class Unit(NamedTuple):
    """One entry of a consume queue."""

    physical_offset: int
    size: int
    tags_code: int


class RecoveryReport(msgspec.Struct):
    """What opening a store found and did."""

    clean: bool = True
    messages: int = 0  # records checked
    dispatched: int = 0  # of them, put into queues and index again
    truncated_bytes: int = 0
    corrupt: int = 0
    scanned_from: int = 0
    took_ms: int = 0
