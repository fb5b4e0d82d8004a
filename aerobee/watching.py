# SPDX-License-Identifier: Apache-2.0
"""What operators watch a server by: its HTTP port with the console on it, and where else its metrics go.

None of it may keep a broker from its work: packages that are missing, and a usual port that somebody else has, two
servers on one machine, are told in one line and left.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aerobee.client.options import SessionOptions
from aerobee.errors import NetworkError
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.clock import Clock
    from aerobee.net.tls import ServerTls

log = logging.getLogger("aerobee.server")

OFF = -1


class Watching:
    """Started last: what it shows is there. `not_registered` says why no name server knows the broker, or nothing."""

    def __init__(
        self,
        broker: Broker,
        namesrv: str,
        not_registered: Callable[[], str],
        real_clock: Clock,
        tls: ServerTls | None,
    ) -> None:
        self._broker = broker
        self._namesrv = namesrv
        self._not_registered = not_registered
        self._clock = real_clock
        self._tls = tls
        self._exits = AsyncExitStack()
        self.address = ""
        self.exporter: object = None

    async def start(self) -> None:
        config = self._broker.config
        if config.http_port != OFF:
            await self._start("HTTP", "console", self._serve)
        if config.metrics_exporter != "DISABLE":
            await self._start("the export of metrics", "console,otel", self._export)

    async def stop(self) -> None:
        await self._exits.aclose()

    async def _start(self, what: str, extra: str, start: Callable[[], Any]) -> None:
        try:
            await start()
        except ImportError as error:
            log.warning("%s is off: %s; `pip install 'aerobee[%s]'` brings what it needs", what, error, extra)

    async def _serve(self) -> None:
        from aerobee.fronts.http.health import checks_of
        from aerobee.fronts.http.opening import broker_front

        checks = checks_of(self._broker, self._not_registered)
        front = broker_front(self._broker, checks, self._console(), self._clock, self._tls)
        self._exits.push_async_callback(front.stop)
        try:
            await front.start()
        except NetworkError as error:
            if self._broker.config.http_port != BrokerConfig().http_port:
                raise
            log.warning("HTTP is off: %s `http_port` names another", error)
        else:
            self.address = front.address

    def _console(self) -> Any:
        """Over this server's own name server, where it is installed."""
        try:
            made = import_module("aerobee.console.app")
        except ImportError as error:
            log.info("the console is off: %s; `pip install 'aerobee[console]'` brings what it needs", error)
            return None
        config = self._broker.config
        options = SessionOptions(
            tls="on" if config.tls_required or config.namesrv_tls else "off",
            tls_ca=config.namesrv_tls_ca,
            tls_cert=config.namesrv_tls_cert,
            tls_key=config.namesrv_tls_key,
        )
        return made.make_app(self._namesrv, options=options, knows_accounts=self._broker.guard is not None)

    async def _export(self) -> None:
        from aerobee.fronts.http.opening import exporter

        self.exporter = export = exporter(self._broker, self._clock, self._tls)
        if export is not None:
            self._exits.push_async_callback(export.stop)
            await export.start()
