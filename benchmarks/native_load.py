# SPDX-License-Identifier: Apache-2.0
"""The loads of `benchmarks.load` as a program of its own (native_load.c), built when it is first wanted.

A load written in Python needs more time for a message than the brokers do, and would measure itself.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("native_load.c")


class Done(NamedTuple):
    messages: int
    seconds: float
    refused: int


@functools.cache
def program() -> Path | None:
    """None where there is no C compiler, or AEROBEE_LOAD=python asks for the other one."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or os.environ.get("AEROBEE_LOAD") == "python":
        return None
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir(), f"aerobee-native-load-{os.getuid()}-{name}")
    if not built.exists():
        fresh = built.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-o", str(fresh), str(SOURCE)], check=True)
        fresh.replace(built)
    return built


def send(
    address: str,
    frames: memoryview,
    frame_bytes: int,
    outstanding: int,
    seconds: float,
    most: int,
    rate: float = 0,
) -> Done:
    """The frames in turn, from the first again after the last, `most` of them in all, and `rate` a second; 0 = as fast
    as they are answered."""
    with tempfile.NamedTemporaryFile(prefix="aerobee-frames-") as file:
        file.write(frames)
        file.flush()
        return _run("send", address, file.name, frame_bytes, outstanding, seconds, most, rate)


def pull(address: str, topic: str, queues: int, seconds: float) -> Done:
    return _run("pull", address, topic, queues, seconds)


def pop(address: str, topic: str, backlog: int, seconds: float) -> Done:
    return _run("pop", address, topic, backlog, seconds, time.time_ns() % 10**9)


def late(address: str, topic: str, rate: float, seconds: float) -> tuple[Done, list[float]]:
    """Sends to a held pull; and the milliseconds each took to get there."""
    text = _output("late", address, topic, rate, seconds)
    return Done(int(text[0]), float(text[1]), int(text[2])), [float(value) for value in text[3:]]


def _run(load: str, address: str, *arguments: object) -> Done:
    text = _output(load, address, *arguments)
    return Done(int(text[0]), float(text[1]), int(text[2]))


def _output(load: str, address: str, *arguments: object) -> list[str]:
    host, _, port = address.rpartition(":")
    command = [str(program()), load, host, port, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
