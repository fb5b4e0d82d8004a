# SPDX-License-Identifier: Apache-2.0
"""One pull of one queue, as asked: no inbox, no offsets kept, no rebalance. What pull consumers are built on."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.consume.decoding import decode_pulled
from aerobee.errors import NoRoute
from aerobee.protocol.headers.consume import PullResult
from aerobee.protocol.reading import EXTRA_WAIT_MS, PULL_ANSWERS, lite_pull

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.session.session import Session
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.reading import PullRequest


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


async def pull(session: Session, request: PullRequest) -> PullAnswer:
    """Held by the broker for up to `hold_ms` when there is nothing."""
    queue = request.queue
    address = session.routes.master(queue.broker_name) or await _address(session, queue)
    answer = await session.call(
        address, lite_pull(request), timeout_ms=request.hold_ms + EXTRA_WAIT_MS, accept=PULL_ANSWERS
    )
    result = answer.fields(PullResult)
    messages: list[ReceivedMessage] = []
    if answer.code == 0:
        messages = decode_pulled(answer.body, queue.broker_name, result, request.subscription)
    return PullAnswer(
        PullStatus(answer.code), messages, result.next_begin_offset, result.min_offset, result.max_offset
    )


async def _address(session: Session, queue: MessageQueue) -> str:
    """Of whoever there is, while the master is away."""
    address = session.routes.address(queue.broker_name)
    if address is None:
        await session.refresh_route(queue.topic)
        address = session.routes.address(queue.broker_name)
    if address is None:
        raise NoRoute(f"broker {queue.broker_name!r} has no address in the route of topic {queue.topic!r}")
    return address
