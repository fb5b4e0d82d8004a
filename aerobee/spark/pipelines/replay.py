# SPDX-License-Identifier: Apache-2.0
"""Publish chosen messages again: from dead letters, a time range, a filter over lake or topic; never twice.

Theory of operation. A replay has a name. Every message it sends carries `REPLAY_NAME` and `REPLAY_OF` (the source's
id). Before sending, the replay reads what its target topics already hold of that name, from the offsets they had
when the replay was first planned (kept in the audit directory), and leaves those out. So a replay that is run
again, or was killed half-way, sends exactly the rest. The audit table lists each message: source, target, when, or
why not.

Messages are sent in the order they were stored in. Those of one queue go to the same queue of the target, or all to
another one where it has fewer; dead letters and retries go to the queue of their sharding key. What was ordered stays
so: a chunk is sent after the one before it, and within it a queue's messages are one task's.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.clock import Clock, SystemClock
from aerobee.spark.decoding import json_bodies
from aerobee.spark.options import OptionError, for_batch
from aerobee.spark.reading.plan import edge
from aerobee.spark.reading.queue_source import MISSING, BrokerQueues

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

CHUNK = 5_000
NAME, OF = "REPLAY_NAME", "REPLAY_OF"
# Set anew by the send; carried over they would confuse consumers or trace tools.
_DROPPED = [
    "UNIQ_KEY",
    "WAIT",
    "TAGS",
    "KEYS",
    "DELAY",
    "REAL_TOPIC",
    "REAL_QID",
    "RETRY_TOPIC",
    "ORIGIN_MESSAGE_ID",
    "MSG_REGION",
    "TRACE_ON",
    "CLUSTER",
    "POP_CK",
    "1ST_POP_TIME",
    "TRAN_MSG",
    "PGROUP",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES",
    "TIMER_OUT_MS",
    "TIMER_DELIVER_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID",
    "__SHARDINGKEY",
]

_NEEDED = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "body", "storeTimestamp", "properties",
)  # fmt: skip


class Outcome(NamedTuple):
    chosen: int
    already: int
    sent: int
    new_topics: tuple[str, ...] = ()  # targets that were not there: the first message makes them
    targets: tuple[tuple[str, int], ...] = ()  # where messages go that were not sent before, and how many


def replay(
    rows: DataFrame,
    *,
    name: str,
    namesrv: str,
    audit: str,
    target: str | None = None,
    rate: int = 0,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
    options: dict[str, str] | None = None,
    clock: Clock | None = None,
) -> Outcome:
    """Send every row of `rows` (columns of the data source, `properties` included) again, once per `name`.

    `target` is the topic to send to; left out, each message goes to the topic it was first sent to (for dead letters
    and retries that is their original topic). `rate` limits messages a second. `dry_run` counts and writes nothing.
    `options` say how brokers are asked (`accessKey`, `secretKey`, `tls`, `numRetries` ...).

    >>> dead = read(spark, "%DLQ%billing", includeProperties=True)                                # doctest: +SKIP
    >>> replay(dead, name="fix-42", namesrv="127.0.0.1:9876", audit="/tmp/audit")                 # doctest: +SKIP
    """
    check(rows)
    brokers = {"namesrv": namesrv, **(options or {})}
    planned = _planned(rows, name, target)
    planned.persist()
    try:
        targets = sorted(row.target for row in planned.select("target").distinct().collect())
        chosen = planned.count()
        start = _starting_offsets(name, brokers, Path(audit), targets, keep=not dry_run)
        there = _there(targets, brokers)
        new = tuple(topic for topic in targets if topic not in there)
        left = _left(planned, name, brokers, {topic: start[topic] for topic in there})
        counted = left.groupBy("target").count().orderBy("target").collect()
        to = tuple((row.target, row["count"]) for row in counted)
        total = sum(count for _, count in to)
        if dry_run or not total:
            return Outcome(chosen, chosen - total, 0, new, to)
        sent = _send(left, brokers, Path(audit) / name, total, rate, progress, clock or SystemClock())
        return Outcome(chosen, chosen - total, sent, new, to)
    finally:
        planned.unpersist()


def check(rows: DataFrame, whose: str = "the rows to replay") -> None:
    """OptionError when they have not all that a message is made of."""
    if "body" not in rows.columns and json_bodies.BAD in rows.columns:
        raise OptionError(
            f"{whose} keep no bodies: they have columns for JSON bodies instead (--json-bodies, --schema), of which the "
            "messages as they were sent cannot be made. Replay from the topic itself, or from a lake made without these"
        )
    if missing := [name for name in _NEEDED if name not in rows.columns]:
        raise OptionError(
            f"{whose} have no {' and '.join(missing)}, which a replay needs: read(..., includeProperties=True) has all"
        )


def _planned(rows: DataFrame, name: str, target: str | None) -> DataFrame:
    """The messages to send, one row per source message, with where they go."""
    from pyspark.sql import functions as f

    properties = f.col("properties")
    original = f.coalesce(properties["RETRY_TOPIC"], properties["REAL_TOPIC"], f.col("topic"))
    kept = f.map_filter(properties, lambda key, _: ~key.isin(*_DROPPED))
    marks = f.create_map(f.lit(NAME), f.lit(name), f.lit(OF), f.col("msgId"))
    # The queue of a retry or a dead letter is not the one that its message was sent to.
    is_first = (original == f.col("topic")) & ~f.col("topic").startswith("%")
    planned = rows.select(
        f.col("msgId").alias("source"),
        (f.lit(target) if target else original).alias("target"),
        "body",
        "tags",
        "keys",
        properties["__SHARDINGKEY"].alias("shardingKey"),
        f.map_concat(f.map_filter(kept, lambda key, _: ~key.isin(NAME, OF)), marks).alias("properties"),
        f.when(is_first, f.col("queueId")).alias("queueId"),
        f.when(is_first, f.col("brokerName")).alias("brokerName"),
        *_turn(),
    )
    return planned.dropDuplicates(["source"])


def _turn() -> list[Column]:
    """When a message's turn is: as it was stored, but never before one that is ahead of it in its queue, for a clock may
    have been set."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    queue = Window.partitionBy("topic", "brokerName", "queueId").orderBy("queueOffset")
    stored = f.max("storeTimestamp").over(queue.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    place = f.concat_ws("/", "topic", "brokerName", f.col("queueId").cast("string"))
    return [stored.alias("turn"), place.alias("came"), f.col("queueOffset").alias("turnInQueue")]


def _there(targets: list[str], brokers: dict[str, str]) -> list[str]:
    if not targets:
        return []
    with closing(BrokerQueues(for_batch({"subscribe": ",".join(targets), **brokers}))) as source:
        look = source.look(targets)
    missing = {topic for topic, error in look.failed.items() if isinstance(error, MISSING)}
    return [topic for topic in targets if topic not in missing]


def _left(planned: DataFrame, name: str, brokers: dict[str, str], start: dict[str, Any]) -> DataFrame:
    """What was not sent yet under this name: the plan minus what the targets hold of it since `start`."""
    if not start:
        return planned
    reader = (
        planned.sparkSession.read.format("rocketmq").options(**brokers).option("subscribe", ",".join(start))
    )
    reader = reader.option("columns", "topic,properties").option("failOnDataLoss", "false")
    held = reader.option("startingOffsets", json.dumps(start)).load()
    done = (
        held.where(held["properties"][NAME] == name).select(held["properties"][OF].alias("source")).distinct()
    )
    return planned.join(done, "source", "left_anti")


def _starting_offsets(
    name: str, brokers: dict[str, str], audit: Path, targets: list[str], *, keep: bool
) -> dict[str, Any]:
    """The targets' ends when this replay was first planned. A topic that was not there then is kept as one without
    queues: whatever it holds later is looked through from its beginning."""
    kept = audit / name / "_start.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    fresh = [topic for topic in targets if topic not in known]
    for topic in fresh:
        with closing(BrokerQueues(for_batch({"subscribe": topic, **brokers}))) as source:
            try:
                known.update(edge({topic: source.queues(topic)}, 1))
            except MISSING:
                known[topic] = {}
    if fresh and keep:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(".tmp")
        temporary.write_text(json.dumps(known))
        temporary.replace(kept)
    return known


def _send(
    left: DataFrame,
    brokers: dict[str, str],
    audit: Path,
    total: int,
    rate: int,
    progress: Callable[[int, int], None] | None,
    clock: Clock,
) -> int:
    """Chunk by chunk, each audited after it was sent, at no more than `rate` messages a second."""
    from pyspark.sql import functions as f

    size = min(CHUNK, max(1, rate)) if rate else CHUNK
    ordered = left.orderBy("turn", "came", "turnInQueue")
    marked = ordered.withColumn("mark", f.monotonically_increasing_id()).persist()
    frame = _numbered(marked)
    begun, sent = clock.now(), 0
    try:
        for first in range(0, total, size):
            chunk = frame.where((f.col("place") >= first) & (f.col("place") < first + size))
            lane = f.when(f.col("queueId").isNotNull(), f.col("came")).otherwise(f.col("shardingKey"))
            out = chunk.repartition("target", f.coalesce(lane, f.col("source"))).sortWithinPartitions("place")
            out = out.select(
                f.col("target").alias("topic"), "body", "tags", "keys", "shardingKey", "queueId", "brokerName",
                "properties",
            )  # fmt: skip
            out.write.format("rocketmq").options(**brokers).mode("append").save()
            audited = chunk.select("source", "target", f.lit(clock.wall()).alias("sentAt"))
            audited.coalesce(1).write.mode("append").parquet(str(audit / "sent"))
            sent = min(total, first + size)
            if progress:
                progress(sent, total)
            if rate:
                time.sleep(max(0.0, sent / rate - (clock.now() - begun) / 1000))
    finally:
        marked.unpersist()
    return sent


def _numbered(marked: DataFrame) -> DataFrame:
    """Column `place`: 0, 1, 2 ... in the rows' order. An RDD can number its rows, but Spark Connect has none: a `mark`
    is the row's partition and its place there (33 bits), so only the rows before each partition are to be counted."""
    from pyspark.sql import functions as f

    part = f.shiftright("mark", 33)
    sizes = {row.part: row["count"] for row in marked.groupBy(part.alias("part")).count().collect()}
    before = [sum(sizes.get(i, 0) for i in range(n)) for n in range(max(sizes, default=0) + 1)]
    starts = f.array(*(f.lit(count).cast("bigint") for count in before))
    return marked.withColumn(
        "place", f.get(starts, part.cast("int")) + f.col("mark").bitwiseAND((1 << 33) - 1)
    )
