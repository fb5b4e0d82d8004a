# SPDX-License-Identifier: Apache-2.0
"""The columns of a message, in Spark's and in Arrow's types. One table; everything else derives from it."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

# Damaged records hold any number; a time beyond this (the year 11,000) is cut to it instead of overflowing.
MAX_MILLIS = 285_000_000_000_000


class Column(NamedTuple):
    name: str
    ddl: str
    default: bool

    @property
    def arrow(self) -> pa.DataType:
        return _arrow_types()[self.ddl]


COLUMNS = {
    column.name: column
    for column in (
        Column("topic", "STRING", True),
        Column("brokerName", "STRING", True),
        Column("queueId", "INT", True),
        Column("queueOffset", "BIGINT", True),
        Column("msgId", "STRING", True),
        Column("tags", "STRING", True),
        Column("keys", "STRING", True),
        Column("body", "BINARY", True),
        Column("bornTimestamp", "TIMESTAMP", True),
        Column("storeTimestamp", "TIMESTAMP", True),
        Column("reconsumeTimes", "INT", True),
        Column("properties", "MAP<STRING, STRING>", False),
        Column("flag", "INT", False),
        Column("sysFlag", "INT", False),
        Column("bornHost", "STRING", False),
        Column("storeHost", "STRING", False),
        Column("physicalOffset", "BIGINT", False),
        Column("storeSize", "INT", False),
        Column("bodyCrc", "INT", False),
        Column("bodyCrcOk", "BOOLEAN", False),
        Column("preparedTransactionOffset", "BIGINT", False),
    )
}

DEFAULT = tuple(name for name, column in COLUMNS.items() if column.default)


def check(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names as written in the table; ValueError names an unknown one and the nearest known."""
    by_lower = {name.lower(): name for name in COLUMNS}
    found = []
    for name in names:
        known = by_lower.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), by_lower, n=1)
            hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
            raise ValueError(f"unknown column {name!r}{hint} Known: {', '.join(COLUMNS)}")
        found.append(known)
    return tuple(found)


def ddl(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in names)


@lru_cache(maxsize=1)
def _arrow_types() -> dict[str, pa.DataType]:
    """Imported when needed: of the processes that Spark starts for a query, those that only plan never do."""
    import pyarrow as pa

    return {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "BINARY": pa.binary(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    }


@lru_cache(maxsize=64)
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, COLUMNS[name].arrow) for name in names])
