# SPDX-License-Identifier: Apache-2.0
"""What a reader asks for, and the header that asks for it: every pull and pop we send is made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from aerobee.protocol.codes import PullFlag, ResponseCode
from aerobee.protocol.headers.consume import LitePullMessage, PopMessage, PullMessage

if TYPE_CHECKING:
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.filters.tags import Subscription

Pull = TypeVar("Pull", bound=PullMessage)

ANY_QUEUE = -1
INIT_MIN, INIT_MAX = 0, 1  # where a POP group that never read a queue begins
ORDINARY_MESSAGES = 32  # more in one answer only for who asks for bulk, and from an Aerobee broker
EXTRA_WAIT_MS = 10_000  # a held request is answered late; the network may take longer still
# What a pull is answered with, found or not; any other code is a refusal.
PULL_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pull of one queue. Nothing held and nothing committed unless it says so."""

    group: str
    queue: MessageQueue
    offset: int
    subscription: Subscription
    max_messages: int = 32
    max_bytes: int = 2**31 - 1
    hold_ms: int = 0
    commit: int = 0  # the group's offset to keep on the way; 0 = none


def lite_pull(request: PullRequest) -> LitePullMessage:
    """Of a consumer that looks after its own queues: the filter goes with every request."""
    return _header(LitePullMessage, request, PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL)


def pull(request: PullRequest) -> PullMessage:
    """With its filter, so that the broker need not know the group."""
    return _header(PullMessage, request, PullFlag.SUBSCRIPTION)


def member_pull(request: PullRequest) -> PullMessage:
    """Of a member of a group, whose filter the broker has from its heartbeats."""
    return msgspec.structs.replace(_header(PullMessage, request, PullFlag(0)), subscription=None)


def _header(kind: type[Pull], request: PullRequest, flags: PullFlag) -> Pull:
    if request.hold_ms:
        flags |= PullFlag.SUSPEND
    if request.commit:
        flags |= PullFlag.COMMIT_OFFSET
    return kind(
        consumer_group=request.group,
        topic=request.queue.topic,
        queue_id=request.queue.queue_id,
        queue_offset=request.offset,
        max_msg_nums=request.max_messages,
        sys_flag=int(flags),
        commit_offset=request.commit,
        suspend_timeout_millis=request.hold_ms,
        subscription=request.subscription.expression,
        sub_version=request.subscription.version,
        expression_type=request.subscription.kind,
        max_msg_bytes=request.max_bytes,
        broker_name=request.queue.broker_name,
        bulk=True if request.max_messages > ORDINARY_MESSAGES else None,
    )


class PopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pop of a queue, or of any queue of a broker."""

    group: str
    queue: MessageQueue
    subscription: Subscription
    max_messages: int
    invisible_ms: int
    hold_ms: int
    from_first: (
        bool  # where a group that never read the queue begins: at its first message, or after its last
    )
    ordered: bool = False
    attempt: str | None = None


def pop(request: PopRequest, now: int) -> PopMessage:
    return PopMessage(
        consumer_group=request.group,
        topic=request.queue.topic,
        queue_id=request.queue.queue_id,
        max_msg_nums=request.max_messages,
        invisible_time=request.invisible_ms,
        poll_time=request.hold_ms,
        born_time=now,
        init_mode=INIT_MIN if request.from_first else INIT_MAX,
        exp_type=request.subscription.kind,
        exp=request.subscription.expression,
        order=request.ordered,
        attempt_id=request.attempt,
        broker_name=request.queue.broker_name,
    )
