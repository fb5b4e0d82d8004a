# SPDX-License-Identifier: Apache-2.0
"""A topic of one cluster copied to another by a durable stream, stopped and started again. Needs `aerobee[spark]`.

python examples/stream_between_clusters.py
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import aerobee.blocking as aerobee
from aerobee.spark import figures_of, read, read_stream, session
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send_orders(namesrv: str, numbers: range) -> None:
    with aerobee.Producer(namesrv, group="shop") as producer:
        for n in numbers:
            producer.send(
                aerobee.Message("orders", b"order %d" % n, sharding_key=f"user-{n % 7}", keys=[f"o-{n}"])
            )


def copy(spark: SparkSession, here: str, there: str, checkpoint: str) -> str:
    """Everything that is there now; without `trigger` it would go on for ever.

    The checkpoint is what makes it durable: started again, also after a kill, it goes on with the batch that was under
    way. That batch may be sent twice (at least once), so whoever consumes the copy tells doubles by `keys`.
    """
    orders = read_stream(spark, "orders", namesrv=here, startingOffsets="earliest", includeProperties=True)
    # `key` is the sharding key: orders of a user stay in one queue, in their order, as every RocketMQ client sees to it.
    rows = orders.selectExpr("body", "keys", "tags", "properties['__SHARDINGKEY'] AS key")
    writer = rows.writeStream.format("rocketmq").option("namesrv", there).option("topic", "orders-copy")
    writer = writer.option("checkpointLocation", checkpoint).queryName("copy-orders")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return f"query {query.name!r} is {figures_of(query.lastProgress).behind} behind"


def main() -> None:
    with ExitStack() as stack:
        here = stack.enter_context(TestServer()).namesrv
        there = stack.enter_context(TestServer()).namesrv
        checkpoint = stack.enter_context(tempfile.TemporaryDirectory())
        spark = session("copy", master="local[2]")
        stack.callback(spark.stop)

        send_orders(here, range(600))
        said = copy(spark, here, there, checkpoint)
        copied = read(spark, "orders-copy", namesrv=there, text=True, includeProperties=True)
        print(f"first run: {copied.count()} orders over there, {said}")

        send_orders(here, range(600, 1000))
        copy(spark, here, there, checkpoint)
        rows = read(spark, "orders-copy", namesrv=there, text=True, includeProperties=True).collect()
        once = Counter(row.text for row in rows) == Counter(f"order {n}" for n in range(1000))
        print(f"second run: {len(rows)} orders over there, each once: {once}")
        places = {(row.properties["__SHARDINGKEY"], row.queueId) for row in rows}
        print(f"an order is where its user's orders are: {len(places) == 7}")


if __name__ == "__main__":
    main()
