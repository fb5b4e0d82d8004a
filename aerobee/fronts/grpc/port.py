# SPDX-License-Identifier: Apache-2.0
"""The gRPC port: TLS and plain through the same door as every other port, and the connections behind it.

Java, Go and C# clients speak TLS by default while Python, Node and Rust speak plain; the door tells them apart.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.fronts.grpc.connection import ConnectionLimits, GrpcConnection
from aerobee.net.complaints import Complaints
from aerobee.net.door import Door, DoorLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import Clock, Timer
    from aerobee.fronts.grpc.exchange import Method
    from aerobee.net.door import PortTls
    from aerobee.net.unfinished import Unfinished

log = logging.getLogger("aerobee.grpc")

TICK_MS = 1_000


class GrpcPort:
    """`method` says what serves a path. Time is the real one: a clock moved by hand must not make clients look idle."""

    def __init__(
        self,
        method: Callable[[str], Method],
        clock: Clock,
        unfinished: Unfinished,
        *,
        limits: ConnectionLimits,
        max_connections: int = 100_000,
        tls: PortTls | None = None,
    ) -> None:
        self.method = method
        self.unfinished = unfinished
        self.complaints = Complaints(log, clock)
        self._clock = clock
        self._limits = limits
        self._connections: set[GrpcConnection] = set()
        self._ticks: Timer | None = None
        self._emptied: asyncio.Future[None] | None = None
        door = DoorLimits(
            max_connections=max_connections,
            handshake_ms=limits.handshake_ms,
            first_byte_ms=limits.handshake_ms,
        )
        self._door = Door(
            lambda: GrpcConnection(self, self._limits),
            lambda: len(self._connections),
            clock,
            limits=door,
            tls=tls,
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one when 0 was asked for."""
        await self._door.open(host, port)
        self._tick()
        return self._door.port

    def _tick(self) -> None:
        now = self._clock.now()
        for connection in list(self._connections):
            connection.tick(now)
        self._ticks = self._clock.call_at(now + TICK_MS, self._tick)

    # -- what connections tell -----------------------------------------------------------------------------

    def opened(self, connection: GrpcConnection) -> int:
        """The time at which it came."""
        self._connections.add(connection)
        return self._clock.now()

    def closed(self, connection: GrpcConnection) -> None:
        self._connections.discard(connection)
        if not self._connections and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    # -- the end -------------------------------------------------------------------------------------------

    async def close(self, grace_ms: int) -> None:
        """Accept nobody, say goodbye, let calls under way end for a moment, then cut what is left."""
        await self._door.close()
        if self._ticks is not None:
            self._ticks.cancel()
        for connection in list(self._connections):
            connection.leave()
        # The loop's time, not the clock's, as at the other ports.
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_ms / 1000):
                while held := self._held():
                    await asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
                for connection in list(self._connections):
                    connection.close()
                if self._connections:
                    self._emptied = asyncio.get_running_loop().create_future()
                    await self._emptied
        held = self._held()
        while self._connections:
            for connection in list(self._connections):
                connection.abort()
            await asyncio.sleep(0)
        if held:
            await asyncio.wait(held)

    def _held(self) -> set[asyncio.Task[None]]:
        return {task for connection in self._connections for task in connection.held}
