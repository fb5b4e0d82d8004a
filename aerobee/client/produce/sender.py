# SPDX-License-Identifier: Apache-2.0
"""One send: choose a broker, hand the frame over, wait for the answer, try elsewhere when that may help."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.message import STATUS_BY_CODE, SendResult, SendStatus
from aerobee.client.produce.queue_selector import Faults, InTurn
from aerobee.client.session.deadlines import Deadlines
from aerobee.errors import AerobeeError, BrokerError, NetworkError, NoRoute, RequestTimeout, error_for
from aerobee.protocol import command as wire
from aerobee.protocol.accounts import sign
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.fast_frames import Sending, SendTemplate
from aerobee.protocol.headers.produce import SendResult as SendResultHeader
from aerobee.protocol.routing import TopicQueues, limited

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from aerobee.client.options import SendOptions
    from aerobee.client.session.session import Session
    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.client.producer")

# NO_BUYER_ID and NOT_IN_CURRENT_UNIT have no error class of their own.
RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})


class Sender:
    def __init__(self, session: Session[SendOptions], group: str) -> None:
        self._session = session
        self._group = group
        self._options = session.options
        self._clock = session.clock
        self._warm: dict[tuple[int, str, str], WarmConnection] = {}
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

    def start_now(
        self, sending: Sending, code: RequestCode, queue: MessageQueue | None
    ) -> tuple[asyncio.Future[Command], MessageQueue] | None:
        """The first try when nothing has to be waited for before, which is nearly always; else None."""
        topic = sending.topic
        known = self._session.routes.get(topic)
        if known is None or not known.writable:
            return None
        chosen = queue or self._choose(known.writable, topic, None)
        warm = self._warm_connection(code, topic, chosen.broker_name)
        if warm is None:
            return None
        call = self._start(warm, sending, chosen)
        self._deadlines.watch(call, self._deadline(sending))
        return call, chosen

    def _deadline(self, sending: Sending) -> int:
        """Its birth is told by the wall clock."""
        return sending.born - self._clock.ahead + self._options.send_timeout_ms

    def _warm_connection(self, code: RequestCode, topic: str, broker_name: str) -> WarmConnection | None:
        """The open way to a broker; None when it must be opened first."""
        key = (code, topic, broker_name)
        warm = self._warm.get(key)
        routes = self._session.routes
        if warm is not None and warm.version == routes.version and warm.connection.is_open:
            return warm
        address = routes.master(broker_name)
        connection = self._session.open_connection(address) if address else None
        if connection is None:
            return None
        template = warm.template if warm else self._template(code, topic, broker_name)
        warm = self._warm[key] = WarmConnection(template, connection, routes.version)
        return warm

    def _template(self, code: RequestCode, topic: str, broker_name: str) -> SendTemplate:
        options = self._options
        return SendTemplate(
            code, self._group, topic, broker_name, options.template_topic, options.new_topic_queues
        )

    async def finish(
        self, call: asyncio.Future[Command], sending: Sending, code: RequestCode, queue: MessageQueue | None,
        chosen: MessageQueue,
    ) -> SendResult:  # fmt: skip
        """Wait for a try begun by `start_now`; further tries follow when it fails."""
        try:
            result = result_of(await call, sending, chosen)
            if self._faults is not None:
                took_ms = self._clock.wall() - sending.born
                self._faults.answered(chosen.broker_name, took_ms, self._clock.now())
            if result.status is SendStatus.OK or not self._options.retry_unless_ok:
                return result
        except AerobeeError as error:
            if queue is not None or not self._options.send_retries or not _worth_a_retry(error):
                raise _named(error, sending, self._options.send_timeout_ms) from None
            log.info("send to broker=%s failed, trying again: %s", chosen.broker_name, error)
            await self._after_failure(sending.topic, chosen, error)
        return await self.send(
            sending, code, queue, avoid=chosen.broker_name, tries=self._options.send_retries
        )

    async def send(
        self,
        sending: Sending,
        code: RequestCode,
        queue: MessageQueue | None,
        *,
        avoid: str | None = None,
        tries: int | None = None,
    ) -> SendResult:
        """With a queue given there is one try; else retries go to other brokers while there is time."""
        queues = await self.queues(sending.topic)
        deadline = self._deadline(sending)
        tries = 1 if queue is not None else tries or 1 + self._options.send_retries
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
        connection = await self._session.connection(address)
        template = self._template(code, sending.topic, queue.broker_name)
        began = self._clock.now()
        call = self._start(WarmConnection(template, connection, 0), sending, queue)
        self._deadlines.watch(call, deadline)
        try:
            answer = await call
        except RequestTimeout as error:
            raise _named(error, sending, self._options.send_timeout_ms) from None
        if self._faults is not None:
            self._faults.answered(queue.broker_name, self._clock.now() - began, self._clock.now())
        return result_of(answer, sending, queue)

    def _start(self, warm: WarmConnection, sending: Sending, queue: MessageQueue) -> asyncio.Future[Command]:
        if self._rendered_here:
            return warm.connection.start_frame(
                partial(warm.template.frame, queue_id=queue.queue_id, sending=sending)
            )
        return warm.connection.start_call(self._signed(warm.template, queue, sending))

    def _signed(self, template: SendTemplate, queue: MessageQueue, sending: Sending) -> Command:
        frame = template.frame(0, queue.queue_id, sending)
        return sign(wire.decode(memoryview(frame)[4:]), self._options)

    async def send_oneway(self, sending: Sending, queue: MessageQueue | None) -> None:
        queues = await self.queues(sending.topic)
        chosen = queue or self._choose(queues, sending.topic, None)
        address = self._session.routes.master(chosen.broker_name)
        if address is None:
            raise NoRoute(f"broker {chosen.broker_name!r} has no master now")
        connection = self._session.open_connection(address) or await self._session.connection(address)
        template = self._template(RequestCode.SEND_MESSAGE_V2, sending.topic, chosen.broker_name)
        connection.send(self._signed(template, chosen, sending))


class WarmConnection(msgspec.Struct):
    """An open connection and the frames made for it, valid while the routes stay."""

    template: SendTemplate
    connection: Connection
    version: int


def _named(error: AerobeeError, sending: Sending, timeout_ms: int) -> AerobeeError:
    """A timeout told with what was asked; other errors say it themselves."""
    if type(error) is RequestTimeout:
        return RequestTimeout(
            f"no answer to a send to {sending.topic!r} within {timeout_ms} ms; it may have arrived"
        )
    return error


def _worth_a_retry(error: AerobeeError) -> bool:
    if isinstance(error, BrokerError):
        return error.code in RETRY_CODES
    return bool(getattr(error, "retryable", False)) or getattr(error, "code", None) in RETRY_CODES


def result_of(answer: Command, sending: Sending, queue: MessageQueue) -> SendResult:
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
