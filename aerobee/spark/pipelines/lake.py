# SPDX-License-Identifier: Apache-2.0
"""Topics to Parquet, exactly once, continuously or once.

    out/topic=orders/date=2026-11-15/b00000000007-3.parquet     data, partitioned by topic and day of storing
    out/_commits/b00000000007.json                              the files that batch 7 added
    out/_schema.json                                            the JSON schema, once inferred, so that it never drifts
    out/_query.json                                             whose batches these are: the id in the checkpoint

Theory of operation. Spark replays a batch after a crash with the same offsets and the same batch id. A batch writes
its files into `_staging/<batch>-<attempt>`, moves them to their place under names that carry the batch id, and last
writes its commit file. A batch whose commit file exists is done; one without starts by removing whatever carries its id.
So a kill at any point leaves neither a duplicate nor a gap, for every reader of the directory, not only Spark's. Batch
ids count within one checkpoint only: a lake filled with another one is refused.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.spark.decoding import json_bodies
from aerobee.spark.options import OptionError
from aerobee.spark.pipelines.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    Shape = Callable[["Table", DataFrame], AbstractContextManager[DataFrame]]

log = logging.getLogger("aerobee.spark.lake")

SMALL_FILE = 32 << 20
OWNER = "_query.json"


class Added(NamedTuple):
    """What a batch has brought."""

    batch: int
    rows: int
    bad: int  # bodies that are no JSON object


def lake(
    spark: SparkSession,
    topics: str,
    out: str,
    *,
    checkpoint: str | None = None,
    schema: str | None = None,
    json: bool = False,
    once: bool = False,
    every: str = "10 seconds",
    format: str = "parquet",
    options: dict[str, str] | None = None,
    told: Callable[[Added], None] | None = None,
) -> StreamingQuery:
    """Copy `topics` (comma-separated, or a pattern with a `*`) into a table under `out`.

    `format` is parquet (a directory of files), delta or iceberg (pipelines/tables.py; a local directory).

    With `json` bodies become columns: by `schema` (DDL) or one inferred from the first batch and kept. A body that is
    no JSON stays in `badBody`. `options` are those of the data source (`namesrv` or `storePath` at least). `told` is
    called with the figures of every batch that was added.

    >>> lake(spark, "orders", "/data/lake", json=True, once=True,
    ...      options={"namesrv": "127.0.0.1:9876"}).awaitTermination()      # doctest: +SKIP
    """
    from aerobee.spark.pipelines.tables import table_of

    table = table_of(spark, out, format)
    if schema:
        json_bodies.schema_of(schema)  # a wrong one fails here, not in the first batch
    reader = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    reader = reader.option(*_selection(topics)).option("includeProperties", "true")
    reader = reader.option("checkBodies", "true")
    for name, value in {"maxOffsetsPerTrigger": "1000000", **(options or {})}.items():
        reader = reader.option(name, value)

    place = checkpoint or f"{out.rstrip('/')}/_checkpoint"

    def one_batch(frame: DataFrame, batch_id: int) -> None:
        table.claim(place)
        if table.holds(batch_id):
            log.info("batch=%d is in the lake already", batch_id)
            return
        added = _added(table, frame, batch_id, _as_it_is if not (json or schema) else _parsed_by(schema))
        if told is not None:
            told(added)

    writer = reader.load().writeStream.foreachBatch(one_batch)
    writer = writer.option("checkpointLocation", place).queryName("lake")
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    return writer.trigger(**trigger).start()


def _selection(topics: str) -> tuple[str, str]:
    if any(sign in topics for sign in "*?["):
        import fnmatch

        return "subscribePattern", fnmatch.translate(topics).removesuffix(r"\Z").removesuffix(r"\z")
    return "subscribe", topics


def _added(table: Table, frame: DataFrame, batch_id: int, shape: Shape) -> Added:
    """The batch into the table; counted as it is written, since Spark counts what it reads, however often."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    with shape(table, frame.withColumn("date", f.to_date("storeTimestamp"))) as shaped:
        seen = Observation()
        bad = f.count("badBody") if "badBody" in shaped.columns else f.lit(0)
        table.add(shaped.observe(seen, f.count(f.lit(1)).alias("rows"), bad.alias("bad")), batch_id)
        return Added(batch_id, **seen.get)


@contextmanager
def _as_it_is(_: Table, frame: DataFrame) -> Iterator[DataFrame]:
    yield frame


def _parsed_by(given: str | None) -> Shape:
    @contextmanager
    def shape(table: Table, frame: DataFrame) -> Iterator[DataFrame]:
        from pyspark import StorageLevel

        # Its schema and its rows are two looks at the batch; the brokers are asked for it once.
        held = frame.persist(StorageLevel.DISK_ONLY)
        try:
            yield json_bodies.parsed(held, table.json_schema(held, given)).drop("body")
        finally:
            held.unpersist()

    return shape


class Table:
    """A directory of Parquet files whose batches are added whole, once."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")
        self._files = Files(spark, self.root)
        self._query = ""  # whose batches these are, once claimed

    def claim(self, checkpoint: str) -> None:
        """Make sure that the lake's batches are this checkpoint's. OptionError when they are another's."""
        if self._query:
            return
        query = str(Files(self._spark, checkpoint).read_json("metadata")["id"])
        owner = str(self._files.read_json(OWNER)["id"]) if self._files.exists(OWNER) else None
        if owner is None:
            self._files.write_json(OWNER, {"id": query})
        elif owner != query:
            raise OptionError(
                f"the lake {self.root} was filled with another checkpoint (query {owner}); {checkpoint} is {query} "
                "and would bring everything again. Go on with the old checkpoint, or choose another directory"
            )
        self._remove_compacted()
        self._query = query

    def holds(self, batch_id: int) -> bool:
        return self._files.exists(_commit_name(batch_id))

    def json_schema(self, frame: DataFrame, given: str | None) -> StructType:
        """The given schema, else the kept one, else one inferred from this batch and kept from now on."""
        if given:
            return json_bodies.schema_of(given)
        if self._files.exists("_schema.json"):
            return json_bodies.schema_of(self._files.read_json("_schema.json"))
        found = json_bodies.inferred(frame)
        if found is None:
            return json_bodies.NO_FIELDS
        self._files.write_json("_schema.json", found.jsonValue())
        return found

    def add(self, frame: DataFrame, batch_id: int) -> None:
        name = f"b{batch_id:011d}"
        # A directory per attempt: a task of a killed driver may live on for a moment, and must not write into ours.
        staging = f"_staging/{name}-{uuid.uuid4().hex[:12]}"
        for pattern in ("_staging/b*", f"topic=*/date=*/{name}-*.parquet"):
            for left in self._files.glob(pattern):
                self._files.delete(left)
        frame.write.mode("overwrite").partitionBy("topic", "date").parquet(f"{self.root}/{staging}")
        added = []
        for i, path in enumerate(self._files.glob(f"{staging}/topic=*/date=*/*.parquet")):
            folder = "/".join(path.split("/")[-3:-1])
            target = f"{folder}/{name}-{i}.parquet"
            self._files.move(path, target)
            added.append(target)
        self._files.write_json(_commit_name(batch_id), {"add": added})
        self._files.delete(staging)

    def files(self) -> list[str]:
        """The files that belong to the table: what was added and not compacted away since."""
        alive: set[str] = set()
        for commit in self._files.glob("_commits/*.json"):
            said = self._files.read_json(commit)
            alive |= set(said.get("add", ()))
            alive -= set(said.get("remove", ()))
        return sorted(alive)

    def read(self) -> DataFrame:
        """The table as of now, by its commits: never a half-written batch, never a compacted file twice."""
        names = self.files()
        if not names:
            raise FileNotFoundError(f"the lake {self.root} holds no committed batch yet")
        reader = self._spark.read.option("basePath", self.root).option("mergeSchema", "true")
        return reader.parquet(*(f"{self.root}/{name}" for name in names))

    def compact(self, small: int = SMALL_FILE) -> int:
        """Join the small files of each partition; the number of files that went away."""
        self._remove_compacted()
        folders: dict[str, list[str]] = {}
        for name in self.files():
            if self._files.size(name) < small:
                folders.setdefault(name.rpartition("/")[0], []).append(name)
        gone = 0
        for folder, names in folders.items():
            if len(names) > 1:
                self._compact_folder(folder, names)
                gone += len(names) - 1
        return gone

    def _remove_compacted(self) -> None:
        """What a compaction joined and, killed after its commit, did not come to delete: others would read it twice."""
        for commit in self._files.glob("_commits/z-*.json"):
            for name in self._files.read_json(commit).get("remove", ()):
                if self._files.exists(name):
                    self._files.delete(name)

    def _compact_folder(self, folder: str, names: list[str]) -> None:
        last = names[-1].rpartition("/")[2].removesuffix(".parquet")
        joined = f"{folder}/c{last}.parquet"
        staging = f"_staging/c{last}"
        self._files.delete(staging)
        paths = [f"{self.root}/{name}" for name in names]
        self._spark.read.option("mergeSchema", "true").parquet(*paths).coalesce(1).write.parquet(
            f"{self.root}/{staging}"
        )
        (made,) = self._files.glob(f"{staging}/*.parquet")
        self._files.move(made, joined)
        # Sorted after every batch commit, so that the removal is read after the addition.
        stamp = folder.replace("/", ".").replace("=", "-")
        self._files.write_json(f"_commits/z-{last}-{stamp}.json", {"add": [joined], "remove": names})
        for name in names:
            self._files.delete(name)
        self._files.delete(staging)


def _commit_name(batch_id: int) -> str:
    return f"_commits/b{batch_id:011d}.json"
