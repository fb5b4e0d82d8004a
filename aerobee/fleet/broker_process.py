# SPDX-License-Identifier: Apache-2.0
"""One broker in a process of its own: started, waited for until it listens, stopped.

It is `aerobee broker`, and tells where it listens by the line that every server prints. Its standard input stays open as
long as this process lives: a broker whose keeper is gone, whatever ended it, stops as if it were told to.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError
from aerobee.protocol.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ADDRESS = re.compile(r"(\w+)=(\S+)")
_OFF = "off"


class BrokerProcess:
    """`ports` are settings by name; one that was any free one stays what it became, for clients come back to it.
    `environment` is added to this process's own."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        ports: Mapping[str, int],
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.addresses: dict[str, str] = {}
        self._arguments = arguments
        self._ports = dict(ports)
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Until it listens; AerobeeError when it ends before, having said why on standard error."""
        ports = [word for name, port in self._ports.items() for word in ("--set", f"{name}={port}")]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aerobee", "broker", "--kept", *self._arguments, *ports),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment},
            start_new_session=True,  # Ctrl-C is for the keeper: it stops the brokers in order
        )
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line:
            code = await self._process.wait()
            raise AerobeeError(f"{self.name} did not start: exit code {code}")
        self.addresses = {name: where for name, where in _ADDRESS.findall(line) if where != _OFF}
        for setting, front in (("port", "broker"), ("grpc_port", "grpc"), ("http_port", "http")):
            if front in self.addresses:
                self._ports[setting] = parse_address(self.addresses[front])[1]

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self, grace_ms: int) -> None:
        """Tell it to stop; one that has not after `grace_ms` is killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
