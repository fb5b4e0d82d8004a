# SPDX-License-Identifier: Apache-2.0
"""Stores to read from, made by rule, and `aerobee serve` on them."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from aerobee.clock import SystemClock
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "bench"
QUEUES = 8


def _record(n: int, queue: int, body: bytes, now: int) -> Record:
    key = f"AC11000112342F0E4A9B{n:012X}"
    text = (
        f"TAGS\x01Tag{n % 5}\x02KEYS\x01k{n}\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02CLUSTER\x01Default\x02"
    )
    return Record(TOPIC, body, text, queue, born_timestamp=now)


def make_store(data: Path, count: int, size: int) -> Path:
    """An Aerobee data directory with `count` messages, 8 queues in turn, and its topic known to a broker."""
    done = data / "made.json"
    wanted = {"count": count, "size": size, "bodies": "varied"}
    if done.exists() and json.loads(done.read_text()) == wanted:
        return data
    shutil.rmtree(data, ignore_errors=True)
    from aerobee.store.message_store import MessageStore

    clock = SystemClock()
    store = MessageStore.open(data / "store", StoreConfig(), clock)
    # Every body another: the same one over and over is a single dictionary entry to Parquet.
    pool = random.Random(1).randbytes(1 << 19).hex().encode()
    due = 0
    for n in range(count):
        now = clock.now()
        at = n * 7919 % (len(pool) - size)
        store.append(_record(n, n % QUEUES, pool[at : at + size], now))
        if now >= due:
            due = now + store.tick(now)
    store.close()
    with served(data):
        pass  # a broker writes the topic's settings
    done.write_text(json.dumps(wanted))
    return data


def make_large_store(root: Path, count: int, size: int) -> Path:
    """The same as files only, made by numpy in seconds: enough for a scan, which needs no broker."""
    import numpy as np

    from aerobee.protocol import message

    template = message.encode(_record(0, 0, b"x" * size, SystemClock().now()))
    shutil.rmtree(root, ignore_errors=True)
    (root / "commitlog").mkdir(parents=True)
    length, per_file = len(template), (1 << 30) // len(template)
    units = np.zeros(count, np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")]))
    for file, first in enumerate(range(0, count, per_file)):
        numbers = np.arange(first, min(first + per_file, count))
        positions = file * (1 << 30) + (numbers - first) * length
        rows = np.frombuffer(template, np.uint8)[None, :].repeat(len(numbers), axis=0)
        rows[:, 12:16] = (numbers % QUEUES).astype(">i4").view(np.uint8).reshape(-1, 4)
        rows[:, 20:28] = (numbers // QUEUES).astype(">i8").view(np.uint8).reshape(-1, 8)
        rows[:, 28:36] = positions.astype(">i8").view(np.uint8).reshape(-1, 8)
        rows.tofile(root / "commitlog" / f"{file * (1 << 30):020d}")
        units["position"][numbers], units["size"][numbers] = positions, length
    for queue in range(QUEUES):
        folder = root / "consumequeue" / TOPIC / str(queue)
        folder.mkdir(parents=True)
        units[queue::QUEUES].tofile(folder / f"{0:020d}")
    return root


class served:
    """`aerobee serve` on a data directory, any ports."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def __enter__(self) -> str:
        command = [sys.executable, "-m", "aerobee", "serve", "--data", str(self._data), "--namesrv-port", "0"]
        command += ["--broker-port", "0", "--grpc-port", "-1", "--log-level", "WARNING"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told = ""
        for line in self._process.stdout:
            told += line
            if "ready" in line:
                break
        self.pid = self._process.pid
        namesrv = told.split("namesrv=")[1].split()[0]
        asyncio.run(self._topic(namesrv))
        return namesrv

    @staticmethod
    async def _topic(namesrv: str) -> None:
        from aerobee import Admin

        async with Admin(namesrv) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
            await admin.create_topic("sink", queues=QUEUES)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
