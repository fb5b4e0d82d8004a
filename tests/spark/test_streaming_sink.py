# SPDX-License-Identifier: Apache-2.0
"""Streams into a topic: durable, named, stopped and started again; at least once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol.routing import place_of_key
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def send(server: TestServer, topic: str, numbers: range) -> None:
    from aerobee import Message, Producer

    async def work() -> None:
        async with Producer(server.namesrv, group="spark-tests", options=PATIENT) as producer:
            messages = [Message(topic, b"%06d" % n, sharding_key=f"user{n % 10}") for n in numbers]
            await asyncio.gather(*map(producer.send, messages))

    asyncio.run(work())


def rows(spark: SparkSession, server: TestServer, topic: str) -> list[Any]:
    reader = spark.read.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    return reader.option("includeProperties", "true").load().collect()


def stream(spark: SparkSession, server: TestServer, topic: str) -> DataFrame:
    reader = spark.readStream.format("rocketmq").option("namesrv", server.namesrv)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def test_a_named_durable_stream_from_topic_to_topic_goes_on_where_it_stopped(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "from", range(500))
    for numbers in (range(500, 800), range(800, 1000)):
        frame = stream(spark, server, "from").selectExpr("body", "tags")
        writer = frame.writeStream.format("rocketmq").option("namesrv", server.namesrv).option("topic", "to")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("copy")
        query = writer.start()
        try:
            assert query.name == "copy"
            query.processAllAvailable()
            send(server, "from", numbers)
            query.processAllAvailable()
        finally:
            query.stop()
    counts = Counter(bytes(row.body) for row in rows(spark, server, "to"))
    assert counts == Counter(b"%06d" % n for n in range(1000)), "each once, as nothing failed"


def test_a_batch_that_was_sent_and_not_committed_comes_twice_and_no_other(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    """As when the driver is killed after the last send and before it could note that the batch is done."""

    def run() -> None:
        writer = stream(spark, server, "cut").select("body").writeStream.format("rocketmq")
        writer = writer.option("namesrv", server.namesrv).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start("doubled").awaitTermination()

    for numbers in (range(300), range(300, 500)):
        send(server, "cut", numbers)
        run()
    (tmp_path / "c" / "commits" / "1").unlink()
    send(server, "cut", range(500, 600))
    run()
    counts = Counter(bytes(row.body) for row in rows(spark, server, "doubled"))
    assert counts == Counter(b"%06d" % n for n in [*range(600), *range(300, 500)])


def test_kafkas_column_key_is_the_sharding_key(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "orders", range(200))
    frame = stream(spark, server, "orders").selectExpr(
        "concat('user', cast(cast(cast(body as string) as int) % 10 as string)) as key", "body as value"
    )
    writer = frame.writeStream.format("rocketmq").option("namesrv", server.namesrv)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start("keyed")
    query.awaitTermination()
    found = rows(spark, server, "keyed")
    assert len(found) == 200
    for row in found:
        key = dict(row.properties)["__SHARDINGKEY"]
        assert key == f"user{int(bytes(row.body)) % 10}"
        assert row.queueId == place_of_key(key, 4), "as every client chooses"


def test_each_batch_may_be_written_as_a_batch(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "batches", range(100))

    def write(batch: DataFrame, number: int) -> None:
        writer = batch.select("body").write.format("rocketmq").option("namesrv", server.namesrv)
        writer.mode("append").save("foreach")

    writing = stream(spark, server, "batches").writeStream.foreachBatch(write)
    query = writing.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(int(bytes(row.body)) for row in rows(spark, server, "foreach")) == list(range(100))


def test_a_topic_may_be_a_table(spark: SparkSession, server: TestServer, tmp_path: Path) -> None:
    send(server, "tabled", range(100))
    spark.sql(
        "CREATE TABLE sink_table (body BINARY, keys STRING) USING rocketmq"
        f" OPTIONS (namesrv '{server.namesrv}', topic 'from-table')"
    )
    # Spark hands a table's own options to no Python source: each write names them.
    told = f"WITH ('namesrv' = '{server.namesrv}', 'topic' = 'from-table')"
    try:
        spark.sql(f"INSERT INTO sink_table {told} SELECT binary(string(id)), 'sql' FROM range(1000, 1010)")
        frame = stream(spark, server, "tabled").selectExpr("body", "'stream' AS keys")
        writer = frame.writeStream.format("rocketmq").option("namesrv", server.namesrv)
        writer = writer.option("topic", "from-table").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).toTable("sink_table").awaitTermination()
    finally:
        spark.sql("DROP TABLE sink_table")
    found = Counter((row.keys, int(bytes(row.body))) for row in rows(spark, server, "from-table"))
    expected = [("sql", n) for n in range(1000, 1010)] + [("stream", n) for n in range(100)]
    assert found == Counter(expected)


def test_a_stream_fills_a_table_of_spark_and_goes_on_where_it_stopped(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE filled (body BINARY) USING parquet LOCATION '{(tmp_path / 'table').as_uri()}'")
    try:
        for numbers in (range(200), range(200, 300)):
            send(server, "into-table", numbers)
            writer = stream(spark, server, "into-table").select("body").writeStream
            writer = writer.option("checkpointLocation", str(tmp_path / "c")).queryName("fill")
            writer.trigger(availableNow=True).toTable("filled").awaitTermination()
        found = spark.read.table("filled").collect()
    finally:
        spark.sql("DROP TABLE filled")
    assert Counter(bytes(row.body) for row in found) == Counter(b"%06d" % n for n in range(300))
