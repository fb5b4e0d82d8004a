# SPDX-License-Identifier: Apache-2.0
"""JSON bodies as columns: their schema by looking at them, and the bodies that do not fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from aerobee.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_FIELDS = StructType([StructField("_none", StringType())])
_MISFIT = "_does_not_fit"


def inferred(frame: DataFrame) -> StructType | None:
    """What the objects among the bodies of `frame` have in common; None when there is none with a field.

    Names may hold anything a JSON key may. Of names that differ only in case the first is taken: Spark takes them for
    the same column, and no Parquet file holds both.
    """
    texts = frame.selectExpr("cast(body AS STRING) AS value").where("value IS NOT NULL")
    found = frame.sparkSession.read.json(texts.rdd.map(lambda row: row.value)).schema
    fields = [field for field in _distinct(found) if field.name != "_corrupt_record"]
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


def parsed(frame: DataFrame, schema: StructType) -> DataFrame:
    """Column `data` from the bodies that are objects, and `badBody`: the body itself where it is no object, is broken,
    has a value that does not fit its column, or nothing that has one. Values that do fit are in `data` even so."""
    from pyspark.sql import functions as f

    wider = StructType([*schema.fields, StructField(_MISFIT, StringType())])
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT}
    text = f.col("body").cast("string")
    found = frame.withColumn("data", f.when(text.rlike(r"^\s*\{"), f.from_json(text, wider, how)))
    found = found.withColumn("_misfit", f.col("data").isNull() | f.col(f"data.{_MISFIT}").isNotNull())
    found = found.withColumn("data", f.col("data").dropFields(_MISFIT))
    nothing = (f.to_json("data") == "{}") & ~text.rlike(r"^\s*\{\s*\}\s*$")
    found = found.withColumn("badBody", f.when(f.col("_misfit") | nothing, f.col("body")))
    return found.withColumn("data", f.when(~(f.col("_misfit") & nothing), f.col("data"))).drop("_misfit")


def _distinct(struct: StructType) -> list[StructField]:
    kept: dict[str, StructField] = {}
    for field in struct.fields:
        kept.setdefault(field.name.lower(), StructField(field.name, _cleared(field.dataType), field.nullable))
    return list(kept.values())


def _cleared(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(_distinct(kind))
    if isinstance(kind, ArrayType):
        return ArrayType(_cleared(kind.elementType), kind.containsNull)
    return kind
