# SPDX-License-Identifier: Apache-2.0
"""Request and reply: a message that waits for another one. The reply is brought by the broker, on the connection of
the producer that asked, and matched by its correlation id."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aerobee.client.consume.decoding import received
from aerobee.client.message import Origin, ReceivedMessage
from aerobee.errors import RequestTimeout, SystemFailure
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.message import Record, pack_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.client.session.session import Session
    from aerobee.protocol.headers.produce import PushReply

REPLY = "reply"


class Waiting:
    """One request under way."""

    def __init__(self, correlation_id: str, timeout_ms: int) -> None:
        self.correlation_id = correlation_id
        self._timeout_ms = timeout_ms
        self.arrived: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()

    def properties(self, client_id: str, ttl_ms: int) -> str:
        return props.render(
            {
                props.CORRELATION_ID: self.correlation_id,
                props.REPLY_TO_CLIENT: client_id,
                props.TTL: str(ttl_ms),
            }
        )

    async def reply(self) -> ReceivedMessage:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self.arrived
        except TimeoutError:
            raise RequestTimeout(f"no reply to the request within {self._timeout_ms} ms") from None


class Replies:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: dict[str, Waiting] = {}

    @contextmanager
    def expect(self, timeout_ms: int) -> Iterator[Waiting]:
        waiting = Waiting(str(uuid.uuid4()), timeout_ms)
        self._waiting[waiting.correlation_id] = waiting
        try:
            yield waiting
        finally:
            del self._waiting[waiting.correlation_id]

    def arrived(self, header: PushReply, body: bytes) -> bool:
        """False when nobody here waits for it."""
        correlation_id = props.get(header.properties or "", props.CORRELATION_ID)
        waiting = self._waiting.get(correlation_id or "")
        if waiting is None or waiting.arrived.done():
            return False
        record = Record(
            header.topic,
            body,
            header.properties or "",
            header.queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_host(header.born_host),
            store_timestamp=header.store_timestamp,
            store_host=_host(header.store_host),
            reconsume_times=header.reconsume_times or 0,
        )
        waiting.arrived.set_result(received(record, Origin("")))
        return True

    def answer_properties(self, request: ReceivedMessage) -> tuple[str, str]:
        """The topic and the properties of a reply to `request`; ValueError when it does not wait for one."""
        correlation_id = request.property(props.CORRELATION_ID)
        client_id = request.property(props.REPLY_TO_CLIENT)
        cluster = request.property(props.CLUSTER)
        if not correlation_id or not client_id or not cluster:
            raise ValueError(f"message {request.message_id} waits for no reply: it was not sent by request()")
        found = {
            props.MSG_TYPE: REPLY,
            props.CORRELATION_ID: correlation_id,
            props.REPLY_TO_CLIENT: client_id,
        }
        ttl = request.property(props.TTL)
        if ttl:
            found[props.TTL] = ttl
        return names.reply_topic(cluster), props.render(found)


def nobody_waits(request: ReceivedMessage, refused: SystemFailure) -> bool:
    """Whether a reply was refused because it could not be brought to who asked, and for nothing else: then Aerobee's
    brokers and RocketMQ's name that client."""
    client_id = request.property(props.REPLY_TO_CLIENT)
    return client_id is not None and client_id in str(refused)


def _host(text: str) -> bytes:
    host, _, port = text.lstrip("/").rpartition(":")
    return pack_host(host.strip("[]"), props.whole_number(port, 0, 65535) or 0)
