# SPDX-License-Identifier: Apache-2.0
"""`aerobee serve` as a process of its own, for tests in which it is killed, and as a broker for programs outside."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aerobee.testing.cluster import OutsideCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_READY = "aerobee ready "
_OFF = "off"
_END_S = 30
_FRONTS = {"namesrv": "0", "broker": "0", "grpc": "-1", "http": "-1"}


class ServerProcess(OutsideCluster):
    """The same face as `TestServer`, but for its clock, which nobody can move.

    >>> with ServerProcess() as server, blocking.Producer(server.namesrv, group="shop") as producer:
    ...     producer.send(Message("orders", b"before"))
    ...     server.kill()
    ...     server.start()
    ...     server.messages_of("orders")

    `arguments` are of `aerobee serve`: `ServerProcess("--grpc-port", "0", "--set", "flushDiskType=SYNC_FLUSH")`. Its log
    is in `log`. Without `data` it has a directory that is removed at the end.
    """

    __test__ = False

    def __init__(self, *arguments: str, data: str | Path | None = None) -> None:
        self.account: dict[str, Any] = {}
        self._arguments = arguments
        self._home = Path(tempfile.mkdtemp(prefix="aerobee-process-"))
        self._data = Path(data) if data is not None else self._home / "data"
        self._process: subprocess.Popen[str] | None = None
        self._addresses: dict[str, str] = {}  # as it says when it is ready; the next start takes the same
        self.log = self._home / "log"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process is not None:
                self.stop()
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    def start(self) -> None:
        """Again, after `kill` or `stop`: on the same ports, with what was stored."""
        if self._process is not None:
            raise RuntimeError("the server runs")
        again = {name: _port(address) for name, address in self._addresses.items()}
        command = [
            sys.executable, "-m", "aerobee", "serve", "--data", str(self._data),
            *_options(_FRONTS), *self._arguments, *_options(again),
        ]  # fmt: skip
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line.startswith(_READY):
            self.kill()
            raise RuntimeError(f"aerobee serve did not start: {line}{self.log.read_text().strip()[-2_000:]}")
        told = dict(
            part.partition("=")[::2] for part in line.removeprefix(_READY).split(maxsplit=len(_FRONTS))
        )
        self._addresses = {name: told[name] for name in _FRONTS}

    def kill(self) -> None:
        """As kill -9 and the OOM killer do: it finishes nothing. Clients meet a closed port until `start`."""
        self._end(lambda process: process.kill())

    def stop(self) -> None:
        """As on SIGTERM: it finishes what it has begun."""
        self._end(lambda process: process.terminate())

    def _end(self, how: Callable[[subprocess.Popen[str]], None]) -> None:
        process, self._process = self._running(), None
        how(process)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_S)
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the server does not run: `start` it, within a with block")
        return self._process

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def namesrv(self) -> str:
        return self._address("namesrv")

    @property
    def broker_address(self) -> str:
        return self._address("broker")

    @property
    def grpc_address(self) -> str:
        """Empty unless it was asked for: `ServerProcess("--grpc-port", "0")`."""
        return self._address("grpc")

    def _address(self, front: str) -> str:
        if not self._addresses:
            raise RuntimeError("the server was not started: use it in a with block")
        return self._addresses[front].replace(_OFF, "")


def _port(address: str) -> str:
    return "-1" if address == _OFF else address.rpartition(":")[2]


def _options(ports: dict[str, str]) -> Iterable[str]:
    return (part for name, port in ports.items() for part in (f"--{name}-port", port))
