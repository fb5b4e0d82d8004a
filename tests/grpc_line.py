# SPDX-License-Identifier: Apache-2.0
"""A client of the gRPC port at the level of bytes, and its connection without a socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aerobee.clock import ManualClock
from aerobee.fronts.grpc.connection import ConnectionLimits, GrpcConnection
from aerobee.fronts.grpc.port import GrpcPort
from aerobee.net.unfinished import Unfinished
from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import DATA, END_HEADERS, END_STREAM, HEAD, HEADERS, PREFACE, frame
from aerobee.protocol.http2.hpack import HeaderBlocks, written
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.fronts.grpc.exchange import Method

# A client that takes whatever comes.
WELCOME = (
    PREFACE
    + frames.settings({frames.INITIAL_WINDOW: frames.MAX_WINDOW})
    + frames.window_update(0, frames.MAX_WINDOW - frames.USUAL_WINDOW)
)
CALLED = {":method": "POST", ":scheme": "http", "content-type": "application/grpc", "te": "trailers"}


def as_message(data: bytes) -> bytes:
    return b"\0" + len(data).to_bytes(4, "big") + data


class Ended(Exception):
    """A call ended by a status of gRPC's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Wire(asyncio.Transport):
    """The connection's transport: keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711)})
        self.connection: Any = None
        self.written = bytearray()
        self.reading = True
        self.closed = False
        self.unread = 0  # what a slow reader has left

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.connection_lost(None)

    close = abort


class Heard:
    """What a stream has told the client."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.data = bytearray()
        self.ended = False
        self.reset: int | None = None

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.data):
            size = int.from_bytes(self.data[at + 1 : at + 5], "big")
            found.append(bytes(self.data[at + 5 : at + 5 + size]))
            at += 5 + size
        return found

    @property
    def status(self) -> int:
        return int(self.headers[-1]["grpc-status"])


class Line:
    """One connection."""

    def __init__(
        self,
        method: Callable[[str], Method],
        *,
        greets: bool = True,
        max_unfinished: int = 1 << 28,
        beside: Line | None = None,
        **limits: Any,
    ) -> None:
        """`beside`: to the same port as that one."""
        limits = {"max_message": 1 << 22, **limits}
        self.clock = ManualClock()
        self.port: GrpcPort = (
            beside.port
            if beside is not None
            else GrpcPort(method, self.clock, Unfinished(max_unfinished), limits=ConnectionLimits(**limits))
        )
        self.connection = GrpcConnection(self.port, ConnectionLimits(**limits))
        self.wire = Wire()
        self.wire.connection = self.connection
        self.connection.connection_made(self.wire)
        self._blocks = HeaderBlocks(1 << 20)
        self._next = 1
        self.streams: dict[int, Heard] = {}
        self.others: list[tuple[int, int, int, bytes]] = []  # frames of the connection as a whole
        if greets:
            self.say(WELCOME)

    def say(self, *parts: bytes) -> None:
        if not self.wire.closed:
            self.connection.data_received(b"".join(parts))

    def open(self, path: str, fields: dict[str, str], flags: int = END_HEADERS) -> tuple[int, bytes]:
        """A new stream's number and its headers."""
        number, self._next = self._next, self._next + 2
        block = written(*{**CALLED, ":path": path, **fields}.items())
        return number, frame(HEADERS, flags, number, block)

    def call(self, path: str, *messages: bytes, **fields: str) -> int:
        """Ask all of it at once."""
        number, headers = self.open(path, {name.replace("_", "-"): value for name, value in fields.items()})
        data = b"".join(map(as_message, messages))
        cut = [data[at : at + frames.MAX_PAYLOAD] for at in range(0, len(data), frames.MAX_PAYLOAD)] or [b""]
        parts = [frame(DATA, 0, number, part) for part in cut[:-1]]
        self.say(headers, *parts, frame(DATA, END_STREAM, number, cut[-1]))
        return number

    def hear(self, number: int) -> Heard:
        """All that the stream has said so far."""
        data, at = self.wire.written, 0
        while len(data) - at >= HEAD.size:
            length_and_kind, flags, stream = HEAD.unpack_from(data, at)
            start = at + HEAD.size
            at = start + (length_and_kind >> 8)
            self._heard(length_and_kind & 0xFF, flags, stream, bytes(data[start:at]))
        del data[:at]
        return self.streams.setdefault(number, Heard())

    def _heard(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not number:
            self.others.append((kind, flags, number, payload))
            return
        heard = self.streams.setdefault(number, Heard())
        if kind == HEADERS:
            heard.headers.append(self._blocks.read(payload))
        elif kind == DATA:
            heard.data += payload
        elif kind == frames.RST_STREAM:
            heard.reset = int.from_bytes(payload, "big")
        heard.ended = heard.ended or bool(kind in (DATA, HEADERS) and flags & END_STREAM)

    def goodbye(self) -> tuple[int, bytes] | None:
        """Reason and text of the server's farewell."""
        self.hear(0)
        said = [payload for kind, _, _, payload in self.others if kind == frames.GOAWAY]
        return (int.from_bytes(said[0][4:8], "big"), said[0][8:]) if said else None

    async def ask(self, path: str, *messages: bytes, **fields: str) -> list[bytes]:
        """The answer's messages; Ended when it is none."""
        number = self.call(path, *messages, **fields)
        await until(lambda: self.hear(number).ended or self.wire.closed)
        heard = self.hear(number)
        last = heard.headers[-1]
        if heard.status:
            raise Ended(heard.status, last.get("grpc-message", ""))
        return heard.messages

    async def close(self) -> None:
        self.wire.abort()
        await until(lambda: not self.connection.held)
