# SPDX-License-Identifier: Apache-2.0
"""A handler's answer, and the frame it becomes."""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

import msgspec

from aerobee.errors import BrokerError, ProtocolError
from aerobee.protocol import command as wire
from aerobee.protocol.codes import VERSION
from aerobee.protocol.command import Command, Header, header_fields

log = logging.getLogger("aerobee.net")

_LENGTH = struct.Struct(">I")


class Reply(msgspec.Struct, gc=False):
    """A handler's answer; the connection adds opaque, flags and the peer's serialize type."""

    code: int = 0
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None
    ext: dict[str, str] | None = None  # fields beyond the header's


class Large(NamedTuple):
    """An answer whose body is sent from where it lies, without a copy: it must stay as it is until the peer has it."""

    frame: bytes  # of the answer without its body
    body: memoryview | bytes

    def parts(self) -> tuple[bytes, memoryview | bytes]:
        return _LENGTH.pack(len(self.frame) - 4 + len(self.body)) + self.frame[4:], self.body


def reply_frame(request: Command, reply: Reply) -> bytes:
    """The response frame to `request`, in the serialize type the peer used."""
    ext = header_fields(reply.header)
    if reply.ext:
        ext.update(reply.ext)
    return wire.encode(
        Command(
            reply.code,
            request.opaque,
            wire.RESPONSE,
            VERSION,
            "PYTHON",
            reply.remark,
            ext,
            reply.body,
            request.serialize,
        )
    )


def refusal(command: Command, error: BaseException) -> Reply:
    """The answer to a request whose handler raised: its code, or SYSTEM_ERROR as the Java broker gives."""
    if isinstance(error, BrokerError):
        return Reply(error.code, remark=error.remark)
    if not isinstance(error, ProtocolError):  # fields that do not decode are the peer's fault, the rest ours
        log.error("request code=%d failed", command.code, exc_info=error)
    return Reply(1, remark=f"{type(error).__name__}: {error}")
