# SPDX-License-Identifier: Apache-2.0
"""Leases of POP that are open, as the broker's revive log tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol import names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aerobee.spark.pipelines.evidence import Evidence


def open_leases(evidence: Evidence, group: str, cluster: str | None) -> DataFrame:
    """Open leases of the group in the revive log: checkpoints minus their acked bits and their acks."""
    from pyspark.sql import functions as f

    there = evidence.topics()
    every = names.revive_topic("")
    logs = [name for name in there if (name == every + cluster if cluster else name.startswith(every))]
    if not logs:
        return evidence.spark.createDataFrame(
            [], "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, leased BOOLEAN"
        )
    log = evidence.messages(logs, "brokerName,tags,body").withColumn("body", f.col("body").cast("string"))
    shape = "so BIGINT, pt BIGINT, it BIGINT, bm INT, n INT, q INT, t STRING, c STRING, d ARRAY<INT>"
    held = log.where("tags = 'ck'").select("brokerName", f.from_json("body", shape).alias("k"))
    held = held.where(f.col("k.c") == group)
    spread = f.when(f.size("k.d") > 0, f.col("k.d")).otherwise(
        f.when(f.col("k.n") > 0, f.sequence(f.lit(0), f.col("k.n") - 1)).otherwise(
            f.array().cast("array<int>")
        )
    )
    each = held.select("brokerName", "k", f.posexplode(spread).alias("bit", "step"))
    unacked = each.where(f.expr("(shiftright(k.bm, bit) & 1) = 0"))
    leases = unacked.select(
        "brokerName",
        f.col("k.t").alias("topic"),
        f.col("k.q").alias("queueId"),
        (f.col("k.so") + f.col("step")).alias("queueOffset"),
        f.col("k.pt").alias("pt"),
    )
    ack = "ao BIGINT, aol ARRAY<BIGINT>, q INT, t STRING, c STRING, pt BIGINT"
    acks = log.where("tags IN ('ack', 'bAck')").select(
        "brokerName", "tags", f.from_json("body", ack).alias("a")
    )
    acked = acks.where(f.col("a.c") == group).select(
        "brokerName",
        f.col("a.t").alias("topic"),
        f.col("a.q").alias("queueId"),
        f.explode(f.when(f.col("tags") == "bAck", f.col("a.aol")).otherwise(f.array("a.ao"))).alias(
            "queueOffset"
        ),
        f.col("a.pt").alias("pt"),
    )
    open_ = leases.join(acked, ["brokerName", "topic", "queueId", "queueOffset", "pt"], "left_anti")
    return open_.drop("pt").distinct().withColumn("leased", f.lit(True))
