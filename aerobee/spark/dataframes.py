# SPDX-License-Identifier: Apache-2.0
"""Notebook comfort: a topic as a DataFrame in one line."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from aerobee.client.session.identity import usual_namesrv
from aerobee.protocol.durations import written
from aerobee.spark import options as checks
from aerobee.spark.option_values import any_of_tags
from aerobee.spark.starting import said

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = ("startingtimestamp", "endingtimestamp")


def read(
    spark: SparkSession,
    topics: str | list[str],
    *,
    json: bool | str = False,
    schema: str | None = None,
    text: bool = False,
    **options: Any,
) -> DataFrame:
    """The messages of one or more topics.

    `json=True` infers a schema from JSON bodies (`schema`, a DDL text, or that instead of True skips it): each key
    becomes a column, unless a message has one of that name already, and column `data` holds them all. `text=True` adds
    the body as column `text`. Everything else is an option of the data source, by its own name; `tags` may be a list
    (any of them), `startingTimestamp` and `endingTimestamp` a datetime (local unless it has a zone). The name server is
    that of the environment (AEROBEE_NAMESRV) where neither `namesrv` nor `storePath` is given.

    >>> read(spark, "orders", json=True).groupBy("status").count().show()                # doctest: +SKIP
    >>> read(spark, "orders", namesrv="127.0.0.1:9876", json=True).select("data.*")      # doctest: +SKIP
    """
    given = _named(topics, options)
    checks.for_batch(given)
    with said(f"asking for {given['subscribe']}"):
        frame = spark.read.format("rocketmq").options(**given).load()
    if text:
        frame = frame.withColumn("text", frame["body"].cast("string"))
    wanted = schema or json
    return with_json(frame, wanted) if wanted else frame


def read_stream(
    spark: SparkSession,
    topics: str | list[str],
    *,
    schema: str | None = None,
    json: str | None = None,
    **options: Any,
) -> DataFrame:
    """The same as a stream; `schema` (DDL) is that of JSON bodies, which become columns as in `read`; `json` is another
    name for it."""
    given = _named(topics, options)
    checks.for_stream(given)
    frame = spark.readStream.format("rocketmq").options(**given).load()
    wanted = schema or json
    return with_json(frame, wanted) if wanted else frame


def write(frame: DataFrame, topic: str, **options: Any) -> None:
    """Every row as a message of `topic`; the frame needs a column `body`, others are optional (docs/spark.md).

    `options` are the sink's; the name server is that of the environment (AEROBEE_NAMESRV) where they name none. An
    account is always one of them: `accessKey`, `secretKey`.
    """
    given = {"topic": topic, **_texts(options)}
    checks.for_write(given)
    frame.write.format("rocketmq").options(**given).mode("append").save()


def with_json(frame: DataFrame, schema: str | Literal[True]) -> DataFrame:
    """Column `data` parsed from JSON bodies, its fields null where a body is no JSON, and a column for each of its keys
    whose name is free."""
    from pyspark.sql import functions as f

    from aerobee.spark.decoding.json_bodies import inferred, schema_of
    from aerobee.spark.decoding.json_schema import distinct

    found = schema_of(schema) if isinstance(schema, str) else inferred(frame)
    if found is None:
        return frame.withColumn("data", f.lit(None).cast("string"))
    found = distinct(found)
    taken = {name.lower() for name in (*frame.columns, "data")}
    free = [name for name in found.fieldNames() if name.lower() not in taken]
    parsed = frame.withColumn("data", f.from_json(f.col("body").cast("string"), found))
    return parsed.select("*", *(f.col("data").getField(name).alias(name) for name in free))


def _named(topics: str | list[str], options: dict[str, Any]) -> dict[str, str]:
    names = [topics] if isinstance(topics, str) else list(topics)
    return {"subscribe": ",".join(names), **_texts(options)}


def _texts(options: dict[str, Any]) -> dict[str, str]:
    given = {name: _text(name, value) for name, value in options.items()}
    if "namesrv" not in given and "storePath" not in given:
        given["namesrv"] = usual_namesrv()  # here, at the driver: executors may have another environment
    return given


def _text(name: str, value: Any) -> str:
    """As the source is handed it: a text, made where the user's objects and time zone are."""
    if name.lower() == "tags":
        try:
            return any_of_tags(value)
        except ValueError as error:
            raise checks.OptionError(f"option {name!r} is {value!r}: {error}") from None
    if name.lower() in _TIMES:
        return _time(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time(value: Any) -> str:
    """A date becomes epoch milliseconds here, for a server of Spark Connect may have another time zone. A time before
    now stays so until Spark plans the query."""
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if text.strip().isdigit() or (found := written(text.strip())) is None:
        return text
    return str(found)
