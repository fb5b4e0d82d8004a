# SPDX-License-Identifier: Apache-2.0
"""Metrics sent where RocketMQ's settings say: a collector, a second port, the log."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

from aerobee import Message, Producer
from aerobee.fronts.otlp import OtlpPush
from aerobee.server import Server
from aerobee.settings import BrokerConfig, load
from tests.fronts.http.asking import ask
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Collector(service.MetricsServiceServicer):
    """What a collector got, push by push."""

    def __init__(self) -> None:
        self.pushes: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.address = ""

    async def Export(self, request: Any, context: Any) -> Any:
        self.headers = {key: str(value) for key, value in context.invocation_metadata()}
        self.pushes.append(
            {
                metric.name: metric
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
        )
        return pb.ExportMetricsServiceResponse()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    got, server = Collector(), grpc.aio.server()
    service.add_MetricsServiceServicer_to_server(got, server)
    got.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield got
    await server.stop(None)


def config(collector: Collector, **more: Any) -> BrokerConfig:
    return BrokerConfig(
        metrics_exporter="OTLP_GRPC", otlp_target=collector.address, otlp_interval_ms=100, **more
    )


def labels(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def messages_in(push: dict[str, Any]) -> int:
    points = push["rocketmq_messages_in_total"].sum.data_points
    return sum(point.as_int for point in points if labels(point)["topic"] == "orders")


async def test_a_collector_gets_the_same_under_the_names_of_rocketmqs_instruments(
    collector: Collector,
) -> None:
    given = config(collector, otlp_headers="X-Tenant:shop", metrics_label="zone:a")
    async with Server(ephemeral=True, config=given) as server:
        async with Producer(server.namesrv, group="shop") as producer:
            await producer.send(Message("orders", b"x"))
        await until(lambda: collector.pushes and "rocketmq_messages_in_total" in collector.pushes[-1])
        push = collector.pushes[-1]
    assert messages_in(push) == 1
    (point,) = push["rocketmq_broker_permission"].gauge.data_points
    assert labels(point) == {
        "zone": "a",
        "cluster": "DefaultCluster",
        "node_type": "broker",
        "node_id": "broker-a",
    }
    latency = push["rocketmq_rpc_latency"]
    assert latency.unit == "milliseconds"
    assert list(latency.histogram.data_points[0].explicit_bounds)[:3] == [1, 3, 5]
    assert "rocketmq_storage_size" in push and "rocketmq_storage_flush_behind_bytes" in push
    assert collector.headers["x-tenant"] == "shop"


@pytest.mark.parametrize("in_delta", [False, True])
async def test_what_is_pushed_last_has_all_or_only_what_is_new(collector: Collector, in_delta: bool) -> None:
    async with (
        Server(ephemeral=True, config=config(collector, metrics_in_delta=in_delta)) as server,
        Producer(server.namesrv, group="shop") as producer,
    ):
        await producer.send(Message("orders", b"x"))
        await until(lambda: collector.pushes and "rocketmq_messages_in_total" in collector.pushes[-1])
        await producer.send(Message("orders", b"y"))
    totals = [messages_in(push) for push in collector.pushes if "rocketmq_messages_in_total" in push]
    assert (sum(totals) if in_delta else totals[-1]) == 2, "the last push is made at the end"


async def test_a_collector_that_is_not_there_is_told_once_and_costs_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = BrokerConfig(
        metrics_exporter="OTLP_GRPC",
        otlp_target="http://127.0.0.1:1",
        otlp_interval_ms=20,
        otlp_timeout_ms=10,
    )
    async with Server(ephemeral=True, config=gone) as server:
        await until(lambda: any("not pushed" in line for line in caplog.messages))
        async with Producer(server.namesrv, group="shop") as producer:
            await producer.send(Message("orders", b"x"))
    assert len([line for line in caplog.messages if "not pushed" in line]) == 1


async def test_rocketmqs_own_settings_are_understood(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        f"metricsExporterType=OTLP_GRPC\nmetricsGrpcExporterTarget={collector.address}\n"
        "metricsGrpcExporterHeader=a:b\nmetricGrpcExporterIntervalInMills=1234\nmetricsLabel=zone:a,rack:7\n"
    )
    loaded = load(file).broker
    assert (loaded.otlp_target, loaded.otlp_interval_ms) == (collector.address, 1234)
    with pytest.raises(ValueError, match="otlp_target"):
        BrokerConfig(metrics_exporter="OTLP_GRPC")
    with pytest.raises(ValueError, match="metrics_label"):
        BrokerConfig(metrics_label="zone")


async def test_without_the_extra_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, collector: Collector
) -> None:
    monkeypatch.setitem(sys.modules, "aerobee.fronts.otlp", None)
    async with Server(ephemeral=True, config=config(collector)):
        pass
    assert len([line for line in caplog.messages if "aerobee[console,otel]" in line]) == 1
    assert OtlpPush.__module__ == "aerobee.fronts.otlp"


async def test_prometheus_may_scrape_where_rocketmqs_exporter_was() -> None:
    given = BrokerConfig(metrics_exporter="PROM", metrics_port=0)
    async with Server(ephemeral=True, config=given) as server:
        front: Any = server._watching.exporter
        assert "rocketmq_topic_number" in (await ask(front.address, "/metrics")).text
        assert (await ask(front.address, "/api/cluster")).status == 404


async def test_metrics_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aerobee.metrics")
    async with Server(ephemeral=True, config=BrokerConfig(metrics_exporter="LOG", metrics_log_ms=50)):
        await until(lambda: any("rocketmq_topic_number" in line for line in caplog.messages))
    assert not any(line.startswith("#") for line in caplog.messages)
