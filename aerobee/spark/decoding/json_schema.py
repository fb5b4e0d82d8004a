# SPDX-License-Identifier: Apache-2.0
"""Schemas of JSON bodies that grow: what the columns are, what bodies bring, and what comes of both. No Spark is asked.

A column never goes and never changes its name. Its type may grow where the table's format can read old files by the new
type; otherwise it stays, and values that do not fit it are kept elsewhere (`json_bodies.parsed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Widening = frozenset[tuple[str, str]]
_WHOLE = ("tinyint", "smallint", "int", "bigint")
NO_WIDENING: Widening = frozenset()
WIDENING: Widening = frozenset(
    [("float", "double")] + [(a, b) for i, a in enumerate(_WHOLE) for b in _WHOLE[i + 1 :]]
)


class Conflict(NamedTuple):
    key: str
    kept: DataType
    found: DataType


class Merged(NamedTuple):
    schema: StructType
    added: tuple[str, ...]  # keys, dots between levels
    widened: tuple[str, ...]
    conflicts: tuple[Conflict, ...]


def merged(kept: StructType, found: StructType, widening: Widening) -> Merged:
    """`kept` with what `found` has besides, and with wider types where `widening` allows them.

    Names that differ only in case are one column to Spark, and no Parquet file holds both: the kept one stays.
    """
    added: list[str] = []
    widened: list[str] = []
    conflicts: list[Conflict] = []

    def structs(old: StructType, new: StructType, path: str) -> StructType:
        fields = {field.name.lower(): field for field in old.fields}
        for field in new.fields:
            mine = fields.get(field.name.lower())
            if mine is None:
                added.append(path + field.name)
                fields[field.name.lower()] = StructField(field.name, field.dataType)
            elif mine.name == field.name:
                kind = types(mine.dataType, field.dataType, path + field.name)
                fields[field.name.lower()] = StructField(mine.name, kind, mine.nullable, mine.metadata)
        return StructType(list(fields.values()))

    def types(old: DataType, new: DataType, path: str) -> DataType:
        if isinstance(old, StructType) and isinstance(new, StructType):
            return structs(old, new, f"{path}.")
        if isinstance(old, ArrayType) and isinstance(new, ArrayType):
            return ArrayType(types(old.elementType, new.elementType, path), old.containsNull)
        pair = (old.simpleString(), new.simpleString())
        if pair in widening:
            widened.append(path)
            return new
        if pair[0] != pair[1] and pair[::-1] not in WIDENING:
            conflicts.append(Conflict(path, old, new))
        return old

    schema = structs(kept, found, "")
    return Merged(schema, tuple(added), tuple(widened), tuple(conflicts))


def besides(given: StructType, found: StructType) -> Merged:
    """`given` with the keys that `found` has besides: no type of it grows, for somebody has said what it is."""
    both = merged(given, found, NO_WIDENING)
    # Every whole number is found as a BIGINT: that is no conflict with an INT that holds it.
    real = (
        one for one in both.conflicts if (one.kept.simpleString(), one.found.simpleString()) not in WIDENING
    )
    return both._replace(conflicts=tuple(real))


def covers(columns: StructType, found: StructType) -> bool:
    """Has every key of `found` a column? Values of another type are not looked for: the parser tells them row by row."""
    return all(_covered(columns, found))


def _covered(columns: DataType, found: DataType) -> Iterator[bool]:
    if isinstance(columns, StructType) and isinstance(found, StructType):
        mine = {field.name: field.dataType for field in columns.fields}
        for field in found.fields:
            yield field.name in mine
            if field.name in mine:
                yield from _covered(mine[field.name], field.dataType)
    elif isinstance(columns, ArrayType) and isinstance(found, ArrayType):
        yield from _covered(columns.elementType, found.elementType)
    elif isinstance(columns, MapType) and isinstance(found, StructType):
        for field in found.fields:
            yield from _covered(columns.valueType, field.dataType)


def rounds(columns: DataType, found: DataType) -> bool:
    """May a whole number of `found` lose digits in its column?"""
    if isinstance(columns, StructType) and isinstance(found, StructType):
        mine = {field.name: field.dataType for field in columns.fields}
        return any(field.name in mine and rounds(mine[field.name], field.dataType) for field in found.fields)
    if isinstance(columns, ArrayType) and isinstance(found, ArrayType):
        return rounds(columns.elementType, found.elementType)
    return isinstance(columns, (DoubleType, FloatType)) and not isinstance(found, (DoubleType, StringType))


def distinct(struct: StructType) -> StructType:
    """Of names that differ only in case the first."""
    kept: dict[str, StructField] = {}
    for field in struct.fields:
        kept.setdefault(field.name.lower(), StructField(field.name, _cleared(field.dataType), field.nullable))
    return StructType(list(kept.values()))


def _cleared(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return distinct(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_cleared(kind.elementType), kind.containsNull)
    return kind
