# SPDX-License-Identifier: Apache-2.0
"""A listening port: admits connections, closes idle ones, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from aerobee.net.connection import Connection, Handler, Limits, Observer, Run
from aerobee.net.door import HANDSHAKE_MS, Door, DoorLimits

if TYPE_CHECKING:
    from aerobee.clock import Clock, Timer
    from aerobee.net.tls import ServerTls
    from aerobee.net.unfinished import Unfinished

log = logging.getLogger("aerobee.net")

_CUT_SECONDS = 2.0  # for connections that were cut to say so
_SWEEPS_PER_IDLE = 8  # an idle connection lives at most an eighth longer than it should


# Some 50 ms of the loop for the most fields that fit; answers, which list the ids of a batch, may be longer.
MAX_REQUEST_HEADER = 256 * 1024


class ListenLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = 100_000
    idle_close_ms: int = 120_000
    handshake_ms: int = HANDSHAKE_MS
    connection: Limits = Limits(max_header=MAX_REQUEST_HEADER)


class Listener:
    """Also the observer of its connections: it counts them and passes the news on."""

    def __init__(  # noqa: PLR0913 - each is a real part of a port
        self,
        handler: Handler,
        clock: Clock,
        *,
        observer: Observer | None = None,
        limits: ListenLimits | None = None,
        tls: ServerTls | None = None,
        unfinished: Unfinished | None = None,
        run: Run | None = None,
    ) -> None:
        self._handler = handler
        self._run = run
        self._clock = clock
        self._observer = observer
        self._limits = limits or ListenLimits()
        self._unfinished = unfinished
        door = DoorLimits(
            max_connections=self._limits.max_connections,
            handshake_ms=self._limits.handshake_ms,
            first_byte_ms=self._limits.idle_close_ms,
        )
        self._door = Door(
            self._connection,
            lambda: len(self._alive),
            clock,
            limits=door,
            tls=tls,
            drop_silent=self._drop_silent,
        )
        self._alive: dict[Connection, tuple[int, int]] = {}  # connection -> (reads seen, since when)
        self._sweep_timer: Timer | None = None
        self._emptied: asyncio.Future[None] | None = None

    @property
    def host(self) -> str:
        return self._door.host

    @property
    def port(self) -> int:
        return self._door.port

    @property
    def address(self) -> str:
        return self._door.address

    @property
    def connections(self) -> list[Connection]:
        return list(self._alive)

    async def start(self, host: str, port: int) -> None:
        await self._door.open(host, port)
        self._sweep_later()

    def _connection(self) -> Connection:
        return Connection(self._handler, self, self._limits.connection, self._unfinished, self._run)

    # -- what a connection tells its observer ------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._alive[connection] = (connection.last_read_turns, self._clock.now())
        if self._observer:
            self._observer.opened(connection)

    def closed(self, connection: Connection) -> None:
        self._alive.pop(connection, None)
        if self._observer:
            self._observer.closed(connection)
        if not self._alive and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

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

    def _drop_silent(self, before: int) -> None:
        silent = [c for c, (_, since) in self._alive.items() if not c.last_read_turns and since <= before]
        for connection in silent:
            connection.abort()
        if silent:
            log.warning("closed silent connections address=%s: count=%d", self.address, len(silent))

    # -- the end -----------------------------------------------------------------------------------------

    async def close(self, grace_ms: int = 3000) -> None:
        """Stop accepting and reading, wait for held requests to be answered (the caller wakes them), then
        close. What is neither answered nor read by its peer within `grace_ms` is cut."""
        await self._door.close()
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
            await asyncio.wait([self._emptied], timeout=_CUT_SECONDS)
        if self._alive:  # the loop never said that they are lost: no reason to stay for ever
            log.warning(
                "address=%s closed with connections=%d that did not end", self.address, len(self._alive)
            )

    async def _until_answered(self) -> None:
        while held := {task for connection in self._alive for task in connection.held}:
            await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
