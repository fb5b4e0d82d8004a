# SPDX-License-Identifier: Apache-2.0
"""The producer: send one, many, a batch, one-way, with a reply."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from aerobee.client import spans
from aerobee.client.message import Message, SendResult
from aerobee.client.options import ProducerOptions
from aerobee.client.produce import queue_selector
from aerobee.client.produce.direct import DirectSends
from aerobee.client.produce.outgoing import check_batch, prepare, prepare_batch, split
from aerobee.client.produce.replies import Replies, nobody_waits
from aerobee.client.produce.sender import SINGLE, Sender
from aerobee.client.session.session import Session
from aerobee.client.trace import Tracer
from aerobee.errors import AerobeeError, InvalidHandle, SystemFailure
from aerobee.protocol import names
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import ONE_WAY
from aerobee.protocol.headers.produce import RecallMessage, RecallResult
from aerobee.protocol.ids import UniqueIds
from aerobee.protocol.message import pack_host
from aerobee.protocol.recall_handle import parse_handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.produce.queue_selector import Selector
    from aerobee.clock import Clock
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.fast_frames import Sending
    from aerobee.protocol.headers.produce import PushReply
    from aerobee.protocol.headers.transaction import CheckTransaction
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.client.producer")


class Producer:
    """Sends messages; any number of sends may be under way at once.

    >>> async with Producer("127.0.0.1:9876", group="shop") as producer:
    ...     sent = await producer.send(Message("orders", b"{}", tags="paid", keys=["o-1"]))

    A send that fails is tried again on other brokers, within `send_timeout_ms` altogether. When it returns, the
    broker has the message; when it raises a NetworkError, the broker may have it.
    """

    def __init__(
        self,
        namesrv: str | Session | None = None,
        *,
        group: str = "DEFAULT_PRODUCER",
        options: ProducerOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        names.check_group(group)
        self.session: Session[ProducerOptions] = Session.of_role(ProducerOptions, namesrv, options, clock)
        self.group = group
        self._options = self.session.options
        self._clock = self.session.clock
        ip = self.session.client_id.partition("@")[0]
        self._ids = UniqueIds(pack_host(ip, 0)[:-4], os.getpid(), self._clock)
        self._under_way = UnderWay(self._options.max_in_flight, self._options.max_in_flight_bytes)
        self._sender = Sender(self.session, group)
        self._replies = Replies(self.session)
        self._tracer = Tracer(self.session, self._sender, group) if self._options.trace else None
        self._open = False
        spans.watch_producer(self)

    # -- life ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        if self._open:
            raise RuntimeError(f"producer of group {self.group!r} was started already")
        if self.group in self.session.producers:
            raise ValueError(f"group {self.group!r} has a producer in this session already")
        self._open = True
        self.session.producers[self.group] = self
        await self.session.start()
        try:
            await self.session.meet_name_server()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Sends under way are waited for, so long as `stop_wait_ms` at most."""
        if not self._open:
            return
        self._open = False
        await self._under_way.empty(self._options.stop_wait_ms)
        if self._tracer is not None:
            await self._tracer.close()
        await self.session.leave(producer_group=self.group)
        del self.session.producers[self.group]
        self._sender.close()
        await self.session.stop()

    # -- sending -------------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> SendResult:
        """Send and wait until the broker has it. The queue is the one given, or the selector's choice, or that of
        the message's sharding key, or the next in turn."""
        sending = self._prepared(message)
        size = len(sending.body)
        if not self._under_way.try_enter(size):
            await self._under_way.enter(size)
        try:
            if queue is None and (selector is not None or message.sharding_key):
                queue = await self._sender.in_turn(
                    message.topic, partial(self._select, message, selector, argument)
                )
            started = self._sender.start_now(sending, queue)
            if started is None:
                result = await self._sender.send(sending, SINGLE, queue)
            else:
                call, chosen = started
                try:
                    result = self._sender.finish(await call, sending, chosen)
                except AerobeeError as error:
                    result = await self._sender.send_elsewhere(error, sending, queue, chosen)
                except RuntimeError:  # asyncio's, of a future of another loop
                    self.session.check_loop()
                    raise
        finally:
            self._under_way.leave(size)
        if self._tracer is not None:
            self._tracer.sent(message, sending, result, self._clock.wall())
        return result

    def _prepared(self, message: Message) -> Sending:
        if not self._open:
            self._check_open()
        now = self._clock.wall()
        if message.message_id is None:
            message.message_id = self._ids.next(now)
        return prepare(message, self._options, now)

    def _direct_sends(self) -> DirectSends:
        """For a caller that blocks."""
        return DirectSends(self.session, self._sender, self._prepared)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without asking for an answer: fast, and nobody knows whether it arrived."""
        self._check_open()
        message.message_id = message.message_id or self._ids.next()
        sending = prepare(message, self._options, self._clock.wall())
        sending.command_flag = ONE_WAY
        if queue is None and message.sharding_key:
            queue = await self._select(message, None, None)
        await self._sender.send_oneway(sending, queue)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """Several messages of one topic in as few requests as the size limit allows; a result per request."""
        self._check_open()
        check_batch(messages)
        for message in messages:
            message.message_id = message.message_id or self._ids.next()
        results = []
        for part in split(messages, self._options.max_message_bytes):
            sending = prepare_batch(part, self._clock.wall())
            await self._under_way.enter(len(sending.body))
            try:
                results.append(await self._sender.send(sending, RequestCode.SEND_BATCH_MESSAGE, queue))
            finally:
                self._under_way.leave(len(sending.body))
        return results

    async def recall(self, topic: str, handle: str | None) -> str:
        """Take back a message that waits for its time (`deliver_at` or `delay_ms`), by the `recall_handle` of its
        send result; returns its id, until its time also when it was taken back before. IllegalOperation when that
        is over, InvalidHandle for a text that is none. A broker that is away is waited for, as by `send`."""
        self._check_open()
        if handle is None:
            raise InvalidHandle(
                "recall handle is None: what was sent does not wait, or only by a delay level"
            )
        kept_by = parse_handle(handle).broker_name
        header = RecallMessage(
            producer_group=self.group, topic=topic, recall_handle=handle, broker_name=kept_by
        )

        async def ask() -> str:
            await self._sender.queues(topic)
            address = await self.session.master(kept_by, topic)
            return (await self.session.call(address, header)).fields(RecallResult).msg_id

        return await self._sender.patiently(topic, ask)

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues a message to `topic` may go to."""
        names.check_topic(topic)
        return await self._sender.queues(topic)

    async def _select(self, message: Message, selector: Selector | None, argument: Any) -> MessageQueue:
        queues = await self._sender.queues(message.topic)
        if selector is not None:
            return queue_selector.by_selector(queues, message, selector, argument)
        return queue_selector.by_sharding_key(queues, message.sharding_key or "")

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError(f"producer of group {self.group!r} is not started, or stopped")

    # -- request and reply ---------------------------------------------------------------------------------

    async def request(self, message: Message, timeout_ms: int = 3_000) -> ReceivedMessage:
        """Send and wait for a consumer's reply. RequestTimeout when none comes in time."""
        self._check_open()
        message.message_id = message.message_id or self._ids.next()
        await self._sender.queues(message.topic)
        await self.session.heartbeat()  # the broker must know us to bring the reply
        with self._replies.expect(timeout_ms) as waiting:
            extra = waiting.properties(self.session.client_id, timeout_ms)
            sending = prepare(message, self._options, self._clock.wall(), extra)
            queue = await self._select(message, None, None) if message.sharding_key else None
            await self._sender.send(sending, RequestCode.SEND_MESSAGE_V2, queue)
            return await waiting.reply()

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult | None:
        """Answer a message that was sent by `request`; used by consumers. None when no request waits for it any more:
        it timed out, or who asked has gone."""
        self._check_open()
        topic, extra = self._replies.answer_properties(request)
        message = Message(topic, body, message_id=self._ids.next())
        sending = prepare(message, self._options, self._clock.wall(), extra)
        try:
            return await self._sender.send(sending, RequestCode.SEND_REPLY_MESSAGE_V2, None)
        except SystemFailure as refused:
            if not nobody_waits(request, refused):
                raise
            log.info(
                "no request waits for this reply any more message_id=%s: %s", request.message_id, refused
            )
            return None

    # -- what brokers ask for (through the session) --------------------------------------------------------

    async def check_transaction(self, address: str, header: CheckTransaction, record: Record) -> None:
        """Only a transaction producer can answer; the broker will ask another member of the group."""

    def reply_arrived(self, header: PushReply, body: bytes) -> bool:
        return self._replies.arrived(header, body)


class UnderWay:
    """Bounds what is sent and not answered: a count and a number of bytes. Who comes when it is full waits, in order.

    `enter` before, `leave` after. The first one always enters, however big.
    """

    __slots__ = ("_emptied", "_max_bytes", "_max_count", "_waiting", "bytes", "count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._emptied: asyncio.Future[None] | None = None
        self.count = 0
        self.bytes = 0

    def try_enter(self, size: int) -> bool:
        if self._waiting or (self.count and not self._has_room(size)):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def enter(self, size: int) -> None:
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # it was our turn already
            raise

    def leave(self, size: int) -> None:
        self.count -= 1
        self.bytes -= size
        if not self.count and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        while self._waiting:
            turn, wanted = self._waiting[0]
            if not turn.done():
                if not self._has_room(wanted):
                    return
                self.count += 1
                self.bytes += wanted
                turn.set_result(None)
            self._waiting.popleft()

    async def empty(self, wait_ms: int) -> bool:
        """Wait, so long at most, until nothing is under way."""
        if self.count:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=wait_ms / 1000)
        return not self.count

    def _has_room(self, size: int) -> bool:
        return not self.count or (self.count < self._max_count and self.bytes + size <= self._max_bytes)
