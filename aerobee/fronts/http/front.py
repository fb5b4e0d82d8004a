# SPDX-License-Identifier: Apache-2.0
"""The HTTP front's life: a port of its own on the broker's loop, the console started with it, a graceful end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from aerobee.fronts.http.connections import SWEEP_MS, HttpConnections, HttpLimits
from aerobee.net.door import Door, DoorLimits
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from aerobee.clock import Clock, Timer
    from aerobee.net.tls import ServerTls

log = logging.getLogger("aerobee.http")

GRACE_MS = 1_000
_HANDSHAKING = 256  # places beside the connections: of those that are being admitted


class HttpFront:
    """Serves `app`; an application mounted in it is started and stopped through the app's own lifespan."""

    def __init__(
        self,
        app: Starlette,
        address: tuple[str, int],
        real_clock: Clock,
        *,
        tls: ServerTls | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        self._app = app
        self._host, self._port = address
        self._clock = real_clock
        limits = limits or HttpLimits()
        self.connections = HttpConnections(app, real_clock, limits)
        self._door = Door(
            self.connections.connection,
            lambda: len(self.connections),
            real_clock,
            limits=DoorLimits(max_connections=limits.max_connections + _HANDSHAKING),
            tls=tls,
        )
        self._sweeping: Timer | None = None
        self._living: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._loading: asyncio.Future[None] | None = None

    @property
    def address(self) -> str:
        return format_address(self._host, self._door.port)

    async def start(self) -> None:
        started = asyncio.Event()
        self._living = asyncio.get_running_loop().create_task(self._live(started))
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait((self._living, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._living.done():
            self._living.result()  # raises what kept it from starting
        await self._door.open(self._host, self._port)
        self._sweep()
        self._loading = asyncio.get_running_loop().run_in_executor(None, _load)
        log.info("HTTP listens on %s", self.address)

    async def _live(self, started: asyncio.Event) -> None:
        """In one task from end to end: task groups of what is mounted insist on it."""
        async with self._app.router.lifespan_context(self._app):
            started.set()
            await self._leave.wait()

    def _sweep(self) -> None:
        now = self._clock.now()
        self.connections.sweep(now)
        self._sweeping = self._clock.call_at(now + SWEEP_MS, self._sweep)

    async def stop(self) -> None:
        """Stop accepting, let answers under way end for a moment, then close."""
        await self._door.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.connections.refuse()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_MS / 1000):
                await self.connections.emptied(asyncio.get_running_loop())
        self.connections.cut()
        self._leave.set()
        if self._living is not None:
            with suppress(asyncio.CancelledError):
                await self._living


def _load() -> None:
    """What the first streamed answer would import: fifty milliseconds, which a thread takes a little at a time."""
    with suppress(ImportError):  # it is the library's own part, and may move
        import_module("anyio._backends._asyncio")
