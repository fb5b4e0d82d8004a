# SPDX-License-Identifier: Apache-2.0
"""A Spark Connect server as a process of its own, as `start-connect-server.sh` starts one."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from aerobee.spark.java import ensure_java
from aerobee.spark.starting import spark_home

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).parents[2]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    """For Spark's own commands: what session() sees to."""
    ensure_java()
    home = spark_home() or Path(str(pyspark.__file__)).parent
    return {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class ConnectServer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> ConnectServer:
        self._folder.mkdir(parents=True, exist_ok=True)
        env = environment()
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": QUICK,
            "spark.sql.shuffle.partitions": "2",
        }
        command = [f"{env['SPARK_HOME']}/bin/spark-submit", "--master", "local[2,4]", "--driver-memory", "1g"]
        command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--class", SERVER, "spark-internal"],
                stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, env=env, preexec_fn=die_with_parent,
            )  # fmt: skip
        self._wait()
        return self

    def _wait(self) -> None:
        until = time.monotonic() + 240
        while time.monotonic() < until and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise AssertionError(f"the Connect server did not start:\n{self.log()}")

    def log(self) -> str:
        return (self._folder / "server.log").read_text("utf-8", "replace")[-4000:]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60)
