# SPDX-License-Identifier: Apache-2.0
"""Batch reads of a store directory by real Spark, with no broker anywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

START = 1_700_000_000_000
COUNT = 1000


@pytest.fixture
def store(tmp_path: Path, write_store: Callable[[Path, list[Record]], None]) -> str:
    records = [
        Record(
            "orders" if i % 10 else "other",
            f'{{"n": {i}}}'.encode(),
            f"TAGS\x01{'AB'[i % 2]}\x02KEYS\x01k{i}\x02UNIQ_KEY\x01U{i:031d}\x02amount\x01{i}\x02",
            queue_id=i % 4,
            born_timestamp=START + i * 1000,
            store_timestamp=START + i * 1000,
        )
        for i in range(COUNT)
    ]
    write_store(tmp_path / "store", records)
    return str(tmp_path / "store")


def read(spark: SparkSession, store: str, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("storePath", store)
    options.setdefault("subscribe", "orders")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body)[6:-1]) for row in frame.select("body").collect())


def test_every_message_of_a_topic_is_read_once(spark: SparkSession, store: str) -> None:
    frame = read(spark, store)
    assert numbers(frame) == [i for i in range(COUNT) if i % 10]
    row = frame.where("keys = 'k17'").first()
    assert row is not None
    assert (row.topic, row.queueId, row.tags, row.msgId) == ("orders", 1, "B", f"U{17:031d}")
    assert row.bornTimestamp.timestamp() * 1000 == START + 17_000


@pytest.mark.parametrize("partitions", ["1", "5", "16"])
def test_min_partitions_splits_without_loss(spark: SparkSession, store: str, partitions: str) -> None:
    frame = read(spark, store, minPartitions=partitions)
    assert frame.rdd.getNumPartitions() >= int(partitions)
    assert numbers(frame) == [i for i in range(COUNT) if i % 10]


def test_a_pattern_selects_topics(spark: SparkSession, store: str) -> None:
    frame = spark.read.format("rocketmq").option("storePath", store).option("subscribePattern", "o.*").load()
    assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {
        "orders": 900,
        "other": 100,
    }


def test_assigned_queues_only(spark: SparkSession, store: str) -> None:
    frame = (
        spark.read.format("rocketmq")
        .option("storePath", store)
        .option("assign", '{"orders":{"store":[1,3]}}')
        .load()
    )
    assert {row.queueId for row in frame.select("queueId").distinct().collect()} == {1, 3}


def test_offsets_and_times_bound_a_read(spark: SparkSession, store: str) -> None:
    frame = read(
        spark,
        store,
        startingOffsets='{"orders":{"store":{"0":5,"1":-1,"2":-1,"3":-1}}}',
        endingOffsets='{"orders":{"store":{"0":8}}}',
    )
    assert sorted(r.queueOffset for r in frame.select("queueOffset").collect()) == [5, 6, 7]
    late = read(spark, store, startingTimestamp=str(START + 990_000))
    assert numbers(late) == [i for i in range(990, COUNT) if i % 10]


def test_a_user_schema_decodes_only_its_columns(spark: SparkSession, store: str) -> None:
    reader = spark.read.schema("queueOffset long, storeTimestamp timestamp").format("rocketmq")
    frame = reader.option("storePath", store).option("subscribe", "orders").load()
    assert frame.columns == ["queueOffset", "storeTimestamp"]
    assert frame.count() == 900


def test_properties_come_as_a_map(spark: SparkSession, store: str) -> None:
    frame = read(spark, store, includeProperties="true").where("properties['amount'] = '42'")
    assert numbers(frame) == [42]


@pytest.fixture
def push_down(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("push_down", ["true", "false"], indirect=True)
@pytest.mark.usefixtures("push_down")
def test_a_frame_used_again_with_other_filters_gives_their_rows(spark: SparkSession, store: str) -> None:
    frame = read(spark, store, subscribe="orders,other")
    total = frame.count()
    odd, even = frame.where("tags = 'B'"), frame.where("tags = 'A'")
    parts = odd.count(), even.count()
    assert all(parts)
    assert odd.union(even).count() == sum(parts)
    by_topic = frame.where("topic = 'orders'").union(frame.where("topic = 'other'"))
    assert by_topic.count() == frame.count() == total
    assert frame.where("queueOffset < 7").union(frame.where("queueOffset >= 7")).count() == total
    frame.createOrReplaceTempView("twice")
    counts = [spark.sql(f"SELECT count(*) FROM twice WHERE queueId = {q}").first()[0] for q in range(4)]
    assert sum(counts) == total == spark.sql("SELECT count(*) FROM twice").first()[0]
    spark.catalog.dropTempView("twice")


@pytest.mark.parametrize("push_down", ["true", "false"], indirect=True)
@pytest.mark.usefixtures("push_down")
@pytest.mark.parametrize("asked", ["true", "false"])
def test_filters_give_the_same_rows_with_pushdown_on_and_off(
    spark: SparkSession, store: str, asked: str
) -> None:
    since = datetime.fromtimestamp((START + 500_000) / 1000, UTC).isoformat()
    frame = read(spark, store, pushFilters=asked).where(
        f"queueId IN (1, 3) AND queueOffset >= 10 AND tags = 'B' AND storeTimestamp >= timestamp'{since}'"
    )
    assert numbers(frame) == [i for i in range(500, COUNT) if i % 10 and i % 4 in (1, 3) and i % 2]


def test_tags_and_sql_filter(spark: SparkSession, store: str) -> None:
    assert numbers(read(spark, store, tags="A||C")) == [i for i in range(COUNT) if i % 10 and i % 2 == 0]
    assert numbers(read(spark, store, sqlFilter="amount BETWEEN 10 AND 15")) == [11, 12, 13, 14, 15]


def test_deleted_log_files_are_data_loss_unless_allowed(spark: SparkSession, store: str) -> None:
    from pathlib import Path

    first = sorted((Path(store) / "commitlog").iterdir())[0]
    lost = read(spark, store).count()
    first.unlink()
    with pytest.raises(Exception, match="lie before the oldest commit-log file"):
        read(spark, store).count()
    left = read(spark, store, failOnDataLoss="false").count()
    assert 0 < left < lost


def test_an_unknown_topic_is_named_with_what_is_there(spark: SparkSession, store: str) -> None:
    with pytest.raises(Exception, match=r"holds no topic 'nothing'; it holds: orders, other"):
        read(spark, store, subscribe="nothing").count()


def test_json_bodies_become_columns(spark: SparkSession, store: str) -> None:
    from aerobee.spark import read as read_topic

    frame = read_topic(spark, "orders", storePath=store, json=True)
    assert frame.selectExpr("sum(data.n)").first()[0] == sum(i for i in range(COUNT) if i % 10)


def test_sql_tables_work(spark: SparkSession, store: str) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW v USING rocketmq OPTIONS (storePath '{store}', subscribe 'orders')")
    assert spark.sql("SELECT count(*) FROM v WHERE queueId = 2").first()[0] == numbers_in_queue(2)
    spark.catalog.dropTempView("v")


def numbers_in_queue(queue: int) -> int:
    return sum(1 for i in range(COUNT) if i % 10 and i % 4 == queue)
