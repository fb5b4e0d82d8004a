# SPDX-License-Identifier: Apache-2.0
"""Metrics pushed to an OpenTelemetry collector, as RocketMQ does with `metricsExporterType=OTLP_GRPC`: the same scrape
as Prometheus gets, under the names of RocketMQ's instruments."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from aerobee.broker.metrics.family import Distribution, Kind

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Metrics
    from aerobee.broker.metrics.family import Family, Labels, Scrape, Value
    from aerobee.clock import Clock

log = logging.getLogger("aerobee.metrics")
# Its own lines repeat at every push; ours say when it begins and when it is over.
logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)

SCOPE = "broker-meter"
# Where the unit is part of the instrument's own name.
_WITH_UNIT = ("_behind_bytes",)
Before = dict[tuple[str, "Labels"], "Value"]


class OtlpPush:
    """Owns a task; the exporter blocks, so it works in a thread."""

    def __init__(self, broker: Broker, metrics: Metrics, labels: Labels, real_clock: Clock) -> None:
        config = broker.config
        self._broker = broker
        self._metrics = metrics
        self._clock = real_clock
        self._delta = config.metrics_in_delta
        self._labels = (*labels, ("aggregation", "delta")) if self._delta else labels
        self._before: Before = {}
        self._since_ns = broker.stats.started_at * 1_000_000
        target = config.otlp_target if "://" in config.otlp_target else f"https://{config.otlp_target}"
        self._target = target
        headers = (pair.partition(":") for pair in config.otlp_headers.split(",") if pair)
        self._exporter = OTLPMetricExporter(
            endpoint=target,
            insecure=target.startswith("http://"),
            headers=tuple((name.strip().lower(), value.strip()) for name, _, value in headers),
            timeout=config.otlp_timeout_ms / 1000,
        )
        self._failing = False
        self._pushing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._pushing = asyncio.get_running_loop().create_task(self._run())
        log.info("metrics are pushed to %s", self._target)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._broker.config.otlp_interval_ms)
            await self.push()

    async def push(self) -> None:
        scrape, now_ns = await self._metrics.scrape(), self._broker.clock.wall() * 1_000_000
        timeout_ms = self._broker.config.otlp_timeout_ms
        try:
            data = await asyncio.to_thread(self._data, scrape, now_ns)
            result = await asyncio.to_thread(self._exporter.export, data, timeout_ms)
        except Exception as error:  # whatever the library raises: the broker works on without it
            self._tell(f"{error!r}")
        else:
            self._tell("" if result is MetricExportResult.SUCCESS else "the collector did not take them")

    def _tell(self, failure: str) -> None:
        """When it changes, not at every push."""
        if failure and not self._failing:
            log.warning("metrics are not pushed to %s: %s; trying on", self._target, failure)
        elif self._failing and not failure:
            log.info("metrics are pushed to %s again", self._target)
        self._failing = bool(failure)

    async def stop(self) -> None:
        """With a last push: what happened since the one before is not lost."""
        if self._pushing is not None:
            self._pushing.cancel()
            with suppress(asyncio.CancelledError):
                await self._pushing
            await self.push()
        await asyncio.to_thread(self._exporter.shutdown, self._broker.config.otlp_timeout_ms)

    # -- a scrape in the library's words -------------------------------------------------------------------

    def _data(self, scrape: Scrape, now_ns: int) -> MetricsData:
        before, self._before = self._before, {}
        since_ns, way = self._since_ns, AggregationTemporality.CUMULATIVE
        if self._delta:
            self._since_ns, way = now_ns, AggregationTemporality.DELTA
        metrics = []
        for family, points in scrape:
            told = points
            if self._delta and family.kind is not Kind.GAUGE:
                told = [(labels, self._added(family, labels, value, before)) for labels, value in points]
            metrics.append(
                _metric(family, [(self._labels + each, v) for each, v in told], (since_ns, now_ns), way)
            )
        scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
        return MetricsData([ResourceMetrics(Resource({}), [scope], "")])

    def _added(self, family: Family, labels: Labels, value: Value, before: Before) -> Value:
        self._before[family.name, labels] = value
        earlier = before.get((family.name, labels))
        if earlier is None:
            return value
        if isinstance(value, Distribution) and isinstance(earlier, Distribution):
            counts = [now - then for now, then in zip(value.counts, earlier.counts, strict=True)]
            return Distribution(value.ends, counts, value.sum - earlier.sum)
        assert not isinstance(value, Distribution)
        assert not isinstance(earlier, Distribution)
        return value - earlier


def instrument(family: Family) -> str:
    """Without the unit that Prometheus's exporter puts at the end."""
    if not family.unit or family.name.endswith(_WITH_UNIT):
        return family.name
    return family.name.removesuffix(f"_{family.unit}")


def _metric(
    family: Family, points: list[tuple[Labels, Value]], times: tuple[int, int], way: AggregationTemporality
) -> Metric:
    since_ns, now_ns = times
    data: Histogram | Gauge | Sum
    if family.kind is Kind.HISTOGRAM:
        data = Histogram([_histogram(each, value, times) for each, value in points], way)
    else:
        numbers = [
            NumberDataPoint(dict(labels), since_ns, now_ns, value)
            for labels, value in points
            if not isinstance(value, Distribution)
        ]
        data = Sum(numbers, way, True) if family.kind is Kind.COUNTER else Gauge(numbers)
    return Metric(instrument(family), family.help, family.unit, data)


def _histogram(labels: Labels, value: Value, times: tuple[int, int]) -> HistogramDataPoint:
    assert isinstance(value, Distribution)
    since_ns, now_ns = times
    return HistogramDataPoint(
        attributes=dict(labels),
        start_time_unix_nano=since_ns,
        time_unix_nano=now_ns,
        count=value.total,
        sum=value.sum,
        bucket_counts=list(value.counts),
        explicit_bounds=[float(end) for end in value.ends],
        min=0,
        max=0,
    )
