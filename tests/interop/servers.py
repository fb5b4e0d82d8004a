# SPDX-License-Identifier: Apache-2.0
"""Servers the peers talk to: Aerobee, and the real RocketMQ that says what is right.

Both have one face: start, stop, kill, restart on the same data and ports, and the addresses of their fronts.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REPO = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1
T = TypeVar("T")

JAVA_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.nio",
        "sun.nio.ch",
        "java.util",
        "java.lang",
        "jdk.internal.misc",
        "jdk.internal.ref",
    )
]
JAVA_SMALL = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData", *JAVA_OPENS]

# Property file read by the Java broker and by `aerobee serve --config`: only what makes a test quick.
SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "2000",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
}


def die_with_parent() -> None:
    """Run in the child: the kernel kills it when pytest dies, whatever the reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Below the range from which outgoing connections take theirs, so none is taken before its server starts.

    A broker also takes port - 2 (fast port) and port + 1 (replication).
    """
    for _ in range(200):
        port = random.randrange(15_000, 32_000, 4)
        if all(map(is_free, (port - 2, port, port + 1))):
            return port
    raise RuntimeError("no three free ports in a row of four")


def cluster_info(namesrv: str) -> bytes:
    """Body of GET_BROKER_CLUSTER_INFO (106), empty while the name server does not answer."""
    header = b'{"code":106,"flag":0,"language":"JAVA","opaque":1,"version":479}'
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    host, _, port = namesrv.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), 2) as connection,
            connection.makefile("rb") as answers,
        ):
            connection.sendall(frame)
            length, header_length = struct.unpack(">II", answers.read(8))
            return answers.read(length - 4)[header_length & 0xFFFFFF :]
    except (OSError, struct.error):
        return b""


def wait_until(check: Callable[[], T], timeout: float, what: str, pause: float = 0.05) -> T:
    """Poll until `check` returns something true; the last value is in the failure."""
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}; last seen: {value!r}")
        time.sleep(pause)


@dataclass
class Process:
    """One child with its output in a file."""

    command: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    def start(self, ready: str, timeout: float) -> re.Match[str]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as out:
            self.child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env},
                cwd=self.log.parent,
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + timeout
        while True:
            found = re.search(ready, self.output())
            if found:
                return found
            if self.child.poll() is not None or time.monotonic() > deadline:
                code = self.child.poll()
                self.kill()
                raise RuntimeError(
                    f"{' '.join(self.command)[:300]} ... did not print {ready!r} (exit {code}):\n"
                    + self.output()[-3000:]
                )
            time.sleep(0.05)

    def output(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def stop(self, timeout: float = 30) -> int | None:
        if self.child is None:
            return None
        self.child.terminate()
        try:
            return self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int | None:
        if self.child is None:
            return None
        self.child.kill()
        return self.child.wait(30)


class Server(ABC):
    """A name server and a broker, perhaps with a gRPC front."""

    kind: str
    namesrv: str
    broker: str
    grpc: str

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.settings = {**SETTINGS, **(settings or {})}
        data.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """End as an operator would."""

    @abstractmethod
    def kill(self) -> None:
        """End the broker with SIGKILL."""

    def discard(self) -> None:
        """End at once; nobody wants the data any more."""
        self.kill()

    @abstractmethod
    def output(self) -> str:
        """What it printed, for failure messages."""

    def restart(self) -> None:
        """Again on the same data and the same ports."""
        self.stop()
        self.start()

    def start_broker(self) -> None:
        """After `kill`."""
        self.start()

    def write_settings(self, extra: Mapping[str, str]) -> Path:
        path = self.data.parent / f"{self.data.name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**self.settings, **extra}.items()))
        return path

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Aerobee(Server):
    kind = "aerobee"

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(data, settings)
        self.ports = {"namesrv": "0", "broker": "0", "grpc": "0"}
        self.process: Process | None = None

    def start(self) -> None:
        flags = [part for name, port in self.ports.items() for part in (f"--{name}-port", port)]
        self.process = Process(
            [
                str(REPO / ".venv/bin/aerobee"),
                *("serve", *flags, "--http-port", "-1"),
                *("--data", str(self.data), "--config", str(self.write_settings({}))),
            ],
            self.data.parent / f"{self.data.name}.log",
        )
        ready = self.process.start(r"aerobee ready namesrv=(\S+) broker=(\S+) grpc=(\S+)", 30)
        self.namesrv, self.broker, self.grpc = ready.groups()
        for name, address in zip(self.ports, ready.groups(), strict=True):
            port = address.rpartition(":")[2]
            self.ports[name] = port if port.isdecimal() else "-1"

    def stop(self) -> None:
        if self.process:
            self.process.stop()

    def kill(self) -> None:
        if self.process:
            self.process.kill()

    def output(self) -> str:
        return self.process.output() if self.process else ""


class RocketMQ(Server):
    """Name server and broker from Maven; with `proxy`, the broker runs inside the gRPC proxy."""

    kind = "rocketmq"

    def __init__(
        self, data: Path, class_path: str, settings: Mapping[str, str] | None = None, *, proxy: bool = False
    ) -> None:
        super().__init__(data, settings)
        self.home = data.parent / f"{data.name}-home"
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        self.class_path = class_path
        self.proxy = proxy
        self.namesrv = f"{HOST}:{free_port()}"
        self.broker = f"{HOST}:{free_port()}"
        self.grpc = f"{HOST}:{free_port()}" if proxy else "off"
        self.broker_namesrv = self.namesrv  # where the broker registers
        self.proxy_remoting_port = free_port()
        self.processes: dict[str, Process] = {}

    def _java(self, name: str, heap: Sequence[str], *arguments: str) -> Process:
        command = ["java", *heap, *JAVA_SMALL, f"-Duser.home={self.home}", f"-Drocketmq.home.dir={self.home}"]
        process = Process(
            [*command, "-cp", self.class_path, *arguments],
            self.home / f"{name}.log",
            {"ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": self.namesrv},
        )
        self.processes[name] = process
        return process

    def start(self) -> None:
        self.start_namesrv()
        self.start_broker()

    def start_namesrv(self) -> None:
        config = self.home / "namesrv.conf"
        config.write_text(f"listenPort={self.namesrv.rpartition(':')[2]}\nbindAddress={HOST}\n")
        process = self._java(
            "namesrv", ["-Xmx256m"], "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config)
        )
        process.start("boot success", 60)

    def start_broker(self) -> None:
        config = self.write_settings(
            {
                "brokerIP1": HOST,
                "listenPort": self.broker.rpartition(":")[2],
                "namesrvAddr": self.broker_namesrv,
                "storePathRootDir": str(self.data / "store"),  # where Aerobee keeps its own
                "diskMaxUsedSpaceRatio": "99",
                "recallMessageEnable": "true",
                "transactionOpBatchInterval": "100",  # else a rollback is known only after the quick check
                **self.settings,
            }
        )
        heap = ["-Xms256m", "-Xmx1g", "-XX:MaxDirectMemorySize=512m"]
        if self.proxy:
            proxy_config = self.home / "conf" / "rmq-proxy.json"
            proxy_config.write_text(
                json.dumps(
                    {
                        "rocketMQClusterName": self.settings["brokerClusterName"],
                        "namesrvAddr": self.namesrv,
                        "grpcServerPort": int(self.grpc.rpartition(":")[2]),
                        "remotingListenPort": self.proxy_remoting_port,
                        "localServeAddr": HOST,
                        **self._proxy_accounts(),
                    }
                )
            )
            self._java(
                *("broker", heap, "org.apache.rocketmq.proxy.ProxyStartup", "-pm", "local"),
                *("-pc", str(proxy_config), "-bc", str(config), "-n", self.namesrv),
            ).start("startup successfully", 90)
        else:
            self._java(
                *("broker", heap, "org.apache.rocketmq.broker.BrokerStartup"),
                *("-n", self.broker_namesrv, "-c", str(config)),
            ).start("boot success", 90)
        wait_until(
            lambda: self.broker.encode() in cluster_info(self.namesrv),
            30,
            f"{self.broker} in its name server",
        )

    def _proxy_accounts(self) -> dict[str, object]:
        """The proxy asks by settings of its own, and finds users and policies in the broker of its process."""
        if self.settings.get("authenticationEnabled") != "true":
            return {}
        found = "org.apache.rocketmq.proxy.auth.Proxy{}MetadataProvider"
        return {
            "authenticationEnabled": True,
            "authenticationMetadataProvider": found.format("Authentication"),
            "authorizationEnabled": self.settings.get("authorizationEnabled") == "true",
            "authorizationMetadataProvider": found.format("Authorization"),
            "innerClientAuthenticationCredentials": self.settings["innerClientAuthenticationCredentials"],
        }

    def stop(self) -> None:
        for name in ("broker", "namesrv"):
            if name in self.processes:
                self.processes[name].stop()

    def kill(self) -> None:
        if "broker" in self.processes:
            self.processes["broker"].kill()

    def discard(self) -> None:
        for process in self.processes.values():
            process.kill()

    def restart(self) -> None:
        """Only the broker: a name server keeps its routes."""
        self.processes["broker"].stop()
        self.start_broker()

    def output(self) -> str:
        return "\n".join(f"== {name}\n{process.output()}" for name, process in self.processes.items())
