# SPDX-License-Identifier: Apache-2.0
"""`format("rocketmq")`: what Spark asks of a data source, answered by the pure parts around it.

spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("subscribe", "orders").load()
spark.readStream.format("rocketmq").option("storePath", "./aerobee-data").option("subscribe", "orders").load()
df.write.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("topic", "out").mode("append").save()
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from aerobee.errors import BrokerError
from aerobee.protocol.names import DEFAULT_TOPIC
from aerobee.spark import options, schema
from aerobee.spark.hung_up import hush_workers
from aerobee.spark.reasons import plainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

hush_workers()


class RocketMQSource(DataSource):
    """Messages of RocketMQ topics as rows, batch and stream, and rows as messages."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @plainly()
    def schema(self) -> str:
        return schema.ddl(options.columns_of(self.options))

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        from aerobee.spark.reading import batch_reader

        # A reader class with `pushFilters` makes every query fail while Spark's push-down setting is off, and the
        # setting is not visible here; only Spark's push-down worker may see such a class. And only where asked for:
        # Spark keeps one plan per DataFrame, so whatever its filters left out would be missing in its other uses.
        parsed = options.for_batch(self.options, _names(schema))
        pushing = sys._getframe(2).f_code.co_filename.endswith("data_source_pushdown_filters.py")
        chosen = batch_reader.PushdownReader if pushing and parsed.push_filters else batch_reader.BatchReader
        return chosen(parsed, _names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from aerobee.spark.reading.stream_reader import StreamReader

        try:
            return StreamReader(options.for_stream(self.options, _names(schema)))
        except options.OptionError as error:
            return _refused(error)

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        from aerobee.spark.writing.writer import BatchWriter

        if overwrite:
            raise options.OptionError('a topic cannot be overwritten: write with .mode("append")')
        sink = _sink_options(self.options, schema)
        _reach(sink)
        return BatchWriter(sink)

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001
        from aerobee.spark.writing.writer import StreamWriter

        if overwrite:
            raise options.OptionError(
                'a topic cannot be overwritten, as .outputMode("complete") would: use "append", or foreachBatch'
            )
        return StreamWriter(_sink_options(self.options, schema))


def _refused(error: options.OptionError) -> DataSourceStreamReader:
    """A stream that fails when it is first asked. PySpark 4.3 answers an error of `streamReader` itself with one of its
    own (an UnboundLocalError in its runner), and ours would be lost among the two tracebacks."""
    from pyspark.sql.datasource import DataSourceStreamReader

    class Refused(DataSourceStreamReader):
        @plainly()
        def initialOffset(self) -> dict[str, Any]:
            raise error

        @plainly()
        def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
            raise error

        def partitions(self, start: Any, end: Any) -> Any:
            raise error

        def read(self, partition: Any) -> Any:
            raise error

    return Refused()


def _names(struct: StructType) -> tuple[str, ...]:
    return tuple(struct.fieldNames())


def _reach(sink: options.Write) -> None:
    """Is anybody there? Asked once, here: else each task finds out by itself, and Spark tells of each of its tries."""
    from aerobee.spark.cluster import Cluster

    cluster = Cluster(sink, sink.retries + 1)
    try:
        with suppress(BrokerError):  # whoever refuses is there
            cluster.route(DEFAULT_TOPIC)
    finally:
        cluster.close()


def _sink_options(given: Any, struct: StructType) -> options.Write:
    from aerobee.spark.writing.encode import check_columns

    parsed = options.for_write(given)
    check_columns({field.name: field.dataType.simpleString() for field in struct.fields}, parsed)
    return parsed
