# SPDX-License-Identifier: Apache-2.0
"""At least once under random kills: whatever dies while a stream copies a topic, in the end each message was copied.

Driver, executor JVMs, Python workers and the broker itself die at random moments; what they had sent and not yet told of
is sent again. The test says how many doubles that made, and that each kill costs no more than its batch.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
import standalone
from servers import Aerobee, die_with_parent, wait_until

from aerobee import Message, Producer
from aerobee.errors import AerobeeError
from aerobee.spark.options import for_batch
from aerobee.spark.reading.batch_reader import BatchReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Spark ends the process of a reader: nobody closes it.
pytestmark = [pytest.mark.filterwarnings("ignore::ResourceWarning"), pytest.mark.timeout(1800)]

T = TypeVar("T")
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


class Sender:
    """Sends numbered messages until told to stop, each until the broker has answered for it."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self.acked = 0

    async def _work(self) -> None:
        async with Producer(self._namesrv, group="sink-sender") as producer:
            while not self._stop.is_set():
                numbers = range(self.acked, self.acked + RATE // 10)
                await asyncio.gather(*(self._send(producer, number) for number in numbers))
                self.acked = numbers.stop
                await asyncio.sleep(0.1)

    async def _send(self, producer: Producer, number: int) -> None:
        while True:
            try:
                await producer.send(Message("from", b"%d" % number))
                return
            except AerobeeError:
                await asyncio.sleep(0.3)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)


class Copy:
    """The stream's driver, started again whenever it has died."""

    def __init__(self, server: Aerobee, cluster: standalone.Cluster, folder: Path) -> None:
        self._server = server
        self._cluster = cluster
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def _run(self) -> None:
        self.starts += 1
        arguments = [self._server.namesrv, self._cluster.url, str(self._folder / "checkpoint"), str(BATCH)]
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, *arguments],
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
            return wait_until(check, 300, what, pause=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}\n{self._cluster.logs()}") from None

    def batches(self) -> int:
        return len(list(self._folder.glob("checkpoint/commits/[0-9]*")))

    def has_grown(self, before: int) -> bool:
        return self.batches() > before

    def kill(self, kind: str, dice: random.Random) -> None:
        if kind == "driver":
            self.end()
        elif kind == "broker":
            self._server.kill()
            self._server.start()
        else:
            victims = {"executor": self._cluster.executors, "python": self._cluster.python_workers}[kind]
            standalone.kill(dice.choice(self.until(victims, f"a process of kind {kind}")))

    def end(self) -> None:
        """SIGKILL for the driver and all it started."""
        if self._process is not None:
            for process in [*standalone.children(self._process.pid), self._process]:
                standalone.kill(process)
            self._process.wait(30)

    def log(self) -> str:
        path = self._folder / "driver.log"
        return path.read_text("utf-8", "replace")[-3000:] if path.exists() else ""


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
    seed = time.time_ns()
    dice = random.Random(seed)
    rounds = [kind for kind, count in KILLS.items() for _ in range(count)]
    dice.shuffle(rounds)
    with Aerobee(tmp_path / "data") as server, standalone.Cluster(tmp_path / "cluster") as cluster:
        copy = Copy(server, cluster, tmp_path)
        try:
            with Sender(server.namesrv) as sender:
                for kind in rounds:
                    copy.until(partial(copy.has_grown, copy.batches()), f"a batch before {kind} of {rounds}")
                    time.sleep(dice.random())  # any moment of a batch
                    copy.kill(kind, dice)
            copy.until(partial(is_copied, server.namesrv), "all messages in the copy")
        finally:
            copy.end()
        sent, copied = held(server.namesrv, "from"), held(server.namesrv, "to")
    assert set(sent) == set(range(sender.acked)) == set(copied), f"seed {seed}, {rounds}"
    doubles = copied.total() - sent.total()
    print(  # noqa: T201 - the measure of at least once
        f"{sent.total():,} messages, {len(rounds)} kills, {copy.starts} drivers, {doubles:,} doubles"
    )
    assert doubles <= len(rounds) * BATCH, f"more than a batch for each kill: seed {seed}, {rounds}"
