# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded everything but Aerobee: each run of tests is a fork of it, so that it starts quickly.

A line of its input is a JSON list: the file for what the tests print, the seconds they have, pytest's arguments. The
answer is pytest's exit status, or "time" when the seconds were over.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time

import pytest

_HEAVY = ("cryptography.x509", "grpc.aio", "hypothesis", "lz4.frame", "pytest_asyncio", "rich.console", "typer",
          "uvloop", "zstandard")  # fmt: skip


def _child(output: str, arguments: list[str]) -> None:
    os.setsid()
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.dont_write_bytecode = True
    os._exit(int(pytest.main(arguments)))


def _ended(pid: int, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return str(os.waitstatus_to_exitcode(status))
        time.sleep(0.05)
    return "time"


def main() -> None:
    for name in _HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        output, seconds, *arguments = json.loads(line)
        pid = os.fork()
        if not pid:
            _child(output, arguments)
        answer = _ended(pid, seconds)
        with contextlib.suppress(ProcessLookupError):  # it, and whatever it has started
            os.killpg(pid, signal.SIGKILL)
        if answer == "time":
            os.waitpid(pid, 0)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
