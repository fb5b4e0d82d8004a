# SPDX-License-Identifier: Apache-2.0
"""Looking through a topic from its newest message backwards, as no group's consumer.

Theory of operation. Each queue is read backwards in small steps; the queues are merged by the time of storing, newest
first. What is sought is compared here, so it works on every broker, also on one whose own filter is switched off. A look
ends with enough found, or after so many messages or bytes, and says where the next one goes on: an end for each queue.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.protocol.filters import SQL92, compile_filter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aerobee.client.admin import Admin
    from aerobee.client.message import ReceivedMessage
    from aerobee.protocol.bodies import MessageQueue

STEP = 8  # messages of a queue read at once
MAX_QUEUES = 64  # looked through together; of a topic with more, one is chosen
FOUND = 25
LOOKED_AT = 2_000
MAX_BYTES = 24 * 1024 * 1024


@dataclass(frozen=True)
class Sought:
    """What a message must be like."""

    tag: str = ""
    sql: str = ""
    since: int = 0  # stored not before

    def accepts(self) -> Accepts:
        return Accepts(self)


class Accepts:
    def __init__(self, sought: Sought) -> None:
        self._tags = {tag.strip() for tag in sought.tag.split("||") if tag.strip() not in ("", "*")}
        self._filter = compile_filter(SQL92, sought.sql) if sought.sql else None

    def __call__(self, message: ReceivedMessage) -> bool:
        if self._tags and message.tags not in self._tags:
            return False
        if self._filter is None or self._filter.properties is None:
            return True
        return self._filter.properties(message.properties)


@dataclass
class Look:
    found: list[ReceivedMessage] = field(default_factory=list)
    looked_at: int = 0
    read_bytes: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)  # where the next look goes on
    is_over: bool = True  # nothing older is left

    @property
    def is_enough(self) -> bool:
        return len(self.found) >= FOUND or self.looked_at >= LOOKED_AT or self.read_bytes >= MAX_BYTES


async def look_back(admin: Admin, ends: dict[MessageQueue, int], sought: Sought) -> Look:
    """Messages before the ends, newest first."""
    look, accepts = Look(ends=dict(ends)), sought.accepts()
    reading = [_backwards(admin, queue, end) for queue, end in ends.items()]
    heads: list[tuple[int, int, ReceivedMessage]] = []
    for number, messages in enumerate(reading):
        await _next(heads, number, messages)
    while heads:
        if look.is_enough:
            look.is_over = False
            return look
        _, number, message = heapq.heappop(heads)
        if message.store_timestamp < sought.since:
            break  # the others are older still
        look.looked_at += 1
        look.read_bytes += len(message.body)
        look.ends[message.queue] = message.queue_offset
        if accepts(message):
            look.found.append(message)
        await _next(heads, number, reading[number])
    return look


async def _next(
    heads: list[tuple[int, int, ReceivedMessage]], number: int, messages: AsyncIterator[ReceivedMessage]
) -> None:
    async for message in messages:
        heapq.heappush(heads, (-message.store_timestamp, number, message))
        return


async def _backwards(admin: Admin, queue: MessageQueue, end: int) -> AsyncIterator[ReceivedMessage]:
    low, high = await admin.offset_range(queue)
    end = min(end, high)
    while end > low:
        begin = max(low, end - STEP)
        step = [message async for message in admin.browse(queue, begin, end)]
        for message in reversed(step):
            # As it is kept: retries would else be said to be in the topic they came from.
            message.topic = queue.topic
            yield message
        end = begin


async def newest(admin: Admin, queues: Sequence[MessageQueue], until: int | None) -> dict[MessageQueue, int]:
    """The ends a look begins with: those of the queues, or where they stood at a time."""
    if until is None:
        return {queue: (await admin.offset_range(queue))[1] for queue in queues}
    return {queue: await admin.offset_at(queue, until) for queue in queues}
