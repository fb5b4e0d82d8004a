# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's trace messages as rows: who sent what, who was given what, and how it ended.

    Pub        time region group topic msgId tags keys storeHost size cost type offsetMsgId success clientHost
    SubBefore  time region group requestId msgId retryTimes keys
    SubAfter   requestId msgId cost success keys contextCode time group

Fields are separated by 0x01, records by 0x02; older clients leave out trailing fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
COLUMNS = "kind STRING, at BIGINT, group STRING, topic STRING, msgId STRING, request STRING, client STRING, ok BOOLEAN"


def parse(messages: DataFrame) -> DataFrame:
    """Messages of the trace topic (bornHost, body) to rows of COLUMNS."""
    from pyspark.sql import functions as f

    told = f.explode(f.split(f.col("body").cast("string"), "\x02")).alias("text")
    records = messages.select("bornHost", told).where("text <> ''")
    fields = records.select("bornHost", f.split("text", "\x01").alias("p"))
    part = [f.get("p", f.lit(i)) for i in range(15)]
    kind = part[0]

    def pick(pub: int | None, before: int | None, after: int | None) -> Column:
        def column(i: int | None) -> Column:
            return f.lit(None) if i is None else part[i]

        return (
            f.when(kind == "Pub", column(pub))
            .when(kind == "SubBefore", column(before))
            .when(kind == "SubAfter", column(after))
        )

    rows = fields.select(
        kind.alias("kind"),
        pick(1, 1, 7).cast("bigint").alias("at"),
        pick(3, 3, 8).alias("group"),
        pick(4, None, None).alias("topic"),
        pick(5, 5, 2).alias("msgId"),
        pick(None, 4, 1).alias("request"),
        # Records of a delivery do not say by whom; the host their trace message came from does.
        f.coalesce(pick(14, None, None), f.col("bornHost")).alias("client"),
        (pick(13, None, 4) == "true").alias("ok"),
    )
    return rows.where(f.col("kind").isin("Pub", "SubBefore", "SubAfter"))
