# SPDX-License-Identifier: Apache-2.0
"""Exactly once under random kills: whatever dies while messages are sent, in the end the lake holds each of them once.

The lake runs on a standalone cluster, so that a driver, an executor, a whole worker and the Python processes inside can
die apart. Every round waits until the lake grows again and kills at a random moment thereafter.
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
import pyarrow.parquet as pq
import standalone
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

DRIVER = """
import sys
from aerobee.spark import session
from aerobee.spark.pipelines.lake import lake

namesrv, master, out = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.task.maxFailures": "8",
            "spark.executor.extraJavaOptions": quick, "spark.driver.extraJavaOptions": quick}
spark = session("kills", master=master, config=settings)
options = {"namesrv": namesrv, "maxOffsetsPerTrigger": "2000", "minPartitions": "2"}
lake(spark, "kills", out, every="0 seconds", options=options).awaitTermination()
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

    def __init__(self, cluster: standalone.Cluster, namesrv: str, folder: Path) -> None:
        self._cluster = cluster
        self._namesrv = namesrv
        self._folder = folder
        self.out = folder / "lake"
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self) -> None:
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, self._namesrv, self._cluster.url, str(self.out)],
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
        return len(list(self.out.glob("_commits/*.json")))

    def has_grown(self, before: int) -> bool:
        return self.batches() > before

    def committed(self) -> list[str]:
        """The files that the lake's commits name."""
        commits = [json.loads(path.read_text()) for path in self.out.glob("_commits/*.json")]
        return sorted(name for commit in commits for name in commit["add"])

    def rows(self) -> int:
        return sum(int(pq.read_metadata(self.out / name).num_rows) for name in self.committed())

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


def held(out: Path) -> Counter[int]:
    """What any reader of the directory sees."""
    table = ds.dataset(out, partitioning="hive").to_table(columns=["body"])
    return Counter(int(body) for body in table["body"].to_pylist())


def test_the_lake_holds_every_message_once_whatever_is_killed(tmp_path: Path) -> None:
    seed = time.time_ns()
    dice = random.Random(seed)
    rounds = [kind for kind, count in KILLS.items() for _ in range(count)]
    dice.shuffle(rounds)
    with TestServer() as server, standalone.Cluster(tmp_path / "cluster") as cluster:
        server.create_topic(TOPIC, queues=4)
        job = Job(cluster, server.namesrv, tmp_path)
        try:
            with Sender(server.namesrv) as sender:
                for kind in rounds:
                    job.until(
                        partial(job.has_grown, job.batches()),
                        f"a batch before the kill of a {kind}: {rounds}",
                    )
                    time.sleep(dice.random())  # any moment of a batch
                    job.kill(kind, dice)
            job.until(lambda: job.rows() >= len(sender.acked), "all messages in the lake")
        finally:
            job.end()
    found = held(job.out)
    wrong = {number: found[number] for number in sender.acked if found[number] != 1}
    assert not wrong, f"seed {seed}, rounds {rounds}: {dict(list(wrong.items())[:20])}\n{job.log()}"
    assert set(found) == set(sender.acked)
    assert job.committed() == sorted(str(p.relative_to(job.out)) for p in job.out.glob("topic=*/*/*.parquet"))
