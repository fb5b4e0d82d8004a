# SPDX-License-Identifier: Apache-2.0
"""A lake as a directory of Parquet files.

    out/topic=orders/date=2026-11-15/b00000000007-3.parquet     data, partitioned by topic and day of storing
    out/_commits/b00000000007.json                              the files that batch 7 added, and the columns since
    out/_common_metadata                                        the columns, for readers that do not look at commits
    out/_query.json                                             whose batches these are: the id in the checkpoint
    out/_bodies.json                                            what its first run chose (`lake_bodies`)

Theory of operation. Spark replays a batch after a crash with the same offsets and the same batch id. A batch writes
its files into `_staging/<batch>-<attempt>`, moves them to their place under names that carry the batch id, and last
writes its commit file. A batch whose commit file exists is done; one without starts by removing whatever carries its id.
So a kill at any point leaves neither a duplicate nor a gap, for every reader of the directory, not only Spark's. Batch
ids count within one checkpoint only: a lake filled with another one is refused.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from aerobee.spark.decoding import json_bodies, json_schema
from aerobee.spark.options import OptionError
from aerobee.spark.pipelines.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

SMALL_FILE = 32 << 20
OWNER = "_query.json"
BODIES = "_bodies.json"
SUMMARY = "_common_metadata"
# Spark's own INT96 says nothing of a zone: pandas and Arrow would show UTC as if it were anybody's time.
INT96, MICROS = "INT96", "TIMESTAMP_MICROS"
# A writer holds a row group in memory, and looks at its size for the first time after a hundred rows: four hundred
# megabytes of the largest messages. So it looks after each of them, and row groups are smaller than Parquet's 128 MiB.
BOUNDED = {
    "parquet.block.size": str(32 << 20),
    "parquet.page.size.row.check.min": "1",
}


class Table:
    """A directory of Parquet files whose batches are added whole, once."""

    widening = json_schema.WIDENING
    kind = "parquet"

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")
        self._files = Files(spark, self.root)
        self._query = ""  # whose batches these are, once claimed
        self._schema: StructType | None = None
        self._times = ""
        self._remembered: dict[str, Any] | None = None

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

    def is_claimed(self) -> bool:
        return self._files.exists(OWNER)

    def remembered(self) -> dict[str, Any] | None:
        """What `remember` was told last, by this run or another; None when nothing was."""
        return remembered_in(self._files)

    def remember(self, bodies: dict[str, Any]) -> None:
        """Beside the format, so that a lake without a commit is gone on with as it was begun."""
        memory = {"format": self.kind, **bodies}
        if memory != self._remembered:
            self._remembered = memory
            if memory != self.remembered():
                self._files.write_json(BODIES, memory)

    def holds(self, batch_id: int) -> bool:
        return self._files.exists(_commit_name(batch_id))

    def schema(self) -> StructType | None:
        """The columns of the table as its last commit says; None before the first."""
        if self._schema is None:
            for name in reversed(self._files.glob("_commits/b*.json")):
                if kept := self._files.read_json(name).get("schema"):
                    self._schema = StructType.fromJson(kept)
                    return self._schema
            self._schema = self._schema_of_files()
        return self._schema

    def times(self) -> str:
        """How times are written: a lake that began with INT96 keeps it, so that all its files are alike."""
        if not self._times:
            commits = self._files.glob("_commits/b*.json")
            self._times = str(self._files.read_json(commits[-1]).get("times", INT96)) if commits else MICROS
        return self._times

    def _schema_of_files(self) -> StructType | None:
        """Of a lake whose commits do not tell: their types have never changed."""
        paths = [f"{self.root}/{name}" for name in self.files()]
        return self._spark.read.option("mergeSchema", "true").parquet(*paths).schema if paths else None

    def body_schema(self) -> StructType | None:
        """What JSON bodies are parsed by; None when there was none yet."""
        columns = self.schema()
        return _field(columns, json_bodies.DATA) if columns is not None else None

    def add(self, frame: DataFrame, batch_id: int) -> None:
        name = f"b{batch_id:011d}"
        # A directory per attempt: a task of a killed driver may live on for a moment, and must not write into ours.
        staging = f"_staging/{name}-{uuid.uuid4().hex[:12]}"
        for pattern in ("_staging/b*", f"topic=*/date=*/{name}-*.parquet"):
            for left in self._files.glob(pattern):
                self._files.delete(left)
        writer = frame.write.mode("overwrite").options(**BOUNDED).partitionBy("topic", "date")
        with times_as(frame.sparkSession, self.times()):
            writer.parquet(f"{self.root}/{staging}")
        added = []
        for i, path in enumerate(self._files.glob(f"{staging}/topic=*/date=*/*.parquet")):
            folder = "/".join(path.split("/")[-3:-1])
            target = f"{folder}/{name}-{i}.parquet"
            self._files.move(path, target)
            added.append(target)
        self._commit(self.grown(frame.schema), added, batch_id)
        self._files.delete(staging)

    def _commit(self, columns: StructType, added: list[Any], batch_id: int) -> None:
        """Add the files, give the table `columns` and record the batch: all or nothing."""
        told = {"add": added, "schema": columns.jsonValue(), "times": self.times()}
        self._files.write_json(_commit_name(batch_id), told)
        if columns != self._schema or not self._files.exists(SUMMARY):
            self._files.write_bytes(SUMMARY, _summary(columns))
        self._schema = columns

    def grown(self, columns: StructType) -> StructType:
        """The table's columns, with those of `columns` that it has not yet."""
        before = self.schema()
        return columns if before is None else json_schema.merged(before, columns, self.widening).schema

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
        return self._read(names)

    def _read(self, names: list[str]) -> DataFrame:
        # By the table's own columns: Spark merges those of files only where types are the same.
        reader = self._spark.read.option("basePath", self.root).schema(self.schema() or StructType())
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
        joining = self._read(names).drop("topic", "date").coalesce(1).write.options(**BOUNDED)
        with times_as(self._spark, self.times()):
            joining.parquet(f"{self.root}/{staging}")
        (made,) = self._files.glob(f"{staging}/*.parquet")
        self._files.move(made, joined)
        # Sorted after every batch commit, so that the removal is read after the addition.
        stamp = folder.replace("/", ".").replace("=", "-")
        self._files.write_json(f"_commits/z-{last}-{stamp}.json", {"add": [joined], "remove": names})
        for name in names:
            self._files.delete(name)
        self._files.delete(staging)


def remembered_in(files: Files) -> dict[str, Any] | None:
    found: dict[str, Any] | None = files.read_json(BODIES) if files.exists(BODIES) else None
    return found


@contextmanager
def times_as(spark: SparkSession, kind: str) -> Iterator[None]:
    """Parquet files that are written meanwhile hold times so; a writer has no option for it."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, kind)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _commit_name(batch_id: int) -> str:
    return f"_commits/b{batch_id:011d}.json"


def _field(columns: StructType, name: str) -> StructType | None:
    kind = next((field.dataType for field in columns.fields if field.name == name), None)
    return kind if isinstance(kind, StructType) else None


def _summary(columns: StructType) -> bytes:
    """A Parquet file without rows: what readers that know no commits take the columns from."""
    import io

    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    made = io.BytesIO()
    pq.write_metadata(to_arrow_schema(columns, timezone="UTC"), made)
    return made.getvalue()
