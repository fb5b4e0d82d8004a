# SPDX-License-Identifier: Apache-2.0
"""Parts of a record's bytes without decoding the rest: the body is neither copied nor looked at."""

from __future__ import annotations

import struct

from aerobee.protocol.message import MAGIC_V1

_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_LONG = struct.Struct(">q")
_BORN_V6 = 0x10
_STORE_V6 = 0x20


def text_parts(raw: bytes) -> tuple[str, str]:
    """Topic and properties text of a record known to be whole."""
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
    return raw[at:end].decode(), raw[end + 2 : end + 2 + _SHORT.unpack_from(raw, end)[0]].decode()


def store_time(raw: bytes) -> int:
    at = 68 if _INT.unpack_from(raw, 36)[0] & _BORN_V6 else 56
    time: int = _LONG.unpack_from(raw, at)[0]
    return time
