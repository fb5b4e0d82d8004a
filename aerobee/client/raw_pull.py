# SPDX-License-Identifier: Apache-2.0
"""One pull of one queue, as asked: no inbox, no offsets kept, no rebalance. What pull consumers are built on."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.decoding import decode_messages
from aerobee.client.fetch_loop import ANSWERS, wanted
from aerobee.client.message import Origin, ReceivedMessage
from aerobee.errors import NoRoute
from aerobee.protocol.codes import PullFlag
from aerobee.protocol.headers.consume import LitePullMessage, PullResult

if TYPE_CHECKING:
    from aerobee.client.session import Session
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.filters.tags import Subscription

EXTRA_WAIT_MS = 10_000  # beyond the broker's hold


class PullStatus(Enum):
    FOUND = 0
    NO_NEW_MESSAGE = 19
    NO_MATCHED_MESSAGE = 20
    OFFSET_ILLEGAL = 21


class PullAnswer(msgspec.Struct, frozen=True):
    """`next_offset` is where to go on; at OFFSET_ILLEGAL, the nearest offset there is."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    queue: MessageQueue
    offset: int
    subscription: Subscription
    max_messages: int = 32
    max_bytes: int = 2**31 - 1
    hold_ms: int = 0


async def pull(session: Session, request: PullRequest) -> PullAnswer:
    """Held by the broker for up to `hold_ms` when there is nothing."""
    queue = request.queue
    address = session.routes.address(queue.broker_name)
    if address is None:
        await session.refresh_route(queue.topic)
        address = session.routes.address(queue.broker_name)
    if address is None:
        raise NoRoute(f"broker {queue.broker_name!r} has no address in the route of topic {queue.topic!r}")
    flags = PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL | (PullFlag.SUSPEND if request.hold_ms else 0)
    header = LitePullMessage(
        consumer_group=request.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=request.offset,
        max_msg_nums=request.max_messages,
        sys_flag=flags,
        suspend_timeout_millis=request.hold_ms,
        subscription=request.subscription.expression,
        sub_version=request.subscription.version,
        expression_type=request.subscription.kind,
        max_msg_bytes=request.max_bytes,
        broker_name=queue.broker_name,
    )
    answer = await session.call(address, header, timeout_ms=request.hold_ms + EXTRA_WAIT_MS, accept=ANSWERS)
    result = answer.fields(PullResult)
    messages: list[ReceivedMessage] = []
    if answer.code == 0:
        messages = decode_messages(
            answer.body, Origin(queue.broker_name, result.min_offset, result.max_offset)
        )
        messages = wanted(messages, request.subscription)
    return PullAnswer(
        PullStatus(answer.code), messages, result.next_begin_offset, result.min_offset, result.max_offset
    )
