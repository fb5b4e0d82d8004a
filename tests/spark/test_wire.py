# SPDX-License-Identifier: Apache-2.0
"""Batch and stream over the wire, and the sink, by real Spark on an embedded server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import SystemClock
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.spark.options import for_batch
from aerobee.spark.pipelines.lake import lake
from aerobee.spark.reading.batch_reader import BatchReader, Part
from aerobee.store.message_store import MessageStore
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


def send(server: TestServer, topic: str, bodies: list[bytes], **fields: Any) -> None:
    from aerobee import Message, Producer

    async def work() -> None:
        async with Producer(server.namesrv, group="spark-tests", options=PATIENT) as producer:
            for at in range(0, len(bodies), 500):
                chunk = bodies[at : at + 500]
                await asyncio.gather(*(producer.send(Message(topic, body, **fields)) for body in chunk))

    asyncio.run(work())


def read(spark: SparkSession, server: TestServer, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def numbered(n: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % i for i in range(start, start + n)]


def text(n: int, start: int = 0) -> list[str]:
    return [body.decode() for body in numbered(n, start)]


def test_every_message_comes_over_the_wire_once(spark: SparkSession, server: TestServer) -> None:
    send(server, "wire-all", numbered(3000))
    frame = read(spark, server, "wire-all", minPartitions="5")
    assert frame.rdd.getNumPartitions() >= 5
    assert bodies(frame) == text(3000)
    assert {row.brokerName for row in frame.select("brokerName").distinct().collect()} == {"broker-a"}


def test_an_empty_body_passes_over_the_wire_and_by_scan(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    # No client can send one, brokers refuse it; but a store may hold it.
    server.create_topic("wire-empty", queues=1)
    send(server, "wire-empty", [b"before"])

    async def store_it() -> None:
        server.server.broker.store.append(Record("wire-empty", b"", "TAGS\x01t\x02", 0))

    server.run(store_it())
    assert bodies(read(spark, server, "wire-empty")) == ["", "before"]
    store = MessageStore.open(tmp_path / "store", StoreConfig(), SystemClock())
    store.append(Record("scan-empty", b"", "", 0))
    store.close()
    scanned = (
        spark.read.format("rocketmq").option("storePath", str(tmp_path)).option("subscribe", "scan-empty")
    )
    assert bodies(scanned.load()) == [""]


@pytest.mark.parametrize(
    ("field", "at", "left_out"), [("body", 90, False), ("size", 0, True), ("magic", 4, True)]
)
def test_a_damaged_record_is_told_by_its_crc_or_left_out_and_hides_no_other(
    spark: SparkSession, server: TestServer, tmp_path: Path, field: str, at: int, *, left_out: bool
) -> None:
    topic = f"wire-damaged-{field}"
    server.create_topic(topic, queues=1)
    send(server, topic, numbered(20))
    store = server.server.broker.store
    unit = store.unit(topic, 0, 7)
    assert unit is not None
    (lost,) = (
        bytes(row.body).decode() for row in read(spark, server, topic).where("queueOffset = 7").collect()
    )

    async def damage() -> None:
        segment = store._log.segment_at(unit.physical_offset)
        assert segment is not None
        start = unit.physical_offset - segment.base + at
        segment.map[start : start + 1] = b"\x7f"

    server.run(damage())
    rows = read(spark, server, topic, columns="queueOffset,bodyCrcOk").collect()
    assert sorted(row.queueOffset for row in rows if row.bodyCrcOk) == [i for i in range(20) if i != 7]
    assert [row.queueOffset for row in rows if not row.bodyCrcOk] == ([] if left_out else [7])
    checked = read(spark, server, topic, columns="queueOffset", checkBodies="true")
    assert sorted(row.queueOffset for row in checked.collect()) == [i for i in range(20) if i != 7]
    lake(spark, topic, str(tmp_path), once=True, options={"namesrv": server.namesrv}).awaitTermination()
    assert bodies(spark.read.parquet(str(tmp_path))) == [body for body in text(20) if body != lost]


def test_an_unknown_topic_is_a_clear_error(spark: SparkSession, server: TestServer) -> None:
    with pytest.raises(Exception, match="nothing-here"):
        read(spark, server, "nothing-here").count()


def test_no_server_is_a_clear_error(spark: SparkSession) -> None:
    reader = spark.read.format("rocketmq").option("namesrv", "127.0.0.1:1").option("subscribe", "t")
    with pytest.raises(Exception, match="no name server answers"):
        reader.option("numRetries", "0").load().count()


def test_large_and_small_bodies_come_through(spark: SparkSession, server: TestServer) -> None:
    large = bytes(range(256)) * 4096 * 4  # 4 MiB
    send(server, "wire-large", [large, b"x"])
    frame = read(spark, server, "wire-large")
    assert sorted(len(bytes(row.body)) for row in frame.select("body").collect()) == [1, len(large)]


def test_rows_become_messages_and_messages_rows(spark: SparkSession, server: TestServer) -> None:
    from pyspark.sql import functions as f

    server.create_topic("sink-all", queues=4)
    frame = spark.range(5000).select(
        f.format_string("%06d", "id").alias("body"),
        f.when(f.col("id") % 2 == 0, "even").otherwise("odd").alias("tags"),
        f.array(f.concat(f.lit("k"), "id"), f.lit("all")).alias("keys"),
        f.create_map(f.lit("half"), (f.col("id") / 2).cast("int").cast("string")).alias("properties"),
    )
    frame.write.format("rocketmq").option("namesrv", server.namesrv).option("topic", "sink-all").mode(
        "append"
    ).save()
    back = read(spark, server, "sink-all", includeProperties="true")
    assert bodies(back) == text(5000)
    row = back.where("keys = 'k42 all'").first()
    assert row is not None
    assert (row.tags, row.properties["half"]) == ("even", "21")
    assert bodies(read(spark, server, "sink-all", tags="odd")) == text(5000)[1::2]


def test_a_large_topic_is_read_as_a_scan_of_the_brokers_log(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    count = 130_000
    server.create_topic("wire-scan", queues=4)
    frame = spark.range(count).select(f.format_string("%06d", "id").alias("body"))
    writer = frame.write.format("rocketmq").option("namesrv", server.namesrv).option("topic", "wire-scan")
    writer.mode("append").save()
    planned = BatchReader(for_batch({"namesrv": server.namesrv, "subscribe": "wire-scan"}), ("body",))
    assert {part.task.in_log_order for part in planned.partitions() if isinstance(part, Part)} == {True}
    numbers = read(spark, server, "wire-scan").select(f.col("body").cast("string").cast("long").alias("n"))
    assert numbers.agg(f.count("n"), f.count_distinct("n"), f.sum("n")).first() == (
        count,
        count,
        count * (count - 1) // 2,
    )
    lake(spark, "wire-scan", str(tmp_path), once=True, options={"namesrv": server.namesrv}).awaitTermination()
    assert spark.read.parquet(str(tmp_path)).select("body").distinct().count() == count


def test_a_sharding_key_keeps_its_rows_in_one_queue_in_order(spark: SparkSession, server: TestServer) -> None:
    from pyspark.sql import functions as f

    server.create_topic("sink-sharded", queues=4)
    frame = spark.range(0, 1000, 1, 1).select(
        f.format_string("%06d", "id").alias("body"),
        f.concat(f.lit("user"), f.col("id") % 7).alias("shardingKey"),
    )
    writer = frame.write.format("rocketmq").option("namesrv", server.namesrv).option("maxBatchBytes", "2000")
    writer.option("topic", "sink-sharded").mode("append").save()
    rows = read(spark, server, "sink-sharded", includeProperties="true").collect()
    by_user: dict[str, list[Any]] = {}
    for row in rows:
        by_user.setdefault(row.properties["__SHARDINGKEY"], []).append(row)
    assert len(by_user) == 7
    for held in by_user.values():
        assert len({row.queueId for row in held}) == 1
        in_order = sorted(held, key=lambda row: row.queueOffset)
        assert [bytes(row.body) for row in in_order] == sorted(bytes(row.body) for row in in_order)


def test_topics_by_column_and_delays_by_row(spark: SparkSession, server: TestServer) -> None:
    for topic in ("sink-a", "sink-b"):
        server.create_topic(topic)
    frame = spark.createDataFrame(
        [("sink-a", "now", None), ("sink-b", "now", None), ("sink-a", "later", 18)],
        "topic STRING, body STRING, delayLevel INT",
    )
    frame.write.format("rocketmq").option("namesrv", server.namesrv).mode("append").save()
    assert bodies(read(spark, server, "sink-a")) == ["now"]
    assert bodies(read(spark, server, "sink-b")) == ["now"]
    later = read(spark, server, "SCHEDULE_TOPIC_XXXX", includeProperties="true").collect()
    assert [row.properties["REAL_TOPIC"] for row in later if bytes(row.body) == b"later"] == ["sink-a"]


def test_overwriting_a_topic_is_refused(spark: SparkSession, server: TestServer) -> None:
    frame = spark.createDataFrame([("x",)], "body STRING")
    with pytest.raises(Exception, match="cannot be overwritten"):
        frame.write.format("rocketmq").option("namesrv", server.namesrv).option("topic", "t").mode(
            "overwrite"
        ).save()


def stream(spark: SparkSession, server: TestServer, topic: str, tmp: Path, **options: str) -> Any:
    reader = spark.readStream.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    for name, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(name, value)
    writer = reader.load().writeStream.format("parquet").option("path", str(tmp / "out"))
    return writer.option("checkpointLocation", str(tmp / "checkpoint"))


def taken(spark: SparkSession, tmp: Path) -> list[str]:
    return bodies(spark.read.parquet(str(tmp / "out")))


def test_available_now_reads_what_is_there_and_goes_on_where_it_stopped(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "stream-now", numbered(1000))
    for expected in (1000, 1500):
        query = stream(spark, server, "stream-now", tmp_path, maxOffsetsPerTrigger="400")
        query = query.trigger(availableNow=True).start()
        query.awaitTermination()
        assert taken(spark, tmp_path) == text(expected)
        rows = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
        assert max(rows) <= 404
        if expected == 1000:
            send(server, "stream-now", numbered(500, 1000))


def test_a_stream_mirrors_its_progress_to_the_group(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "stream-group", numbered(300))
    query = stream(spark, server, "stream-group", tmp_path, group="g-spark", maxOffsetsPerTrigger="100")
    query.trigger(availableNow=True).start().awaitTermination()
    offsets = server.server.broker.offsets.table("g-spark", "stream-group")
    assert sum(offsets.values()) >= 200  # the last batch is mirrored when the next is planned
    assert taken(spark, tmp_path) == text(300)


def test_new_queues_and_topics_join_a_running_stream(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "join-a", numbered(50))
    reader = spark.readStream.format("rocketmq").option("namesrv", server.namesrv)
    reader = reader.option("subscribePattern", "join-.*").option("startingOffsets", "earliest")
    frame = reader.option("discoveryIntervalMs", "0").load()
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        send(server, "join-b", numbered(50, 50))
        query.processAllAvailable()
    finally:
        query.stop()
    assert taken(spark, tmp_path) == text(100)


def test_a_stream_reads_a_store_directory_too(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "stream-store", numbered(200))
    server.flush()
    reader = spark.readStream.format("rocketmq").option("storePath", str(server.server.data))
    frame = reader.option("subscribe", "stream-store").option("startingOffsets", "earliest").load()
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert taken(spark, tmp_path) == text(200)


def test_the_offsets_in_the_checkpoint_are_sorted_json(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "stream-offsets", numbered(20))
    stream(spark, server, "stream-offsets", tmp_path).trigger(availableNow=True).start().awaitTermination()
    lines = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    offset = json.loads(lines[-1])
    assert offset["v"] == 1
    queues = list(offset["o"]["stream-offsets"]["broker-a"])
    assert queues == sorted(queues, key=int)
    assert "from" in offset
