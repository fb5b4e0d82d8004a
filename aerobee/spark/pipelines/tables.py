# SPDX-License-Identifier: Apache-2.0
"""The lake as a Delta or an Iceberg table, without jars: Spark's tasks write Parquet files, the driver commits them.

    out/data/b00000000007-1f0c93ab-3.parquet     one topic and one day each: readers skip files by their statistics
    out/_delta_log | out/metadata                the table's own log
    out/_iceberg.db                              Iceberg's catalog (SQLite), table `lake.messages`

Theory of operation. The commit that adds a batch's files also records the batch: Delta has application transactions
(query id, batch id) for it, Iceberg a table property set in the same commit. Both commits are atomic, so a batch that is
recorded is in the table whole, and a replayed one finds its record and does nothing. Files that a killed driver left
behind are in no commit, hence in no table; the batch's next attempt removes them.
"""

from __future__ import annotations

import json
import os
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlparse

from pyspark.sql.types import StructType

from aerobee.spark.decoding import json_schema
from aerobee.spark.options import OptionError
from aerobee.spark.pipelines import delta_log
from aerobee.spark.pipelines.files import Files
from aerobee.spark.pipelines.parquet_table import BOUNDED, MICROS, Table, remembered_in, times_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTY = "aerobee.batch."
IDENTIFIER = "lake.messages"


class _File(NamedTuple):
    path: Path
    topic: str
    date: str
    rows: int


class _OpenTable(Table, ABC):
    """What Delta and Iceberg share: how files are written, and that they live where this process can reach them."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        told = urlparse(root)
        if told.scheme not in ("", "file"):
            raise OptionError(f"a {self.kind} lake needs a local or mounted directory, {root!r} is none")
        self.folder = Path(unquote(told.path) if told.scheme else root).absolute()
        super().__init__(spark, self.folder.as_uri())

    kind = ""

    def add(self, frame: DataFrame, batch_id: int) -> None:
        name = f"b{batch_id:011d}-{self._query[:8]}"
        for left in (self.folder / "data").glob(f"{name}-*.parquet"):
            left.unlink()
        staging = f"_staging/{name}-{uuid.uuid4().hex[:12]}"
        copies = frame.withColumns({"_topic": frame["topic"], "_date": frame["date"]})
        writer = copies.write.options(**BOUNDED).partitionBy("_topic", "_date")
        with times_as(frame.sparkSession, MICROS):  # INT96 is no type of either table
            writer.parquet(f"{self.root}/{staging}")
        added = self._placed(self.folder / staging, name)
        if added:
            self._commit(self.grown(frame.schema), added, batch_id)
        self._files.delete(staging)

    def _placed(self, staging: Path, name: str) -> list[_File]:
        import pyarrow.parquet as pq

        (self.folder / "data").mkdir(exist_ok=True)
        found = []
        for i, path in enumerate(sorted(staging.glob("_topic=*/_date=*/*.parquet"))):
            topic, date = (unquote(part.partition("=")[2]) for part in path.parts[-3:-1])
            target = self.folder / "data" / f"{name}-{i}.parquet"
            os.replace(path, target)
            found.append(_File(target, topic, date, pq.read_metadata(target).num_rows))
        return found

    @abstractmethod
    def _commit(self, columns: StructType, added: list[_File], batch_id: int) -> None: ...

    def _read(self, names: list[str]) -> DataFrame:
        return self._spark.read.schema(self.schema() or StructType()).parquet(*names)


class Delta(_OpenTable):
    kind = "delta"
    widening = json_schema.NO_WIDENING  # Delta has a feature for it, which `deltalake` cannot read

    def __init__(self, spark: SparkSession, root: str) -> None:
        _needs("deltalake", "delta")
        super().__init__(spark, root)

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.folder)) if DeltaTable.is_deltatable(str(self.folder)) else None

    def holds(self, batch_id: int) -> bool:
        table = self._table()
        last = table.transaction_version(self._query) if table is not None else None
        return last is not None and last >= batch_id

    def schema(self) -> StructType | None:
        table = self._table()
        # Delta writes a schema as Spark does.
        return StructType.fromJson(json.loads(table.schema().to_json())) if table is not None else None

    def _commit(self, columns: StructType, added: list[_File], batch_id: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.transaction import AddAction

        actions = [delta_log.add(file.path, file.topic, file.date, file.rows) for file in added]
        before = self.schema()
        if before is not None and columns != before:
            delta_log.commit_growth(self.folder, columns, actions, (self._query, batch_id))
            return
        schema = _arrow(columns)
        table = self._table() or DeltaTable.create(str(self.folder), schema, mode="ignore", name="messages")
        table.create_write_transaction(
            [AddAction(*told.values()) for told in actions],
            "append",
            schema,
            commit_properties=CommitProperties(app_transactions=[Transaction(self._query, batch_id)]),
        )

    def files(self) -> list[str]:
        table = self._table()
        return sorted(table.file_uris()) if table is not None else []

    def compact(self, small: int = 0) -> int:
        table = self._table()
        if table is None:
            return 0
        done = table.optimize.compact(**({"target_size": small} if small else {}))
        return int(done["numFilesRemoved"]) - int(done["numFilesAdded"])


class Iceberg(_OpenTable):
    kind = "iceberg"

    def __init__(self, spark: SparkSession, root: str) -> None:
        _needs("pyiceberg", "iceberg")
        super().__init__(spark, root)

    def _catalog(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        self.folder.mkdir(parents=True, exist_ok=True)
        place = {"uri": f"sqlite:///{self.folder / '_iceberg.db'}", "warehouse": self.folder.as_uri()}
        return SqlCatalog("aerobee", **place)

    def _table(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        if not (self.folder / "_iceberg.db").exists():
            return None
        try:
            return self._catalog().load_table(IDENTIFIER)
        except NoSuchTableError:
            return None

    def holds(self, batch_id: int) -> bool:
        table = self._table()
        return table is not None and int(table.properties.get(PROPERTY + self._query, -1)) >= batch_id

    def schema(self) -> StructType | None:
        from pyspark.sql.pandas.types import from_arrow_schema

        table = self._table()
        return from_arrow_schema(table.schema().as_arrow()) if table is not None else None

    def _commit(self, columns: StructType, added: list[_File], batch_id: int) -> None:
        table, before = self._table(), self.schema()
        if table is None:
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists("lake")
            table = catalog.create_table_if_not_exists(
                IDENTIFIER, _arrow(columns), location=self.folder.as_uri()
            )
        with table.transaction() as change:
            if before is not None and columns != before:
                with change.update_schema() as update:
                    update.union_by_name(_arrow(columns))
            change.set_properties({PROPERTY + self._query: str(batch_id)})
            change.add_files([file.path.as_uri() for file in added])

    def files(self) -> list[str]:
        table = self._table()
        return sorted(task.file.file_path for task in table.scan().plan_files()) if table is not None else []

    def compact(self, small: int = 0) -> int:
        raise OptionError("pyiceberg cannot join small files; use --format delta or parquet for --compact")


KINDS: dict[str, type[Table]] = {"parquet": Table, "delta": Delta, "iceberg": Iceberg}


def table_of(spark: SparkSession, root: str, kind: str) -> Table:
    if kind not in KINDS:
        raise OptionError(f"format {kind!r} of the lake is none of {', '.join(KINDS)}")
    return KINDS[kind](spark, root)


def lake_of(spark: SparkSession, root: str, kind: str | None = None) -> Table:
    """The lake in a directory: of its own kind, which is `kind` where it is new. Nothing said, it is that of a run that
    began it and did not come to a commit, or parquet."""
    files = Files(spark, root)
    there = _kind_found(files)
    if kind and there and kind != there:
        raise OptionError(
            f"the lake {root} is {there}; --format {kind} (format=) would begin a second table in it, with what comes "
            f"from now on. Give {there}, or choose another directory"
        )
    return table_of(spark, root, kind or there or (remembered_in(files) or {}).get("format") or "parquet")


def found_table(spark: SparkSession, root: str) -> Table:
    """The lake in a directory, of whatever kind it is."""
    return lake_of(spark, root)


def _kind_found(files: Files) -> str | None:
    marks = {"_delta_log": "delta", "_iceberg.db": "iceberg", "_commits": "parquet"}
    return next((kind for name, kind in marks.items() if files.exists(name)), None)


def _needs(module: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise OptionError(f"a {extra} lake needs the package {module}: pip install 'aerobee[{extra}]'")


def _arrow(columns: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(columns, timezone="UTC")
