# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ as Spark's source and sink: `format("rocketmq")` against the Java broker, and on its store files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import peers
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from servers import RocketMQ, wait_until

from aerobee import Admin, Message, Producer
from aerobee.errors import RequestCodeNotSupported
from aerobee.spark import options
from aerobee.spark.reading import wire_scan
from aerobee.spark.reading.offsets import offsets_of
from aerobee.spark.reading.plan import Range, flat
from aerobee.spark.reading.queue_source import BrokerQueues
from aerobee.spark.reading.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from servers import Server

    from aerobee.spark.option_values import Offsets

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TOPIC, GROUP, COUNT = "spark-source", "spark-source-group", 2000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The Java broker with a topic filled by our own client: keys, tags, a compressed and an empty-looking body."""
    server = RocketMQ(tmp_path_factory.mktemp("spark-source") / "data", peers.server_class_path())
    server.start()
    try:
        asyncio.run(_fill(server.namesrv))
        yield server
    finally:
        server.discard()


async def _fill(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        for topic in (TOPIC, "spark-sink"):
            await admin.create_topic(topic, queues=4)
    async with Producer(namesrv, group="spark-source-producer") as producer:
        messages = [
            Message(TOPIC, text(i), tags="odd" if i % 2 else "even", keys=[f"k{i}"]) for i in range(COUNT)
        ]
        for at in range(0, COUNT, 250):
            await asyncio.gather(*(producer.send(message) for message in messages[at : at + 250]))


def text(number: int) -> bytes:
    return b"%06d" % number if number else b"%06d" % number + b" compressed" * 1000


def read(spark: SparkSession, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("subscribe", TOPIC)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body)[:6]) for row in frame.select("body").collect())


def test_a_batch_read_is_what_was_sent(spark: SparkSession, broker: Server) -> None:
    frame = read(spark, namesrv=broker.namesrv, minPartitions="3", includeProperties="true")
    assert numbers(frame) == list(range(COUNT))
    row: Any = frame.where("keys = 'k0'").first()
    assert (bytes(row.body), row.tags, row.brokerName) == (text(0), "even", "broker-a")
    assert row.properties["UNIQ_KEY"] == row.msgId
    assert numbers(read(spark, namesrv=broker.namesrv, tags="odd")) == list(range(1, COUNT, 2))
    middle = frame.where("keys = 'k1500'").selectExpr("unix_millis(storeTimestamp)").first()[0]
    late = numbers(read(spark, namesrv=broker.namesrv, startingTimestamp=str(middle)))
    assert set(range(1750, COUNT)) <= set(late)
    assert late == sorted(set(late))


def test_the_java_broker_is_pulled_from_however_much_there_is(
    broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know Aerobee's questions for bulk, and says so."""
    monkeypatch.setattr(wire_scan, "LARGE", 1)
    asked = options.for_batch({"namesrv": broker.namesrv, "subscribe": TOPIC})
    source = BrokerQueues(asked)
    parts = [
        Range(TOPIC, name, int(queue), low, high)
        for name, queues in source.queues(TOPIC).items()
        for queue, (low, high) in queues.items()
    ]
    (refused,) = source.units_of(parts[:1], [1])
    assert isinstance(refused, RequestCodeNotSupported)
    assert wire_scan.cut(source, parts, 2, asked) is None


def test_many_topics_of_the_java_broker_are_looked_at_together(broker: Server) -> None:
    """Asked topic by topic, pipelined; no Spark is started."""
    given = {"namesrv": broker.namesrv, "subscribePattern": "wide-.*", "startingOffsets": "earliest"}
    stream = StreamReader(
        options.for_stream({**given, "discoveryIntervalMs": "0", "failOnDataLoss": "false"})
    )

    async def change() -> None:
        async with Admin(broker.namesrv) as admin, Producer(broker.namesrv, group="wide") as producer:
            for n in range(40):
                await admin.create_topic(f"wide-{n:02d}", queues=2)
            for _ in range(3):
                await producer.send(Message("wide-07", b"x"))

    def places() -> Offsets:
        return offsets_of(stream.latestOffset(start, ReadAllAvailable()))

    start = stream.initialOffset()
    asyncio.run(change())
    wait_until(lambda: len(places()) == 40, 60, "all topics are seen")
    wait_until(lambda: sum(places()["wide-07"]["broker-a"].values()) == 3, 60, "and what was sent")
    assert sum(offset for *_, offset in flat(places())) == 3
    end = stream.latestOffset(start, ReadAllAvailable())
    parts = [part for one in stream.partitions(start, end) for part in one.task.parts]  # type: ignore[attr-defined]
    assert sum(map(len, parts)) == 3
    assert {part.topic for part in parts} == {"wide-07"}


def test_a_stream_reads_once_and_tells_the_group_how_far_it_is(
    spark: SparkSession, broker: Server, tmp_path: Path
) -> None:
    reader = spark.readStream.format("rocketmq").option("namesrv", broker.namesrv).option("subscribe", TOPIC)
    reader = reader.option("group", GROUP).option("startingOffsets", "earliest")
    stream = reader.option("maxOffsetsPerTrigger", "800").load()
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        # Progress is told when the next batch is looked for, which an idle stream does all the time.
        wait_until(lambda: asyncio.run(_lag(broker.namesrv)) == 0, 60, "the group's lag is gone")
    finally:
        query.stop()
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == list(range(COUNT))


async def _lag(namesrv: str) -> int:
    async with Admin(namesrv) as admin:
        lag = await admin.lag(GROUP)
        return int(lag.ready)


def test_rows_become_messages_of_the_java_broker(spark: SparkSession, broker: Server) -> None:
    rows = spark.range(1500).selectExpr(
        "format_string('%06d', id) AS body", "'t' AS tags", "concat('s', id % 5) AS keys"
    )
    rows.write.format("rocketmq").option("namesrv", broker.namesrv).option("topic", "spark-sink").mode(
        "append"
    ).save()
    back = read(spark, namesrv=broker.namesrv, subscribe="spark-sink")
    assert numbers(back) == list(range(1500))
    assert back.where("tags = 't' AND keys = 's3'").count() == 300


def test_the_lake_is_filled_from_the_java_broker(spark: SparkSession, broker: Server, tmp_path: Path) -> None:
    from aerobee.spark.pipelines.lake import lake
    from aerobee.spark.pipelines.parquet_table import Table

    options = {"namesrv": broker.namesrv}
    for _ in range(2):  # the second time there is nothing new
        lake(spark, TOPIC, str(tmp_path / "lake"), once=True, options=options).awaitTermination()
    assert numbers(Table(spark, str(tmp_path / "lake")).read()) == list(range(COUNT))


def test_the_java_brokers_store_is_read_live_and_stopped(spark: SparkSession, broker: Server) -> None:
    """Last in the file: it stops the broker."""
    store = str(broker.data / "store")
    assert numbers(read(spark, storePath=store)) == list(range(COUNT))
    broker.stop()
    frame = read(spark, storePath=store)
    assert numbers(frame) == list(range(COUNT))
    row: Any = frame.where("keys = 'k0'").first()
    assert bytes(row.body) == text(0)
