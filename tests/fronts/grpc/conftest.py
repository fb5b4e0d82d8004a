# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from aerobee import BrokerConfig, ManualClock, Server
from aerobee.fronts.grpc.generated import messaging_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

PREFIX = "/apache.rocketmq.v2.MessagingService/"


class Client:
    """The API as a client sees it, message by message: the official clients are in tests/interop."""

    def __init__(self, server: Server, channel: Any, client_id: str = "client-1") -> None:
        self.server = server
        self._channel = channel
        self.metadata = (
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.1.2"),
        )

    async def call(self, name: str, request: Any, *, metadata: Any = None) -> Any:
        unary = self._channel.unary_unary(
            PREFIX + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(pb, f"{name}Response").FromString,
        )
        return await unary(request, metadata=self.metadata if metadata is None else metadata, timeout=10)

    async def stream(self, name: str, request: Any, timeout: float = 10) -> list[Any]:
        stream = self._channel.unary_stream(
            PREFIX + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(pb, f"{name}Response").FromString,
        )
        return [answer async for answer in stream(request, metadata=self.metadata, timeout=timeout)]

    def telemetry(self) -> Any:
        open_stream = self._channel.stream_stream(
            PREFIX + "Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        return open_stream(metadata=self.metadata)

    async def send(self, topic: str, body: bytes = b"x", **system: Any) -> Any:
        message = pb.Message(body=body)
        message.topic.name = topic
        system.setdefault("message_id", "01" + "A" * 32)
        user = system.pop("user", {})
        if "deliver_at" in system:
            message.system_properties.delivery_timestamp.FromMilliseconds(system.pop("deliver_at"))
        keys = system.pop("keys", ())
        for name, value in system.items():
            setattr(message.system_properties, name, value)
        message.system_properties.keys.extend(keys)
        message.user_properties.update(user)
        return await self.call("SendMessage", pb.SendMessageRequest(messages=[message]))

    def receive_request(self, topic: str, group: str = "g", **fields: Any) -> Any:
        request = pb.ReceiveMessageRequest(
            batch_size=fields.pop("batch", 32), auto_renew=fields.pop("auto_renew", False)
        )
        request.group.name = group
        request.message_queue.topic.name = topic
        request.message_queue.id = fields.pop("queue", -1)
        if not request.auto_renew:
            request.invisible_duration.FromMilliseconds(fields.pop("invisible_ms", 30_000))
        request.long_polling_timeout.FromMilliseconds(fields.pop("poll_ms", 5_000))
        if "tags" in fields:
            request.filter_expression.type = pb.TAG
            request.filter_expression.expression = fields.pop("tags")
        if "sql" in fields:
            request.filter_expression.type = pb.SQL
            request.filter_expression.expression = fields.pop("sql")
        if "attempt_id" in fields:
            request.attempt_id = fields.pop("attempt_id")
        return request

    async def received(self, request: Any, timeout: float = 30) -> tuple[Any, list[Any]]:
        answers = await self.stream("ReceiveMessage", request, timeout)
        (status,) = [a.status for a in answers if a.WhichOneof("content") == "status"]
        return status, [a.message for a in answers if a.WhichOneof("content") == "message"]

    async def receive(self, topic: str, group: str = "g", **fields: Any) -> tuple[Any, list[Any]]:
        return await self.received(self.receive_request(topic, group, **fields))

    async def ack(self, topic: str, handle: str, group: str = "g") -> Any:
        request = pb.AckMessageRequest(entries=[pb.AckMessageEntry(message_id="m", receipt_handle=handle)])
        request.group.name, request.topic.name = group, topic
        return await self.call("AckMessage", request)

    async def change(self, topic: str, handle: str, ms: int, group: str = "g") -> Any:
        request = pb.ChangeInvisibleDurationRequest(receipt_handle=handle)
        request.group.name, request.topic.name = group, topic
        request.invisible_duration.FromMilliseconds(ms)
        return await self.call("ChangeInvisibleDuration", request)


@pytest.fixture
def client_type() -> type[Client]:
    """For tests that need a server or a channel of their own."""
    return Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        Server(ephemeral=True, grpc_port=0) as server,
        grpc.aio.insecure_channel(server.grpc_address) as channel,
    ):
        yield Client(server, channel)


@pytest.fixture
def client_of() -> Callable[..., AbstractAsyncContextManager[Client]]:
    """A client of a server with settings of its own, whose clock the test moves."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[Client]:
        server = Server(ephemeral=True, grpc_port=0, clock=ManualClock(), config=BrokerConfig(**settings))
        async with server, grpc.aio.insecure_channel(server.grpc_address) as channel:
            yield Client(server, channel)

    return start


@pytest.fixture
async def manual_client(client_of: Any) -> AsyncIterator[Client]:
    """On a server whose clock the test moves."""
    async with client_of() as client:
        yield client
