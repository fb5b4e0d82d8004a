# SPDX-License-Identifier: Apache-2.0
"""A server's ports as clients have them, each as it is on the wire; gRPC without its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.fronts.grpc.service import NAME, Service
from aerobee.net.connection import Reply
from aerobee.net.pool import Pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Command
    from aerobee.server import Server


class Context:
    """What a gRPC handler asks of a call."""

    def __init__(self, said: Mapping[str, str]) -> None:
        self._said = said

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("x-mq-client-id", "c"), *self._said.items()]

    def peer(self) -> str:
        return "unix:"

    def time_remaining(self) -> float | None:
        return None


class Method:
    def __init__(self, name: str) -> None:
        self.method = f"/{NAME}/{name}"


class Wires:
    """Commands as the caller made them, and what gRPC says beside its requests."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._pool = Pool(lambda connection, command: Reply())
        self.service = Service(server.broker)
        self.grpc = self.service.handlers()

    @property
    def vip_address(self) -> str:
        return self.server._listeners[1].address

    async def connection(self, address: str = "") -> Connection:
        return await self._pool.get(address or self.server.broker_address)

    async def exchange(self, command: Command, address: str = "") -> Command:
        return await (await self.connection(address)).call(command, 10_000)

    async def unary(self, name: str, message: Any, said: Mapping[str, str]) -> Any:
        handler = self.grpc.service(Method(name))
        return await handler.unary_unary(message.SerializeToString(), Context(said))

    async def answers(self, name: str, message: Any, said: Mapping[str, str]) -> list[Any]:
        handler = self.grpc.service(Method(name))
        return [each async for each in handler.unary_stream(message.SerializeToString(), Context(said))]

    async def told(self, commands: Iterable[Any], said: Mapping[str, str]) -> list[Any]:
        """By telemetry."""

        async def all_of_them() -> AsyncIterator[bytes]:
            for each in commands:
                yield each.SerializeToString()

        stream = self.grpc.service(Method("Telemetry")).stream_stream
        return [each async for each in stream(all_of_them(), Context(said))]

    async def close(self) -> None:
        await self._pool.close()
