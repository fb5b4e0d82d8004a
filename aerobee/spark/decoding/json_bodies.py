# SPDX-License-Identifier: Apache-2.0
"""JSON bodies as columns: their schema by looking at them, and what of them has no place there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import DataType, StringType, StructField, StructType

from aerobee.spark.decoding import json_rest, json_schema
from aerobee.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DATA, BAD, RESCUED = "data", "badBody", "_rescued"
_MISFIT = "_does_not_fit"
_OBJECT = r"^\s*\{"
_EMPTY = r"^\s*\{\s*\}\s*$"


def inferred(frame: DataFrame) -> StructType | None:
    """The keys of all objects among the bodies of `frame`, with types that hold every value; None when there is none.

    Names may hold anything a JSON key may, and may differ in case only.
    """
    texts = frame.selectExpr("cast(body AS STRING) AS value")
    texts = texts.where(texts["value"].rlike(_OBJECT))
    found = frame.sparkSession.read.json(texts, columnNameOfCorruptRecord=_MISFIT).schema
    fields = [field for field in found.fields if field.name != _MISFIT]
    return StructType(fields) if fields else None


def schema_of(kept: Any) -> StructType:
    """A schema as users write it (DDL), or as lakes keep it (JSON; DDL in older ones)."""
    if isinstance(kept, dict) and "ddl" not in kept:
        return StructType.fromJson(kept)
    told = kept["ddl"] if isinstance(kept, dict) else kept
    found = DataType.fromDDL(told)
    if not isinstance(found, StructType):
        raise OptionError(f"schema {told!r} names no columns, expected such as 'id INT, name STRING'")
    return found


def parsed(frame: DataFrame, schema: StructType | None, found: StructType | None) -> DataFrame:
    """The bodies by `schema`; `found` is what `inferred` says of them. Nothing of a body gets lost:

    `data`      the values that have a column and fit it; no such column without a schema
    `_rescued`  JSON of the keys that have no column, and of values that do not fit theirs
    `badBody`   the body, where it is not one JSON object
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    text = f.col("body").cast("string")
    if schema is None:
        nothing = {RESCUED: f.lit(None).cast("string"), BAD: f.when(~text.rlike(_EMPTY), f.col("body"))}
        return frame.withColumns(nothing)
    wider = StructType([*schema.fields, StructField(_MISFIT, StringType())])
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
    told = frame.withColumn(DATA, f.when(text.rlike(_OBJECT), f.from_json(text, wider, how)))
    suspect = _suspect(text, f.col(DATA), schema, found)
    told = told.withColumn(RESCUED, f.when(suspect, f.col("body")))
    told = told.withColumn(DATA, f.col(DATA).dropFields(_MISFIT))
    kept = f.when(f.col(RESCUED).isNotNull(), f.to_json(DATA))
    as_column: Any = arrow_udf(_rest, "string")  # type: ignore[call-overload]  # its hints tell what it is
    told = told.withColumn(RESCUED, as_column(f.col(RESCUED), kept))
    bad = f.col(DATA).isNull() | f.coalesce(f.col(RESCUED) == "", f.lit(False))
    told = told.withColumn(BAD, f.when(bad, f.col("body")))
    told = told.withColumn(RESCUED, f.when(f.col(RESCUED) != "", f.col(RESCUED)))
    empty = (f.to_json(DATA) == "{}") & f.col(BAD).isNotNull()
    return told.withColumn(DATA, f.when(~f.coalesce(empty, f.lit(False)), f.col(DATA)))


def _suspect(text: Column, data: Column, schema: StructType, found: StructType | None) -> Column:
    """Bodies of which something may be missing in the columns; these are looked at one by one."""
    from pyspark.sql import functions as f

    if found is not None and not json_schema.covers(schema, found):
        return data.isNotNull()
    # Spark's parser says which values do not fit, but is silent about a second object and about lost digits.
    missed = data[_MISFIT].isNotNull() | text.rlike(r"\}\s*\{")
    if found is not None and json_schema.rounds(schema, found):
        missed = missed | text.rlike(r"[0-9]{16}")
    return f.coalesce(missed, f.lit(False))


def _rest(bodies: pa.Array, kept: pa.Array) -> pa.Array:
    found = [
        None if body is None else json_rest.rest(body, columns)
        for body, columns in zip(bodies.to_pylist(), kept.to_pylist(), strict=True)
    ]
    return pa.array(found, pa.string())
