# SPDX-License-Identifier: Apache-2.0
"""The official Java and Go clients as loads of `client.py`: each a process that prints one line of JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop"))

import peers  # noqa: E402 - beside the tests that use it
import servers  # noqa: E402


class Figure(NamedTuple):
    what: str
    messages: int
    seconds: float
    cpu_seconds: float

    def line(self) -> str:
        rate = self.messages / max(self.seconds, 1e-9)
        cpu_us = self.cpu_seconds / max(self.messages, 1) * 1e6
        return f"{self.what:<34} {self.messages:>8} messages  {rate:>9.0f}/s  {cpu_us:>6.1f} us CPU a message"


def java() -> list[str]:
    """Compiled once; the command that runs it."""
    class_path = peers.server_class_path()
    source, classes = HERE / "java" / "ClientLoad.java", peers.CACHE / "classes" / "client-load"
    with peers.built("javac-client-load", [source]) as needed:
        if needed:
            classes.mkdir(parents=True, exist_ok=True)
            peers.run(["javac", "-nowarn", "-cp", class_path, "-d", str(classes), str(source)], HERE)
    home = peers.CACHE / "home" / "client-load"
    home.mkdir(parents=True, exist_ok=True)
    flags = ["-Xmx512m", *servers.JAVA_OPENS, f"-Duser.home={home}"]
    return ["java", *flags, "-cp", f"{classes}:{class_path}", "ClientLoad"]


def go() -> list[str]:
    return peers.go_program("load")


JAVA_WARMS_UP = 3  # times as long: a third of it does not count, in which Java compiles what it runs
PEERS = {"java": (java, "java"), "go": (go, "go")}


def available(name: str) -> bool:
    return shutil.which(PEERS[name][1]) is not None


def measure(name: str, namesrv: str, topic: str, in_flight: int, size: int, seconds: float) -> list[Figure]:
    """Sends that wait for their answer, so many at once; then a push consumer over what the topic has."""
    command = PEERS[name][0]()
    batch = ["1"] if name == "java" else []
    sends_for = seconds * JAVA_WARMS_UP if name == "java" else seconds
    sending = [
        *command,
        "produce",
        namesrv,
        f"{topic}-{name}",
        str(in_flight),
        str(size),
        *batch,
        str(sends_for),
    ]
    consuming = [*command, "consume", namesrv, topic, f"bench-{name}", str(3 * seconds)]
    return [
        _run(f"{name}: send, {in_flight} in flight", sending),
        _run(f"{name}: push, batch 32", consuming),
    ]


def _run(what: str, command: list[str]) -> Figure:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, preexec_fn=servers.die_with_parent
    )
    if done.returncode:
        raise RuntimeError(f"{what}: {done.stderr[-2000:]}")
    row = json.loads(done.stdout.strip().splitlines()[-1])
    return Figure(what, row["messages"], row["seconds"], row["cpu_seconds"])
