# SPDX-License-Identifier: Apache-2.0
"""POP by hand: receive, then ack each message, or let it come again."""

from __future__ import annotations

import asyncio
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Self

from aerobee.client import spans
from aerobee.client.consume.iteration import Messages
from aerobee.client.consume.membership import GroupMember
from aerobee.client.consume.popped import PopAnswer, pop
from aerobee.client.consume.start_offset import Start, StartPoint
from aerobee.client.consume.subscriptions import Expression, Subscriptions
from aerobee.client.options import SimpleOptions
from aerobee.client.session.once_more import once_more_if_lost
from aerobee.client.session.session import Session
from aerobee.errors import AerobeeError, NoRoute, SystemFailure
from aerobee.protocol import bodies, reading
from aerobee.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageQueue
from aerobee.protocol.headers.consume import Notification, NotificationResult
from aerobee.protocol.reading import ANY_QUEUE, EXTRA_WAIT_MS, PopRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.message import ReceivedMessage
    from aerobee.clock import Clock
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.client.pop")

MAX_MESSAGES = 32
LET_GO_EARLY_MS = 50  # brokers answer a held request so long before its time is over


class SimpleConsumer:
    """Receives messages and answers for each.

    >>> async with SimpleConsumer("127.0.0.1:9876", group="shipping", topics={"orders": "*"}) as consumer:
    ...     for message in await consumer.receive(max_messages=32, invisible_ms=30_000):
    ...         await message.ack()                  # or message.nack(delay_ms), or message.extend(ms)

    A message received is invisible to all others for `invisible_ms`; without an ack it then comes again. Any number
    of consumers share any number of queues. With `ordered` a queue gives nothing more until what it gave is acked.
    """

    def __init__(  # noqa: PLR0913 - each is a real setting of a consumer
        self,
        namesrv: str | Session | None = None,
        *,
        group: str,
        topics: Mapping[str, Expression],
        ordered: bool = False,
        start: Start = "last",
        options: SimpleOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.session: Session[SimpleOptions] = Session.of_role(SimpleOptions, namesrv, options, clock)
        self.group = group
        self._clock = clock = self.session.clock
        self._ordered = ordered
        self._start = StartPoint.of(start)
        self._subscriptions = Subscriptions(topics, clock.now())
        if not topics:
            raise ValueError("topics is empty; name at least one topic to receive from")
        self._place = GroupMember(self, self.session, group, self._subscriptions)
        self._next = 0
        self._is_told_of = False  # that no topic is known yet
        spans.watch_receiver(self, "receive")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        try:
            await self._place.join()
            await self._place.announce()
            await self._place.check_admitted()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Messages received and not answered come again when their time has passed."""
        if self._place.is_in:
            await self._place.say_goodbye()
            await self._place.leave()

    # -- receiving -----------------------------------------------------------------------------------------

    async def receive(
        self, max_messages: int = MAX_MESSAGES, invisible_ms: int = 30_000, wait_ms: int = 15_000
    ) -> list[ReceivedMessage]:
        """As soon as there is something, at most 32 messages; an empty list when nothing came within `wait_ms`."""
        self._check(max_messages, invisible_ms, wait_ms)
        deadline = self._clock.now() + wait_ms
        attempt = str(uuid.uuid4()) if self._ordered else None
        left_ms = wait_ms
        while True:
            places = await self._places()
            if not places:
                deadline = await self._until_known(deadline)
                if deadline <= self._clock.now():
                    return []
                continue
            if len(places) == 1:
                left_ms = max(0, deadline - self._clock.now())
                answer = await self._pop(places[0], max_messages, invisible_ms, deadline, attempt)
                if answer.messages or left_ms == 0:
                    return answer.messages
            else:
                for place in places:
                    answer = await self._pop(place, max_messages, invisible_ms, 0, attempt)
                    if answer.messages:
                        return answer.messages
            before_ms, left_ms = left_ms, deadline - self._clock.now()
            if left_ms <= 0:
                return []
            if not await self._waited(places, answer, before_ms, left_ms):
                deadline = self._clock.now()  # look once more

    def messages(
        self, max_messages: int = MAX_MESSAGES, invisible_ms: int = 30_000, wait_ms: int = 15_000
    ) -> Messages:
        """One message after the other, each to be answered; `async with` gives back what was not handed out."""
        self._check(max_messages, invisible_ms, wait_ms)
        return Messages(partial(self.receive, max_messages, invisible_ms, wait_ms), lambda: self._place.is_in)

    def __aiter__(self) -> Messages:
        return self.messages()

    async def _places(self) -> list[tuple[str, str]]:
        """(topic, broker name) pairs, each time beginning at another one so that none starves."""
        places = []
        for topic in self._subscriptions:
            try:
                queues = (await self.session.route(topic)).readable
            except NoRoute:
                continue
            places += [(topic, name) for name in sorted({queue.broker_name for queue in queues})]
        if not places:
            return []
        self._next += 1
        turn = self._next % len(places)
        return places[turn:] + places[:turn]

    async def _until_known(self, deadline: int) -> int:
        """Rest before the routes are asked for again; until when, which is now if our clock stands still."""
        if not self._is_told_of:
            self._is_told_of = True
            log.warning(
                "group=%s: none of the topics %s is known to the name servers yet; the first send makes it, or "
                "`aerobee topics create`",
                self.group,
                ", ".join(self._subscriptions),
            )
        began = self._clock.now()
        if deadline <= began:
            return began
        await self._clock.sleep(min(deadline - began, 1_000))
        return deadline if self._clock.now() != began else began

    async def _pop(
        self, place: tuple[str, str], max_messages: int, invisible_ms: int, until: int, attempt: str | None
    ) -> PopAnswer:
        topic, broker_name = place
        subscription = self._subscriptions.get(topic)
        assert subscription is not None
        address = await self.session.master(broker_name, topic)

        async def ask() -> PopAnswer:
            request = PopRequest(
                group=self.group,
                queue=MessageQueue(broker_name, ANY_QUEUE, topic),
                subscription=subscription,
                max_messages=max_messages,
                invisible_ms=invisible_ms,
                hold_ms=max(0, until - self._clock.now()),
                from_first=self._start.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                ordered=self._ordered,
                attempt=attempt,
            )
            return await pop(self.session, address, reading.pop(request, self._clock.wall()))

        # What a pop took whose answer was lost comes again when its invisible time is over.
        answer = await once_more_if_lost(ask)
        unwanted = [m for m in answer.messages if subscription.tags and m.tags not in subscription.tags]
        for message in unwanted:  # same hash, other tag: not ours, and not to come again
            await message.ack()
            answer.messages.remove(message)
        return answer

    async def _waited(
        self, places: list[tuple[str, str]], answer: PopAnswer, before_ms: int, left_ms: int
    ) -> bool:
        """After a look that found nothing. False when the whole wait has gone by, though our clock may stand still."""
        clock = self._clock
        if answer_is_idle(places, answer):
            await clock.sleep(min(left_ms, 1_000))
        elif len(places) > 1:
            return await self._notified(places, left_ms)
        elif left_ms == before_ms and not answer.came:  # it was not held, or the clock stands
            at = clock.now()
            await clock.sleep(min(left_ms, LET_GO_EARLY_MS))
            return clock.now() != at
        return True

    async def _notified(self, places: list[tuple[str, str]], wait_ms: int) -> bool:
        """Until one of several places has something, without taking it from the others. False when none had in time."""
        asking = [asyncio.ensure_future(self._ask(place, wait_ms)) for place in places]
        try:
            told, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED, timeout=wait_ms / 1000)
            return bool(told)
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, place: tuple[str, str], wait_ms: int) -> bool:
        topic, broker_name = place
        header = Notification(
            consumer_group=self.group,
            topic=topic,
            queue_id=ANY_QUEUE,
            poll_time=wait_ms,
            born_time=self._clock.wall(),
            order=self._ordered,
        )
        address = await self.session.master(broker_name, topic)
        try:
            answer = await self.session.call(address, header, timeout_ms=wait_ms + EXTRA_WAIT_MS)
        except AerobeeError as error:
            log.debug("notification failed topic=%s broker=%s: %s", topic, broker_name, error)
            await self._clock.sleep(1_000)
            return False
        return answer.fields(NotificationResult).has_msg

    def _check(self, max_messages: int, invisible_ms: int, wait_ms: int) -> None:
        self._place.check_in()
        if not 1 <= max_messages <= MAX_MESSAGES:
            raise ValueError(f"max_messages is {max_messages}; a pop gives 1 to {MAX_MESSAGES}")
        if invisible_ms <= 0:
            raise ValueError(f"invisible_ms is {invisible_ms}; it must be positive")
        if wait_ms < 0:
            raise ValueError(f"wait_ms is {wait_ms}; it cannot be negative")

    # -- what brokers ask for (through the session) --------------------------------------------------------

    def heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            consume_from_where=self._start.where,
            consume_type=ConsumeType.CONSUME_POP,
            group_name=self.group,
            subscription_data_set=self._subscriptions.data(),
        )

    def route_changed(self, topic: str) -> None:
        """Routes are looked at with every receive."""

    def members_changed(self) -> None:
        """Others may come and go: the broker balances."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """The broker keeps the progress of POP groups."""

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {}

    def running_info(self) -> bodies.ConsumerRunningInfo:
        return bodies.ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": ConsumeType.CONSUME_POP,
                "PROP_NAMESERVER_ADDR": self.session.namesrv,
            },
            subscription_set=self._subscriptions.data(),
        )

    async def consume_directly(self, record: Record, broker_name: str) -> bodies.ConsumeDirectlyResult:
        raise SystemFailure(f"group {self.group!r} receives by hand; there is no handler to call")


def answer_is_idle(places: list[tuple[str, str]], answer: PopAnswer) -> bool:
    """The broker holds no further request: wait here instead of asking again at once."""
    return len(places) == 1 and answer.full
