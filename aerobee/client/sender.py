# SPDX-License-Identifier: Apache-2.0
"""One send: choose a broker, hand the frame over, wait for the answer, try elsewhere when that may help."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from aerobee.client import acl
from aerobee.client.deadlines import Deadlines
from aerobee.client.hot_send import Sending, SendTemplate
from aerobee.client.message import STATUS_BY_CODE, SendResult, SendStatus
from aerobee.client.queue_selector import Faults, InTurn
from aerobee.client.route_cache import TopicQueues, limited
from aerobee.errors import AerobeeError, BrokerError, NetworkError, NoRoute, RequestTimeout, error_for
from aerobee.protocol import command as wire
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.produce import SendResult as SendResultHeader

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from aerobee.client.session import Session
    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.client.producer")

# NO_BUYER_ID and NOT_IN_CURRENT_UNIT have no error class of their own.
RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})


class Sender:
    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._options = session.options
        self._clock = session.clock
        self._templates: dict[tuple[int, str, str], SendTemplate] = {}
        self._turns: dict[str, InTurn] = {}
        self._faults = Faults() if session.options.avoid_slow_brokers else None
        self._deadlines = Deadlines(session.clock)
        self._rendered_here = not session.options.access_key  # signed frames take the general way

    def close(self) -> None:
        self._deadlines.close()

    # -- queues --------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues; an unknown topic gets those of the template topic, whose brokers create it."""
        known = self._session.routes.get(topic)
        if known is None or not known.writable:
            try:
                known = await self._session.route(topic)
            except NoRoute:
                known = await self._from_template(topic)
        if not known.writable:
            known = await self._session.refresh_route(topic)
        if not known.writable:
            raise NoRoute(f"topic {topic!r} has no queue that may be written")
        return known.writable

    async def _from_template(self, topic: str) -> TopicQueues:
        try:
            template = await self._session.route(self._options.template_topic)
        except NoRoute:
            raise NoRoute(
                f"topic {topic!r} is unknown and the brokers create no topics: create it first"
            ) from None
        return self._session.adopt_route(topic, limited(template.route, self._options.new_topic_queues))

    def _choose(self, queues: Sequence[MessageQueue], topic: str, avoid: str | None) -> MessageQueue:
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = InTurn(hash((self._session.client_id, topic)) & 0xFFFF)
        if self._faults is not None:
            queues = self._faults.allowed(queues, self._clock.now())
        return turn.choose(queues, avoid)

    # -- sending -------------------------------------------------------------------------------------------

    async def send(self, sending: Sending, code: RequestCode, queue: MessageQueue | None) -> SendResult:
        """With a queue given there is one try; else retries go to other brokers while there is time."""
        known = self._session.routes.get(sending.topic)
        queues = known.writable if known is not None and known.writable else await self.queues(sending.topic)
        deadline = self._clock.now() + self._options.send_timeout_ms
        tries = 1 if queue is not None else 1 + self._options.send_retries
        avoid: str | None = None
        while True:
            chosen = queue or self._choose(queues, sending.topic, avoid)
            tries -= 1
            try:
                result = await self._try(sending, code, chosen, deadline)
                if tries == 0 or result.status is SendStatus.OK or not self._options.retry_unless_ok:
                    return result
            except AerobeeError as error:
                if tries == 0 or not _worth_a_retry(error) or self._clock.now() >= deadline:
                    raise
                log.info("send to broker=%s failed, trying again: %s", chosen.broker_name, error)
                queues = await self._after_failure(sending.topic, chosen, error) or queues
            avoid = chosen.broker_name

    async def _after_failure(
        self, topic: str, queue: MessageQueue, error: AerobeeError
    ) -> Sequence[MessageQueue] | None:
        if self._faults is not None:
            self._faults.failed(queue.broker_name, self._clock.now())
        if isinstance(error, NetworkError) or getattr(error, "refresh_route", False):
            try:
                return (await self._session.refresh_route(topic)).writable
            except AerobeeError:
                return None  # the route we have is the best there is
        return None

    async def _try(
        self, sending: Sending, code: RequestCode, queue: MessageQueue, deadline: int
    ) -> SendResult:
        address = self._session.routes.master(queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name!r} has no master now")
        connection = self._session.open_connection(address) or await self._session.connection(address)
        began = self._clock.now()
        call = self._start(connection, sending, code, queue)
        self._deadlines.watch(call, deadline)
        try:
            answer = await call
        except RequestTimeout:
            raise RequestTimeout(
                f"no answer from {address} to a send to {sending.topic!r} within {self._options.send_timeout_ms} ms"
            ) from None
        if self._faults is not None:
            self._faults.answered(queue.broker_name, self._clock.now() - began, self._clock.now())
        return _result(answer, sending, queue)

    def _start(
        self, connection: Connection, sending: Sending, code: RequestCode, queue: MessageQueue
    ) -> asyncio.Future[Command]:
        key = (code, sending.topic, queue.broker_name)
        template = self._templates.get(key)
        if template is None:
            template = SendTemplate(code, self._group, sending.topic, queue.broker_name, self._options)
            self._templates[key] = template
        if self._rendered_here:
            return connection.start_frame(partial(template.frame, queue_id=queue.queue_id, sending=sending))
        return connection.start_call(self._signed(template, queue, sending))

    def _signed(self, template: SendTemplate, queue: MessageQueue, sending: Sending) -> Command:
        frame = template.frame(0, queue.queue_id, sending)
        return acl.sign(wire.decode(memoryview(frame)[4:]), self._options)

    async def send_oneway(self, sending: Sending, queue: MessageQueue | None) -> None:
        queues = await self.queues(sending.topic)
        chosen = queue or self._choose(queues, sending.topic, None)
        address = self._session.routes.master(chosen.broker_name)
        if address is None:
            raise NoRoute(f"broker {chosen.broker_name!r} has no master now")
        connection = self._session.open_connection(address) or await self._session.connection(address)
        template = SendTemplate(
            RequestCode.SEND_MESSAGE_V2, self._group, sending.topic, chosen.broker_name, self._options
        )
        connection.send(self._signed(template, chosen, sending))


def _worth_a_retry(error: AerobeeError) -> bool:
    if isinstance(error, BrokerError):
        return error.code in RETRY_CODES
    return bool(getattr(error, "retryable", False)) or getattr(error, "code", None) in RETRY_CODES


def _result(answer: Command, sending: Sending, queue: MessageQueue) -> SendResult:
    status = STATUS_BY_CODE.get(answer.code)
    if status is None:
        raise error_for(answer.code, answer.remark)
    fields = answer.fields(SendResultHeader)
    stored = queue
    if fields.queue_id != queue.queue_id:
        stored = MessageQueue(queue.broker_name, fields.queue_id, sending.topic)
    return SendResult(
        status,
        sending.message_id,
        fields.msg_id,
        stored,
        fields.queue_offset,
        fields.transaction_id,
        fields.recall_handle,
    )
