# SPDX-License-Identifier: Apache-2.0
"""The connections of the HTTP port: uvicorn reads and writes HTTP, what a peer may cost is bounded here.

A connection is idle between requests, or before its first, and busy from a request's header to the last byte of its
answer. Whoever does not finish a header within `idle_ms` of the last answer, or takes longer than `busy_ms` to send the
rest and to read what it asked for, is cut, however steadily it trickles. When all places are taken the connection
that has been idle longest makes room, so that nobody keeps a health check out by holding connections.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import h11
import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.http")
# What uvicorn has to say: failures of ours. Peers that speak no HTTP are not worth a line each.
_uvicorn_log = logging.getLogger("aerobee.http.uvicorn")
_uvicorn_log.setLevel(logging.ERROR)

SWEEP_MS = 1_000


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = 512
    max_header_bytes: int = 16 * 1024
    idle_ms: int = 15_000
    busy_ms: int = 60_000


class HttpConnections:
    """Told `now` by its owner's timer; `connection` makes the protocol of the next one."""

    def __init__(self, app: ASGIApp, clock: Clock, limits: HttpLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._state = ServerState()
        self._config = Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,  # nobody's word for where it comes from
            h11_max_incomplete_event_size=limits.max_header_bytes,
            timeout_keep_alive=max(1, limits.idle_ms // 1000),
        )
        self._config.load()
        self._since: dict[HttpConnection, tuple[Any, bool, int]] = {}  # -> request, busy, since when
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._since)

    def connection(self) -> HttpConnection:
        return HttpConnection(self._config, self._state, self)

    def opened(self, connection: HttpConnection) -> None:
        if len(self._since) >= self._limits.max_connections:
            idle = [known for known in self._since if not known.busy]
            # In the order they came and were last seen to change: the first idle one has been so longest.
            (idle[0] if idle else connection).transport.abort()
            self._since.pop(idle[0] if idle else connection, None)
            if not idle:
                return
        self._since[connection] = (None, False, self._clock.now())

    def closed(self, connection: HttpConnection) -> None:
        self._since.pop(connection, None)
        if not self._since and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def sweep(self, now: int) -> None:
        limits = self._limits
        for connection, (request, busy, since) in list(self._since.items()):
            if connection.cycle is not request or connection.busy != busy:
                del self._since[connection]  # to the end of the line
                self._since[connection] = (connection.cycle, connection.busy, now)
            elif now - since >= (limits.busy_ms if busy else limits.idle_ms):
                log.debug("closing peer=%s: busy=%s for_ms=%d", connection.client, busy, now - since)
                connection.transport.abort()

    def refuse(self) -> None:
        """No further request: idle connections close, busy ones after their answer."""
        for connection in list(self._since):
            connection.shutdown()

    async def emptied(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._since:
            self._emptied = loop.create_future()
            await self._emptied

    def cut(self) -> None:
        for connection in list(self._since):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()


class HttpConnection(H11Protocol):
    """Told to those who count; what its peer breaks costs the connection and no traceback."""

    def __init__(self, config: Config, state: ServerState, among: HttpConnections) -> None:
        super().__init__(config, state, {})
        self.logger = _uvicorn_log
        self._among = among

    @property
    def busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._among.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._among.closed(self)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # it broke its request while an answer was on its way
            self.transport.abort()
