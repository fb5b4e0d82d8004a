# SPDX-License-Identifier: Apache-2.0
"""A server's ports as clients have them, each as it is on the wire; gRPC without its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.service import NAME, Service
from aerobee.net.connection import Reply
from aerobee.net.pool import Pool
from tests.grpc_line import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Command
    from aerobee.server import Server


class Wires:
    """Commands as the caller made them, and what gRPC says beside its requests."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._pool = Pool(lambda connection, command: Reply())
        self.service = Service(server.broker)
        self._line = Line(self.service.method)

    @property
    def vip_address(self) -> str:
        return self.server._listeners[1].address

    async def connection(self, address: str = "") -> Connection:
        return await self._pool.get(address or self.server.broker_address)

    async def exchange(self, command: Command, address: str = "") -> Command:
        return await (await self.connection(address)).call(command, 10_000)

    async def unary(self, name: str, message: Any, said: Mapping[str, str]) -> Any:
        (answer,) = await self.answers(name, message, said)
        return answer

    async def answers(self, name: str, message: Any, said: Mapping[str, str]) -> list[Any]:
        answers = await self.asked(name, [message], said)
        return [getattr(pb, f"{name}Response").FromString(each) for each in answers]

    async def told(self, commands: Iterable[Any], said: Mapping[str, str]) -> list[Any]:
        """By telemetry."""
        return [
            pb.TelemetryCommand.FromString(each) for each in await self.asked("Telemetry", commands, said)
        ]

    async def asked(self, name: str, messages: Iterable[Any], said: Mapping[str, str]) -> list[bytes]:
        """The answers to a call as they come, whether or not anybody serves it."""
        data = [each.SerializeToString() for each in messages]
        return await self._line.ask(f"/{NAME}/{name}", *data, **{"x-mq-client-id": "c", **said})

    async def close(self) -> None:
        await self._line.close()
        await self._pool.close()
