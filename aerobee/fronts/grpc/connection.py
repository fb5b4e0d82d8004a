# SPDX-License-Identifier: Apache-2.0
"""A client's connection to the gRPC port: bytes to streams and back, with time-outs and bounds.

What calls answer in one turn of the loop leaves in one write. A client that does not read is not read either; past
`max_unread` bytes, in its socket's buffer or waiting for its windows, it is cut off.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from aerobee.errors import ProtocolError
from aerobee.fronts.grpc import codes
from aerobee.fronts.grpc.exchange import Exchange
from aerobee.fronts.grpc.header_reader import header_reader
from aerobee.net.door import HANDSHAKE_MS
from aerobee.protocol.addresses import format_address
from aerobee.protocol.http2.frames import BrokenHttp2
from aerobee.protocol.http2.streams import StreamLimits, Streams

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aerobee.fronts.grpc.port import GrpcPort

KEEPALIVE_MS = 60_000  # a client that says nothing for so long is asked whether it is there
KEEPALIVE_WAIT_MS = 20_000  # and has so long to answer


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_message: int
    handshake_ms: int = HANDSHAKE_MS
    idle_close_ms: int = 120_000
    pause_bytes: int = 4 * 1024 * 1024  # unread answers at which nothing more is asked, and streams wait
    max_unread: int = 32 * 1024 * 1024
    streams: StreamLimits = StreamLimits()


class GrpcConnection(asyncio.Protocol):
    def __init__(self, port: GrpcPort, limits: ConnectionLimits) -> None:
        self._port = port
        self._limits = limits
        self.max_message = limits.max_message
        self.streams = Streams(limits.streams, self._open, header_reader)
        self.remote: tuple[str, int] = ("", 0)
        self.remote_text = ""
        self.completed = 0  # messages so far
        self.kept_bytes = 0  # of messages that are not whole, or not served yet
        self._counted = False  # with those of all ports
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = False  # within `data_received`, which flushes at its end
        self._flushes = False  # a turn's answers are collected
        self._paused = False
        self._room: asyncio.Future[None] | None = None
        self._reads = self._reads_seen = 0
        self._heard_at = self._busy_at = 0
        self._asked_at: int | None = None  # whether it is there

    # -- asyncio's side ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.remote, self.remote_text = (host, port), format_address(host, port)
        transport.set_write_buffer_limits(high=self._limits.pause_bytes)
        self._heard_at = self._busy_at = self._port.opened(self)
        loop = asyncio.get_running_loop()
        self._handshake = loop.call_later(self._limits.handshake_ms / 1000, self._too_late)

    def data_received(self, data: bytes) -> None:
        self._reads += 1
        self._reading = True
        completed = self.completed
        try:
            self.streams.receive(data)
        except ProtocolError as error:
            self._broken(error)
            return
        finally:
            self._reading = False
        if self._handshake is not None and self.streams.heard:
            self._handshake.cancel()
            self._handshake = None
        if self.kept_bytes or self._counted:
            self._account(self.completed - completed)
        self._write()

    def _account(self, completed: int) -> None:
        """What is left is under way: since now, when others were completed before it."""
        if completed or not self.kept_bytes:
            self._port.unfinished.release(self)
        self._counted = self.kept_bytes > 0
        if self._counted:
            self._port.unfinished.hold(self, self.kept_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._handshake is not None:
            self._handshake.cancel()
        self.streams.gone()
        self._port.unfinished.release(self)
        self._wake()
        self._port.closed(self)

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._wake()

    # -- calls ---------------------------------------------------------------------------------------------

    def _open(self, streams: Streams, number: int, fields: dict[str, str]) -> Exchange:
        method = self._port.method(fields.get(":path", ""))
        exchange = Exchange(self, streams, number, fields, method)
        if (
            not fields.get("content-type", "").startswith("application/grpc")
            or fields.get(":method") != "POST"
        ):
            exchange.turn_away(codes.NOT_GRPC)
        elif method.opened is not None:
            method.opened(exchange)
        return exchange

    def task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def held(self) -> frozenset[asyncio.Task[None]]:
        """Calls that are not answered yet."""
        return frozenset(self._tasks)

    # -- writing -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        if not self._reading and not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._flushes = False
        transport, out = self._transport, self.streams.out
        if transport is None or transport.is_closing():
            out.clear()
            return
        if out:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()
        if self._room is not None and self.has_room:
            self._wake()
        unread = self.streams.unsent_bytes + (transport.get_write_buffer_size() if self._paused else 0)
        if unread > self._limits.max_unread:
            self._port.complaints.add(f"cutting off peer={self.remote_text}: unread_bytes={unread}")
            self.abort()

    @property
    def has_room(self) -> bool:
        return not self._paused and self.streams.unsent_bytes < self._limits.pause_bytes

    async def room(self) -> None:
        """Until there is little that the client has not read, over all its calls."""
        while self._transport is not None and not self.has_room:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    def _wake(self) -> None:
        waiting, self._room = self._room, None
        if waiting is not None:
            waiting.set_result(None)

    # -- time ----------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Every second: ask a silent client whether it is there, let an idle one go."""
        self.streams.forgive()
        if self._reads != self._reads_seen:
            self._reads_seen, self._heard_at, self._asked_at = self._reads, now, None
        if self.streams.open:
            self._busy_at = now
        elif now - self._busy_at >= self._limits.idle_close_ms:
            self.leave()
            self.close()
            return
        if self._asked_at is not None:
            if now - self._asked_at >= KEEPALIVE_WAIT_MS:
                self._port.complaints.add(f"closing peer={self.remote_text}: it does not answer")
                self.abort()
        elif now - self._heard_at >= KEEPALIVE_MS:
            self._asked_at = now
            self.streams.ping()
            self._write()

    def _too_late(self) -> None:
        self._port.complaints.add(f"turned away peer={self.remote_text}: it said nothing in time")
        self.abort()

    # -- the end -------------------------------------------------------------------------------------------

    def _broken(self, error: ProtocolError) -> None:
        self._port.complaints.add(f"closing peer={self.remote_text}: {error}")
        if isinstance(error, BrokenHttp2) and self.streams.heard:
            self.streams.leave(error.reason, str(error))
            self._write()
            self.close()
        else:  # a stranger is not talked to
            self.abort()

    def leave(self) -> None:
        """Say goodbye; calls under way go on."""
        self.streams.leave()
        self._write()

    def close(self) -> None:
        """Close once all is written, or when the client does not read it in time."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(self._limits.handshake_ms / 1000, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            # Python 3.11.2: asyncio's TLS transport has let go of its inner part once the peer is gone.
            with suppress(AttributeError):
                self._transport.abort()
