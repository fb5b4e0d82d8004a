# SPDX-License-Identifier: Apache-2.0
"""Where a group begins to read a queue it has no offset for (RocketMQ's ConsumeFromWhere)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import names
from aerobee.protocol.bodies import ConsumeFromWhere
from aerobee.protocol.headers.offsets import GetMaxOffset, GetMinOffset, OffsetResult, SearchOffset

if TYPE_CHECKING:
    from aerobee.client.consume.offset_keeper import OffsetStore
    from aerobee.client.session.session import Session
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.command import Header

Start = str | int | datetime


class StartPoint(msgspec.Struct, frozen=True):
    where: ConsumeFromWhere
    timestamp: int = 0

    @classmethod
    def of(cls, start: Start) -> StartPoint:
        """'first', 'last', a datetime, epoch milliseconds, or RocketMQ's `yyyyMMddHHmmss`."""
        if start == "first":
            return cls(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        if start == "last":
            return cls(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
        return cls(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, _milliseconds(start))


def _milliseconds(start: Start) -> int:
    if isinstance(start, datetime):
        return round(start.timestamp() * 1000)
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return start
    if isinstance(start, str):
        for parse in (lambda text: datetime.strptime(text, "%Y%m%d%H%M%S"), datetime.fromisoformat):
            try:
                return round(parse(start).timestamp() * 1000)
            except ValueError:
                continue
    raise ValueError(f"start is {start!r}; give 'first', 'last', a datetime or epoch milliseconds")


async def start_offset(
    session: Session, store: OffsetStore, point: StartPoint, queue: MessageQueue, stored: int | None = None
) -> int:
    """The stored offset, or by the rule when there is none. Raises when a broker cannot be asked: the queue is
    then left for the next round, never started at a guess."""
    if stored is None:
        stored = await store.read(queue)
    if stored is not None and stored >= 0:
        return stored
    retry = names.is_retry(queue.topic)
    match point.where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0  # one below the first is repaired by the broker's answer
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return (
                await max_offset(session, queue)
                if retry
                else await offset_at(session, queue, point.timestamp)
            )
        case _:
            return 0 if retry else await max_offset(session, queue)


async def max_offset(session: Session, queue: MessageQueue) -> int:
    return await _ask(session, queue, GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))


async def min_offset(session: Session, queue: MessageQueue) -> int:
    return await _ask(session, queue, GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))


async def offset_at(session: Session, queue: MessageQueue, timestamp: int) -> int:
    """The first offset stored at or after `timestamp`."""
    return await _ask(
        session, queue, SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp)
    )


async def _ask(session: Session, queue: MessageQueue, header: Header) -> int:
    address = await session.master(queue.broker_name, queue.topic)
    answer = await session.call(address, header)
    return answer.fields(OffsetResult).offset
