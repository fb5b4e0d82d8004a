# SPDX-License-Identifier: Apache-2.0
"""gRPC requests: every call's message filled with odd values, or its bytes changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.service import NAME, Service
from aerobee.protocol.http2.frames import Reason, reset
from tests.fuzz.frames import NAMES, ODD
from tests.grpc_line import Line

if TYPE_CHECKING:
    from random import Random

    from aerobee.broker.broker import Broker

UNARY = [
    "QueryRoute", "QueryAssignment", "Heartbeat", "SendMessage", "EndTransaction", "RecallMessage", "AckMessage",
    "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue", "NotifyClientTermination", "UpdateOffset", "GetOffset",
    "QueryOffset",
]  # fmt: skip
STREAMS = ["ReceiveMessage", "PullMessage"]
NUMBERS = [0, 1, -1, 4, 2**31 - 1, -(2**31)]
LONGS = [*NUMBERS, 2**63 - 1, -(2**63), 1_700_000_000_000]
DEPTH = 5


class Calls:
    def __init__(self, broker: Broker, chance: Random) -> None:
        self.service = Service(broker)
        self._line = Line(self.service.method)
        self._chance = chance

    async def one(self) -> str:
        """Make one call; returns what it was."""
        name = self._chance.choice(UNARY if self._chance.random() < 0.9 else STREAMS)
        is_sound = name in STREAMS and self._chance.random() < 0.5
        message = self._reading(name) if is_sound else self._filled(getattr(pb, f"{name}Request")(), 0)
        data = bytearray(message.SerializeToString())
        for _ in range(0 if is_sound else self._chance.choice([0, 0, 0, 1, 3])):
            if data:
                data[self._chance.randrange(len(data))] = self._chance.randrange(256)
        asked = bytes(data)  # the front reads it itself: what is no protobuf is its to refuse
        self._line.connection.streams.forgive()
        client = "one" if is_sound else self._chance.choice(["", "one", "two", "x" * 300])
        number = self._line.call(f"/{NAME}/{name}", asked, x_mq_client_id=client)
        await self._answered(number, getattr(pb, f"{name}Response"))
        return f"{name} {bytes(data)!r}"

    def _reading(self, name: str) -> Any:
        """A sound request for what the odd ones have stored."""
        request = getattr(pb, f"{name}Request")(batch_size=32)
        request.group.name = request.message_queue.topic.name = "fuzz"
        request.message_queue.broker.name = "broker-a"
        request.filter_expression.type, request.filter_expression.expression = pb.TAG, "*"
        if name == "PullMessage":
            request.offset = self._chance.randrange(2000)
        else:
            request.invisible_duration.FromMilliseconds(10_000)
        return request

    async def _answered(self, number: int, kind: Any) -> None:
        """A call that waits is ended as by a client that goes away."""
        for _ in range(5):
            await asyncio.sleep(0)
        heard = self._line.hear(number)
        if not heard.ended:
            self._line.say(reset(number, Reason.NO_ERROR))
        elif heard.status:
            raise AssertionError(f"the call ended by {heard.headers[-1]}")
        for message in heard.messages:
            kind.FromString(message)

    def _filled(self, message: Any, depth: int) -> Any:
        for field in message.DESCRIPTOR.fields:
            if self._chance.random() < 0.3:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                getattr(message, field.name)[self._text()] = self._text()
            elif field.is_repeated:
                self._extend(getattr(message, field.name), field, depth)
            elif field.message_type is not None:
                if depth < DEPTH:
                    part = getattr(message, field.name)
                    part.SetInParent()
                    self._filled(part, depth + 1)
            else:
                setattr(message, field.name, self._scalar(field))
        return message

    def _extend(self, items: Any, field: FieldDescriptor, depth: int) -> None:
        for _ in range(self._chance.choice([0, 1, 1, 3])):
            if field.message_type is None:
                items.append(self._scalar(field))
            elif depth < DEPTH:
                self._filled(items.add(), depth + 1)

    def _scalar(self, field: FieldDescriptor) -> Any:
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            text = self._text()
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self._chance.choice([value.number for value in field.enum_type.values])
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self._chance.random() < 0.5
        choice = self._chance.choice(LONGS if kind == FieldDescriptor.CPPTYPE_INT64 else NUMBERS)
        return (
            abs(choice)
            if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
            else choice
        )

    def _text(self) -> str:
        if self._chance.random() < 0.5:
            return "fuzz"
        return self._chance.choice([*NAMES, *ODD]).encode(errors="replace").decode()
