# SPDX-License-Identifier: Apache-2.0
"""The gRPC front's life: the port, a timer for leases and silent clients, a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from aerobee.fronts.grpc.certificate import made_tls
from aerobee.fronts.grpc.connection import ConnectionLimits
from aerobee.fronts.grpc.port import GrpcPort
from aerobee.fronts.grpc.requests import MAX_BESIDE_BODIES
from aerobee.fronts.grpc.service import Service
from aerobee.net.door import HANDSHAKE_MS
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.clock import Clock
    from aerobee.net.tls import ServerTls
    from aerobee.net.unfinished import Unfinished

log = logging.getLogger("aerobee.grpc")

TICK_MS = 1_000
GRACE_MS = 500


class GrpcFront:
    def __init__(
        self,
        broker: Broker,
        port: int,
        real_clock: Clock,
        unfinished: Unfinished,
        tls: ServerTls | None = None,
    ) -> None:
        self._broker = broker
        self._tls = tls
        self._real_clock = real_clock
        self._unfinished = unfinished
        self._host, self._port = broker.config.host, port
        self.service = Service(broker)
        self._public: GrpcPort | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return format_address(self._host, self.service.port)

    async def start(self) -> None:
        config = self._broker.config
        limits = ConnectionLimits(
            max_message=self._broker.store.config.max_message_bytes + MAX_BESIDE_BODIES,
            handshake_ms=HANDSHAKE_MS,
            idle_close_ms=config.idle_close_ms,
            max_unread=config.max_pending_bytes,
        )
        tls = self._tls or made_tls(config)
        self._public = GrpcPort(
            self.service.method,
            self._real_clock,
            self._unfinished,
            limits=limits,
            max_connections=config.max_connections,
            tls=tls,
        )
        self.service.port = await self._public.start(self._host, self._port)
        self._ticking = asyncio.get_running_loop().create_task(self._tick())
        self._broker.clock.on_jump.append(self._broker.pops.renewals.moved)
        log.info("gRPC listens on %s tls=%s", self.address, tls.mode if tls is not None else "off")

    async def _tick(self) -> None:
        clock = self._broker.clock
        while True:
            await clock.sleep(TICK_MS)
            self.service.tick(clock.now())

    async def stop(self) -> None:
        """Stop accepting, let calls under way end for a moment, then close."""
        if self._ticking is not None:
            self._ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticking
            self._broker.clock.on_jump.remove(self._broker.pops.renewals.moved)
        if self._public is not None:
            await self._public.close(GRACE_MS)
