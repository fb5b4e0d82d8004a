# SPDX-License-Identifier: Apache-2.0
"""The columns of a message, in Spark's and in Arrow's types. One table; everything else derives from it."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

# Damaged records hold any number; a time beyond this (the year 11,000) is cut to it instead of overflowing.
MAX_MILLIS = 285_000_000_000_000

_TIME = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())


class Column(NamedTuple):
    name: str
    arrow: pa.DataType
    ddl: str
    default: bool


COLUMNS = {
    column.name: column
    for column in (
        Column("topic", pa.string(), "STRING", True),
        Column("brokerName", pa.string(), "STRING", True),
        Column("queueId", pa.int32(), "INT", True),
        Column("queueOffset", pa.int64(), "BIGINT", True),
        Column("msgId", pa.string(), "STRING", True),
        Column("tags", pa.string(), "STRING", True),
        Column("keys", pa.string(), "STRING", True),
        Column("body", pa.binary(), "BINARY", True),
        Column("bornTimestamp", _TIME, "TIMESTAMP", True),
        Column("storeTimestamp", _TIME, "TIMESTAMP", True),
        Column("reconsumeTimes", pa.int32(), "INT", True),
        Column("properties", _MAP, "MAP<STRING, STRING>", False),
        Column("flag", pa.int32(), "INT", False),
        Column("sysFlag", pa.int32(), "INT", False),
        Column("bornHost", pa.string(), "STRING", False),
        Column("storeHost", pa.string(), "STRING", False),
        Column("physicalOffset", pa.int64(), "BIGINT", False),
        Column("storeSize", pa.int32(), "INT", False),
        Column("bodyCrc", pa.int32(), "INT", False),
        Column("bodyCrcOk", pa.bool_(), "BOOLEAN", False),
        Column("preparedTransactionOffset", pa.int64(), "BIGINT", False),
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


@lru_cache(maxsize=64)
def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, COLUMNS[name].arrow) for name in names])
