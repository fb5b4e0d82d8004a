# SPDX-License-Identifier: Apache-2.0
"""Dialled connections, one per address, shared by everyone in the process who talks to it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.errors import NetworkError, RequestCodeNotSupported
from aerobee.net.connection import Answer, Connection, Handler, Limits, Observer
from aerobee.net.shared import Shared
from aerobee.protocol.addresses import parse_address

if TYPE_CHECKING:
    import ssl

    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.net")

DIAL_MS = 3000
GOODBYE_MS = 1000  # how long TLS peers are waited for at the end


def serves_nothing(connection: Connection, command: Command) -> Answer:
    """The handler of one who only asks."""
    raise RequestCodeNotSupported(f"request code {command.code} is not supported")


class Pool:
    def __init__(
        self,
        handler: Handler = serves_nothing,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._tls = tls
        self._observer = observer
        self._open: dict[str, Connection] = {}
        self._dials = Shared(self._dial, "connecting to")
        self._leaving: set[Connection] = set()
        self._left: asyncio.Future[None] | None = None

    async def get(self, address: str) -> Connection:
        """The open connection to `address`, dialled when there is none; NetworkError when that fails."""
        return self.peek(address) or await self._dials.get(address)

    def peek(self, address: str) -> Connection | None:
        """The connection to `address` if there is an open one now."""
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    @property
    def connections(self) -> dict[str, Connection]:
        return {address: connection for address, connection in self._open.items() if connection.is_open}

    async def _dial(self, address: str) -> Connection:
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_MS / 1000):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._handler, self, self._limits), host, port, ssl=self._tls
                )
        except TimeoutError:
            raise NetworkError(f"cannot connect to {address} within {DIAL_MS} ms") from None
        except OSError as error:
            why = error.strerror or str(error) or "it closed the connection when TLS began"
            raise NetworkError(f"cannot connect to {address}: {why}") from error
        connection.attributes["address"] = address
        self._open[address] = connection
        return connection

    # -- what a connection tells its observer ------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        if self._observer:
            self._observer.opened(connection)

    def closed(self, connection: Connection) -> None:
        address = connection.attributes.get("address")
        if address is not None and self._open.get(address) is connection:
            del self._open[address]
        if self._observer:
            self._observer.closed(connection)
        self._leaving.discard(connection)
        if not self._leaving and self._left is not None and not self._left.done():
            self._left.set_result(None)

    async def close(self) -> None:
        await self._dials.close()
        self._leaving.update(self._open.values())
        self._open.clear()
        for connection in list(self._leaving):
            connection.close()
        if self._tls is not None and self._leaving:
            await self._until_left()

    async def _until_left(self) -> None:
        """TLS says goodbye in several turns of the loop: one that ends before cuts it off, and complains."""
        self._left = asyncio.get_running_loop().create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_MS / 1000):
                await asyncio.shield(self._left)
        for connection in list(self._leaving):
            connection.abort()
        await asyncio.sleep(0)
