# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ itself for a test: name server and broker from its jars, where this machine has a Java.

>>> with ApacheServer() as server:
...     server.namesrv, server.broker_address

The jars are those of a RocketMQ in ROCKETMQ_HOME, or Maven fetches them once into its own repository (~/.m2). NotHere is
raised where there is no Java, or neither jars nor Maven; whatever else keeps it from starting is DidNotStart.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from aerobee.clock import SystemClock
from aerobee.errors import NoRoute
from aerobee.testing.cluster import OutsideCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

T = TypeVar("T")

VERSION = "5.3.3"
HOST = "127.0.0.1"
START_MS = 120_000
_OPENS = ("java.nio", "sun.nio.ch", "java.util", "java.lang", "jdk.internal.misc", "jdk.internal.ref")
_FLAGS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"] + [
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS
]
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>aerobee</groupId><artifactId>rocketmq-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>{0}</version></dependency>
    <dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>{0}</version></dependency>
  </dependencies>
</project>
"""
# What makes a test quick, and a small disk enough.
_SETTINGS = {
    "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "brokerIP1": HOST,
    "enablePropertyFilter": "true", "diskMaxUsedSpaceRatio": "99", "mappedFileSizeCommitLog": str(64 << 20),
}  # fmt: skip


class NotHere(RuntimeError):
    """This machine cannot run it; the text says what is missing."""


class DidNotStart(RuntimeError):
    """Nothing is missing, and yet it does not run; the text says how far it came."""


class ApacheServer(OutsideCluster):
    """The same face as `TestServer`, but for its clock, which nobody can move. `settings` are of its broker.conf."""

    __test__ = False

    def __init__(self, version: str = VERSION, settings: Mapping[str, str] | None = None) -> None:
        self.account: dict[str, Any] = {}
        self._version = version
        self._settings = {**_SETTINGS, **(settings or {})}
        self._home = Path(tempfile.mkdtemp(prefix="aerobee-apache-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._namesrv, self._broker = (f"{HOST}:{port}" for port in _free_ports())

    @property
    def namesrv(self) -> str:
        return self._namesrv

    @property
    def broker_address(self) -> str:
        return self._broker

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait(30)
        shutil.rmtree(self._home, ignore_errors=True)

    def restart(self) -> NoReturn:
        """Neither stopped nor started again: either takes half a minute."""
        raise RuntimeError(
            "Apache's server is not restarted; `TestServer` has restart(), stop() and start(), `ServerProcess` kill()"
        )

    stop = start = kill = restart

    def _start(self) -> None:
        java, jars = _java(), class_path(self._version)
        port = self._namesrv.rpartition(":")[2]
        self._launch(
            "namesrv", java, jars, {"listenPort": port, "bindAddress": HOST}, "namesrv.NamesrvStartup"
        )
        settings = {
            **self._settings,
            "listenPort": self._broker.rpartition(":")[2],
            "namesrvAddr": self._namesrv,
            "storePathRootDir": str(self._home / "store"),
        }
        self._launch("broker", java, jars, settings, "broker.BrokerStartup")
        log = self._home / "broker.log"
        self._wait("Apache's broker is not known to its name server", self._is_registered, log)

    def _launch(self, name: str, java: str, jars: str, settings: Mapping[str, str], main: str) -> None:
        config, log = self._home / f"{name}.conf", self._home / f"{name}.log"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        home = [f"-Duser.home={self._home}", f"-Drocketmq.home.dir={self._home}"]
        command = [
            java,
            "-Xmx512m",
            *_FLAGS,
            *home,
            "-cp",
            jars,
            f"org.apache.rocketmq.{main}",
            "-c",
            str(config),
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=self._home,
                env={**os.environ, "ROCKETMQ_HOME": str(self._home), "NAMESRV_ADDR": self._namesrv},
            )  # fmt: skip
        self._processes.append(process)

        def has_booted() -> bool:
            if process.poll() is not None:
                raise DidNotStart(f"Apache's {name} ended with code {process.returncode}: {_end_of(log)}")
            return "boot success" in log.read_text(errors="replace")

        self._wait(f"Apache's {name} has not started", has_booted, log)

    def _is_registered(self) -> bool:
        async def masters() -> bool:
            try:
                return self._broker in (await self._ask(lambda admin: admin.masters())).values()
            except NoRoute:  # the name server knows no broker yet
                return False

        return self.run(masters())

    def _wait(self, otherwise: str, holds: Callable[[], bool], log: Path) -> None:
        clock = SystemClock()
        deadline = clock.now() + START_MS
        while not holds():
            if clock.now() > deadline:
                raise DidNotStart(
                    f"{otherwise} within {START_MS} ms; is the machine busy? Its log ends: {_end_of(log)}"
                )
            time.sleep(0.05)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-2_000:] or "nowhere, it is empty"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")
    if java is None:
        raise NotHere("Apache RocketMQ needs a Java: no `java` in JAVA_HOME or on the path")
    return java


def class_path(version: str = VERSION) -> str:
    """Its jars: of ROCKETMQ_HOME, or those that Maven fetches (~/.m2). NotHere says what is missing."""
    if home := os.environ.get("ROCKETMQ_HOME"):
        if not list(Path(home).glob("lib/rocketmq-broker-*.jar")):
            raise NotHere(f"ROCKETMQ_HOME is {home}, which has no lib/rocketmq-broker-*.jar")
        return f"{home}/lib/*"
    maven = shutil.which("mvn")
    if maven is None:
        raise NotHere("Apache RocketMQ's jars: set ROCKETMQ_HOME to an unpacked RocketMQ, or install Maven")
    if not re.fullmatch(r"[\w.-]+", version):
        raise ValueError(f"version is {version!r}; give one such as {VERSION}")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(_POM.format(version))
        jars = Path(folder) / "jars"
        done = subprocess.run(
            [maven, "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={jars}"],
            cwd=folder, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        if done.returncode:
            raise DidNotStart(
                f"Maven does not get RocketMQ {version}; set ROCKETMQ_HOME to an unpacked one, or mend this: "
                f"{(done.stdout + done.stderr).strip()[-500:]}"
            )
        return jars.read_text()


def _free_ports() -> tuple[int, int]:
    """A broker takes the port two below its own, and the one above, too."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind((HOST, 0))
            other.bind((HOST, 0))
            namesrv, broker = one.getsockname()[1], other.getsockname()[1]
        if abs(namesrv - broker) > 3 and all(_is_free(broker + step) for step in (-2, 0, 1)):
            return namesrv, broker


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
    return True
