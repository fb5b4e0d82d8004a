# SPDX-License-Identifier: Apache-2.0
"""Topics to a table (Parquet, Delta, Iceberg), exactly once, continuously or once.

A batch is added to the table whole, and once (`parquet_table`, `tables`). JSON bodies become columns that grow with what
comes: new keys are new columns, in the commit that brings them, types grow where the format can, and nothing of a body
gets lost (`decoding/json_bodies`).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.spark.decoding import json_bodies, json_schema
from aerobee.spark.options import OptionError
from aerobee.spark.starting import started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType, StructType

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


def lake(
    spark: SparkSession,
    topics: str,
    out: str,
    *,
    checkpoint: str | None = None,
    schema: str | None = None,
    json: bool = False,
    evolve: bool = True,
    once: bool = False,
    every: str = "10 seconds",
    format: str = "parquet",
    options: dict[str, str] | None = None,
    told: Callable[[Added], None] | None = None,
) -> StreamingQuery:
    """Copy `topics` (comma-separated, or a pattern with a `*`) into a table under `out`.

    `format` is parquet (a directory of files), delta or iceberg (pipelines/tables.py; a local directory).

    With `json` bodies become columns: those of `schema` (DDL), or of the keys that come. With `evolve` the table gains
    columns for new keys of either; without, they go to `_rescued` (JSON), where values that do not fit their column go
    in any case. A body that is no JSON object stays in `badBody`. `options` are those of the data source (`namesrv` or
    `storePath` at least). `told` is called with the figures of every batch that was added.

    >>> lake(spark, "orders", "/data/lake", json=True, once=True,
    ...      options={"namesrv": "127.0.0.1:9876"}).awaitTermination()      # doctest: +SKIP
    """
    from aerobee.spark.pipelines.tables import table_of

    table = table_of(spark, out, format)
    shape = Bodies(topics, json_bodies.schema_of(schema) if schema else None, evolve=evolve)
    if schema:
        shape.columns(table, None)  # a wrong one fails here, not in the first batch
    reader = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    reader = reader.option(*_selection(topics)).option("includeProperties", "true")
    reader = reader.option("checkBodies", "true")
    for name, value in {**MOST, **(options or {})}.items():
        reader = reader.option(name, value)

    place = checkpoint or f"{out.rstrip('/')}/_checkpoint"

    # By the process that runs the batches: with Spark Connect, one beside the server.
    opened: list[Table] = []

    def one_batch(frame: DataFrame, batch_id: int) -> None:
        if not opened:
            opened.append(table_of(frame.sparkSession, out, format))
        table = opened[0]
        table.claim(place)
        if table.holds(batch_id):
            log.info("batch=%d is in the lake already", batch_id)
            return
        added = _added(table, frame, batch_id, shape if json or schema else None)
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


class Bodies:
    """How JSON bodies become columns."""

    def __init__(self, topics: str, given: StructType | None, *, evolve: bool) -> None:
        self._topics = topics
        self._given = given
        self._evolve = evolve

    def columns(self, table: Table, found: StructType | None) -> json_schema.Merged | None:
        """The columns for bodies in which `found` was found, and what of it is new; None when none is known."""
        kept, wanted = table.body_schema(), self._given or (found and json_schema.distinct(found))
        if kept is None or wanted is None:
            first = kept or wanted
            return json_schema.Merged(first, (), (), ()) if first is not None else None
        grown = json_schema.merged(kept, wanted, table.widening)
        if self._given and grown.conflicts:
            key, old, new = grown.conflicts[0]
            raise OptionError(
                f"topic {self._topics}: key {key!r} is {_name(old)} in the lake and {_name(new)} in the schema given, "
                f"which a {table.kind} table cannot become. Give it as {_name(old)} (values that do not fit go to "
                f"{json_bodies.RESCUED}), or choose another directory"
            )
        return grown if self._evolve else json_schema.Merged(kept, (), (), grown.conflicts)

    @contextmanager
    def parsed(self, table: Table, frame: DataFrame) -> Iterator[tuple[DataFrame, tuple[str, ...]]]:
        """The batch with columns for its bodies, and the names of those the table has not had."""
        from pyspark import StorageLevel

        # Its schema and its rows are two looks at the batch; the brokers are asked for it once.
        held = frame.persist(StorageLevel.DISK_ONLY)
        try:
            found = json_bodies.inferred(held)
            columns = self.columns(table, found)
            for key, old, new in columns.conflicts if columns else ():
                log.info("key=%s is %s in the lake and came as %s", key, _name(old), _name(new))
            shaped = json_bodies.parsed(held, columns.schema if columns else None, found)
            yield shaped.drop("body"), (*columns.added, *columns.widened) if columns else ()
        finally:
            held.unpersist()


def _added(table: Table, frame: DataFrame, batch_id: int, bodies: Bodies | None) -> Added:
    """The batch into the table; counted as it is written, since Spark counts what it reads, however often."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    dated = frame.withColumn("date", f.to_date("storeTimestamp"))
    rows, seen = f.count(f.lit(1)).alias("rows"), Observation()
    if bodies is None:
        table.add(dated.observe(seen, rows), batch_id)
        return Added(batch_id, seen.get["rows"])
    with bodies.parsed(table, dated) as (shaped, grown):
        bad, rescued = f.count(json_bodies.BAD).alias("bad"), f.count(json_bodies.RESCUED).alias("rescued")
        table.add(shaped.observe(seen, rows, bad, rescued), batch_id)
        return Added(batch_id, grown=grown, **seen.get)


def _name(kind: DataType) -> str:
    return kind.simpleString().upper()
