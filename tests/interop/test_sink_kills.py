# SPDX-License-Identifier: Apache-2.0
"""At least once under random kills: whatever dies while a stream copies a topic, in the end each message was copied.

Driver, executor JVMs, Python workers and the broker itself die at random moments; what they had sent and not yet told of
is sent again. The test says how many doubles that made, and that each kill costs no more than its batch.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
import standalone
from kills import Driver, Sender
from servers import Aerobee

from aerobee.errors import AerobeeError
from aerobee.spark.options import for_batch
from aerobee.spark.reading.batch_reader import BatchReader

if TYPE_CHECKING:
    import random
    from pathlib import Path

# Spark ends the process of a reader: nobody closes it.
pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.timeout(1800)]

RATE = 200  # messages a second
BATCH = 1000
KILLS = {"driver": 2, "executor": 3, "python": 3, "broker": 2}

DRIVER = """
import sys
from aerobee.spark import read_stream, session

namesrv, master, checkpoint, batch = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.task.maxFailures": "8",
            "spark.executor.extraJavaOptions": quick, "spark.driver.extraJavaOptions": quick}
spark = session("sink", master=master, config=settings)
# A broker that is started again answers after a while; both ends wait for it.
patient = {"namesrv": namesrv, "numRetries": "120", "retryIntervalMs": "500"}
stream = read_stream(spark, "from", startingOffsets="earliest", maxOffsetsPerTrigger=batch, minPartitions=2, **patient)
writer = stream.select("body").writeStream.format("rocketmq").options(**patient).option("topic", "to")
writer.option("checkpointLocation", checkpoint).queryName("copy").start().awaitTermination()
"""


def held(namesrv: str, topic: str) -> Counter[int]:
    """What the topic holds, read without Spark."""
    reader = BatchReader(for_batch({"namesrv": namesrv, "subscribe": topic, "columns": "body"}), ("body",))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return Counter(int(body) for batch in batches for body in batch.column("body").to_pylist())


def is_copied(namesrv: str) -> bool:
    try:
        return not held(namesrv, "from") - held(namesrv, "to")
    except AerobeeError:  # nothing was written yet
        return False


def test_every_message_is_copied_whatever_is_killed(tmp_path: Path) -> None:
    def batches() -> int:
        return len(list(tmp_path.glob("checkpoint/commits/[0-9]*")))

    def broker_dies(_: random.Random) -> None:
        server.kill()
        server.start()

    with Aerobee(tmp_path / "data") as server, standalone.Cluster(tmp_path / "cluster") as cluster:
        command = [DRIVER, server.namesrv, cluster.url, str(tmp_path / "checkpoint"), str(BATCH)]
        copy = Driver(cluster, tmp_path, command, batches)
        copy.killers["broker"] = broker_dies
        try:
            with Sender(server.namesrv, "from", RATE) as sender:
                rounds = copy.kill_at_random(KILLS)
            copy.until(partial(is_copied, server.namesrv), "all messages in the copy")
        finally:
            copy.end()
        sent, copied = held(server.namesrv, "from"), held(server.namesrv, "to")
    assert set(sent) == set(sender.acked) == set(copied), rounds
    doubles, kills = copied.total() - sent.total(), sum(KILLS.values())
    print(  # noqa: T201 - the measure of at least once
        f"{sent.total():,} messages, {kills} kills, {copy.starts} drivers, {doubles:,} doubles"
    )
    assert doubles <= kills * BATCH, f"more than a batch for each kill: {rounds}"
