# SPDX-License-Identifier: Apache-2.0
"""From bytes to a request: only what is read quickly, whoever sent it.

Parsing takes time by the number of parts, not of bytes, and two bytes can be a part. Only bodies of messages are large
and one part each, so all that is not body is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BESIDE_BODIES = 256 * 1024  # bytes of a request
MAX_PARTS = 20_000  # messages of a large send and their properties
_MESSAGES = pb.SendMessageRequest.MESSAGES_FIELD_NUMBER
_BODY = pb.Message.BODY_FIELD_NUMBER
Reader = Callable[[bytes], Any]
_BYTES = 2  # the wire type of texts, bytes and messages


def reader(kind: Any) -> Reader:
    """Reads requests of that type; BAD_REQUEST for one that is none, or would take long."""

    def read(data: bytes) -> Any:
        if len(data) > MAX_BESIDE_BODIES:
            beside = _beside_bodies(data) if kind is pb.SendMessageRequest else len(data)
            if beside > MAX_BESIDE_BODIES:
                raise _refused(
                    f"{kind.__name__} with {beside} bytes beside bodies, limit {MAX_BESIDE_BODIES}; send several"
                )
        try:
            return kind.FromString(data)
        except DecodeError:
            raise _refused(f"the request is no {kind.__name__}") from None

    return read


def _refused(why: str) -> Refused:
    return Refused(pb.BAD_REQUEST, why)


def _beside_bodies(data: bytes) -> int:
    """Bytes that are no message's body."""
    parts = bodies = 0
    for number, start, end in _fields(data, 0, len(data)):
        parts += 1
        if number == _MESSAGES:
            for field, value, stop in _fields(data, start, end):
                parts += 1
                if field == _BODY:
                    bodies += stop - value
                if parts > MAX_PARTS:
                    break
        if parts > MAX_PARTS:
            raise _refused(f"a send of more than {MAX_PARTS} parts; send several")
    return len(data) - bodies


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each length-delimited field; a message has no others, so another one ends the walk."""
    while at < end:
        tag, at_length = _varint(data, at)
        if tag & 7 != _BYTES:
            return
        size, start = _varint(data, at_length)
        at = min(start + size, end)
        yield tag >> 3, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, at
