# SPDX-License-Identifier: Apache-2.0
"""Looking at a record's bytes without decoding them all."""

from __future__ import annotations

import struct

from aerobee.errors import CorruptRecord
from aerobee.protocol.message import MAGIC_V1, MIN_RECORD, verify

CHECK_START = b"__CRC32#\x01"
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_BORN_V6 = 0x10
_STORE_V6 = 0x20


def text_parts(raw: bytes) -> tuple[str, str]:
    """Topic and properties text of a record known to be whole; the body is not copied."""
    start, topic_end, end = _text_bounds(raw)
    return raw[start:topic_end].decode(), raw[topic_end + 2 : end].decode()


def _text_bounds(raw: bytes) -> tuple[int, int, int]:
    """Where the topic starts, where it ends, where the properties end."""
    sys_flag = _INT.unpack_from(raw, 36)[0]
    at = 84
    if sys_flag & (_BORN_V6 | _STORE_V6):
        at += (12 if sys_flag & _BORN_V6 else 0) + (12 if sys_flag & _STORE_V6 else 0)
    at += 4 + _INT.unpack_from(raw, at)[0]
    if _INT.unpack_from(raw, 4)[0] == MAGIC_V1:
        size, at = raw[at], at + 1
    else:
        size, at = _SHORT.unpack_from(raw, at)[0], at + 2
    end = at + size
    return at, end, end + 2 + _SHORT.unpack_from(raw, end)[0]


def is_whole(raw: bytes) -> bool:
    """The record's check holds. One without a record check (RocketMQ's default) has only its body's CRC, so its parts
    must also fill it exactly, and topic and properties must not have the zero bytes a torn write leaves."""
    if len(raw) < MIN_RECORD:
        return False
    try:
        verify(raw)
        start, topic_end, end = _text_bounds(raw)
    except (CorruptRecord, struct.error, IndexError):
        return False
    if end != len(raw):
        return False
    return raw[-20:-11] == CHECK_START or not (0 in raw[start:topic_end] or 0 in raw[topic_end + 2 :])


def sys_flag(raw: bytes) -> int:
    flags: int = _INT.unpack_from(raw, 36)[0]
    return flags
