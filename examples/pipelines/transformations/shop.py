# SPDX-License-Identifier: Apache-2.0
"""Orders of a topic to a table, a view over it, and large orders on to another topic."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

spark = SparkSession.active()
NAMESRV = os.environ.get("AEROBEE_NAMESRV", "127.0.0.1:9876")
ORDER = "order LONG, city STRING, amount LONG"


@dp.table(comment="every order once: Spark's checkpoint knows how far the topic was read")
def orders() -> DataFrame:
    topic = spark.readStream.format("rocketmq").option("namesrv", NAMESRV).option("subscribe", "shop-orders")
    messages = topic.option("startingOffsets", "earliest").load()
    parsed = f.from_json(f.col("body").cast("string"), ORDER).alias("o")
    return messages.select("msgId", "storeTimestamp", parsed).select("msgId", "storeTimestamp", "o.*")


@dp.materialized_view(comment="made anew from the table by each run")
def turnover() -> DataFrame:
    return (
        spark.read.table("orders")
        .groupBy("city")
        .agg(f.count("*").alias("orders"), f.sum("amount").alias("sum"))
    )


dp.create_sink("large_orders", "rocketmq", {"namesrv": NAMESRV, "topic": "shop-large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """At least once: a run that dies sends its last batch again; `keys` lets consumers tell."""
    order = f.to_json(f.struct("order", "city", "amount")).alias("body")
    return (
        spark.readStream.table("orders")
        .where("amount >= 40")
        .select(order, f.col("order").cast("string").alias("keys"))
    )
