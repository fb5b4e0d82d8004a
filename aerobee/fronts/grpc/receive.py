# SPDX-License-Identifier: Apache-2.0
"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, dead letters: POP by another wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee import native
from aerobee.broker.delivery.keeping import until_kept
from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.pop import Pop
from aerobee.broker.operations.receive import receive
from aerobee.broker.operations.renew import extend, give_back, give_up, keep_alive, take_over
from aerobee.errors import AerobeeError, ProtocolError
from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK, Refused, common, status_of
from aerobee.protocol.filters.tags import SQL92, TAG, parse_tags
from aerobee.protocol.receipt import Receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.broker.broker import Broker
    from aerobee.broker.operations.receive import Delivery
    from aerobee.fronts.grpc.caller import Caller
    from aerobee.fronts.grpc.telemetry import Peer

RESERVE_MS = 500  # whatever the client asks for, an answer leaves this long before its deadline
ANY_QUEUE = -1


async def receive_message(caller: Caller, request: Any, broker: Broker) -> AsyncIterator[Any]:
    """Status, messages, delivery time: the stream's order."""
    peer = caller.peer
    asked = _pop_request(request, broker, peer, caller.remaining_ms)
    deliveries = await receive(asked, broker)
    if not deliveries:
        yield pb.ReceiveMessageResponse(
            status=pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no message within the time to wait")
        )
        yield _delivered_at(broker)
        return
    done = 0
    try:
        yield pb.ReceiveMessageResponse(status=OK)
        for delivery in deliveries:
            if request.auto_renew:
                keep_alive(peer.client_id, asked.group, asked.topic, delivery.receipt, broker)
            yield _brought(delivery, asked.topic)
            done += 1
        yield _delivered_at(broker)
    finally:
        for delivery in deliveries[done:]:  # the client left in the middle: the rest is somebody else's
            give_back(asked.group, asked.topic, delivery.receipt, broker)


def _delivered_at(broker: Broker) -> Any:
    answer = pb.ReceiveMessageResponse()
    answer.delivery_timestamp.FromMilliseconds(broker.clock.wall())
    return answer


def _pop_request(request: Any, broker: Broker, peer: Peer, remaining_ms: int | None) -> Pop:
    poll_ms = _poll_ms(request, peer.request_timeout_ms, remaining_ms)
    topic = limits.topic_name(request.message_queue.topic)
    group = limits.group_name(request.group)
    if request.auto_renew:  # the C++ client names a time all the same
        invisible = limits.DEFAULT_INVISIBLE_MS
    else:
        invisible = limits.invisible_ms(request.invisible_duration, broker.config.grpc_min_invisible_ms)
    kind, expression = _filter(request.filter_expression)
    ordered = broker.groups.require(group).consume_message_orderly
    return Pop(
        group,
        topic,
        Start.MAX,
        ANY_QUEUE,  # clients rotate over queues: each receive may take what any queue has
        min(max(request.batch_size, 1), limits.MAX_BATCH),
        invisible,
        poll_ms,
        broker.clock.wall(),
        expression,
        kind,
        ordered,
        request.attempt_id or None,
    )


def _poll_ms(request: Any, request_timeout_ms: int, remaining_ms: int | None) -> int:
    if request.HasField("long_polling_timeout"):
        wanted = limits.milliseconds(request.long_polling_timeout)
    elif remaining_ms is not None:  # Go and C++: their deadline is the time to wait and a request time-out
        wanted = remaining_ms - request_timeout_ms // 2
    else:
        wanted = limits.MAX_POLL_MS
    wanted = min(max(wanted, limits.MIN_POLL_MS), limits.MAX_POLL_MS)
    if remaining_ms is not None and wanted > remaining_ms - RESERVE_MS:
        wanted = remaining_ms - RESERVE_MS
        if wanted < 0:
            raise Refused(
                pb.ILLEGAL_POLLING_TIME, f"{remaining_ms} ms until the deadline are too short to wait"
            )
    return wanted


def _filter(expression: Any) -> tuple[str, str]:
    text = expression.expression
    if expression.type == pb.SQL:
        if not text.strip():
            raise Refused(pb.ILLEGAL_FILTER_EXPRESSION, "an SQL filter without an expression")
        return SQL92, text
    if text.strip() and text.strip() != "*" and not parse_tags(text):
        raise Refused(pb.ILLEGAL_FILTER_EXPRESSION, f"tag filter {text!r} names no tag")
    return TAG, text.strip() or "*"


def _brought(delivery: Delivery, topic: str) -> Any:
    """The answer with the message, or its bytes where the compiled lane writes them."""
    if native.is_on:
        from aerobee.fronts.grpc.plain_messages import delivered

        plain = delivered(delivery, topic)
        if plain is not None:
            return plain
    message = convert.from_record(delivery.record, topic, delivery.receipt.text, delivery.attempt)
    return pb.ReceiveMessageResponse(message=message)


# -- ack, change, dead letters -------------------------------------------------------------------------


def acknowledge(caller: Caller, request: Any, broker: Broker) -> Any:
    group, topic = limits.group_name(request.group), limits.topic_name(request.topic)
    entries = []
    for entry in request.entries:
        result = pb.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        try:
            acknowledge_one(group, topic, entry.receipt_handle, broker)
            result.status.CopyFrom(OK)
        except (AerobeeError, Refused) as error:
            result.status.CopyFrom(status_of(error))
        entries.append(result)
    return pb.AckMessageResponse(status=common([entry.status for entry in entries]), entries=entries)


def acknowledge_one(group: str, topic: str, handle: str, broker: Broker) -> None:
    receipt = take_over(group, topic, _parsed(handle), broker)
    real = receipt.real_topic(topic, group)
    ack(Ack(group, real, receipt.queue_id, receipt.offset, receipt), broker)


def change_duration(caller: Caller, request: Any, broker: Broker) -> Any:
    group, topic = limits.group_name(request.group), limits.topic_name(request.topic)
    invisible = limits.invisible_ms(request.invisible_duration, 0)
    receipt = take_over(group, topic, _parsed(request.receipt_handle), broker)
    changed = extend(group, topic, receipt, invisible, broker)
    return pb.ChangeInvisibleDurationResponse(status=OK, receipt_handle=changed.text)


async def forward_to_dead_letters(caller: Caller, request: Any, broker: Broker) -> Any:
    group, topic = limits.group_name(request.group), limits.topic_name(request.topic)
    unkept = give_up(group, topic, _parsed(request.receipt_handle), broker)
    if unkept:
        await until_kept(unkept, broker)
    return pb.ForwardMessageToDeadLetterQueueResponse(status=OK)


def _parsed(handle: str) -> Receipt:
    """What cannot be read is INVALID_RECEIPT_HANDLE, like all that is hopeless: clients stop trying then."""
    try:
        return Receipt.parse(handle)
    except ProtocolError as error:
        raise Refused(pb.INVALID_RECEIPT_HANDLE, str(error)) from None
