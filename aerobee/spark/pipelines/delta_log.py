# SPDX-License-Identifier: Apache-2.0
"""Commits to a Delta table that also give it new columns: `deltalake` adds files or columns, but not both at once.

A commit is a file of JSON lines whose name is the next version. It must appear whole, and only if nobody else has made
that version: written beside, then linked, as `deltalake` itself does.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any

from aerobee.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.types import StructType

_TRIES = 10


def add(path: Path, topic: str, date: str, rows: int) -> dict[str, Any]:
    """A file of the folder `data`, with statistics by which readers skip it."""
    told, bounds = path.stat(), {"topic": topic, "date": date}
    stats = {"numRecords": rows, "minValues": bounds, "maxValues": bounds, "nullCount": {}}
    return {
        "path": f"data/{path.name}",
        "size": told.st_size,
        "partitionValues": {},
        "modificationTime": int(told.st_mtime * 1000),
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def commit_growth(
    folder: Path, columns: StructType, added: list[dict[str, Any]], batch: tuple[str, int]
) -> None:
    """The next version: these columns, these files, and `batch` (query id, batch id) as its transaction."""
    from deltalake import DeltaTable

    now = SystemClock().wall()
    query, number = batch
    for _ in range(_TRIES):
        table = DeltaTable(str(folder))
        told = table.metadata()
        metadata = {
            "id": told.id,
            "name": told.name,
            "description": told.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": columns.json(),
            "partitionColumns": told.partition_columns,
            "createdTime": told.created_time,
            "configuration": told.configuration,
        }
        lines: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now,
                    "operation": "WRITE",
                    "operationParameters": {"mode": "Append"},
                }
            },
            {"metaData": metadata},
            {"txn": {"appId": query, "version": number, "lastUpdated": now}},
            *({"add": file} for file in added),
        ]
        if _appears(folder / "_delta_log" / f"{table.version() + 1:020d}.json", lines):
            return
    raise OSError(
        f"the Delta table {folder} was changed by others {_TRIES} times while a batch was added to it"
    )


def _appears(target: Path, lines: list[dict[str, Any]]) -> bool:
    """False when that version is there already, as after a compaction that ran meanwhile."""
    fresh = target.with_name(f"_commit_{uuid.uuid4().hex}.json.tmp")
    with fresh.open("w") as file:
        file.write("\n".join(map(json.dumps, lines)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, target)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True
