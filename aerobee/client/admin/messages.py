# SPDX-License-Identifier: Apache-2.0
"""Finding messages, and sending dead letters again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.client.consume.decoding import decode_messages
from aerobee.client.consume.raw_pull import PullStatus, pull
from aerobee.client.message import Message, Origin, ReceivedMessage, SendResult
from aerobee.client.produce.producer import Producer
from aerobee.client.trace_records import Traced, parse
from aerobee.errors import BrokerError, NoRoute, QueryNotFound
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.addresses import parse_address
from aerobee.protocol.filters.tags import subscribe
from aerobee.protocol.headers.offsets import QueryMessage, ViewMessage
from aerobee.protocol.ids import time_of
from aerobee.protocol.message import host_text, parse_offset_message_id
from aerobee.protocol.reading import PullRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aerobee.client.admin.asking import Asking
    from aerobee.client.admin.progress import Progress
    from aerobee.client.admin.topics import Topics
    from aerobee.protocol.bodies import MessageQueue

HOUR_MS = 3_600_000
TOPICS_AT_ONCE = 16
FOREVER = 2**63 - 1
RESEND_GROUP = "aerobee-resend"


class Messages:
    def __init__(self, asking: Asking, topics: Topics, progress: Progress) -> None:
        self._asking = asking
        self._topics = topics
        self._session = asking.session
        self._progress = progress

    async def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """By the producer's id or the broker's; without its topic every topic is asked for it. QueryNotFound when
        there is none."""
        if topic is not None:
            found = await self._by_unique_key(topic, message_id)
            return found or await self._by_offset_id(message_id, topic)
        try:
            return await self._by_offset_id(message_id, None)
        except QueryNotFound as error:
            found = await self._in_any_topic(message_id)
            if found is None:
                raise error from None
            return found

    async def _in_any_topic(self, message_id: str) -> ReceivedMessage | None:
        topics = await self._topics.user_topics()
        for at in range(0, len(topics), TOPICS_AT_ONCE):
            part = topics[at : at + TOPICS_AT_ONCE]
            asked = await asyncio.gather(*(self._looked_for(topic, message_id) for topic in part))
            if found := next(filter(None, asked), None):
                return found
        return None

    async def _looked_for(self, topic: str, message_id: str) -> ReceivedMessage | None:
        try:
            return await self._by_unique_key(topic, message_id)
        except (NoRoute, BrokerError):  # deleted meanwhile, or none of ours: the next one may have it
            return None

    async def _by_unique_key(self, topic: str, message_id: str) -> ReceivedMessage | None:
        try:
            begin = time_of(message_id, self._session.clock.wall()) - HOUR_MS
        except ValueError:
            begin = 0
        found = await self._query(topic, message_id, 32, begin, FOREVER, unique=True)
        return next((each for each in found if message_id in (each.unique_key, each.offset_id)), None)

    async def copies(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """All that a topic keeps under a producer's id, oldest first: of a retry topic, every attempt. Each has the
        topic it is kept in."""
        # Every broker, whatever the routes say: a topic that was made a moment ago may not be in them yet.
        header = QueryMessage(
            topic=topic,
            key=message_id,
            max_num=32,
            begin_timestamp=0,
            end_timestamp=FOREVER,
            unique_key=True,
        )
        found = await self._asked(header, await self._asking.masters())
        copies = [each for each in found if each.unique_key == message_id]
        for copy in copies:
            copy.topic = topic
        return copies

    async def trace(self, message_id: str, topic: str = names.TRACE_TOPIC) -> list[Traced]:
        """What clients that trace wrote down about a message, in the order it happened; at most 64 notes a broker."""
        try:
            notes = await self.messages_by_key(topic, message_id)
        except NoRoute:
            return []
        records = [Traced(record, note.born_address) for note in notes for record in parse(note.body)]
        about = [each for each in records if each.record.message_id == message_id]
        return sorted(about, key=lambda each: each.record.at)

    async def _by_offset_id(self, message_id: str, topic: str | None) -> ReceivedMessage:
        try:
            store_host, physical_offset = parse_offset_message_id(message_id)
        except ValueError:
            raise QueryNotFound(
                f"message {message_id!r} is unknown; it is no id of a broker either"
            ) from None
        return await self._view(host_text(store_host), physical_offset, message_id, topic)

    async def _view(
        self, address: str, physical_offset: int, message_id: str, topic: str | None
    ) -> ReceivedMessage:
        names_by_address = {address: name for name, address in (await self._asking.masters()).items()}
        if address not in names_by_address:
            raise QueryNotFound(f"message {message_id!r} is not found by key{_no_broker_at(address)}")
        answer = await self._session.call(
            address, ViewMessage(offset=physical_offset, topic=topic), timeout_ms=TIMEOUT_MS
        )
        return decode_messages(answer.body, Origin(names_by_address[address]))[0]

    async def messages_by_key(
        self, topic: str, key: str, *, max_messages: int = 64, begin: int = 0, end: int = FOREVER
    ) -> list[ReceivedMessage]:
        """Messages with the key, by time of storing, at most 64 a broker; none is an empty list. NoRoute for a topic
        that nobody has sent to or made."""
        found = await self._query(topic, key, max_messages, begin, end, unique=False)
        return [message for message in found if key in message.keys and message.topic == topic]

    async def _query(
        self, topic: str, key: str, max_messages: int, begin: int, end: int, *, unique: bool
    ) -> list[ReceivedMessage]:
        header = QueryMessage(
            topic=topic,
            key=key,
            max_num=max_messages,
            begin_timestamp=begin,
            end_timestamp=end,
            unique_key=unique,
        )
        return await self._asked(header, await self._asking.masters_of(topic))

    async def _asked(self, header: QueryMessage, masters: dict[str, str]) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for name, address in masters.items():
            try:
                answer = await self._session.call(address, header, timeout_ms=2 * TIMEOUT_MS)
            except QueryNotFound:
                continue
            found += decode_messages(answer.body, Origin(name))
        return sorted(found, key=lambda message: message.store_timestamp)

    async def message_at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Exactly the message of that offset. QueryNotFound when there is none."""
        async for message in self.browse(queue, offset, offset + 1):
            if message.queue_offset == offset:
                return message
        raise QueryNotFound(f"queue {queue} has no message at offset {offset}")

    async def browse(
        self, queue: MessageQueue, begin: int, end: int | None = None
    ) -> AsyncIterator[ReceivedMessage]:
        """Messages of a queue from offset `begin` up to `end` (not included), as no group's consumer."""
        await self._session.route(queue.topic)
        last = (await self._progress.offset_range(queue))[1] if end is None else end
        offset = begin
        while offset < last:
            request = PullRequest(
                group=names.TOOLS_GROUP,
                queue=queue,
                offset=offset,
                subscription=subscribe(queue.topic, "*", 0),
                max_messages=min(32, last - offset),
            )
            answer = await pull(self._session, request)
            for message in answer.messages:
                if message.queue_offset < last:
                    yield message
            if answer.status is PullStatus.NO_NEW_MESSAGE or answer.next_offset <= offset:
                return
            offset = answer.next_offset

    # -- dead letters --------------------------------------------------------------------------------------

    async def dead_letters(self, group: str) -> AsyncIterator[ReceivedMessage]:
        """All dead letters of a group, oldest first by queue; nothing before the first message has died."""
        topic = names.dead_letter_topic(group)
        try:
            queues = (await self._session.refresh_route(topic)).readable
        except NoRoute:
            return  # no message has died yet
        for queue in queues:
            begin, end = await self._progress.offset_range(queue)
            async for message in self.browse(queue, begin, end):
                yield message

    async def resend_dead_letters(
        self, group: str, *, choose: Callable[[ReceivedMessage], bool] | None = None
    ) -> list[SendResult]:
        """Send dead letters to the topic they came from, as new messages with the old id in ORIGIN_MESSAGE_ID. The
        dead-letter topic keeps its copies; `choose` picks which ones to send."""
        async with Producer(self._session, group=RESEND_GROUP) as producer:
            return [
                await producer.send(as_new(letter))
                async for letter in self.dead_letters(group)
                if choose is None or choose(letter)
            ]


def as_new(letter: ReceivedMessage) -> Message:
    """A dead letter as a message to the topic it was first sent to."""
    topic = letter.property(props.RETRY_TOPIC) or letter.property(props.DLQ_ORIGIN_TOPIC)
    if not topic:
        raise ValueError(f"dead letter {letter.message_id} does not say which topic it came from")
    return copy_of(letter, topic)


def copy_of(kept: ReceivedMessage, topic: str) -> Message:
    """A new message with the body, tags, keys and own properties of one there is, and its id as ORIGIN_MESSAGE_ID."""
    own = {name: value for name, value in kept.properties.items() if name not in props.RESERVED}
    message = Message(
        topic,
        kept.body,
        tags=kept.tags,
        keys=kept.keys,
        properties=own,
        sharding_key=kept.sharding_key,
        flag=kept.flag,
    )
    message.properties = {**own, props.ORIGIN_MESSAGE_ID: kept.message_id}
    return message


def _no_broker_at(address: str) -> str:
    """Empty where no server could be: then it was no broker's id."""
    try:
        parse_address(address)
    except ValueError:
        return ""
    return f", and {address} is no broker here"
