# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's message trace: what happened to a message, as text messages in a topic that its tools read.

Fields are separated by 0x01, records end with 0x02, and the KEYS of a trace message name the messages it is about.
Tracing must never disturb what it traces: the buffer is bounded and a full one drops the newest records.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from typing import TYPE_CHECKING

from aerobee.client.consume.hooks import ReturnType
from aerobee.client.message import SendStatus
from aerobee.client.produce.sender import Sender
from aerobee.client.session.tasks import Tasks
from aerobee.clock import Alarm
from aerobee.errors import AerobeeError
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.message import host_text, parse_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.consume.hooks import Hooks
    from aerobee.client.message import Message, ReceivedMessage, SendResult
    from aerobee.client.options import SendOptions
    from aerobee.client.session.session import Session

log = logging.getLogger("aerobee.client.trace")

FIELD, RECORD = "\x01", "\x02"
REGION = "DefaultRegion"
NORMAL, HALF, COMMITTED, DELAYED = range(4)
MAX_WAITING = 65_536
AT_ONCE = 100
FLUSH_MS = 500
_CODES = {
    ReturnType.SUCCESS: 0,
    ReturnType.TIME_OUT: 1,
    ReturnType.EXCEPTION: 2,
    ReturnType.FAILED: 4,
}


def publish_record(group: str, message: Message, sending: Sending, result: SendResult, now: int) -> str:
    """One `Pub` record."""
    delayed = message.delay_level or message.deliver_at is not None or message.delay_ms is not None
    fields = (
        "Pub", sending.born, REGION, group, message.topic, result.message_id, message.tags or "",
        " ".join(message.keys), store_host(result.offset_id), len(message.body), now - sending.born,
        DELAYED if delayed else NORMAL, result.offset_id, str(result.status is SendStatus.OK).lower(),
    )  # fmt: skip
    return FIELD.join(map(str, fields)) + RECORD


def before_record(group: str, request_id: str, message: ReceivedMessage, now: int) -> str:
    fields = (
        "SubBefore", now, REGION, group, request_id, message.message_id, message.reconsume_times, " ".join(message.keys)
    )  # fmt: skip
    return FIELD.join(map(str, fields)) + RECORD


def after_record(
    group: str, request_id: str, message: ReceivedMessage, kind: ReturnType, took_ms: int, now: int
) -> str:
    fields = (
        "SubAfter", request_id, message.message_id, took_ms, str(kind is ReturnType.SUCCESS).lower(),
        " ".join(message.keys), _CODES[kind], now, group,
    )  # fmt: skip
    return FIELD.join(map(str, fields)) + RECORD


def store_host(offset_id: str) -> str:
    try:
        return host_text(parse_offset_message_id(offset_id.partition(",")[0])[0])
    except ValueError:
        return ""


class Tracer:
    def __init__(self, session: Session[SendOptions], sender: Sender, group: str) -> None:
        self._session = session
        self._sender = sender
        self._group = group
        self._waiting: deque[tuple[str, list[str]]] = deque()
        self._alarm = Alarm(session.clock)
        self._tasks = Tasks()
        self.dropped = 0

    def sent(self, message: Message, sending: Sending, result: SendResult, now: int) -> None:
        record = publish_record(self._group, message, sending, result, now)
        self._add(record, [result.message_id, *message.keys])

    def consuming(self, messages: Sequence[ReceivedMessage]) -> None:
        """A hook: before the handler."""
        now = self._session.clock.wall()
        for message in self._traced(messages):
            record = before_record(self._group, _request_id(message), message, now)
            self._add(record, [message.message_id, *message.keys])

    def consumed(self, messages: Sequence[ReceivedMessage], kind: ReturnType, took_ms: int) -> None:
        """A hook: after the handler."""
        now = self._session.clock.wall()
        for message in self._traced(messages):
            record = after_record(self._group, _request_id(message), message, kind, took_ms, now)
            self._add(record, [message.message_id, *message.keys])

    def _traced(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Traces are not: each would make the next."""
        return [message for message in messages if message.topic != self._session.options.trace_topic]

    def _add(self, record: str, keys: list[str]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append((record, keys))
        if len(self._waiting) == 1:
            self._tasks.start(self._flush_soon(), "trace")
        elif len(self._waiting) >= AT_ONCE:
            self._alarm.ring()

    async def _flush_soon(self) -> None:
        await self._alarm.wait(FLUSH_MS)
        await self.flush()

    async def flush(self) -> None:
        while self._waiting:
            part = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            keys = " ".join(dict.fromkeys(key for _, keys in part for key in keys if key))
            text = f"KEYS\x01{keys}\x02WAIT\x01false\x02UNIQ_KEY\x01{uuid.uuid4().hex.upper()}\x02"
            body = "".join(record for record, _ in part).encode()
            sending = Sending(self._session.options.trace_topic, body, text, "", self._session.clock.wall())
            try:
                await self._sender.send(sending, RequestCode.SEND_MESSAGE_V2, None)
            except AerobeeError as error:
                log.warning("trace records lost count=%d: %s", len(part), error)

    async def close(self) -> None:
        await self._tasks.cancel()
        await self.flush()
        if self.dropped:
            log.warning(
                "group=%s: %d trace records dropped: brokers were too slow", self._group, self.dropped
            )


def of_consumer(session: Session[SendOptions], group: str, hooks: Hooks) -> Tracer | None:
    """A tracer of what a consumer is given and how it ends, when the options ask for one."""
    if not session.options.trace:
        return None
    tracer = Tracer(session, Sender(session, group), group)
    hooks.add(tracer.consuming, tracer.consumed)
    return tracer


def _request_id(message: ReceivedMessage) -> str:
    # Ties the records before and after one delivery together.
    return f"{message.message_id}@{message.reconsume_times}"
