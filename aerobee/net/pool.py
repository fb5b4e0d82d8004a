# SPDX-License-Identifier: Apache-2.0
"""Dialled connections, one per address, shared by everyone in the process who talks to it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.errors import NetworkError, RequestCodeNotSupported
from aerobee.net.address import parse_address
from aerobee.net.connection import Answer, Connection, Handler, Limits, Observer

if TYPE_CHECKING:
    import ssl

    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.net")

DIAL_MS = 3000


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
        self._dialling: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    async def get(self, address: str) -> Connection:
        """The open connection to `address`, dialled when there is none; NetworkError when that fails."""
        connection = self.peek(address)
        if connection is not None:
            return connection
        if self._closed:
            raise NetworkError(f"not connecting to {address}: this client is closed")
        dial = self._dialling.get(address)
        if dial is None:
            dial = asyncio.get_running_loop().create_task(self._dial(address, *parse_address(address)))
            dial.add_done_callback(_retrieved)
            self._dialling[address] = dial
        try:
            return await asyncio.shield(dial)  # one caller's cancellation is not the others'
        except asyncio.CancelledError:
            if dial.cancelled():  # by close(), not our caller
                raise NetworkError(f"not connecting to {address}: this client is closed") from None
            raise

    def peek(self, address: str) -> Connection | None:
        """The connection to `address` if there is an open one now."""
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    @property
    def connections(self) -> dict[str, Connection]:
        return {address: connection for address, connection in self._open.items() if connection.is_open}

    async def _dial(self, address: str, host: str, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_MS / 1000):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._handler, self, self._limits), host, port, ssl=self._tls
                )
        except TimeoutError:
            raise NetworkError(f"cannot connect to {address} within {DIAL_MS} ms") from None
        except OSError as error:
            raise NetworkError(f"cannot connect to {address}: {error.strerror or error}") from error
        finally:
            del self._dialling[address]
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

    async def close(self) -> None:
        self._closed = True
        dials = list(self._dialling.values())
        for dial in dials:
            dial.cancel()
        for dial in dials:
            with suppress(asyncio.CancelledError, NetworkError):
                await dial
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()


def _retrieved(dial: asyncio.Task[Connection]) -> None:
    """Everyone who waited may have been cancelled: no "never retrieved" warning then."""
    if not dial.cancelled():
        dial.exception()
