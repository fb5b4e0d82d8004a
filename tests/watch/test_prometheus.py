# SPDX-License-Identifier: Apache-2.0
"""Prometheus itself scrapes Aerobee and RocketMQ under the same load: same names, same labels, sound text."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peers

from tests.watch.load import Load
from tests.watch.shape import shape

if TYPE_CHECKING:
    from conftest import Watched

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics.json"
SETTLE_S = 20  # until what hangs was redelivered, and dead letters and timers have come


def loaded(server: Watched) -> str:
    """What it shows while the load's consumers are still connected."""

    async def run() -> str:
        async with Load(server.namesrv):
            await asyncio.sleep(SETTLE_S)
            return await asyncio.to_thread(server.scrape)

    return asyncio.run(run())


def official(text: str) -> dict[str, Any]:
    return {name: each for name, each in shape(text).items() if name.startswith("rocketmq_")}


def query(prometheus: str, expression: str) -> list[dict[str, Any]]:
    asked = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{prometheus}/api/v1/query?{asked}", timeout=30) as answer:
        result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return result


def test_the_golden_file_is_what_rocketmq_shows(rocketmq: Watched) -> None:
    """Written by `AEROBEE_GOLDEN=1 make watch` when a newer release shows more."""
    found = official(loaded(rocketmq))
    if os.environ.get("AEROBEE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert found.keys() == golden.keys()
    for name, entry in found.items():
        assert (entry["type"], entry.get("buckets")) == (golden[name]["type"], golden[name].get("buckets")), (
            name
        )
        assert all(labels in golden[name]["labels"] for labels in entry["labels"]), name


def test_promtool_reads_ours_and_has_only_rocketmqs_units_to_say(aerobee: Watched) -> None:
    text = loaded(aerobee)
    done = subprocess.run(
        [peers.tool("promtool", "Debian's package prometheus"), "check", "metrics"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert all(line.startswith("rocketmq_") and 'instead of "milliseconds"' in line for line in complaints), (
        complaints
    )


def test_prometheus_has_the_same_series_of_both(prometheus: str, aerobee: Watched, rocketmq: Watched) -> None:
    for server in (aerobee, rocketmq):
        loaded(server)
    deadline = time.monotonic() + 60
    while {each["metric"]["job"] for each in query(prometheus, "up == 1")} != {"aerobee", "rocketmq"}:
        assert time.monotonic() < deadline, query(prometheus, "up")
        time.sleep(1)
    for expression in (
        'sum by (job) (rocketmq_messages_in_total{topic="orders",message_type="normal"})',
        'sum by (job) (rocketmq_messages_out_total{consumer_group="shipping"})',
        "count by (job) (rocketmq_rpc_latency_milliseconds_bucket)",
        'sum by (job) (rocketmq_topic_number{cluster="DefaultCluster"})',
    ):
        found = {each["metric"]["job"]: float(each["value"][1]) for each in query(prometheus, expression)}
        assert found.keys() == {"aerobee", "rocketmq"}, expression
        assert all(value > 0 for value in found.values()), (expression, found)
    sent = {
        each["metric"]["job"]: float(each["value"][1])
        for each in query(prometheus, 'sum by (job) (rocketmq_messages_in_total{topic="orders-fifo"})')
    }
    assert sent["aerobee"] % 4 == 0 and sent["rocketmq"] % 4 == 0, sent
    names = query(prometheus, 'group by (__name__) ({__name__=~"aerobee_.*",job="aerobee"})')
    assert len(names) > 8


def test_our_rules_are_evaluated_without_an_error(prometheus: str) -> None:
    with urllib.request.urlopen(f"http://{prometheus}/api/v1/rules", timeout=30) as answer:
        groups = json.load(answer)["data"]["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
