# SPDX-License-Identifier: Apache-2.0
"""A scrape point by point: as a collector gets it, in totals or in what is new; and as text, line by line."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace as Thing
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, MetricExportResult, Sum

from aerobee.broker.metrics.family import Distribution, Scrape, counter, gauge, histogram
from aerobee.clock import ManualClock
from aerobee.fronts.http.exposition import Form, lines
from aerobee.fronts.metrics_log import MetricsLog
from aerobee.fronts.otlp import OtlpPush, instrument
from aerobee.settings import BrokerConfig

LABELS = (("cluster", "c"), ("node_id", "n"))
OF = (("topic", "t"),)


def found(things: int, counts: tuple[int, ...], total: float, depth: int) -> Scrape:
    scrape = Scrape()
    scrape.add(counter("things_total", "Things."), things, OF)
    scrape.add(
        histogram("took_milliseconds", "Times.", "milliseconds"), Distribution((1, 5), counts, total), OF
    )
    scrape.add(gauge("depth_bytes", "Depth.", "bytes"), depth, OF)
    return scrape


class Bench:
    def __init__(self, **config: Any) -> None:
        self.clock = ManualClock()
        self.scrapes: list[Scrape] = []
        told = BrokerConfig(metrics_exporter="OTLP_GRPC", **{"otlp_target": "http://127.0.0.1:1", **config})
        broker: Any = Thing(config=told, clock=self.clock, stats=Thing(started_at=5))
        self.push = OtlpPush(broker, Thing(scrape=self._scrape), LABELS, self.clock)  # type: ignore[arg-type]
        self.log = MetricsLog(broker, Thing(scrape=self._scrape), LABELS, self.clock)  # type: ignore[arg-type]

    async def _scrape(self) -> Scrape:
        return self.scrapes.pop(0)

    def told(self, scrape: Scrape, now_ns: int) -> dict[str, Any]:
        (resource,) = self.push._data(scrape, now_ns).resource_metrics
        (scope,) = resource.scope_metrics
        assert (scope.scope.name, scope.schema_url, resource.schema_url) == ("broker-meter", "", "")
        return {metric.name: metric for metric in scope.metrics}


@pytest.fixture
def bench(request: Any) -> Any:
    made = Bench(**getattr(request, "param", {}))
    yield made
    made.push._exporter.shutdown(0)


def test_totals_are_told_since_the_start(bench: Bench) -> None:
    bench.told(found(3, (1, 1, 1), 9, 4), 50)
    told = bench.told(found(7, (2, 1, 4), 30, 2), 60)
    things, took, depth = told["things_total"], told["took"], told["depth"]
    assert (things.description, things.unit, took.unit, depth.unit) == (
        "Things.",
        "",
        "milliseconds",
        "bytes",
    )
    assert isinstance(things.data, Sum) and isinstance(took.data, Histogram) and isinstance(depth.data, Gauge)
    assert things.data.is_monotonic
    assert (
        things.data.aggregation_temporality
        is took.data.aggregation_temporality
        is AggregationTemporality.CUMULATIVE
    )
    (number,), (times,), (level,) = (each.data.data_points for each in (things, took, depth))
    assert (number.value, times.count, times.sum, level.value) == (7, 7, 30, 2)
    assert (list(times.bucket_counts), list(times.explicit_bounds)) == ([2, 1, 4], [1.0, 5.0])
    for point in (number, times, level):
        assert (point.start_time_unix_nano, point.time_unix_nano) == (5_000_000, 60)
        assert dict(point.attributes) == {"cluster": "c", "node_id": "n", "topic": "t"}


@pytest.mark.parametrize("bench", [{"metrics_in_delta": True}], indirect=True)
def test_in_deltas_only_what_is_new_is_told_of_all_that_only_grows(bench: Bench) -> None:
    first = bench.told(found(3, (1, 1, 1), 9, 4), 50)
    second = bench.told(found(7, (2, 1, 4), 30, 2), 60)
    third = bench.told(found(7, (2, 1, 4), 30, 9), 70)
    way = AggregationTemporality.DELTA
    for told, value, counts, total, depth, since, now in (
        (first, 3, [1, 1, 1], 9, 4, 5_000_000, 50),
        (second, 4, [1, 0, 3], 21, 2, 50, 60),
        (third, 0, [0, 0, 0], 0, 9, 60, 70),
    ):
        assert (
            told["things_total"].data.aggregation_temporality
            is told["took"].data.aggregation_temporality
            is way
        )
        (number,), (times,), (level,) = (
            told[name].data.data_points for name in ("things_total", "took", "depth")
        )
        assert (number.value, list(times.bucket_counts), times.count, times.sum) == (
            value,
            counts,
            sum(counts),
            total,
        )
        assert level.value == depth, "as it is"
        assert (number.start_time_unix_nano, number.time_unix_nano) == (since, now)
        assert dict(number.attributes)["aggregation"] == "delta"


def test_an_instruments_name_has_no_unit_unless_it_is_part_of_it() -> None:
    for name, unit, expected in (
        ("a_seconds", "seconds", "a"),
        ("a_seconds", "", "a_seconds"),
        ("a_total", "bytes", "a_total"),
        ("flush_behind_bytes", "bytes", "flush_behind_bytes"),
        ("size_bytes", "bytes", "size"),
    ):
        assert instrument(gauge(name, "A.", unit)) == expected


async def test_failures_are_told_when_they_begin_and_when_they_are_over(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.metrics")
    ends: list[Any] = [MetricExportResult.FAILURE, MetricExportResult.FAILURE, OSError("no way"), None, None]
    asked: list[float] = []

    def export(data: Any, timeout_ms: float) -> Any:
        asked.append(timeout_ms)
        end = ends.pop(0)
        if isinstance(end, OSError):
            raise end
        return end or MetricExportResult.SUCCESS

    bench.push._exporter.export = export  # type: ignore[method-assign,assignment]
    for _ in range(5):
        bench.scrapes.append(found(1, (1, 0, 0), 1, 1))
        await bench.push.push()
    assert caplog.messages == [
        "metrics are not pushed to http://127.0.0.1:1: the collector did not take them; trying on",
        "metrics are pushed to http://127.0.0.1:1 again",
    ]
    assert set(asked) == {BrokerConfig().otlp_timeout_ms}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("http://x:1", ("http://x:1", True)),
        ("https://x:1", ("https://x:1", False)),
        ("x:1", ("https://x:1", False)),
    ],
)
def test_a_collector_is_spoken_to_in_secret_unless_told_otherwise(
    target: str, expected: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr("aerobee.fronts.otlp.OTLPMetricExporter", lambda **told: made.append(told))
    Bench(otlp_target=target, otlp_headers="X-A: b ,c:d:e,", otlp_timeout_ms=2_500)
    (told,) = made
    assert (told["endpoint"], told["insecure"]) == expected
    assert told["headers"] == (("x-a", "b"), ("c", "d:e"))
    assert told["timeout"] == 2.5


async def test_what_is_pushed_is_of_this_moment(bench: Bench) -> None:
    pushed: list[Any] = []
    bench.push._exporter.export = lambda data, ms: pushed.append(data)  # type: ignore[method-assign,assignment,misc]
    bench.scrapes.append(found(1, (1, 0, 0), 1, 1))
    await bench.push.push()
    (metric, *_) = pushed[0].resource_metrics[0].scope_metrics[0].metrics
    assert metric.data.data_points[0].time_unix_nano == bench.clock.wall() * 1_000_000


async def test_pushes_come_at_their_interval_and_once_more_at_the_end(bench: Bench) -> None:
    pushed: list[int] = []

    async def push() -> None:
        pushed.append(bench.clock.now())

    bench.push.push = push  # type: ignore[method-assign]
    interval, start = BrokerConfig().otlp_interval_ms, bench.clock.now()
    await bench.push.start()
    for ms in (0, interval - 1, 1, interval):
        bench.clock.advance(ms)
        for _ in range(5):
            await asyncio.sleep(0)
    assert [at - start for at in pushed] == [interval, 2 * interval]
    await bench.push.stop()
    assert len(pushed) == 3


async def test_what_was_never_started_pushes_nothing_at_its_end() -> None:
    bench = Bench()
    await bench.push.stop()
    await bench.log.stop()


async def test_the_log_has_every_sample_and_no_comment(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.metrics")
    interval = BrokerConfig().metrics_log_ms
    bench.scrapes += [found(3, (1, 1, 1), 9, 4)]
    await bench.log.start()
    for ms in (0, interval - 1):
        bench.clock.advance(ms)
        for _ in range(9):
            await asyncio.sleep(0)
    assert caplog.messages == []
    bench.clock.advance(1)
    for _ in range(20):
        await asyncio.sleep(0)
    await bench.log.stop()
    of = 'cluster="c",node_id="n",topic="t"'
    assert caplog.messages == [
        f"things_total{{{of}}} 3",
        f'took_milliseconds_bucket{{{of},le="1.0"}} 1',
        f'took_milliseconds_bucket{{{of},le="5.0"}} 2',
        f'took_milliseconds_bucket{{{of},le="+Inf"}} 3',
        f"took_milliseconds_sum{{{of}}} 9",
        f"took_milliseconds_count{{{of}}} 3",
        f"depth_bytes{{{of}}} 4",
    ]


# -- text --------------------------------------------------------------------------------------------------


def test_text_has_a_head_for_each_family_in_either_form() -> None:
    heads = [
        line
        for line in "".join(lines(found(1, (1, 0, 0), 1, 1), (), Form.PROMETHEUS)).splitlines()
        if "#" in line
    ]
    assert heads == [
        "# HELP things_total Things.", "# TYPE things_total counter",
        "# HELP took_milliseconds Times.", "# TYPE took_milliseconds histogram",
        "# HELP depth_bytes Depth.", "# TYPE depth_bytes gauge",
    ]  # fmt: skip
    other = "".join(lines(found(1, (1, 0, 0), 1, 1), (), Form.OPEN_METRICS))
    assert "# TYPE things counter\nthings_total{" in other
    assert other.endswith("# EOF\n")


@pytest.mark.parametrize("count", [1, 49, 50, 51, 100, 101])
def test_every_point_is_written_once_whatever_their_number(count: int) -> None:
    scrape = Scrape()
    for n in range(count):
        scrape.add(gauge("depth", "Depth."), n, (("n", str(n)),))
    pieces = list(lines(scrape, (), Form.PROMETHEUS))
    assert len(pieces) == 1 + -(-count // 50)
    written = [line for line in "".join(pieces).splitlines() if not line.startswith("#")]
    assert written == [f'depth{{n="{n}"}} {n}' for n in range(count)]


def test_a_histogram_without_labels_has_only_its_ends() -> None:
    scrape = Scrape()
    scrape.add(histogram("sizes", "Sizes."), Distribution((1, 5), (2, 0, 3), 40))
    text = "".join(lines(scrape, (), Form.PROMETHEUS)).splitlines()[2:]
    assert text == [
        'sizes_bucket{le="1.0"} 2', 'sizes_bucket{le="5.0"} 2', 'sizes_bucket{le="+Inf"} 5', "sizes_sum 40",
        "sizes_count 5",
    ]  # fmt: skip


async def test_a_log_that_is_stopped_has_written_its_last_line(bench: Bench) -> None:
    await bench.log.start()
    await asyncio.sleep(0)
    writing = bench.log._writing
    await bench.log.stop()
    assert writing is not None
    assert writing.done(), "nothing of it goes on"


async def test_metrics_are_logged_with_turns_for_others_between_them(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """There may be thousands of lines: the broker serves its clients meanwhile."""
    caplog.set_level(logging.INFO, "aerobee.metrics")
    bench.scrapes.append(found(3, (1, 1, 1), 9, 4))
    seen: list[int] = []

    async def another() -> None:
        while True:
            seen.append(len(caplog.messages))
            await asyncio.sleep(0)

    task = asyncio.ensure_future(another())
    await bench.log.write()
    task.cancel()
    written = len(caplog.messages)
    assert any(0 < lines < written for lines in seen), seen
