# SPDX-License-Identifier: Apache-2.0
"""Exactly once under random kills: whatever dies while messages are sent, in the end the lake holds each of them once.

The lake runs on a standalone cluster, so that a driver, an executor, a whole worker and the Python processes inside can
die apart. Every round waits until the lake grows again and kills at a random moment thereafter. Three moments of a batch
are too short to be met at random: a driver that kills itself there runs through all of them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
import standalone
from deltalake import DeltaTable
from kills import Driver, Sender
from pyiceberg.catalog.sql import SqlCatalog
from servers import die_with_parent

from aerobee import Message, Producer
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from pathlib import Path


TOPIC = "kills"
RATE = 400  # messages a second
KILLS = {
    "driver": 3,
    "planner": 1,
    "worker": 1,
    "executor": 4,
    "python": 12,
}  # the start of a driver is what takes time
FEWER = {"driver": 2, "executor": 3, "python": 3}  # for tables that share how they are written

DRIVER = """
import sys
from aerobee.spark import session
from aerobee.spark.pipelines.lake import lake

namesrv, master, out, kind = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.task.maxFailures": "8",
            "spark.executor.extraJavaOptions": quick, "spark.driver.extraJavaOptions": quick}
spark = session("kills", master=master, config=settings)
options = {"namesrv": namesrv, "maxOffsetsPerTrigger": "2000", "minPartitions": "2"}
lake(spark, "kills", out, every="0 seconds", format=kind, options=options).awaitTermination()
"""

CRASHING = """
import os, signal, sys
from pyspark import SparkContext
from aerobee.spark import session
from aerobee.spark.pipelines.lake import lake
from aerobee.spark.pipelines.tables import table_of

namesrv, out, kind, moment, fatal = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = session("crashes", master="local[2]", config={"spark.driver.memory": "512m",
                "spark.driver.extraJavaOptions": quick})
table = type(table_of(spark, out, kind))

def die():
    for process in (SparkContext._gateway.proc.pid, os.getpid()):
        os.kill(process, signal.SIGKILL)

def around(name, when):
    real = getattr(table, name)
    def wrapped(self, *given):
        if moment == when and given[-1] == int(fatal):
            if when == "committed":
                real(self, *given)
            die()
        return real(self, *given)
    setattr(table, name, wrapped)

around("_commit", "placed")     # the files are there, the table does not know them
around("_commit", "committed")  # the table has the batch, Spark does not know
around("holds", "between")      # Spark has committed the batch before and planned this one
options = {"namesrv": namesrv, "maxOffsetsPerTrigger": "10"}
lake(spark, "crashes", out, once=True, format=kind, options=options).awaitTermination()
"""


def held(out: Path, kind: str) -> Counter[int]:
    """What any reader of the table sees."""
    if kind == "delta":
        table = DeltaTable(str(out)).to_pyarrow_table(columns=["body"])
    elif kind == "iceberg":
        catalog = SqlCatalog("aerobee", uri=f"sqlite:///{out}/_iceberg.db", warehouse=out.as_uri())
        table = catalog.load_table("lake.messages").scan(selected_fields=("body",)).to_arrow()
    else:
        table = ds.dataset(out, partitioning="hive").to_table(columns=["body"])
    return Counter(int(body) for body in table["body"].to_pylist())


def committed(out: Path) -> list[str]:
    """The files that the commits of a Parquet lake name."""
    commits = [json.loads(path.read_text()) for path in out.glob("_commits/*.json")]
    return sorted(name for commit in commits for name in commit["add"])


PLACES = {"parquet": "_commits/*.json", "delta": "_delta_log/*.json", "iceberg": "metadata/*.json"}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "kind",
    [
        "parquet",
        pytest.param("delta", marks=pytest.mark.long),
        pytest.param("iceberg", marks=pytest.mark.long),
    ],
)
def test_the_lake_holds_every_message_once_whatever_is_killed(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "lake"

    def batches() -> int:
        return len(list(out.glob(PLACES[kind])))

    def has_all() -> bool:
        return batches() > 1 and held(out, kind).total() >= len(sender.acked)

    with TestServer() as server, standalone.Cluster(tmp_path / "cluster") as cluster:
        server.create_topic(TOPIC, queues=4)
        job = Driver(cluster, tmp_path, [DRIVER, server.namesrv, cluster.url, str(out), kind], batches)
        try:
            with Sender(server.namesrv, TOPIC, RATE) as sender:
                rounds = job.kill_at_random(KILLS if kind == "parquet" else FEWER)
            job.until(has_all, "all messages in the lake")
        finally:
            job.end()
    found = held(out, kind)
    wrong = {number: found[number] for number in sender.acked if found[number] != 1}
    assert not wrong, f"{rounds}: {dict(list(wrong.items())[:20])}\n{job.log()}"
    assert set(found) == set(sender.acked)
    if kind == "parquet":
        there = sorted(str(p.relative_to(out)) for p in out.glob("topic=*/*/*.parquet"))
        assert committed(out) == there


def crashed(folder: Path, *told: str) -> subprocess.CompletedProcess[str]:
    """A driver's life. On a busy machine Spark's processes may not find each other in the ten seconds it gives them:
    that driver was none."""
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", CRASHING, *told],
            cwd=folder, preexec_fn=die_with_parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "failed to connect back" not in done.stderr:
            break
    return done


# Batch 1 dies twice, each time further on; batch 3 before it has begun; then nothing dies.
DEATHS = [("placed", 1), ("committed", 1), ("between", 3), ("never", 0)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_driver_that_dies_at_the_seams_of_its_batches(tmp_path: Path, kind: str) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="crashes") as producer:
            for i in range(50):
                await producer.send(Message("crashes", b"%d" % i))

    out, seen = tmp_path / "lake", []
    with TestServer() as server:
        # One queue, so that a batch has ten messages, not ten shared among queues.
        server.create_topic("crashes", queues=1)
        asyncio.run(work())
        for moment, batch in DEATHS:
            done = crashed(tmp_path, server.namesrv, str(out), kind, moment, str(batch))
            assert done.returncode == (0 if moment == "never" else -9), done.stderr[-3000:]
            seen.append(sum(held(out, kind).values()))
    # A dead driver's files are in the directory until its batch comes again, and in no table.
    assert seen[1:] == [20, 30, 50]
    assert seen[0] == (20 if kind == "parquet" else 10)
    assert held(out, kind) == Counter(range(50))
