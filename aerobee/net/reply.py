# SPDX-License-Identifier: Apache-2.0
"""A handler's answer, and the frame it becomes."""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

import msgspec

from aerobee.errors import BrokerError, DiskFull, ProtocolError, StoreError
from aerobee.protocol import command as wire
from aerobee.protocol.codes import VERSION, ResponseCode
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


def refusal(command: Command, error: BaseException, peer: str) -> Reply:
    """The one place where an exception becomes a remoting answer; `peer` is who asked, for the log."""
    code, level, trace = int(ResponseCode.SYSTEM_ERROR), logging.DEBUG, None
    if isinstance(error, BrokerError):
        code, remark = error.code, error.remark
    elif isinstance(error, (StoreError, ProtocolError)):
        remark = str(error)
        if isinstance(error, DiskFull):
            code = int(ResponseCode.SERVICE_NOT_AVAILABLE)
        elif isinstance(error, StoreError):
            level = logging.ERROR
        # else a field is missing or does not convert: the framing is intact, so the connection lives
    else:
        remark, level, trace = f"{type(error).__name__}: {error}", logging.ERROR, error
    if command.flag & wire.ONE_WAY:
        level = max(level, logging.INFO)  # nobody else will tell
    log.log(level, "refused code=%d peer=%s: %s", command.code, peer, remark, exc_info=trace)
    return Reply(code, remark=remark)
