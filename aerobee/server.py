# SPDX-License-Identifier: Apache-2.0
"""Name server, broker and fronts in this process: what `aerobee serve` runs and what tests embed."""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, TypedDict, TypeVar

import msgspec

from aerobee import native
from aerobee.broker.access.opening import open_namesrv_access
from aerobee.broker.background.jobs import Background
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import Clock, SystemClock, Timer
from aerobee.errors import AerobeeError
from aerobee.fronts.gates.call import Port
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.net.connection import Limits
from aerobee.net.door import refuse_taken
from aerobee.net.listener import MAX_REQUEST_HEADER, Listener, ListenLimits
from aerobee.net.tls import LOOK_MS, namesrv_tls, port_tls
from aerobee.net.unfinished import Unfinished
from aerobee.protocol.addresses import format_address, parse_address
from aerobee.protocol.message import pack_host
from aerobee.settings import VIP_BELOW, BrokerConfig, NamesrvConfig, StoreConfig
from aerobee.settings.declare import CENTURY_MS
from aerobee.store import several
from aerobee.watching import Watching

if TYPE_CHECKING:
    from types import TracebackType

    from aerobee.broker.access.access import Access
    from aerobee.broker.access.plain_acl import PlainAcl
    from aerobee.broker.background.registration import Registration
    from aerobee.namesrv.name_server import NameServer
    from aerobee.net.tls import ServerTls

log = logging.getLogger("aerobee.server")

T = TypeVar("T")

OFF = -1
ANY_PORT = 0
GRACE_MS = 3_000


class Ports(TypedDict):
    """Arguments of a `Server`."""

    namesrv_port: int
    broker_port: int
    grpc_port: int
    http_port: int


class ServerSettings(TypedDict, total=False):
    """All arguments of a `Server` but its data."""

    ephemeral: bool
    host: str | None
    namesrv_port: int | None
    broker_port: int | None
    grpc_port: int | None
    http_port: int | None
    clock: Clock | None
    config: BrokerConfig | None
    store: StoreConfig | None
    namesrv: NamesrvConfig | None


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
    registers with `config.namesrv`; without a broker port only the name server runs. gRPC and HTTP (console, API,
    metrics, health) are off unless asked for. All settings are those of `BrokerConfig`, `StoreConfig` and
    `NamesrvConfig`; the arguments named like one of theirs win over it.

    `clock=ManualClock()` lets a test move time: delays, retries and invisible times then need no waiting. Idle
    connections and silent clients are then not dropped.
    """

    def __init__(  # noqa: PLR0913 - each is a real setting of the whole
        self,
        data: str | Path | None = None,
        *,
        ephemeral: bool = False,
        host: str | None = None,
        namesrv_port: int | None = None,
        broker_port: int | None = None,
        grpc_port: int | None = None,
        http_port: int | None = None,
        clock: Clock | None = None,
        config: BrokerConfig | None = None,
        store: StoreConfig | None = None,
        namesrv: NamesrvConfig | None = None,
    ) -> None:
        if ephemeral and (data is not None or (store or StoreConfig()).data != StoreConfig().data):
            raise ValueError(
                "an ephemeral server has a directory of its own: leave out `data` or `ephemeral`"
            )
        self.clock: Clock = clock or SystemClock()
        # Peers live in real time: moving the clock by hand must not make their connections look idle.
        self._real_clock = SystemClock()
        self._ephemeral = ephemeral
        config, store, namesrv = config or BrokerConfig(), store or StoreConfig(), namesrv or NamesrvConfig()
        self._store_config = store if data is None else msgspec.structs.replace(store, data=str(data))
        self._data = None if ephemeral else Path(self._store_config.data)
        port = ANY_PORT if ephemeral else None
        self._config = msgspec.structs.replace(
            config,
            host=host or config.host,
            port=_given(broker_port, config.port, BrokerConfig().port, port),
            grpc_port=_given(grpc_port, config.grpc_port, BrokerConfig().grpc_port, OFF),
            http_port=_given(http_port, config.http_port, BrokerConfig().http_port, OFF),
            channel_expiry_ms=config.channel_expiry_ms if clock is None else CENTURY_MS,
        )
        self._namesrv_config = msgspec.structs.replace(
            namesrv,
            host=host or _given(None, namesrv.host, NamesrvConfig().host, config.host),
            port=_given(namesrv_port, namesrv.port, NamesrvConfig().port, port),
        )
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None
        self._listeners: list[Listener] = []
        self._grpc: Front | None = None
        self._watching: Watching | None = None
        self._registration: Registration | None = None
        self._tls: ServerTls | None = None
        self._http_tls: ServerTls | None = None
        self._looks_again: Timer | None = None
        self._unfinished = Unfinished(self._config.max_unfinished_bytes)
        self._exits = AsyncExitStack()

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
        return self._watching.address if self._watching is not None else ""

    @property
    def ports(self) -> Ports:
        """What it listens on, for a server that is to take its place: `Server(data, **ports)`; -1 what it has not."""
        namesrv = "" if self._name_server is None else self._name_server.address
        return Ports(
            namesrv_port=_port_of(namesrv),
            broker_port=_port_of(self.broker_address),
            grpc_port=_port_of(self.grpc_address),
            http_port=_port_of(self.http_address),
        )

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
        self._load_certificates()
        broker_at, names = (self._config.host, self._config.port), self._namesrv_config
        refuse_taken(broker_at, (names.host, names.port))
        try:
            self._watch_certificates()
            self._exits.callback(self._stop_watching)
            if self._ephemeral:
                self._data = Path(tempfile.mkdtemp(prefix="aerobee-"))
                self._exits.callback(self._remove_data)
            broker = self._open_broker() if self._config.port != OFF else None
            if self._namesrv_config.port != OFF:
                self._make_name_server(broker)
            if broker is not None:
                await self._start_broker(broker)
            if self._name_server is not None:
                # Last: whoever asks it for a topic finds the broker registered already.
                await self._name_server.start()
                self._exits.push_async_callback(self._name_server.stop)
            if broker is not None:
                await self._start_watching(broker)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop accepting, answer held requests, flush, save: the start backwards, whatever fails on the way."""
        await self._exits.aclose()

    def _load_certificates(self) -> None:
        """Before anything is opened: what was asked to be secret is never served plain."""
        try:
            self._tls = port_tls(self._config)
            self._http_tls = port_tls(self._config, speaks="http/1.1")
            namesrv_tls(self._config)
        except ValueError as error:
            raise AerobeeError(str(error)) from None

    def _watch_certificates(self) -> None:
        """Renewed ones are for the next connection."""
        if self._tls is not None and self._http_tls is not None:
            self._tls.look()
            self._http_tls.look()
            self._looks_again = self._real_clock.call_at(
                self._real_clock.now() + LOOK_MS, self._watch_certificates
            )

    def _stop_watching(self) -> None:
        if self._looks_again is not None:
            self._looks_again.cancel()

    def _remove_data(self) -> None:
        if self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)
        self._data = None

    def _make_name_server(self, broker: Broker | None) -> None:
        from aerobee.namesrv.name_server import NameServer

        self._name_server = NameServer(
            self._namesrv_config,
            self._real_clock,
            self._data,
            tls=self._tls,
            unfinished=self._unfinished,
            guard=self._namesrv_guard() if broker is None else broker.guard,
        )

    def _namesrv_guard(self) -> Access | PlainAcl | None:
        """Of a name server alone; one in a broker's process asks what the broker asks."""
        if not self._namesrv_config.authentication:
            return None
        beside = None
        if self._data is not None and several.is_of_several(self._data):
            beside = several.folder_of(self._data, self._config.name)
        access = open_namesrv_access(self._config, beside)
        if access.audit is not None:
            self._exits.callback(access.audit.close)
        return access.guard

    # -- the broker ----------------------------------------------------------------------------------------

    def _open_broker(self) -> Broker:
        assert self._data is not None
        several.refuse_several(self._data)
        self._broker = broker = assemble(self._config, self._store_config, self._data, self.clock)
        self._exits.callback(broker.store.close)
        if broker.access.audit is not None:
            self._exits.callback(broker.access.audit.close)
        return broker

    async def _start_broker(self, broker: Broker) -> None:
        """Each step leaves on `_exits` what undoes it; they run in the opposite order."""
        background = Background(broker)
        self._exits.callback(background.save)
        if not native.is_on:
            log.info("native lane: %s", native.state)
        front = RemotingFront(broker)
        asked = self._config
        listener = await self._listen(front, asked.port)
        # Only now the port is known that messages are stamped with and routes name.
        self._config = msgspec.structs.replace(asked, port=listener.port)
        broker.settings.swap(self._config)
        broker.store.store_host = pack_host(asked.advertise or asked.host, listener.port)
        await self._listen_below(RemotingFront(broker, Port.VIP), asked)
        if self._config.grpc_port != OFF:
            await self._start_grpc(broker)
        self._exits.callback(broker.pops.stop)
        self._exits.callback(broker.parked.stop)  # held requests are answered before the ports close
        background.start()
        self._exits.push_async_callback(background.stop)
        await self._register(broker)

    async def _listen_below(self, front: RemotingFront, asked: BrokerConfig) -> None:
        """The port that the official dashboard, and Java clients of 4.4 and older, use instead of the broker's."""
        if asked.vip_port != VIP_BELOW:
            if asked.vip_port != OFF:
                await self._listen(front, asked.vip_port)
            return
        port = asked.port + VIP_BELOW
        if port <= 0:
            return  # nobody was told a port, so nobody looks two below it
        try:
            await self._listen(front, port)
        except AerobeeError as error:
            log.warning(
                "port=%d two below the broker's is not open: %s; `vip_port` names another", port, error
            )

    async def _listen(self, front: RemotingFront, port: int) -> Listener:
        config = self._config
        limits = ListenLimits(
            max_connections=config.max_connections,
            idle_close_ms=config.idle_close_ms,
            connection=Limits(
                max_frame=config.max_frame_bytes,
                max_header=MAX_REQUEST_HEADER,
                max_write_buffer=config.max_pending_bytes,
            ),
        )
        listener = Listener(
            front.handle,
            self._real_clock,
            observer=front,
            limits=limits,
            tls=self._tls,
            unfinished=self._unfinished,
            run=front.run,
        )
        await listener.start(config.host, port)
        self._exits.push_async_callback(listener.close, GRACE_MS)
        self._listeners.append(listener)
        return listener

    async def _register(self, broker: Broker) -> None:
        if self._name_server is None and not self._config.namesrv:
            return  # nobody to register with: a broker that is only talked to directly
        from aerobee.broker.background.registration import Registration
        from aerobee.broker.background.topic_routes import routes_for

        config = self._config
        address = format_address(config.advertise or config.host, config.port)
        self._registration = registration = Registration.for_broker(
            broker, address, self._name_server, self._advertised_grpc_address()
        )
        self._exits.push_async_callback(registration.stop)
        await registration.start()
        broker.topics.listeners.append(registration.changed)
        local = None if self._name_server is None else self._name_server.routes
        broker.pops.routes = routes_for(broker, local)
        if broker.pops.routes is not None:
            self._exits.push_async_callback(broker.pops.routes.stop)

    def _advertised_grpc_address(self) -> str:
        """What other brokers tell gRPC clients of this one; empty when it has no such front."""
        if self._grpc is None:
            return ""
        _, port = parse_address(self._grpc.address)
        return format_address(self._config.advertise or self._config.host, port)

    async def _start_grpc(self, broker: Broker) -> None:
        try:
            from aerobee.fronts.grpc.front import GrpcFront
        except ImportError as error:
            log.warning("gRPC front is off: %s; `pip install 'aerobee[grpc]'` brings what it needs", error)
            return
        config = self._config
        self._grpc = GrpcFront(broker, config.grpc_port, self._real_clock, self._unfinished, tls=self._tls)
        self._exits.push_async_callback(self._grpc.stop)
        await self._grpc.start()

    # -- watching ------------------------------------------------------------------------------------------

    async def _start_watching(self, broker: Broker) -> None:
        self._watching = Watching(
            broker, self.namesrv, self._not_registered, self._real_clock, self._http_tls
        )
        self._exits.push_async_callback(self._watching.stop)
        await self._watching.start()

    def _not_registered(self) -> str:
        if self._registration is None or self._registration.registered:
            return ""
        return f"no name server of {self.namesrv} has taken this broker's registration"


def _given(argument: T | None, configured: T, usual: T, here: T | None) -> T:
    """The argument, or what the settings say; where they say nothing but the usual, what is usual `here`."""
    if argument is not None:
        return argument
    return configured if configured != usual or here is None else here


def _port_of(address: str) -> int:
    return parse_address(address)[1] if address else OFF
