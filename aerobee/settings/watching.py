# SPDX-License-Identifier: Apache-2.0
"""Settings of what operators watch a broker by: the HTTP port, metrics, logs. Part of the broker's."""

from __future__ import annotations

from typing import Annotated

from aerobee.settings.declare import MEGABYTE, Declared, choice, interval, port_number, setting, size


class Watching(Declared, frozen=True, kw_only=True):
    http_port: Annotated[
        int, port_number("port of the console, the API, metrics and health; 0 = any free one, -1 = off")
    ] = 8088
    http_hosts: Annotated[
        str,
        setting(
            "names, ',' between them, by which browsers reach the HTTP port of a server on a loopback address;"
            " others than these and localhost are refused"
        ),
    ] = ""
    open_metrics: Annotated[
        bool, setting("metrics need no account where access control is on", live=True)
    ] = False
    metrics_top: Annotated[
        int,
        setting(
            "topics, and groups, that have metrics of their own; the least busy beyond are summed as `other`",
            "metricsOtelCardinalityLimit",
            low=1,
            high=1_000_000,
            live=True,
        ),
    ] = 1_000
    metrics_exporter: Annotated[
        str,
        choice(
            "where metrics go beside the HTTP port: to nobody, to a second port for Prometheus, to an"
            " OpenTelemetry collector, to the log",
            "DISABLE",
            "PROM",
            "OTLP_GRPC",
            "LOG",
            official="metricsExporterType",
        ),
    ] = "DISABLE"
    metrics_label: Annotated[
        str, setting("labels put on every metric: `name:value`, ',' between them", "metricsLabel")
    ] = ""
    metrics_port: Annotated[
        int, port_number("the second port for Prometheus, 0 = any free one", "metricsPromExporterPort", low=0)
    ] = 5557
    metrics_host: Annotated[str, setting("address of that port; empty = host", "metricsPromExporterHost")] = (
        ""
    )
    otlp_target: Annotated[str, setting("the collector: `http://host:4317`", "metricsGrpcExporterTarget")] = (
        ""
    )
    otlp_headers: Annotated[
        str,
        setting(
            "headers sent with every push: `name:value`, ',' between them",
            "metricsGrpcExporterHeader",
            secret=True,
        ),
    ] = ""
    otlp_interval_ms: Annotated[
        int, interval("how often metrics are pushed", "metricGrpcExporterIntervalInMills")
    ] = 60_000
    otlp_timeout_ms: Annotated[
        int, interval("how long a push may take", "metricGrpcExporterTimeOutInMills")
    ] = 3_000
    metrics_in_delta: Annotated[
        bool, setting("push what was added since the last push, not totals", "metricsInDelta")
    ] = False
    metrics_log_ms: Annotated[
        int, interval("how often metrics are logged", "metricLoggingExporterIntervalInMills")
    ] = 10_000
    log_file: Annotated[
        str,
        setting(
            "log to this file too, and begin a new one when it is full; its directory is made; empty = only to stderr"
        ),
    ] = ""
    log_file_bytes: Annotated[int, size("size at which a log file is full", low=4096)] = 64 * MEGABYTE
    log_files: Annotated[
        int, setting("full log files that are kept: FILE.1 is the newest", low=1, high=10_000)
    ] = 10
    log_format: Annotated[str, choice("lines for people, or one JSON object a line", "text", "json")] = "text"

    def check_together(self) -> None:
        if self.metrics_exporter == "OTLP_GRPC" and not self.otlp_target:
            raise ValueError("setting 'metrics_exporter' is OTLP_GRPC: 'otlp_target' must name the collector")
        for name, text in (("metrics_label", self.metrics_label), ("otlp_headers", self.otlp_headers)):
            if any(
                pair.count(":") < 1 or not pair.partition(":")[0].strip() for pair in text.split(",") if pair
            ):
                raise ValueError(f"setting '{name}' is not of the form name:value,name:value")
        names = [pair.partition(":")[0].strip() for pair in self.metrics_label.split(",") if pair]
        if not all(name.isidentifier() and name.isascii() for name in names):
            raise ValueError(
                "setting 'metrics_label' has a name of other characters than letters, digits and _"
            )
