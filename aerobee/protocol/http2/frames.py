# SPDX-License-Identifier: Apache-2.0
"""HTTP/2's frames (RFC 9113): their kinds and flags, and those that we send.

length 3 | kind 1 | flags 1 | stream 4 | payload
"""

from __future__ import annotations

import struct
from enum import IntEnum

from aerobee.errors import ProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # a client's first words
HEAD = struct.Struct(">IBI")  # length and kind, flags, stream
HEAD_BYTES = 9
MAX_PAYLOAD = 16_384  # of a frame, unless somebody says otherwise; we never do
MAX_WINDOW = (1 << 31) - 1
USUAL_WINDOW = 65_535

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20

# Settings.
MAX_STREAMS, INITIAL_WINDOW, MAX_HEADERS = 3, 4, 6
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")
_GOODBYE = struct.Struct(">II")


class Reason(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class BrokenHttp2(ProtocolError):
    """The peer broke the protocol, and its connection has to end."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values.items()))


def settings_in(payload: bytes) -> list[tuple[int, int]]:
    if len(payload) % _SETTING.size:
        raise BrokenHttp2(Reason.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
    return list(_SETTING.iter_unpack(payload))


def window_update(stream: int, size: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(size))


def reset(stream: int, reason: Reason) -> bytes:
    return frame(RST_STREAM, 0, stream, _NUMBER.pack(reason))


def goodbye(last_stream: int, reason: Reason, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _GOODBYE.pack(last_stream, reason) + text.encode("ascii", "replace"))


def number_in(payload: bytes) -> int:
    """Of a frame that holds one."""
    if len(payload) != _NUMBER.size:
        raise BrokenHttp2(Reason.FRAME_SIZE_ERROR, f"a frame of {len(payload)} bytes that holds a number")
    (value,) = _NUMBER.unpack(payload)
    return int(value) & MAX_WINDOW


def unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise BrokenHttp2(Reason.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
