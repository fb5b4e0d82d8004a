# SPDX-License-Identifier: Apache-2.0
"""What tests of random kills share: a sender that goes on, a Spark driver that is started again, rounds of victims."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import standalone
from servers import die_with_parent, wait_until

from aerobee import Message, Producer
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import psutil

T = TypeVar("T")


class Sender:
    """Sends numbered messages until told to stop, each until the broker has answered for it: those are `acked`."""

    def __init__(self, namesrv: str, topic: str, rate: int) -> None:
        self._namesrv, self._topic, self._rate = namesrv, topic, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self.acked = range(0)

    async def _work(self) -> None:
        async with Producer(self._namesrv, group="kills-sender") as producer:
            while not self._stop.is_set():
                chunk = range(self.acked.stop, self.acked.stop + self._rate // 10)
                await asyncio.gather(*(self._send(producer, number) for number in chunk))
                self.acked = range(chunk.stop)
                await asyncio.sleep(0.1)

    async def _send(self, producer: Producer, number: int) -> None:
        while True:
            try:
                await producer.send(Message(self._topic, b"%d" % number))
                return
            except AerobeeError:  # the broker may be a victim too
                await asyncio.sleep(0.3)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the sender still waits for the broker"


class Driver:
    """A Spark driver, started again whenever it has died; `batches` counts what it has finished."""

    def __init__(
        self, cluster: standalone.Cluster, folder: Path, command: list[str], batches: Callable[[], int]
    ) -> None:
        self._cluster, self._folder, self._command = cluster, folder, command
        self._batches = batches
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.killers: dict[str, Callable[[random.Random], object]] = {
            "driver": lambda _: self.end(),
            "planner": partial(self._kill_one, self._planners),
            "worker": lambda dice: cluster.restart_worker(dice.randrange(len(cluster.workers))),
            "executor": partial(self._kill_one, cluster.executors),
            "python": partial(self._kill_one, cluster.python_workers),
        }

    def kill_at_random(self, counts: Mapping[str, int]) -> str:
        """So many of each kind in any order, each at any moment after a batch was finished; says how to do it again."""
        seed = time.time_ns()
        dice = random.Random(seed)
        rounds = [kind for kind, count in counts.items() for _ in range(count)]
        dice.shuffle(rounds)
        for kind in rounds:
            grown = partial(self._has_grown, self._batches())
            self.until(grown, f"a batch before the kill of a {kind}: {rounds}")
            time.sleep(dice.random())  # any moment of a batch
            self.killers[kind](dice)
        return f"seed {seed}, rounds {rounds}"

    def _has_grown(self, before: int) -> bool:
        return self._batches() > before

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

    def _run(self) -> None:
        self.starts += 1
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", *self._command],
                stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, preexec_fn=die_with_parent,
                env={**os.environ, "SPARK_LOCAL_IP": standalone.HOST},
            )  # fmt: skip

    def _kill_one(self, victims: Callable[[], list[psutil.Process]], dice: random.Random) -> None:
        # What the last kill brought down may still be coming up: a lost planner takes the whole driver along.
        standalone.kill(dice.choice(self.until(victims, f"a process of {victims}")))

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
