# SPDX-License-Identifier: Apache-2.0
"""The name server's life: its parts, its port, its scan for silent brokers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.remoting import RemotingPath
from aerobee.namesrv.handlers import ROUTES, Parts
from aerobee.namesrv.key_values import KeyValues, decode_key_values
from aerobee.namesrv.route_table import RouteTable
from aerobee.net.listener import Listener, ListenLimits
from aerobee.settings.in_force import InForce
from aerobee.store.metadata import JsonFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aerobee.clock import Clock, Timer
    from aerobee.fronts.gates.guard import Guard
    from aerobee.net.connection import Connection
    from aerobee.net.tls import ServerTls
    from aerobee.net.unfinished import Unfinished
    from aerobee.protocol.bodies import RegisterBrokerBody
    from aerobee.protocol.headers.route import RegisterBroker, RegisterBrokerResult, UnregisterBroker
    from aerobee.settings import NamesrvConfig

log = logging.getLogger("aerobee.namesrv")


class NameServer:
    """Also the observer of its connections: a broker whose connection closes is dropped at once."""

    def __init__(
        self,
        config: NamesrvConfig,
        clock: Clock,
        data_dir: Path | None = None,
        *,
        tls: ServerTls | None = None,
        unfinished: Unfinished | None = None,
        guard: Guard | None = None,
    ) -> None:
        file = JsonFile(data_dir / "namesrv" / "kvConfig.json", decode_key_values) if data_dir else None
        own = InForce(config)
        self.routes = RouteTable(own)
        self._parts = Parts(self.routes, KeyValues(file), own, clock, guard)
        self._clock = clock
        self._path = RemotingPath(Port.NAMESRV, ROUTES, self._parts, clock)
        self._listener = Listener(
            self._path.handle, clock, observer=self, limits=ListenLimits(), tls=tls, unfinished=unfinished
        )
        self._scan_timer: Timer | None = None
        self._stopping = False

    @property
    def address(self) -> str:
        return self._listener.address

    async def start(self) -> None:
        config = self._parts.settings.value
        await self._listener.start(config.host, config.port)
        self._scan_later()
        log.info("listening address=%s", self.address)

    async def stop(self) -> None:
        self._stopping = True
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        await self._listener.close()

    # -- a broker in the same process ----------------------------------------------------------------------

    def register(self, request: RegisterBroker, body: RegisterBrokerBody) -> RegisterBrokerResult:
        return self.routes.register(request, body, self._clock.now(), None)

    def withdraw(self, broker_name: str, topics: Iterable[str]) -> None:
        self.routes.withdraw(broker_name, topics)

    def unregister(self, request: UnregisterBroker) -> None:
        self.routes.unregister(request)

    # -- the wire ------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Nothing is known of it yet."""

    def closed(self, connection: Connection) -> None:
        if not self._stopping:  # then brokers are not gone: we are
            self.routes.closed(connection, self._clock.now())

    def _scan_later(self) -> None:
        now = self._clock.now()
        self._scan_timer = self._clock.call_at(now + self._parts.settings.value.scan_interval_ms, self._scan)

    def _scan(self) -> None:
        for link in self.routes.expire(self._clock.now()):
            link.close()
        self._scan_later()
