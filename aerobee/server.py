# SPDX-License-Identifier: Apache-2.0
"""Name server, broker and fronts in this process: what `aerobee serve` runs and what tests embed."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from aerobee.broker.background.jobs import Background
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import Clock, SystemClock
from aerobee.config import BrokerConfig, NamesrvConfig, StoreConfig
from aerobee.errors import AerobeeError
from aerobee.fronts.remoting.server import RemotingFront, VipFront
from aerobee.net.address import format_address
from aerobee.net.connection import Limits
from aerobee.net.server import Listener, ListenLimits
from aerobee.protocol.message import pack_host

if TYPE_CHECKING:
    from types import TracebackType

    from aerobee.broker.background.registration import Registration
    from aerobee.namesrv.main import NameServer
    from aerobee.net.tls import ServerTls

log = logging.getLogger("aerobee.server")

OFF = -1
ANY_PORT = 0
GRACE_MS = 3_000
_NEVER_MS = 1 << 50


class Front(Protocol):
    """A front that brings its own port: gRPC."""

    @property
    def address(self) -> str: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Server:
    """An Aerobee server: `async with Server(ephemeral=True) as server: ... server.namesrv ...`

    `data` is the directory of everything that survives a restart; an ephemeral server uses a temporary one, removed
    at the end, and any free ports. A port of -1 leaves that front out: without a name server port the broker
    registers with `config.namesrv`; without a broker port only the name server runs. gRPC is off unless asked for.

    `clock=ManualClock()` lets a test move time: delays, retries and invisible times then need no waiting. Idle
    connections and silent clients are then not dropped.
    """

    def __init__(  # noqa: PLR0913 - each is a real setting of the whole
        self,
        data: str | Path | None = None,
        *,
        ephemeral: bool = False,
        host: str = "127.0.0.1",
        namesrv_port: int | None = None,
        broker_port: int | None = None,
        grpc_port: int = OFF,
        clock: Clock | None = None,
        config: BrokerConfig | None = None,
        store: StoreConfig | None = None,
        namesrv: NamesrvConfig | None = None,
    ) -> None:
        if ephemeral and data is not None:
            raise ValueError(
                "an ephemeral server has a temporary directory: leave out `data`, or `ephemeral`"
            )
        self.clock: Clock = clock or SystemClock()
        # Peers live in real time: moving the clock by hand must not make their connections look idle.
        self._real_clock = SystemClock()
        self._ephemeral = ephemeral
        self._data = None if ephemeral else Path(data or "aerobee-data")
        config, namesrv = config or BrokerConfig(), namesrv or NamesrvConfig()
        self._config = msgspec.structs.replace(
            config,
            host=host if config.host == "127.0.0.1" else config.host,
            port=_port(broker_port, config.port, ephemeral),
            grpc_port=grpc_port,
            channel_expiry_ms=config.channel_expiry_ms if clock is None else _NEVER_MS,
        )
        self._namesrv_config = msgspec.structs.replace(
            namesrv, host=self._config.host, port=_port(namesrv_port, namesrv.port, ephemeral)
        )
        self._store_config = store or StoreConfig()
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None
        self._listeners: list[Listener] = []
        self._registration: Registration | None = None
        self._background: Background | None = None
        self._grpc: Front | None = None

    # -- what users ask ------------------------------------------------------------------------------------

    @property
    def namesrv(self) -> str:
        """The name server's `host:port`: what clients are given."""
        if self._name_server is not None:
            return self._name_server.address
        return self._config.namesrv

    @property
    def broker(self) -> Broker:
        """The parts of the running broker, for tests that look inside."""
        if self._broker is None:
            raise AerobeeError("this server runs no broker: it was not started, or broker_port is -1")
        return self._broker

    @property
    def broker_address(self) -> str:
        return self._listeners[0].address if self._listeners else ""

    @property
    def grpc_address(self) -> str:
        return self._grpc.address if self._grpc is not None else ""

    @property
    def http_address(self) -> str:
        return ""  # the console is a program of its own so far

    @property
    def data(self) -> Path | None:
        """The data directory, while it runs."""
        return self._data

    # -- life cycle ----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the data, then the ports. What fails undoes what was started."""
        try:
            if self._ephemeral:
                self._data = Path(tempfile.mkdtemp(prefix="aerobee-"))
            if self._namesrv_config.port != OFF:
                await self._start_name_server()
            if self._config.port != OFF:
                await self._start_broker()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop accepting, answer held requests, flush, save."""
        if self._registration is not None:
            await self._registration.stop()
        if self._broker is not None:
            self._broker.parked.stop()
            self._broker.pops.stop()
        if self._grpc is not None:
            await self._grpc.stop()
        for listener in self._listeners:
            await listener.close(GRACE_MS)
        if self._background is not None:
            await self._background.stop()
        if self._broker is not None:
            self._broker.store.close()
        if self._name_server is not None:
            await self._name_server.stop()
        self._listeners, self._broker = [], None
        self._registration = self._background = self._grpc = self._name_server = None
        if self._ephemeral and self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
            self._data = None

    # -- the name server -----------------------------------------------------------------------------------

    async def _start_name_server(self) -> None:
        from aerobee.namesrv.main import NameServer

        self._name_server = NameServer(
            self._namesrv_config, self._real_clock, self._data, tls=_tls(self._config)
        )
        await self._name_server.start()

    # -- the broker ----------------------------------------------------------------------------------------

    async def _start_broker(self) -> None:
        assert self._data is not None
        broker = assemble(self._config, self._store_config, self._data, self.clock)
        self._broker = broker
        front = RemotingFront(broker)
        listener = await self._listen(front, self._config.port)
        # Only now the port is known that messages are stamped with and routes name.
        self._config = msgspec.structs.replace(self._config, port=listener.port)
        broker.store.store_host = pack_host(self._config.advertise or self._config.host, listener.port)
        self._broker = front.broker = broker = replace(broker, config=self._config)
        if self._config.vip_port != OFF:
            await self._listen(VipFront(front), self._config.vip_port)
        self._background = Background(broker)
        self._background.start()
        await self._register(broker)
        if self._config.grpc_port != OFF:
            await self._start_grpc(broker)

    async def _listen(self, front: RemotingFront | VipFront, port: int) -> Listener:
        config = self._config
        limits = ListenLimits(
            max_connections=config.max_connections,
            idle_close_ms=config.idle_close_ms,
            connection=Limits(max_frame=config.max_frame_bytes, max_write_buffer=config.max_pending_bytes),
        )
        listener = Listener(front.handle, self._real_clock, observer=front, limits=limits, tls=_tls(config))
        await listener.start(config.host, port)
        self._listeners.append(listener)
        return listener

    async def _register(self, broker: Broker) -> None:
        if self._name_server is None and not self._config.namesrv:
            return  # nobody to register with: a broker that is only talked to directly
        from aerobee.broker.background.registration import Registration

        config = self._config
        address = format_address(config.advertise or config.host, config.port)
        self._registration = Registration.for_broker(broker, address, self._name_server)
        await self._registration.start()
        broker.topics.listeners.append(self._registration.changed)

    async def _start_grpc(self, broker: Broker) -> None:
        try:
            from aerobee.fronts.grpc.server import GrpcFront
        except ImportError as error:
            log.warning("gRPC front is off: %s; `pip install aerobee[grpc]` brings what it needs", error)
            return
        self._grpc = GrpcFront(broker, self._config.host, self._config.grpc_port)
        await self._grpc.start()


def _port(given: int | None, configured: int, ephemeral: bool) -> int:  # noqa: FBT001 - the setting itself
    if given is not None:
        return given
    return ANY_PORT if ephemeral else configured


def _tls(config: BrokerConfig) -> ServerTls | None:
    if not config.tls_cert:
        return None
    from aerobee.net.tls import TlsMode, server_tls

    return server_tls(
        config.tls_cert, config.tls_key, TlsMode.REQUIRED if config.tls_required else TlsMode.PERMISSIVE
    )
