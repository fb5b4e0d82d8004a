# SPDX-License-Identifier: Apache-2.0
"""One port for plain and TLS clients: the first byte tells them apart (0x16 opens a TLS handshake), the rest is piped.

A grpc server cannot look before it answers, and Java, Go and C# clients speak TLS by default while Python, Node and Rust
speak plain. So two grpc listeners stand behind Unix sockets and this pipe in front of them. Back-pressure is passed on:
a side that cannot write pauses the other's reading.
"""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger("aerobee.grpc")

TLS_HANDSHAKE = 0x16


class _Side(asyncio.Protocol):
    """One end of a pipe."""

    def __init__(self, open_sides: set[_Side], other: _Side | None = None) -> None:
        self._open_sides = open_sides
        self.transport: asyncio.Transport | None = None
        self.other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._open_sides.add(self)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        if self.other is None or self.other.transport is None or not self.other.transport.can_write_eof():
            return False
        self.other.transport.write_eof()
        return True  # the other direction may still have something to say

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._open_sides.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class _Front(_Side):
    """A client's side: waits for its first bytes, then joins the right listener."""

    def __init__(self, open_sides: set[_Side], plain: str, secure: str | None) -> None:
        super().__init__(open_sides)
        self._paths = (plain, secure)
        self._early = bytearray()
        self._joining: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._early += data
        if self._joining is None and self.transport is not None:
            self.transport.pause_reading()
            plain, secure = self._paths
            path = secure if self._early[0] == TLS_HANDSHAKE else plain
            if path is None:
                log.warning("a TLS client was turned away: this front has no certificate")
                self.transport.abort()
                return
            self._joining = asyncio.get_running_loop().create_task(self._join(path))

    async def _join(self, path: str) -> None:
        try:
            _, back = await asyncio.get_running_loop().create_unix_connection(
                lambda: _Side(self._open_sides, self), path
            )
        except OSError as error:
            log.warning("gRPC listener %s: %s", path, error)
            if self.transport is not None:
                self.transport.abort()
            return
        if self.transport is None:  # the client left meanwhile
            assert back.transport is not None
            back.transport.close()
            return
        self.other = back  # back knows this side from its birth: the listener speaks first
        assert back.transport is not None
        back.transport.write(bytes(self._early))
        self._early.clear()
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._joining is not None:
            self._joining.cancel()
        super().connection_lost(exc)


class Mux:
    """The public port and the pipes behind it."""

    def __init__(self, plain: str, secure: str | None) -> None:
        self._paths = (plain, secure)
        self._open_sides: set[_Side] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one when 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Front(self._open_sides, *self._paths), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def refuse(self) -> None:
        """Accept nobody any more; pipes under way go on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.refuse()
        while self._open_sides:
            for side in list(self._open_sides):
                if side.transport is not None:
                    side.transport.abort()
            await asyncio.sleep(0)
