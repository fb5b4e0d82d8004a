# SPDX-License-Identifier: Apache-2.0
"""Streams with state over topics, compared with what plain Python says of the same events: late ones too."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee import Message, Producer
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
DELAY, WINDOW, IN_TIME = 10, 10, 20  # seconds
FAR = 100_000  # an event that closes whatever is open


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        for topic in ("clicks", "orders", "payments"):
            running.create_topic(topic, queues=1)
        yield running


def send(server: TestServer, topic: str, events: list[tuple[int, int]]) -> None:
    """(key, second) each, in this order."""

    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            for key, at in events:
                await producer.send(Message(topic, json.dumps({"key": key, "at": at}).encode()))

    asyncio.run(work())


def stream(spark: SparkSession, server: TestServer, topic: str) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    bodies = reader.option("startingOffsets", "earliest").load().selectExpr("cast(body AS STRING) AS body")
    events = bodies.selectExpr("from_json(body, 'key INT, at BIGINT') AS e")
    named = events.selectExpr(f"e.key AS {topic}_key", f"timestamp_seconds(e.at) AS {topic}_at")
    return named.withWatermark(f"{topic}_at", f"{DELAY} seconds")


def started(frame: DataFrame, name: str, tmp_path: Path) -> Any:
    writer = frame.writeStream.format("memory").queryName(name).outputMode("append")
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()


def test_windows_count_what_is_in_time_and_leave_out_what_is_late(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    phases = [
        [(at % 3, at) for at in range(30)],
        [(0, 5), (1, 8), (2, 9), (0, 20), (1, 25), (2, 29), (0, 19)],  # the window up to 10 is closed by now
        [(at % 3, at) for at in range(40, 70)],
        [(1, 29), (2, 41), (0, 59), (0, 60)],
        [(0, FAR)],
    ]
    expected: Counter[tuple[int, int]] = Counter()
    latest = -DELAY
    for phase in phases:
        closed = latest - DELAY
        expected.update((key, at // WINDOW) for key, at in phase if (at // WINDOW + 1) * WINDOW > closed)
        latest = max([latest, *(at for _, at in phase)])
    counts = stream(spark, server, "clicks").groupBy("clicks_key", f.window("clicks_at", f"{WINDOW} seconds"))
    query = started(counts.count(), "windows", tmp_path)
    try:
        for phase in phases:
            send(server, "clicks", phase)
            query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.sql(
        "SELECT clicks_key AS key, unix_seconds(window.start) AS at, count FROM windows"
    ).collect()
    found = {(row.key, row.at // WINDOW): row["count"] for row in rows}
    assert len(found) == len(rows), "a window comes once"
    assert found == {place: count for place, count in expected.items() if place[1] < FAR // WINDOW}
    late = sum(len(phase) for phase in phases) - sum(expected.values())
    assert late == 5, "and some were late"


def test_two_topics_are_joined_within_time_and_what_finds_nobody_is_told(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    first = 100  # what comes at second 0 of all time is late to Spark, whose watermark begins there
    orders = [(i, first + i) for i in range(40)]
    paid = [(i, first + i + i % 7) for i in range(0, 40, 2)] + [(4, first + 6)]  # 4 is paid twice
    too_late = [(i, first + i + IN_TIME + 1) for i in range(1, 40, 4)]
    expected: Counter[tuple[int, int | None]] = Counter()
    nobody: list[int | None] = [None]
    for key, at in orders:
        dues = [due for other, due in paid + too_late if other == key and at <= due <= at + IN_TIME]
        expected.update((key, due) for due in dues or nobody)
    left, right = stream(spark, server, "orders"), stream(spark, server, "payments")
    in_time = f.expr(
        "orders_key = payments_key AND payments_at >= orders_at"
        f" AND payments_at <= orders_at + INTERVAL {IN_TIME} SECONDS"
    )
    query = started(left.join(right, in_time, "leftOuter"), "joined", tmp_path)
    try:
        for topic, events in (
            ("orders", orders),
            ("payments", sorted(paid + too_late, key=lambda event: event[1])),
            ("orders", [(-1, FAR)]),
            ("payments", [(-1, 2 * FAR)]),
            ("orders", [(-2, 3 * FAR)]),
            # Orders are forgotten by now: what comes for them is late, and changes nothing.
            ("payments", [(1, first + 2), (3, first + 4)]),
        ):
            send(server, topic, events)
            query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.sql(
        "SELECT orders_key AS key, unix_seconds(payments_at) AS due FROM joined WHERE orders_key >= 0"
    )
    assert Counter((row.key, row.due) for row in rows.collect()) == expected
