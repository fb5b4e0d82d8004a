# SPDX-License-Identifier: Apache-2.0
"""Topics to a table (Parquet, Delta, Iceberg), exactly once, continuously or once.

A batch is added to the table whole, and once (`parquet_table`, `tables`). JSON bodies become columns that grow with what
comes: new keys are new columns, in the commit that brings them, types grow where the format can, and nothing of a body
gets lost (`decoding/json_bodies`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.spark.decoding import json_bodies
from aerobee.spark.pipelines.lake_bodies import Asked, settled
from aerobee.spark.sessions import is_remote
from aerobee.spark.starting import started

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aerobee.spark.pipelines.lake_bodies import Bodies, Settled
    from aerobee.spark.pipelines.parquet_table import Table

log = logging.getLogger("aerobee.spark.lake")

MOST = {"maxOffsetsPerTrigger": "1000000", "maxBytesPerTrigger": str(1 << 30)}  # in a batch


class Added(NamedTuple):
    """What a batch has brought."""

    batch: int
    rows: int
    bad: int = 0  # bodies that are no JSON object
    rescued: int = 0  # objects with keys or values that have no place in the columns
    grown: tuple[str, ...] = ()  # keys that have a column, or a wider one, since this batch
    made: tuple[str, ...] = ()  # by the first batch with JSON bodies: their columns, as `amount BIGINT`


def lake(
    spark: SparkSession,
    topics: str,
    out: str,
    *,
    checkpoint: str | None = None,
    schema: str | None = None,
    json: bool = False,
    evolve: bool | None = None,
    once: bool = False,
    every: str = "10 seconds",
    format: str | None = None,
    options: dict[str, str] | None = None,
    told: Callable[[Added], None] | None = None,
    said: Callable[[str], None] = log.info,
) -> StreamingQuery:
    """Copy `topics` (comma-separated, or a pattern with a `*`) into a table under `out`.

    `format` is parquet (a directory of files), delta or iceberg (pipelines/tables.py; a local directory); left out, the
    lake's own, parquet for a new one. It is remembered from the first start on, as are the next three.

    With `json` the keys that come become columns, with `schema` (DDL) those that it names; with both, those as it has
    them and the others as they come. The table gains columns for new keys; with `evolve=False` they go to `_rescued`
    (JSON), where keys that a `schema` alone does not name and values that do not fit their column go in any case. A body
    that is no JSON object stays in `badBody`. A lake that was made so goes on so when none of the three is given, and
    `said` is told in a line; one that keeps bodies as they are refuses them.

    `options` are those of the data source (`namesrv` or `storePath` at least). `told` is called with the figures of
    every batch that was added.

    >>> lake(spark, "orders", "/data/lake", json=True, once=True,
    ...      options={"namesrv": "127.0.0.1:9876"}).awaitTermination()      # doctest: +SKIP
    """
    from aerobee.spark.pipelines.tables import lake_of

    asked = Asked(schema, json, evolve)
    table = lake_of(spark, out, format)
    how = settled(table, topics, asked)  # what is wrong fails here, not in the first batch
    if how.bodies is not None:
        how.bodies.check(table)
    if how.said:
        said(how.said)
    if not is_remote(spark) and not table.is_claimed():
        table.remember(how.memory)  # now, since a run may end before its first batch
    reader = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    reader = reader.option(*_selection(topics)).option("includeProperties", "true")
    reader = reader.option("checkBodies", "true")
    for name, value in {**MOST, **(options or {})}.items():
        reader = reader.option(name, value)

    place = checkpoint or f"{out.rstrip('/')}/_checkpoint"

    # By the process that runs the batches: with Spark Connect, one beside the server.
    opened: list[tuple[Table, Settled]] = []

    def one_batch(frame: DataFrame, batch_id: int) -> None:
        if not opened:
            found = lake_of(frame.sparkSession, out, format)
            opened.append((found, settled(found, topics, asked)))
        table, how = opened[0]
        table.claim(place)
        if table.holds(batch_id):
            log.info("batch=%d is in the lake already", batch_id)
            return
        table.remember(how.memory)
        added = _added(table, frame, batch_id, how.bodies)
        if told is not None:
            told(added)

    writer = reader.load().writeStream.foreachBatch(one_batch)
    writer = writer.option("checkpointLocation", place).queryName("lake")
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    return started(writer.trigger(**trigger))


def _selection(topics: str) -> tuple[str, str]:
    if any(sign in topics for sign in "*?["):
        import fnmatch

        return "subscribePattern", fnmatch.translate(topics).removesuffix(r"\Z").removesuffix(r"\z")
    return "subscribe", topics


def _added(table: Table, frame: DataFrame, batch_id: int, bodies: Bodies | None) -> Added:
    """The batch into the table; counted as it is written, since Spark counts what it reads, however often."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    dated = frame.withColumn("date", f.to_date("storeTimestamp"))
    rows, seen = f.count(f.lit(1)).alias("rows"), Observation()
    if bodies is None:
        table.add(dated.observe(seen, rows), batch_id)
        return Added(batch_id, seen.get["rows"])
    with bodies.parsed(table, dated) as shaped:
        bad, rescued = f.count(json_bodies.BAD).alias("bad"), f.count(json_bodies.RESCUED).alias("rescued")
        table.add(shaped.frame.observe(seen, rows, bad, rescued), batch_id)
        return Added(batch_id, grown=shaped.grown, made=shaped.made, **seen.get)
