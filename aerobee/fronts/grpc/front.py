# SPDX-License-Identifier: Apache-2.0
"""The gRPC front's life: a listener behind the port, a timer for leases and silent clients, a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from aerobee.fronts.grpc.certificate import made_tls
from aerobee.fronts.grpc.mux import Mux, MuxLimits
from aerobee.fronts.grpc.requests import MAX_BESIDE_BODIES
from aerobee.fronts.grpc.service import Service
from aerobee.net.door import HANDSHAKE_MS
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.clock import Clock
    from aerobee.net.tls import ServerTls
    from aerobee.net.unfinished import Unfinished
    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.grpc")

TICK_MS = 1_000
MAX_METADATA_BYTES = 16 * 1024
MAX_STREAMS = 4_000  # of one connection; a client holds one receive per queue
KEEPALIVE_MS = 60_000
KEEPALIVE_WAIT_MS = 20_000


def options(config: BrokerConfig, max_message: int) -> tuple[tuple[str, int], ...]:
    """What grpc's listener allows one client. Answers are not bounded: the broker makes them."""
    return (
        ("grpc.max_receive_message_length", max_message),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        # A client that says HTTP/2's first words and nothing after them.
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        # One without a call this long is asked to leave, and one that is gone without a word is noticed.
        ("grpc.max_connection_idle_ms", config.idle_close_ms),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_WAIT_MS),
        # Java clients ping without calls under way.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.max_pings_without_data", 0),
    )


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
        self._server: grpc.aio.Server | None = None
        self._public: Mux | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return format_address(self._host, self.service.port)

    async def start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aerobee-grpc-")
        folder = Path(self._folder.name)
        config, listener = self._broker.config, folder / "listener"
        max_message = self._broker.store.config.max_message_bytes + MAX_BESIDE_BODIES
        server = self._server = grpc.aio.server(options=options(config, max_message))
        server.add_generic_rpc_handlers((self.service.handlers(),))
        server.add_insecure_port(f"unix:{listener}")
        await server.start()
        tls = self._tls or made_tls(config, folder)
        limits = MuxLimits(
            max_connections=config.max_connections, max_message=max_message, max_streams=MAX_STREAMS
        )
        self._public = public = Mux(
            folder, listener, self._real_clock, tls=tls, limits=limits, unfinished=self._unfinished
        )
        self.service.peers.address_of = public.address_of
        self.service.port = await public.start(self._host, self._port)
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
            await self._public.refuse()
        if self._server is not None:
            await self._server.stop(grace=0.5)
        if self._public is not None:
            await self._public.close()
        if self._folder is not None:
            self._folder.cleanup()
