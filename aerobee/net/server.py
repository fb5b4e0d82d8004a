# SPDX-License-Identifier: Apache-2.0
"""A listening port: admits connections, closes idle ones, and ends gracefully."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import NetworkError
from aerobee.net.connection import Connection, Handler, Limits, Observer
from aerobee.net.tls import FIRST_BYTE, ServerTls, TlsMode
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    import ssl

    from aerobee.clock import Clock, Timer

log = logging.getLogger("aerobee.net")

_BACKLOG = 1024
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SWEEPS_PER_IDLE = 8  # an idle connection lives at most an eighth longer than it should


class ListenLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = 100_000
    idle_close_ms: int = 120_000
    tls_handshake_ms: int = 10_000  # also the wait for the first byte, where TLS is configured
    connection: Limits = Limits()


class Listener:
    """Also the observer of its connections: it counts them and passes the news on."""

    def __init__(
        self,
        handler: Handler,
        clock: Clock,
        *,
        observer: Observer | None = None,
        limits: ListenLimits | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._observer = observer
        self._limits = limits or ListenLimits()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._admitting: set[asyncio.Task[None]] = set()
        self._alive: dict[Connection, tuple[int, int]] = {}  # connection -> (reads seen, since when)
        self._full = False
        self._sweep_timer: Timer | None = None
        self._emptied: asyncio.Future[None] | None = None
        self.host = ""
        self.port = 0

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def connections(self) -> list[Connection]:
        return list(self._alive)

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._socket = _listening_socket(host, port)
        except OSError as error:
            address = format_address(host, port)
            raise NetworkError(f"cannot listen on {address}: {error.strerror}; is it in use?") from error
        self.host, self.port = host, self._socket.getsockname()[1]
        if self._tls is None:
            self._server = await loop.create_server(self._connection, sock=self._socket, backlog=_BACKLOG)
        else:
            self._accepting = loop.create_task(self._accept(self._socket, self._tls))
        self._sweep_later()

    def _connection(self) -> Connection:
        return Connection(self._handler, self, self._limits.connection)

    # -- TLS or plain ----------------------------------------------------------------------------------
    # asyncio's own server reads the first bytes before anybody can decide, so with TLS we accept here, look
    # at the first byte without taking it, and only then hand the socket over.

    async def _accept(self, listening: socket.socket, tls: ServerTls) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    log.error("cannot accept address=%s: %s", self.address, error.strerror)
                    await asyncio.sleep(1)
                continue  # else the peer left between its SYN and our accept
            if len(self._alive) + len(self._admitting) >= self._limits.max_connections:
                self._refuse_one()
                accepted.close()
                continue
            task = loop.create_task(self._admit(accepted, tls))
            self._admitting.add(task)
            task.add_done_callback(self._admitting.discard)

    async def _admit(self, accepted: socket.socket, tls: ServerTls) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._limits.tls_handshake_ms / 1000
        context: ssl.SSLContext | None = None
        try:
            async with asyncio.timeout(seconds):
                if await _first_byte(accepted) == FIRST_BYTE:
                    context = tls.context
                elif tls.mode is TlsMode.REQUIRED:
                    raise ConnectionError("plain connection where TLS is required")
            await loop.connect_accepted_socket(
                self._connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=seconds if context else None,
            )
        except (OSError, TimeoutError) as error:  # SSLError is an OSError
            log.info("not admitted address=%s: %s", self.address, error or "no first byte in time")
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    # -- what a connection tells its observer ------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        if len(self._alive) >= self._limits.max_connections:
            self._refuse_one()
            connection.abort()
            return
        self._full = False
        self._alive[connection] = (connection.last_read_turns, self._clock.now())
        if self._observer:
            self._observer.opened(connection)

    def closed(self, connection: Connection) -> None:
        if self._alive.pop(connection, None) is None:
            return  # it was never admitted
        if self._observer:
            self._observer.closed(connection)
        if not self._alive and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _refuse_one(self) -> None:
        if not self._full:  # once until one is admitted again: a flood must not fill the log too
            self._full = True
            limit = self._limits.max_connections
            log.warning("refusing connections address=%s: max_connections=%d reached", self.address, limit)

    # -- idle connections --------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        after = max(1, self._limits.idle_close_ms // _SWEEPS_PER_IDLE)
        self._sweep_timer = self._clock.call_at(self._clock.now() + after, self._sweep)

    def _sweep(self) -> None:
        now = self._clock.now()
        for connection, (turns, since) in list(self._alive.items()):
            if connection.last_read_turns != turns:
                self._alive[connection] = (connection.last_read_turns, now)
            elif now - since >= self._limits.idle_close_ms:
                log.info("closing peer=%s: idle_ms=%d", connection.remote_text, now - since)
                connection.abort()  # a peer that is gone or never reads would keep a polite close waiting
        self._sweep_later()

    # -- the end -----------------------------------------------------------------------------------------

    async def close(self, grace_ms: int = 3000) -> None:
        """Stop accepting and reading, wait for held requests to be answered (the caller wakes them), then
        close. What is neither answered nor read by its peer within `grace_ms` is cut."""
        await self._stop_accepting()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in self._alive:
            connection.stop_reading()
        self._emptied = asyncio.get_running_loop().create_future()
        # The loop's time, not the clock's: a clock moved by hand must not keep a process from ending.
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_ms / 1000):
                await self._until_answered()
                for connection in list(self._alive):
                    connection.close()
                if self._alive:
                    await asyncio.shield(self._emptied)
        for connection in list(self._alive):
            connection.abort()
        if self._alive:
            await self._emptied

    async def _until_answered(self) -> None:
        while held := {task for connection in self._alive for task in connection.held}:
            await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)

    async def _stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()  # not wait_closed: from Python 3.12 that waits for the connections too
        tasks = [task for task in (self._accepting, *self._admitting) if task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self._socket is not None:
            self._socket.close()


def _listening_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


async def _first_byte(accepted: socket.socket) -> bytes:
    """The first byte, left where it is; ConnectionError when the peer leaves without one."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, ready)
    try:
        await readable
        first = accepted.recv(1, socket.MSG_PEEK)
    finally:
        loop.remove_reader(accepted)
    if not first:
        raise ConnectionError("closed before its first byte")
    return first
