# SPDX-License-Identifier: Apache-2.0
"""The gRPC port: what comes in by TLS or plain is piped to grpc's own listener behind a Unix socket.

A grpc server cannot look before it answers, and Java, Go and C# clients speak TLS by default while Python, Node and Rust
speak plain. So the port has the same door as every other one, TLS ends here, and a pipe is laid only for who has said
what every HTTP/2 client says first: strangers cost grpc nothing. Each pipe's inner end has a name of its own, by which
`address_of` finds the client behind a call. Back-pressure is passed on: a side that cannot write pauses the other's
reading.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from aerobee.errors import ProtocolError
from aerobee.fronts.grpc.uploads import Uploads
from aerobee.net.complaints import Complaints
from aerobee.net.door import Door, DoorLimits
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.clock import Clock
    from aerobee.net.tls import ServerTls
    from aerobee.net.unfinished import Unfinished

log = logging.getLogger("aerobee.grpc")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
Address = tuple[str, int]


class MuxLimits(DoorLimits, frozen=True, kw_only=True):
    max_message: int
    max_streams: int


class _Side(asyncio.Protocol):
    """One end of a pipe."""

    def __init__(self, pipes: Pipes, other: _Side | None = None) -> None:
        self._pipes = pipes
        self.transport: asyncio.Transport | None = None
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self._pipes.open_sides.add(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._pipes.open_sides.discard(self)
        if self.other is not None:
            self.other.close()

    def close(self) -> None:
        """Close once all is written, or when the peer does not read it in time."""
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(self._pipes.limits.handshake_ms / 1000, transport.abort)

    def abort(self) -> None:
        if self.transport is not None:
            # Python 3.11.2: asyncio's TLS transport has let go of its inner part once the peer is gone.
            with suppress(AttributeError):
                self.transport.abort()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class _Front(_Side):
    """A client's side: says HTTP/2's first words, in time, before anything is opened for it. What it has sent of
    messages not whole yet counts with the unfinished frames of all ports."""

    def __init__(self, pipes: Pipes) -> None:
        super().__init__(pipes)
        self._early = bytearray()
        self._joining: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._uploads = Uploads(len(PREFACE), pipes.limits.max_message, pipes.limits.max_streams)
        self.remote_text = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.remote_text = format_address(*_peer(transport))
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(
            self._pipes.limits.handshake_ms / 1000, self._turn_away, "said nothing in time"
        )

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            if self._accounted(data):
                super().data_received(data)
            return
        self._early += data
        if self._joining is not None:
            return
        said = bytes(self._early[: len(PREFACE)])
        if not PREFACE.startswith(said):
            self._turn_away(f"does not speak HTTP/2, it began with {said!r}")
        elif len(said) == len(PREFACE) and self.transport is not None:
            self._stop_waiting()
            self.transport.pause_reading()
            self._joining = asyncio.get_running_loop().create_task(self._join(self.transport))

    def _accounted(self, data: bytes) -> bool:
        """False when the connection was cut off for it."""
        uploads, unfinished = self._uploads, self._pipes.unfinished
        before, completed = uploads.pending_bytes, uploads.completed
        try:
            uploads.feed(data)
        except ProtocolError as error:
            self._pipes.complaints.add(f"closing peer={self.remote_text}: {error}")
            self.abort()
            return False
        if before and (uploads.completed > completed or not uploads.pending_bytes):
            unfinished.release(self)
        if uploads.pending_bytes:
            unfinished.hold(self, uploads.pending_bytes)
        return self.transport is not None and not self.transport.is_closing()

    def _turn_away(self, why: str) -> None:
        if self.other is None and self.transport is not None:
            self._pipes.complaints.add(f"turned away peer={self.remote_text}: it {why}")
            self.abort()

    async def _join(self, transport: asyncio.Transport) -> None:
        try:
            back = await self._pipes.lay(self, _peer(transport))
        except OSError as error:
            self._pipes.complaints.add(f"no pipe for a gRPC client: {error.strerror or error}")
            self.abort()
            return
        if self.transport is None:  # the client left meanwhile
            back.abort()
            return
        self.other = back  # back knows this side from its birth: the listener speaks first
        early = bytes(self._early)
        self._early.clear()
        if self._accounted(early):
            super().data_received(early)
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._pipes.unfinished.release(self)
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()


class _Back(_Side):
    """The inner end of a pipe, known to grpc by its name."""

    def __init__(self, pipes: Pipes, other: _Side, name: str) -> None:
        super().__init__(pipes, other)
        self._name = name

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipes.clients.pop(self._name, None)
        super().connection_lost(exc)


class Pipes:
    """What all sides share: the listener behind, who is at which pipe, and when patience ends."""

    def __init__(
        self, folder: Path, listener: Path, clock: Clock, limits: MuxLimits, unfinished: Unfinished
    ) -> None:
        self._folder = folder
        self._listener = listener
        self._numbers = itertools.count(1)
        self.limits = limits
        self.unfinished = unfinished
        self.complaints = Complaints(log, clock)
        self.open_sides: set[_Side] = set()
        self.clients: dict[str, Address] = {}  # name of a pipe's inner end -> who is at the other

    def fronts(self) -> int:
        return len(self.open_sides) - len(self.clients)

    async def lay(self, front: _Side, client: Address) -> _Back:
        """A pipe to the listener; OSError when there is none or no descriptor left for it."""
        loop = asyncio.get_running_loop()
        name = self._folder / str(next(self._numbers))
        known_as = f"unix:{name}"  # what grpc calls its peer
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(str(name))
            try:
                await loop.sock_connect(inner, str(self._listener))
            finally:
                name.unlink()  # the socket keeps its name without the file
            self.clients[known_as] = client
            _, back = await loop.create_unix_connection(partial(_Back, self, front, known_as), sock=inner)
        except BaseException:
            inner.close()
            self.clients.pop(known_as, None)
            raise
        return back


class Mux:
    """The public port and the pipes behind it."""

    def __init__(
        self,
        folder: Path,
        listener: Path,
        clock: Clock,
        *,
        tls: ServerTls | None,
        limits: MuxLimits,
        unfinished: Unfinished,
    ) -> None:
        self._pipes = Pipes(folder, listener, clock, limits, unfinished)
        self._door = Door(lambda: _Front(self._pipes), self._pipes.fronts, clock, limits=limits, tls=tls)

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one when 0 was asked for."""
        await self._door.open(host, port)
        return self._door.port

    def address_of(self, peer: str) -> Address | None:
        """The client behind what grpc calls its peer; None when it has left."""
        return self._pipes.clients.get(peer)

    async def refuse(self) -> None:
        """Accept nobody any more; pipes under way go on."""
        await self._door.close()

    async def close(self) -> None:
        await self.refuse()
        while self._pipes.open_sides:
            for side in list(self._pipes.open_sides):
                side.abort()
            await asyncio.sleep(0)


def _peer(transport: asyncio.BaseTransport) -> Address:
    name = transport.get_extra_info("peername") or ("", 0)
    return name[0], name[1]
