# SPDX-License-Identifier: Apache-2.0
"""`aerobee serve --brokers N`: the name server here, N brokers in processes of their own, watched and started again."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from aerobee.clock import SystemClock
from aerobee.errors import AerobeeError
from aerobee.fleet import account
from aerobee.fleet.broker_process import BrokerProcess
from aerobee.fleet.restarts import Restarts
from aerobee.server import OFF, Server
from aerobee.store import several
from aerobee.store.lock_file import StoreLock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from aerobee.settings import Settings

log = logging.getLogger("aerobee.fleet")

STOP_MS = 30_000
_MOST = 26  # named by letters
_PORTS = ("port", "vip_port", "grpc_port", "http_port")
_PORT_STEP = 10  # between brokers: beside a broker's port is its second one, and no front meets another's


def names_of(first: str, count: int) -> list[str]:
    """broker-a, broker-b ...: the letters after the name of the first."""
    if not 1 <= count <= _MOST:
        raise ValueError(f"--brokers {count}: 1 to {_MOST}")
    stem = first.removesuffix("-a")
    return [f"{stem}-{chr(ord('a') + number)}" for number in range(count)]


class Keeper:
    """`arguments` are those of `aerobee broker` for every broker alike; what differs between them is added here."""

    def __init__(self, loaded: Settings, count: int, arguments: Sequence[str], *, ephemeral: bool) -> None:
        self._loaded = loaded
        self._arguments = arguments
        self._ephemeral = ephemeral
        self._clock = SystemClock()
        self._names = names_of(loaded.broker.name, count)
        self._environment: dict[str, str] = {}  # of the brokers, beside ours
        self._brokers: list[BrokerProcess] = []
        self._watching: list[asyncio.Task[None]] = []
        self._exits = AsyncExitStack()
        self.data = Path(loaded.store.data)
        self.namesrv = ""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The brokers first, all at once, then the name server."""
        await self._exits.aclose()

    def addresses(self, front: str) -> str:
        """Where the brokers' fronts of that kind listen."""
        return ",".join(each.addresses[front] for each in self._brokers if front in each.addresses)

    # -- one after the other -------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._ephemeral:
            self.data = Path(tempfile.mkdtemp(prefix="aerobee-"))
            self._exits.callback(shutil.rmtree, self.data, ignore_errors=True)
        several.refuse_one(self.data, self._names)
        lock = StoreLock(self.data / several.BROKERS)
        self._exits.callback(lock.release)
        lock.mark_running()
        self._exits.callback(lock.mark_clean)
        if account.is_missing(self._loaded):
            self._share_account()
        await self._start_name_server()
        self._brokers = [self._broker(number, name) for number, name in enumerate(self._names)]
        self._exits.push_async_callback(self._stop_brokers)
        await asyncio.gather(*(broker.start() for broker in self._brokers))
        self._watching = [asyncio.ensure_future(self._watch(broker)) for broker in self._brokers]

    def _share_account(self) -> None:
        text = account.kept_in(self.data / several.BROKERS)
        broker = msgspec.structs.replace(self._loaded.broker, inner_credentials=text)
        self._loaded = msgspec.structs.replace(self._loaded, broker=broker)
        self._environment = {account.VARIABLE: text}

    async def _start_name_server(self) -> None:
        """It goes by the users of the first broker, and writes its refusals under that name."""
        loaded = self._loaded
        server = Server(
            self.data,
            namesrv_port=loaded.namesrv.port,
            broker_port=OFF,
            config=msgspec.structs.replace(loaded.broker, name=self._names[0]),
            store=loaded.store,
            # As strict as the name server in a single broker's process.
            namesrv=msgspec.structs.replace(
                loaded.namesrv, authentication=loaded.namesrv.authentication or loaded.broker.authentication
            ),
        )
        self.namesrv = (await self._exits.enter_async_context(server)).namesrv

    def _broker(self, number: int, name: str) -> BrokerProcess:
        config = self._loaded.broker
        own = {
            "name": name,
            "data": several.folder_of(self.data, name).absolute(),
            "namesrv": self._registered_with(),
        }
        if config.tls_required:
            own["namesrv_tls"] = "true"
        ports = {
            setting: port + number * _PORT_STEP if (port := getattr(config, setting)) > 0 else port
            for setting in _PORTS
        }
        pairs = [word for setting, value in own.items() for word in ("--set", f"{setting}={value}")]
        return BrokerProcess(name, [*self._arguments, *pairs], ports, self._environment)

    def _registered_with(self) -> str:
        """This process's name server, and those of the settings."""
        return ";".join(filter(None, (self.namesrv, self._loaded.broker.namesrv)))

    async def _watch(self, broker: BrokerProcess) -> None:
        restarts = Restarts(self._clock.now())
        while True:
            code = await broker.ended()
            wait_ms = restarts.ended(self._clock.now())
            log.warning(
                "broker=%s pid=%d ended code=%d, starting it again in_ms=%d",
                broker.name,
                broker.pid,
                code,
                wait_ms,
            )
            await asyncio.sleep(wait_ms / 1000)
            restarts.started(self._clock.now())
            try:
                await broker.start()
            except (AerobeeError, OSError) as error:
                log.error("%s", error)
            else:
                log.info("broker=%s pid=%d is back", broker.name, broker.pid)

    async def _stop_brokers(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await asyncio.gather(*(broker.stop(STOP_MS) for broker in self._brokers))
