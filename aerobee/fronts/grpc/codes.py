# SPDX-License-Identifier: Apache-2.0
"""How a call ends on the wire: gRPC's status codes, and the headers that carry them."""

from __future__ import annotations

from enum import IntEnum
from urllib.parse import quote

from aerobee.protocol.http2.hpack import written

MAX_TEXT = 1_024  # of a status: clients bound the trailers they take
_PLAIN = "".join(chr(c) for c in range(0x20, 0x7F) if c != ord("%"))  # what needs no escape

_CONTENT = ("content-type", "application/grpc")
_UNPACKED = ("grpc-accept-encoding", "identity")  # for whoever compresses; all others do not ask
HEADERS = written((":status", "200"), _CONTENT)
TRAILERS = written(("grpc-status", "0"))
ONLY_TRAILERS = written((":status", "200"), _CONTENT, ("grpc-status", "0"))  # well, and nothing to say
NOT_GRPC = written((":status", "415"))


class Code(IntEnum):
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


def trailers(code: Code, text: str) -> bytes:
    return written(*_status(code, text))


def only_trailers(code: Code, text: str) -> bytes:
    """An answer that is nothing but its status."""
    return written((":status", "200"), _CONTENT, _UNPACKED, *_status(code, text))


def _status(code: Code, text: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("grpc-status", str(int(code))), ("grpc-message", quote(text[:MAX_TEXT], safe=_PLAIN))
