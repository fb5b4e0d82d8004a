# SPDX-License-Identifier: Apache-2.0
"""What a push consumer tells an operator who asks through the broker, and consuming one message at his word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.consume.decoding import received
from aerobee.client.consume.handler import ConsumeResult
from aerobee.client.message import Origin
from aerobee.protocol import bodies, names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import VERSION_DESC

if TYPE_CHECKING:
    from aerobee.client.consume.handler import Handler, Outcome
    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.options import PushOptions
    from aerobee.protocol.message import Record

MIB = 1024 * 1024
_RESULTS = {
    ConsumeResult.SUCCESS: "CR_SUCCESS",
    ConsumeResult.RETRY: "CR_LATER",
    ConsumeResult.SUSPEND: "CR_LATER",
    ConsumeResult.COMMIT: "CR_COMMIT",
    ConsumeResult.ROLLBACK: "CR_ROLLBACK",
}


def running_info(member: Membership, started_at: int) -> bodies.ConsumerRunningInfo:
    return bodies.ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": member.session.namesrv,
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": str(member.ordered).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(started_at),
            "PROP_CLIENT_VERSION": VERSION_DESC,
        },
        mq_table={queue: _pulled(member, owned) for queue, owned in member.pulled.items()},
        mq_pop_table={
            queue: bodies.PopQueueInfo(
                dropped=popped.dropped, last_pop_timestamp=popped.last_pop, wait_ack_count=popped.unacked
            )
            for queue, popped in member.popped.items()
        },
        subscription_set=member.subscriptions.data(),
        status_table={
            topic: member.figures.status(topic, member.clock.now()) for topic in member.subscriptions
        },
    )


def _pulled(member: Membership, owned: OwnedQueue) -> bodies.ProcessQueueInfo:
    inbox = owned.inbox
    offsets, taken = inbox.offsets(), inbox.taken_offsets()
    return bodies.ProcessQueueInfo(
        cached_msg_count=len(offsets),
        cached_msg_min_offset=offsets[0] if offsets else 0,
        cached_msg_max_offset=offsets[-1] if offsets else 0,
        cached_msg_size_in_mi_b=inbox.size_bytes // MIB,
        commit_offset=member.offsets.memory.get(owned.queue) or 0,
        dropped=inbox.dropped,
        last_consume_timestamp=inbox.last_consume,
        last_lock_timestamp=inbox.last_lock,
        last_pull_timestamp=inbox.last_pull,
        locked=inbox.locked,
        transaction_msg_count=len(taken),
        transaction_msg_min_offset=taken[0] if taken else 0,
        transaction_msg_max_offset=taken[-1] if taken else 0,
        try_unlock_times=inbox.unlock_attempts,
    )


async def consume_directly(
    member: Membership[PushOptions], handler: Handler, record: Record, broker_name: str
) -> bodies.ConsumeDirectlyResult:
    """Outside of queues and offsets: the operator wants to see what the handler makes of it."""
    message = received(record, Origin(broker_name))
    if message.topic == names.retry_topic(member.group):
        message.topic = message.property(props.RETRY_TOPIC) or message.topic
    began = member.clock.now()
    outcome = await handler.call([message])
    return bodies.ConsumeDirectlyResult(
        consume_result=_result(outcome),
        order=member.ordered,
        auto_commit=member.options.ordered_auto_commit,
        remark=None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}",
        spent_time_mills=member.clock.now() - began,
    )


def _result(outcome: Outcome) -> str:
    return "CR_THROW_EXCEPTION" if outcome.error is not None else _RESULTS[outcome.result]
