# SPDX-License-Identifier: Apache-2.0
"""The HTTP fronts put together by the settings: where they listen, under which names, how much they take, and what else
metrics are sent to."""

from __future__ import annotations

from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee.clock import ManualClock
from aerobee.fronts.http import opening
from aerobee.fronts.metrics_log import MetricsLog
from aerobee.fronts.otlp import OtlpPush
from aerobee.settings import BrokerConfig, StoreConfig

CLOCK = ManualClock()
TLS: Any = Thing(mode="on")


class Made:
    """What would have been opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.apps: list[tuple[list[str], Any, dict[str, Any]]] = []
        self.fronts: list[tuple[Any, ...]] = []
        monkeypatch.setattr(opening, "make_app", self._app)
        monkeypatch.setattr(opening, "HttpFront", self._front)

    def _app(self, routes: Any, console: Any, **told: Any) -> str:
        self.apps.append(([route.path for route in routes], console, told))
        return "app"

    def _front(self, *given: Any, **told: Any) -> Any:
        self.fronts.append((*given, told))
        return Thing()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    return Made(monkeypatch)


def broker(**config: Any) -> Any:
    return Thing(
        config=BrokerConfig(**config), store=Thing(config=StoreConfig(max_message_bytes=1_000)),
        clock=CLOCK, stats=Thing(started_at=1),
    )  # fmt: skip


def test_the_broker_has_health_metrics_and_the_api_before_the_console(made: Made) -> None:
    console: Any = object()
    opening.broker_front(broker(host="127.0.0.1", http_port=8_088), {}, console, CLOCK, TLS)
    ((paths, mounted, told),) = made.apps
    assert paths == ["/healthz", "/readyz", "/metrics", "/api", "/api"]
    assert mounted is console
    assert told["max_body"] == 1_000 + 64 * 1024, "a message, and what a form says beside it"
    assert made.fronts == [("app", ("127.0.0.1", 8_088), CLOCK, {"tls": TLS})]


@pytest.mark.parametrize(
    ("config", "hosts"),
    [
        ({"host": "127.0.0.1"}, ["127.0.0.1", "", ""]),
        ({"host": "localhost", "advertise": "b.example"}, ["localhost", "b.example", ""]),
        ({"host": "127.0.0.1", "http_hosts": "one.example, two.example"},
         ["127.0.0.1", "", "one.example", "two.example"]),
        ({"host": "0.0.0.0"}, None),
        ({"host": "10.0.0.1", "http_hosts": "one.example"}, None),
    ],
)  # fmt: skip
def test_a_loopback_port_is_served_under_the_names_of_the_settings(
    made: Made, config: dict[str, str], hosts: list[str] | None
) -> None:
    opening.broker_front(broker(**config), {}, None, CLOCK, None)
    ((_, _, told),) = made.apps
    assert told["hosts"] == hosts


@pytest.mark.parametrize(("metrics_host", "host"), [("", "127.0.0.1"), ("10.0.0.2", "10.0.0.2")])
def test_metrics_alone_have_a_port_of_their_own(made: Made, metrics_host: str, host: str) -> None:
    told = broker(
        host="127.0.0.1",
        metrics_host=metrics_host,
        metrics_port=5_557,
        metrics_exporter="PROM",
        http_port=8_088,
    )
    assert opening.exporter(told, CLOCK, TLS) is not None
    assert made.apps == [(["/metrics"], None, {"max_body": 0, "hosts": None})]
    assert made.fronts == [("app", (host, 5_557), CLOCK, {"tls": TLS})]


def test_metrics_go_where_the_settings_say(made: Made) -> None:
    target = "http://127.0.0.1:1"
    pushed = opening.exporter(broker(metrics_exporter="OTLP_GRPC", otlp_target=target), CLOCK, None)
    logged = opening.exporter(broker(metrics_exporter="LOG", metrics_label="zone:a"), CLOCK, None)
    assert isinstance(pushed, OtlpPush)
    assert isinstance(logged, MetricsLog)
    assert dict(logged._labels)["zone"] == "a"
    assert ("node_type", "broker") in pushed._labels
    assert not any(name == "otel_scope_name" for name, _ in pushed._labels), (
        "a collector is told it otherwise"
    )
    pushed._exporter.shutdown(0)
    assert opening.exporter(broker(), CLOCK, None) is None
    assert made.fronts == []
