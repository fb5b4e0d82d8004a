# SPDX-License-Identifier: Apache-2.0
"""The HTTP front of a broker put together: what it serves, under which names, how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.broker.metrics.collect import Metrics
from aerobee.fronts.http import api, health, metrics
from aerobee.fronts.http.app import make_app
from aerobee.fronts.http.bounds import is_loopback
from aerobee.fronts.http.call import HttpPath
from aerobee.fronts.http.front import HttpFront
from aerobee.fronts.metrics_log import MetricsLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.applications import Starlette

    from aerobee.broker.broker import Broker
    from aerobee.clock import Clock
    from aerobee.fronts.http.health import Check
    from aerobee.net.tls import ServerTls
    from aerobee.settings import BrokerConfig


class Exporter(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


BESIDE_A_MESSAGE = 64 * 1024  # a form's or a document's other fields


def broker_front(
    broker: Broker,
    checks: Mapping[str, Check],
    console: Starlette | None,
    real_clock: Clock,
    tls: ServerTls | None,
) -> HttpFront:
    """Console, API, metrics and health."""
    config, path = broker.config, HttpPath(broker)
    scraped = metrics.route(Metrics(broker), lambda: broker.config, path)
    app = make_app(
        [*health.routes(checks), scraped, *api.routes(broker, path)],
        console,
        max_body=broker.store.config.max_message_bytes + BESIDE_A_MESSAGE,
        hosts=_hosts(config),
    )
    return HttpFront(app, (config.host, config.http_port), real_clock, tls=tls)


def metrics_front(broker: Broker, real_clock: Clock, tls: ServerTls | None) -> HttpFront:
    """Metrics alone, on the port where RocketMQ's exporter has them."""
    config, path = broker.config, HttpPath(broker)
    scraped = metrics.route(Metrics(broker), lambda: broker.config, path)
    app = make_app([scraped], None, max_body=0, hosts=None)
    return HttpFront(app, (config.metrics_host or config.host, config.metrics_port), real_clock, tls=tls)


def exporter(broker: Broker, real_clock: Clock, tls: ServerTls | None) -> Exporter | None:
    """What the settings send metrics to beside the HTTP port. Raises ImportError where its packages are missing."""
    config = broker.config
    if config.metrics_exporter == "PROM":
        return metrics_front(broker, real_clock, tls)
    if config.metrics_exporter == "OTLP_GRPC":
        from aerobee.fronts.otlp import OtlpPush

        return OtlpPush(broker, Metrics(broker), metrics.node_labels(config), real_clock)
    if config.metrics_exporter == "LOG":
        return MetricsLog(broker, Metrics(broker), metrics.node_labels(config), real_clock)
    return None


def _hosts(config: BrokerConfig) -> list[str] | None:
    """None where the port is no loopback's: who reaches it from elsewhere names it as it likes."""
    if not is_loopback(config.host):
        return None
    return [config.host, config.advertise, *(name.strip() for name in config.http_hosts.split(","))]
