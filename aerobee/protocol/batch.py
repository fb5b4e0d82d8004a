# SPDX-License-Identifier: Apache-2.0
"""Several messages in one send (code 320), and in one record of a batch topic.

total size 4 | magic 4 (0) | body crc 4 (0) | flag 4 | body size 4, body | properties size 2, properties
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.errors import MessageIllegal, ProtocolError
from aerobee.protocol import properties as props
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.message import LENGTHS, MAX_PROPERTIES, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD = struct.Struct(">iiiii")
_FIELDS = struct.Struct(">i8xii")  # total size, flag, body size
_SHORT = struct.Struct(">h")
OVERHEAD = _HEAD.size + _SHORT.size  # of a message besides its body and properties
_UNWRAP = SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH


class BatchItem(NamedTuple):
    """One message of a batch: all that is its own, in the order of the wire."""

    flag: int
    body: bytes
    properties_text: str = ""


def encode(items: Iterable[BatchItem]) -> bytes:
    parts = []
    for flag, body, properties_text in items:
        text = properties_text.encode()
        if len(text) > MAX_PROPERTIES:
            raise ProtocolError(f"properties of {len(text)} bytes, limit {MAX_PROPERTIES}")
        parts.append(_HEAD.pack(OVERHEAD + len(body) + len(text), 0, 0, flag, len(body)))
        parts += (body, _SHORT.pack(len(text)), text)
    return b"".join(parts)


class Columns(NamedTuple):
    """The messages of a batch, column by column."""

    flags: list[int]
    bodies: list[bytes]
    texts: list[str]  # properties


class Batch(msgspec.Struct):
    """Messages for one queue, with all that they share."""

    topic: str
    queue_id: int
    members: Columns
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    reconsume_times: int = 0

    def records(self) -> Iterator[Record]:
        for flag, body, text in zip(*self.members, strict=True):
            yield Record(
                self.topic,
                body,
                text,
                self.queue_id,
                flag=flag,
                sys_flag=self.sys_flag,
                born_timestamp=self.born_timestamp,
                born_host=self.born_host,
                reconsume_times=self.reconsume_times,
            )


def columns(data: bytes, most: int = sys.maxsize) -> Columns:
    """The messages of a batch body; ProtocolError when it does not add up, MessageIllegal when they are too many."""
    flags, bodies, texts = [], [], []
    at, end = 0, len(data)
    try:
        for _ in range(most):
            if at >= end:
                break
            size, flag, body_size = _FIELDS.unpack_from(data, at)
            stop, text_at = at + size, at + 22 + body_size
            if body_size < 0 or stop > end or text_at > stop:
                raise ProtocolError(f"batch: message of {size} bytes, body {body_size}, {end - at} left")
            text = data[text_at - 2 : stop]
            if text[:2] != LENGTHS[len(text) - 2]:
                raise ProtocolError(f"batch: properties do not end at {stop}, where their message does")
            flags.append(flag)
            bodies.append(data[at + 20 : text_at - 2])
            texts.append(text[2:].decode())
            at = stop
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"batch: {error}") from None
    if at < end:
        raise MessageIllegal(f"a batch of more than {most} messages; send smaller ones")
    return Columns(flags, bodies, texts)


def decode(data: bytes) -> list[BatchItem]:
    """The messages of a batch body, one by one."""
    return [BatchItem(*row) for row in zip(*columns(data), strict=True)]


# For those who import the functions by name.
encode_batch, decode_batch = encode, decode


def unwrap(record: Record) -> list[Record]:
    """The messages inside a record of a batch topic; the record itself when it holds just one."""
    if record.sys_flag & _UNWRAP != _UNWRAP:
        return [record]
    base = props.whole_number(props.get(record.properties_text, "INNER_BASE"))
    first = record.queue_offset if base is None else base
    sys_flag = record.sys_flag & ~_UNWRAP
    return [
        msgspec.structs.replace(
            record,
            body=item.body,
            properties_text=item.properties_text,
            flag=item.flag,
            queue_offset=first + index,
            sys_flag=sys_flag,
        )
        for index, item in enumerate(decode(record.body))
    ]
