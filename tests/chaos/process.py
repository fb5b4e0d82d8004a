# SPDX-License-Identifier: Apache-2.0
"""`aerobee serve` in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.chaos.link import Address

if TYPE_CHECKING:
    from pathlib import Path

PORTS = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "-1", "--http-port", "-1"]


class Process:
    def __init__(self, data: Path, log: Path, settings: dict[str, object]) -> None:
        arguments = [sys.executable, "-m", "aerobee.cli.main", "serve", "--data", str(data), *PORTS]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*arguments, "--log-level", "INFO"], stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def address(self) -> Address:
        """Once it serves."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"namesrv=(\S+).*broker=(\S+)", line)
        assert found is not None, f"it did not start: {line!r}, exit {self._process.poll()}"
        return Address(*found.groups())

    def kill(self) -> None:
        assert self._process.poll() is None, f"it died by itself: exit {self._process.returncode}"
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        """If it still runs."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.communicate(timeout=60)
