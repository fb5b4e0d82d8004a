# SPDX-License-Identifier: Apache-2.0
"""Exactly once under random kills: whatever dies while messages are sent, in the end the lake holds each of them once.

The lake runs on a standalone cluster, so that a driver, an executor, a whole worker and the Python processes inside can
die apart. Every round waits until the lake grows again and kills at a random moment thereafter. Three moments of a batch
are too short to be met at random: a driver that kills itself there runs through all of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow.dataset as ds
import pytest
import standalone
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from servers import die_with_parent, wait_until

from aerobee import Message, Producer
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psutil

T = TypeVar("T")
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


class Sender:
    """Sends numbered messages until told to stop; `acked` are those the broker has answered for."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self.acked: list[int] = []

    async def _work(self) -> None:
        async with Producer(self._namesrv, group="kills-sender") as producer:
            number = 0
            while not self._stop.is_set():
                chunk = range(number, number + RATE // 10)
                await asyncio.gather(*(producer.send(Message(TOPIC, b"%d" % i)) for i in chunk))
                self.acked += chunk
                number = chunk.stop
                await asyncio.sleep(0.1)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


class Job:
    """The lake's driver, started again whenever it has died."""

    def __init__(self, cluster: standalone.Cluster, namesrv: str, folder: Path, kind: str) -> None:
        self._kind = kind
        self._cluster = cluster
        self._namesrv = namesrv
        self._folder = folder
        self.out = folder / "lake"
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self) -> None:
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, self._namesrv, self._cluster.url, str(self.out), self._kind],
                stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, preexec_fn=die_with_parent,
                env={**os.environ, "SPARK_LOCAL_IP": standalone.HOST},
            )  # fmt: skip

    def until(self, done: Callable[[], T], what: str) -> T:
        """Wait, starting the driver again where a kill took it along."""

        def check() -> T:
            if self._process is None or self._process.poll() is not None:
                self.end()  # its JVM, if it lives
                self._run()
            return done()

        try:
            return wait_until(check, 300, what, pause=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}\n{self._cluster.logs()}") from None

    def batches(self) -> int:
        places = {"parquet": "_commits/*.json", "delta": "_delta_log/*.json", "iceberg": "metadata/*.json"}
        return len(list(self.out.glob(places[self._kind])))

    def has_grown(self, before: int) -> bool:
        return self.batches() > before

    def rows(self) -> int:
        return sum(held(self.out, self._kind).values()) if self.batches() > 1 else 0

    def kill(self, kind: str, dice: random.Random) -> None:
        if kind == "driver":
            self.end()
        elif kind == "worker":
            self._cluster.restart_worker(dice.randrange(len(self._cluster.workers)))
        else:
            victims = {
                "planner": self._planners,
                "executor": self._cluster.executors,
                "python": self._cluster.python_workers,
            }[kind]
            # What the last kill brought down may still be coming up: a lost planner takes the whole driver along.
            standalone.kill(dice.choice(self.until(victims, f"a process of kind {kind}")))

    def _planners(self) -> list[psutil.Process]:
        """The driver's Python processes that plan its batches."""
        assert self._process is not None
        return [
            p
            for p in standalone.children(self._process.pid)
            if "python_streaming_source_runner" in standalone.line(p)
        ]

    def end(self) -> None:
        """SIGKILL for the driver and all it started."""
        if self._process is not None:
            for process in [*standalone.children(self._process.pid), self._process]:
                standalone.kill(process)
            self._process.wait(30)

    def log(self) -> str:
        path = self._folder / "driver.log"
        return path.read_text("utf-8", "replace")[-3000:] if path.exists() else ""


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


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_the_lake_holds_every_message_once_whatever_is_killed(tmp_path: Path, kind: str) -> None:
    seed = time.time_ns()
    dice = random.Random(seed)
    kills = KILLS if kind == "parquet" else FEWER
    rounds = [victim for victim, count in kills.items() for _ in range(count)]
    dice.shuffle(rounds)
    with TestServer() as server, standalone.Cluster(tmp_path / "cluster") as cluster:
        server.create_topic(TOPIC, queues=4)
        job = Job(cluster, server.namesrv, tmp_path, kind)
        try:
            with Sender(server.namesrv) as sender:
                for victim in rounds:
                    job.until(
                        partial(job.has_grown, job.batches()),
                        f"a batch before the kill of a {victim}: {rounds}",
                    )
                    time.sleep(dice.random())  # any moment of a batch
                    job.kill(victim, dice)
            job.until(lambda: job.rows() >= len(sender.acked), "all messages in the lake")
        finally:
            job.end()
    found = held(job.out, kind)
    wrong = {number: found[number] for number in sender.acked if found[number] != 1}
    assert not wrong, f"seed {seed}, rounds {rounds}: {dict(list(wrong.items())[:20])}\n{job.log()}"
    assert set(found) == set(sender.acked)
    if kind == "parquet":
        there = sorted(str(p.relative_to(job.out)) for p in job.out.glob("topic=*/*/*.parquet"))
        assert committed(job.out) == there


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
