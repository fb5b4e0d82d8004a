# SPDX-License-Identifier: Apache-2.0
"""Notebook comfort: a topic as a DataFrame in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_NAMESRV = "127.0.0.1:9876"


def read(
    spark: SparkSession,
    topics: str | list[str],
    *,
    json: bool | str = False,
    text: bool = False,
    **options: Any,
) -> DataFrame:
    """The messages of one or more topics.

    `json=True` infers a schema from the bodies and adds it as column `data` (a DDL text instead of True skips the
    inference); `text=True` adds the body as text. Everything else is an option of the data source, by its own name.

    >>> read(spark, "orders", namesrv="127.0.0.1:9876", json=True).select("data.*")      # doctest: +SKIP
    """
    frame = _source(spark.read, topics, options).load()
    if text:
        frame = frame.withColumn("text", frame["body"].cast("string"))
    return with_json(frame, json) if json else frame


def read_stream(
    spark: SparkSession, topics: str | list[str], *, schema: str | None = None, **options: Any
) -> DataFrame:
    """The same as a stream; `schema` (DDL) parses JSON bodies into column `data`."""
    frame = _source(spark.readStream, topics, options).load()
    return with_json(frame, schema) if schema else frame


def write(frame: DataFrame, topic: str, **options: Any) -> None:
    """Every row as a message of `topic`; the frame needs a column `body`, others are optional (docs/spark.md)."""
    writer = frame.write.format("rocketmq").option("topic", topic)
    for name, value in _named(options).items():
        writer = writer.option(name, value)
    writer.mode("append").save()


def with_json(frame: DataFrame, schema: str | Literal[True]) -> DataFrame:
    """Column `data` parsed from JSON bodies; null where a body is no JSON."""
    from pyspark.sql import functions as f

    from aerobee.spark.decoding.json_bodies import inferred

    body = f.col("body").cast("string")
    if isinstance(schema, str):
        return frame.withColumn("data", f.from_json(body, schema))
    found = inferred(frame)
    if found is None:
        return frame.withColumn("data", f.lit(None).cast("string"))
    return frame.withColumn("data", f.from_json(body, found))


def _source(reader: Any, topics: str | list[str], options: dict[str, Any]) -> Any:
    names = [topics] if isinstance(topics, str) else list(topics)
    reader = reader.format("rocketmq").option("subscribe", ",".join(names))
    for name, value in _named(options).items():
        reader = reader.option(name, value)
    return reader


def _named(options: dict[str, Any]) -> dict[str, str]:
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
    if "namesrv" not in given and "storePath" not in given:
        given["namesrv"] = DEFAULT_NAMESRV
    return given
