# SPDX-License-Identifier: Apache-2.0
"""Milliseconds from stored at the broker to batch committed, under a light load."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from benchmarks.spark_stores import TOPIC, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

STREAM_SECONDS = 20
STREAM_WARM_SECONDS = 80  # Spark's driver compiles for about a minute
STREAM_RATE = 200


def stream_latencies(spark: SparkSession, folder: Path) -> dict[str, dict[str, float]]:
    """A young stream, and one whose driver has run for a while, with the settings of `session`; and with Spark's own
    asynchronous tracking of progress, which a query may ask for where its sink can take a batch twice."""
    stream_latency(spark, folder, 10)
    found = {"young": stream_latency(spark, folder)}
    stream_latency(spark, folder, STREAM_WARM_SECONDS)
    found["plain"] = stream_latency(spark, folder)
    ahead = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "1000"}
    found["async"] = stream_latency(spark, folder, **ahead)
    return found


def stream_latency(
    spark: SparkSession, folder: Path, seconds: int = STREAM_SECONDS, **more: str
) -> dict[str, float]:
    """Every message: from the broker's answer to the end of the batch that holds it, by the query's own progress."""
    data = folder / "stream-data"
    shutil.rmtree(folder / "stream-checkpoint", ignore_errors=True)
    with served(data) as namesrv:
        reader = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("subscribe", TOPIC)
        writer = reader.option("startingOffsets", "earliest").option("maxPartitions", "1").load().writeStream
        writer = writer.format("noop").options(**more)
        query = writer.option("checkpointLocation", str(folder / "stream-checkpoint")).start()
        sent = asyncio.run(_send_lightly(namesrv, seconds))
        query.processAllAvailable()
        progress = query.recentProgress
        query.stop()
    shutil.rmtree(data)
    warm = sent[len(sent) // 4][1]
    delays = [done - at for done, at in _commits(progress, sent) if at >= warm]
    triggers = [p["durationMs"]["triggerExecution"] for p in progress if p["numInputRows"]]
    cuts = statistics.quantiles(delays, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "trigger": statistics.median(triggers), "messages": len(delays)}


async def _send_lightly(namesrv: str, seconds: int) -> list[tuple[tuple[str, int], float]]:
    from aerobee import Message, Producer

    sent = []
    async with Producer(namesrv, group="bench") as producer:
        began = time.time()
        for n in range(seconds * STREAM_RATE):
            await asyncio.sleep(max(0.0, began + n / STREAM_RATE - time.time()))
            result = await producer.send(Message(TOPIC, b"x" * 128))
            sent.append(((str(result.queue.queue_id), result.queue_offset), time.time() * 1000))
    return sent


def _commits(progress: list[Any], sent: list[tuple[tuple[str, int], float]]) -> Iterator[tuple[float, float]]:
    ends: list[tuple[dict[str, int], float]] = []
    for one in progress:
        if one["numInputRows"]:
            started = datetime.fromisoformat(one["timestamp"].replace("Z", "+00:00")).timestamp() * 1000
            end = json.loads(one["sources"][0]["endOffset"]) if isinstance(
                one["sources"][0]["endOffset"], str
            ) else one["sources"][0]["endOffset"]  # fmt: skip
            queues = next(iter(end["o"][TOPIC].values()))
            ends.append((queues, started + one["durationMs"]["triggerExecution"]))
    for (queue, offset), at in sent:
        done = next((when for queues, when in ends if queues.get(queue, 0) > offset), None)
        if done is not None:
            yield done, at
