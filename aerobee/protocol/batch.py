# SPDX-License-Identifier: Apache-2.0
"""Several messages in one send (code 320), and in one record of a batch topic.

total size 4 | magic 4 (0) | body crc 4 (0) | flag 4 | body size 4, body | properties size 2, properties
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.errors import ProtocolError
from aerobee.protocol import properties as props
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.message import MAX_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.protocol.message import Record

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_OVERHEAD = _HEAD.size + _SHORT.size
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
        parts.append(_HEAD.pack(_OVERHEAD + len(body) + len(text), 0, 0, flag, len(body)))
        parts += (body, _SHORT.pack(len(text)), text)
    return b"".join(parts)


def decode(data: bytes) -> list[BatchItem]:
    """The messages of a batch body; ProtocolError when it does not add up."""
    items = []
    at, end = 0, len(data)
    try:
        while at < end:
            size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
            body_at, stop = at + _HEAD.size, at + size
            text_at = body_at + body_size + 2
            if body_size < 0 or stop > end or text_at > stop:
                raise ProtocolError(f"batch: message of {size} bytes, body {body_size}, {end - at} left")
            (text_size,) = _SHORT.unpack_from(data, text_at - 2)
            if text_at + text_size != stop:
                raise ProtocolError(f"batch: properties of {text_size} bytes do not end at {stop}")
            items.append(BatchItem(flag, data[body_at : text_at - 2], data[text_at:stop].decode()))
            at = stop
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"batch: {error}") from None
    return items


# For those who import the functions by name.
encode_batch, decode_batch = encode, decode


def unwrap(record: Record) -> list[Record]:
    """The messages inside a record of a batch topic; the record itself when it holds just one."""
    if record.sys_flag & _UNWRAP != _UNWRAP:
        return [record]
    base = props.get(record.properties_text, "INNER_BASE") or ""
    first = int(base) if base.isascii() and base.isdigit() else record.queue_offset
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
