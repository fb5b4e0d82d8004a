# SPDX-License-Identifier: Apache-2.0
"""The servers, each with its defaults, fresh data in a temporary directory and ports of this machine only.

Debian has nats-server, redis-server and rabbitmq-server (`apt-get install`); Kafka and RocketMQ come from Maven. What
is not there is left out, and said.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "interop"))

import peers
import servers as interop

from benchmarks import compare

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"


class Missing(Exception):
    """It cannot be started here."""


class Rival(ABC):
    program: ClassVar[str] = ""  # that must be installed

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = interop.free_port()
        self.process: subprocess.Popen[bytes] | None = None
        if self.program and shutil.which(self.program) is None:
            raise Missing(f"{self.program} is not installed")

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        return {}

    def start(self) -> float:
        """How long it took until it accepts, in seconds."""
        began = time.perf_counter()
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait_until_open(began + 90)
        return time.perf_counter() - began

    def wait_until_open(self, deadline: float) -> None:
        while True:
            try:
                socket.create_connection((HOST, self.port), 1).close()
            except OSError:
                if time.perf_counter() > deadline or (self.process and self.process.poll() is not None):
                    tail = (self.directory / "log").read_text(errors="replace")[-2_000:]
                    raise Missing(f"{type(self).__name__} does not start: {tail}") from None
                time.sleep(0.01)
            else:
                return

    def pids(self) -> list[int]:
        """The server's processes."""
        assert self.process is not None
        return [self.process.pid, *_children(self.process.pid)]

    def stop(self) -> None:
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Aerobee(Rival):
    """gRPC and HTTP are off, as nobody here uses them."""

    def command(self) -> list[str]:
        program = os.path.join(os.path.dirname(sys.executable), "aerobee")
        ports = [
            "--namesrv-port",
            str(self.port),
            "--broker-port",
            "0",
            "--grpc-port",
            "-1",
            "--http-port",
            "-1",
        ]
        return [program, "serve", *ports, "--data", str(self.directory / "data")]


class RocketMQ(Rival):
    """5.3, with the collector and memory that its start script gives it, cut to 1 GiB."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise Missing("Maven and Java are not installed")
        self._inner = compare.RocketMQ(directory / "data", peers.server_class_path())
        self._inner.settings = dict(compare.SETTINGS)

    def command(self) -> list[str]:
        raise NotImplementedError

    @property
    def address(self) -> str:
        return self._inner.namesrv

    def start(self) -> float:
        began = time.perf_counter()
        self._inner.start()
        return time.perf_counter() - began

    def pids(self) -> list[int]:
        return [each.child.pid for each in self._inner.processes.values() if each.child is not None]

    def stop(self) -> None:
        self._inner.discard()


class Nats(Rival):
    program = "nats-server"

    @property
    def address(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def command(self) -> list[str]:
        return [self.program, "-a", HOST, "-p", str(self.port), "-js", "-sd", str(self.directory / "data")]


class Redis(Rival):
    program = "redis-server"

    def command(self) -> list[str]:
        return [self.program, "--bind", HOST, "--port", str(self.port), "--dir", str(self.directory)]


class RabbitMQ(Rival):
    program = "rabbitmq-server"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._mapper_port = str(interop.free_port())
        self._mapper: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        # Erlang's table of nodes, which it would start by itself and leave behind.
        self._mapper = subprocess.Popen(["epmd", "-address", HOST, "-port", self._mapper_port])
        return super().start()

    def stop(self) -> None:
        super().stop()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()

    def environment(self) -> dict[str, str]:
        # Its own home: the cookie of its Erlang is kept there.
        return {
            "HOME": str(self.directory),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(interop.free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": self._mapper_port,
        }

    def command(self) -> list[str]:
        script = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in the path changes the user first
        return [str(script) if script.exists() else self.program]


class Kafka(Rival):
    """3.9 without ZooKeeper: controller and broker in one process, the memory its start script gives it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise Missing("Maven and Java are not installed")
        self._class_path = peers.java_class_path(HERE / "kafka", "kafka")
        controller = interop.free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self._config = directory / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", self._class_path, *arguments]

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self._config))

    def start(self) -> float:
        identity = "bench-bench-bench-bench"[:22]
        tool = self._java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(self._config))
        subprocess.run(tool, check=True, capture_output=True, timeout=60)
        return super().start()


SERVERS: dict[str, type[Rival]] = {
    "Aerobee": Aerobee,
    "RocketMQ": RocketMQ,
    "NATS": Nats,
    "Redis": Redis,
    "RabbitMQ": RabbitMQ,
    "Kafka": Kafka,
}


def resident_mib(pids: list[int]) -> float:
    pages = 0
    for pid in pids:
        with suppress(FileNotFoundError), open(f"/proc/{pid}/statm") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *_children(child)]
    return found
