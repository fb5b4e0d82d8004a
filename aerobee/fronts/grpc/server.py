# SPDX-License-Identifier: Apache-2.0
"""The gRPC front's life: two listeners behind one port, a timer for leases and silent clients, a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from aerobee.fronts.grpc.certificate import credentials
from aerobee.fronts.grpc.mux import Mux
from aerobee.fronts.grpc.service import Service
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

log = logging.getLogger("aerobee.grpc")

TICK_MS = 1_000
MAX_MESSAGE = 130 * 1024 * 1024
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_concurrent_streams", 100_000),
    # Java clients ping without calls under way.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class GrpcFront:
    def __init__(self, broker: Broker, host: str, port: int) -> None:
        self._broker = broker
        self._host, self._port = host, port
        self.service = Service(broker)
        self._server: grpc.aio.Server | None = None
        self._public: Mux | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return format_address(self._host, self.service.port)

    async def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aerobee-grpc-")
        plain, secure = Path(self._folder.name) / "plain", Path(self._folder.name) / "tls"
        server = self._server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((self.service.handlers(),))
        server.add_insecure_port(f"unix:{plain}")
        keys = credentials(self._broker.config)
        if keys is not None:
            server.add_secure_port(f"unix:{secure}", keys)
        await server.start()
        self._public = Mux(str(plain), str(secure) if keys is not None else None)
        self.service.port = await self._public.start(self._host, self._port)
        self._ticking = asyncio.get_running_loop().create_task(self._tick())
        self._broker.clock.on_jump.append(self._broker.pops.renewals.moved)
        log.info("gRPC listens on %s tls=%s", self.address, "yes" if keys is not None else "no")

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
            self._public.refuse()
        if self._server is not None:
            await self._server.stop(grace=0.5)
        if self._public is not None:
            await self._public.close()
        if self._folder is not None:
            self._folder.cleanup()
