# SPDX-License-Identifier: Apache-2.0
"""A producer's batch on its way into the log: column by column instead of record by record.

Its messages differ in body, properties and place only, so every step is one comprehension or one `map` in C over all of
them, and no Record is made.
"""

from __future__ import annotations

import zlib
from itertools import count, repeat
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.protocol.message import HEAD_V4, LENGTHS, RECORD_CHECK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.protocol.batch import Batch
    from aerobee.store.consume_queue import ConsumeQueue

_crc32 = zlib.crc32


class Places(msgspec.Struct):
    """Where a batch was stored: its queue offsets follow the first one."""

    queue_offset: int
    physical_offsets: list[int]
    end: int  # physical offset after the last record

    @property
    def size_bytes(self) -> int:
        return self.end - self.physical_offsets[0]


class Layout(NamedTuple):
    """What the store adds to each message."""

    texts: list[bytes]  # properties as stored
    sizes: list[int]
    places: list[int]  # physical offsets


def encode(
    batch: Batch, queue: ConsumeQueue, layout: Layout, stamp: tuple[int, bytes], check_size: int
) -> bytes:
    """The records' bytes, stamped with store time and host; both hosts are IPv4."""
    flags, bodies, _ = batch.members
    texts, sizes, places = layout
    heads = map(
        HEAD_V4.pack,
        sizes, repeat(queue.magic), [_crc32(body) & 0x7FFFFFFF for body in bodies], repeat(batch.queue_id), flags,
        count(queue.max_offset), places, repeat(batch.sys_flag & ~0x30), repeat(batch.born_timestamp),
        repeat(batch.born_host), repeat(stamp[0]), repeat(stamp[1]), repeat(batch.reconsume_times), repeat(0),
        map(len, bodies),
    )  # fmt: skip
    lengths = [LENGTHS[len(text) + check_size] for text in texts]
    records = list(map(b"".join, zip(heads, bodies, repeat(queue.topic_field), lengths, texts, strict=False)))
    return b"".join(_with_checks(records) if check_size == RECORD_CHECK_SIZE else records)


def _with_checks(records: list[bytes]) -> Iterable[bytes]:
    """Each record followed by its check, whose digits stand backwards: so it is written backwards and turned."""
    checks = [(b"\x02%010d\x01#23CRC__" % (_crc32(record) & 0x7FFFFFFF))[::-1] for record in records]
    return [part for pair in zip(records, checks, strict=True) for part in pair]
