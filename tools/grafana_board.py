# SPDX-License-Identifier: Apache-2.0
"""Writes deploy/grafana/aerobee.json, the board: `python tools/grafana_board.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "deploy" / "grafana" / "aerobee.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF = 'cluster=~"$cluster",node_id=~"$broker"'
RATE = "$__rate_interval"
WIDTH, HEIGHT = 8, 8

# Rows of panels: title, unit, and what is drawn, each with its legend.
ROWS: list[tuple[str, list[tuple[str, str, list[tuple[str, str]]]]]] = [
    ("Traffic", [
        ("Messages in", "cps", [(f"sum by (topic) (rate(rocketmq_messages_in_total{{{OF}}}[{RATE}]))", "{{topic}}")]),
        ("Messages out", "cps", [
            (f"sum by (consumer_group) (rate(rocketmq_messages_out_total{{{OF}}}[{RATE}]))", "{{consumer_group}}")]),
        ("Bytes", "Bps", [
            (f"sum(rate(rocketmq_throughput_in_total{{{OF}}}[{RATE}]))", "in"),
            (f"sum(rate(rocketmq_throughput_out_total{{{OF}}}[{RATE}]))", "out")]),
    ]),
    ("Groups", [
        ("Lag", "short", [
            (f"sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{OF}}})",
             "{{consumer_group}} {{topic}}")]),
        ("Age of the oldest", "ms", [
            (f"max by (consumer_group, topic) (rocketmq_consumer_lag_latency_milliseconds{{{OF}}})",
             "{{consumer_group}} {{topic}}")]),
        ("In flight", "short", [
            (f"sum by (consumer_group) (rocketmq_consumer_inflight_messages{{{OF}}})", "{{consumer_group}}")]),
        ("Dead letters", "cps", [
            (f"sum by (consumer_group) (rate(rocketmq_send_to_dlq_messages_total{{{OF}}}[{RATE}]))",
             "{{consumer_group}}")]),
        ("Not acked in time", "cps", [
            (f"sum by (consumer_group) (rate(rocketmq_pop_revive_retry_messages_total{{{OF}}}[{RATE}]))",
             "{{consumer_group}}")]),
        ("Consumers connected", "short", [
            (f"sum by (consumer_group) (rocketmq_consumer_connections{{{OF}}})", "{{consumer_group}}")]),
    ]),
    ("Requests", [
        ("Requests", "reqps", [
            (f"sum by (request_code) (rate(rocketmq_rpc_latency_milliseconds_count{{{OF}}}[{RATE}]))",
             "{{request_code}}")]),
        ("p99 without waiting for messages", "ms", [
            ("histogram_quantile(0.99, sum by (le, request_code) (rate(rocketmq_rpc_latency_milliseconds_bucket{"
             + OF + f',is_long_polling="false"}}[{RATE}])))', "{{request_code}}")]),
        ("Held", "short", [(f"sum by (kind) (aerobee_held_requests{{{OF}}})", "{{kind}}")]),
    ]),
    ("Broker", [
        ("Loop lag, p99", "s", [
            (f"histogram_quantile(0.99, sum by (le, node_id) (rate(aerobee_loop_lag_seconds_bucket{{{OF}}}[{RATE}])))",
             "{{node_id}}")]),
        ("Sync of the log, p99", "s", [
            (f"histogram_quantile(0.99, sum by (le, node_id) (rate(aerobee_fsync_seconds_bucket{{{OF}}}[{RATE}])))",
             "{{node_id}}")]),
        ("Disk in use", "bytes", [(f"rocketmq_storage_size_bytes{{{OF}}}", "{{node_id}}")]),
        ("Part of the disk in use", "percentunit", [(f"aerobee_disk_used_ratio{{{OF}}}", "{{node_id}}")]),
        ("Not synced", "bytes", [(f"rocketmq_storage_flush_behind_bytes{{{OF}}}", "{{node_id}}")]),
        ("Refused", "cps", [
            (f"rate(aerobee_refused_puts_total{{{OF}}}[{RATE}])", "messages {{node_id}}"),
            (f"rate(aerobee_refused_logins_total{{{OF}}}[{RATE}])", "logins {{node_id}}")]),
        ("Topics and groups", "short", [
            (f"rocketmq_topic_number{{{OF}}}", "topics {{node_id}}"),
            (f"rocketmq_consumer_group_number{{{OF}}}", "groups {{node_id}}")]),
    ]),
    ("Waiting", [
        ("Timed messages", "short", [(f"sum by (topic) (rocketmq_timing_messages{{{OF}}})", "{{topic}}")]),
        ("Timers late", "ms", [(f"rocketmq_timer_dequeue_latency_milliseconds{{{OF}}}", "{{node_id}}")]),
        ("Half messages", "short", [(f"sum by (topic) (rocketmq_half_messages{{{OF}}})", "{{topic}}")]),
        ("Leased by POP", "short", [(f"aerobee_leases_inflight_messages{{{OF}}}", "{{node_id}}")]),
        ("Redelivery late", "s", [(f"aerobee_revive_lateness_seconds{{{OF}}}", "{{node_id}}")]),
        ("Cold reads", "reqps", [(f"rate(aerobee_cold_reads_total{{{OF}}}[{RATE}])", "{{node_id}}")]),
    ]),
]  # fmt: skip


def board() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(_panel(len(panels), title, "row", {"x": 0, "y": y, "w": 24, "h": 1}))
        y += 1
        for place, (name, unit, queries) in enumerate(row):
            at = {"x": place % 3 * WIDTH, "y": y + place // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append({**_panel(len(panels), name, "timeseries", at), **_drawn(unit, queries)})
        y += -(-len(row) // 3) * HEIGHT
    return {
        "uid": "aerobee",
        "title": "Aerobee",
        "tags": ["rocketmq"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _variable("cluster"), _variable("broker", "node_id")]},
        "panels": panels,
    }


def _panel(number: int, title: str, kind: str, at: dict[str, int]) -> dict[str, Any]:
    return {"id": number + 1, "title": title, "type": kind, "gridPos": at}


def _drawn(unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
            for place, (expression, legend) in enumerate(queries)
        ],
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _variable(name: str, label: str = "") -> dict[str, Any]:
    query = f"label_values(rocketmq_broker_permission, {label or name})"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def text() -> str:
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
