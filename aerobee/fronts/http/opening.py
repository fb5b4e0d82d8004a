# SPDX-License-Identifier: Apache-2.0
"""The HTTP front of a broker put together: what it serves, under which names, how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.metrics.collect import Metrics
from aerobee.fronts.http import api, health, metrics
from aerobee.fronts.http.app import make_app
from aerobee.fronts.http.bounds import is_loopback
from aerobee.fronts.http.call import HttpPath
from aerobee.fronts.http.front import HttpFront

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.applications import Starlette

    from aerobee.broker.broker import Broker
    from aerobee.clock import Clock
    from aerobee.fronts.http.health import Check
    from aerobee.net.tls import ServerTls
    from aerobee.settings import BrokerConfig

BESIDE_A_MESSAGE = 64 * 1024  # a form's or a document's other fields


def broker_front(
    broker: Broker,
    checks: Mapping[str, Check],
    console: Starlette | None,
    real_clock: Clock,
    tls: ServerTls | None,
) -> HttpFront:
    config, path = broker.config, HttpPath(broker)
    scraped = metrics.route(Metrics(broker), lambda: broker.config, path)
    app = make_app(
        [*health.routes(checks), scraped, *api.routes(broker, path)],
        console,
        max_body=broker.store.config.max_message_bytes + BESIDE_A_MESSAGE,
        hosts=_hosts(config),
    )
    return HttpFront(app, (config.host, config.http_port), real_clock, tls=tls)


def _hosts(config: BrokerConfig) -> list[str] | None:
    """None where the port is no loopback's: who reaches it from elsewhere names it as it likes."""
    if not is_loopback(config.host):
        return None
    return [config.host, config.advertise, *(name.strip() for name in config.http_hosts.split(","))]
