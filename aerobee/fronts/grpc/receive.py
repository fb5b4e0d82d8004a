# SPDX-License-Identifier: Apache-2.0
"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, dead letters: POP by another wire."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.change_invisible import Change, change_invisible
from aerobee.broker.operations.pop import Pop, Popped, pop
from aerobee.broker.operations.pop_position import Start
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.errors import AerobeeError, ProtocolError
from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK, Refused, common, status_of
from aerobee.fronts.grpc.telemetry import max_attempts
from aerobee.protocol import message as records
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.filters.tags import SQL92, TAG, parse_tags
from aerobee.protocol.receipt import Receipt, parse_info

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from aerobee.broker.broker import Broker
    from aerobee.fronts.grpc.renewal import Renewals
    from aerobee.fronts.grpc.telemetry import Peer
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.grpc")

RESERVE_MS = 500  # an answer leaves this long before the client's deadline
GIVE_BACK_MS = 1_000


class Delivery(msgspec.Struct):
    record: Record
    receipt: Receipt
    attempt: int


async def receive(
    request: Any, broker: Broker, peer: Peer, renewals: Renewals, remaining_ms: int | None
) -> AsyncIterator[Any]:
    """Status, messages, delivery time: the stream's order."""
    asked = _pop_request(request, broker, peer, remaining_ms)
    popped = pop(asked, broker)
    if not isinstance(popped, Popped):
        popped = await popped
    if popped.code == ResponseCode.POLLING_FULL:
        raise Refused(pb.TOO_MANY_REQUESTS, "too many requests wait for messages of this group")
    deliveries = [d for d in _deliveries(popped, asked, broker) if _wanted(d, asked, broker)]
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
                renewals.hold(asked.group, asked.topic, peer.client_id, delivery.receipt)
            yield pb.ReceiveMessageResponse(message=_message(delivery, asked.topic))
            done += 1
        yield _delivered_at(broker)
    finally:
        if done < len(deliveries):  # the client left in the middle: the rest is somebody else's
            for delivery in deliveries[done:]:
                _give_back(delivery.receipt, asked, broker, renewals)


def _delivered_at(broker: Broker) -> Any:
    answer = pb.ReceiveMessageResponse()
    answer.delivery_timestamp.FromMilliseconds(broker.clock.wall())
    return answer


def _pop_request(request: Any, broker: Broker, peer: Peer, remaining_ms: int | None) -> Pop:
    poll_ms = _poll_ms(request, remaining_ms)
    topic = limits.topic_name(request.message_queue.topic)
    group = limits.group_name(request.group)
    if request.auto_renew and not request.HasField("invisible_duration"):
        invisible = limits.DEFAULT_INVISIBLE_MS
    else:
        invisible = limits.invisible_ms(request.invisible_duration, limits.MIN_INVISIBLE_MS)
    kind, expression = _filter(request.filter_expression)
    ordered = broker.groups.require(group).consume_message_orderly
    return Pop(
        group,
        topic,
        Start.MAX,
        request.message_queue.id if ordered else -1,
        min(max(request.batch_size, 1), limits.MAX_BATCH),
        invisible,
        poll_ms,
        broker.clock.wall(),
        expression,
        kind,
        ordered,
        request.attempt_id or None,
    )


def _poll_ms(request: Any, remaining_ms: int | None) -> int:
    wanted = limits.milliseconds(request.long_polling_timeout)
    if not request.HasField("long_polling_timeout"):
        wanted = (remaining_ms or limits.MAX_POLL_MS) - RESERVE_MS
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


def _deliveries(popped: Popped, asked: Pop, broker: Broker) -> Iterator[Delivery]:
    """Each message with its receipt: retries carry theirs, the others' follow from what was taken where."""
    places = [(taken, offset) for taken in popped.taken for offset in taken.offsets]
    counts = parse_info(";".join(popped.order_counts)) if popped.order_counts else {}
    for raw, (taken, offset) in zip(popped.messages, places, strict=True):
        record = records.decode(raw)
        receipt = Receipt(
            taken.start_offset,
            popped.pop_time,
            popped.invisible_ms,
            popped.revive_queue,
            taken.retry,
            broker.config.name,
            taken.queue_id,
            offset,
            record.physical_offset,
        )
        before = counts.get((taken.retry, f"qo{taken.queue_id}%{offset}"), "0") if asked.ordered else None
        yield Delivery(record, receipt, 1 + (record.reconsume_times if before is None else int(before)))


def _wanted(delivery: Delivery, asked: Pop, broker: Broker) -> bool:
    """Exact tags (the broker compared hashes), and the limit of attempts: past it the dead letters."""
    record, receipt = delivery.record, delivery.receipt
    real = receipt.real_topic(asked.topic, asked.group)
    tags = parse_tags(asked.expression) if asked.expression_type == TAG else frozenset()
    if tags and record.tags not in tags:
        ack(Ack(asked.group, real, receipt.queue_id, receipt.offset, receipt), broker)
        return False
    if asked.ordered or record.reconsume_times < max_attempts(broker.groups.require(asked.group)):
        return True
    send_back(SendBackRequest(asked.group, record.physical_offset, -1, 0), broker)
    ack(Ack(asked.group, real, receipt.queue_id, receipt.offset, receipt), broker)
    return False


def _message(delivery: Delivery, topic: str) -> Any:
    return convert.from_record(delivery.record, topic, delivery.receipt.text, delivery.attempt)


def _give_back(receipt: Receipt, asked: Pop, broker: Broker, renewals: Renewals) -> None:
    current = renewals.release(asked.group, asked.topic, receipt)
    give_back(asked.group, asked.topic, current, broker)


def give_back(group: str, topic: str, receipt: Receipt, broker: Broker) -> None:
    """Make a message visible again soon; a handle that is of no use any more is nobody's problem."""
    real = receipt.real_topic(topic, group)
    try:
        change_invisible(Change(group, real, receipt.queue_id, receipt.offset, receipt, GIVE_BACK_MS), broker)
    except AerobeeError as error:
        log.debug("group=%s topic=%s offset=%d not given back: %s", group, topic, receipt.offset, error)


# -- ack, change, dead letters -------------------------------------------------------------------------


def acknowledge(request: Any, broker: Broker, renewals: Renewals) -> Any:
    group, topic = limits.group_name(request.group), limits.topic_name(request.topic)
    entries = []
    for entry in request.entries:
        result = pb.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        try:
            receipt = _usable(entry.receipt_handle, group, topic, broker, renewals)
            real = receipt.real_topic(topic, group)
            ack(Ack(group, real, receipt.queue_id, receipt.offset, receipt), broker)
            result.status.CopyFrom(OK)
        except (AerobeeError, Refused) as error:
            result.status.CopyFrom(status_of(error))
        entries.append(result)
    return pb.AckMessageResponse(status=common(entry.status for entry in entries), entries=entries)


def change_duration(request: Any, broker: Broker, renewals: Renewals) -> Any:
    group, topic = limits.group_name(request.group), limits.topic_name(request.topic)
    invisible = limits.invisible_ms(request.invisible_duration, 0)
    receipt = _usable(request.receipt_handle, group, topic, broker, renewals)
    return pb.ChangeInvisibleDurationResponse(
        status=OK, receipt_handle=changed(group, topic, receipt, invisible, broker).text
    )


def changed(group: str, topic: str, receipt: Receipt, invisible_ms: int, broker: Broker) -> Receipt:
    """Change the lease; every field of the new receipt is its own (issue 9583)."""
    real = receipt.real_topic(topic, group)
    now = change_invisible(
        Change(group, real, receipt.queue_id, receipt.offset, receipt, invisible_ms), broker
    )
    if receipt.is_orderly:
        return receipt._replace(invisible_time=now.invisible_ms)
    return receipt._replace(
        start_offset=receipt.offset,
        pop_time=now.pop_time,
        invisible_time=now.invisible_ms,
        revive_qid=now.revive_queue,
    )


def forward_to_dead_letters(request: Any, broker: Broker, renewals: Renewals) -> Any:
    group, topic = limits.group_name(request.group), limits.topic_name(request.topic)
    receipt = renewals.release(group, topic, _parsed(request.receipt_handle))
    if receipt.commit_log_offset < 0:
        raise Refused(pb.INVALID_RECEIPT_HANDLE, "the handle names no message")
    send_back(SendBackRequest(group, receipt.commit_log_offset, -1, 0), broker)
    real = receipt.real_topic(topic, group)
    try:
        ack(Ack(group, real, receipt.queue_id, receipt.offset, receipt), broker)
    except AerobeeError as error:
        log.info("group=%s topic=%s offset=%d is dead; its ack said: %s", group, topic, receipt.offset, error)
    return pb.ForwardMessageToDeadLetterQueueResponse(status=OK)


def _usable(handle: str, group: str, topic: str, broker: Broker, renewals: Renewals) -> Receipt:
    """The newest receipt for a handle. Hopeless ones are INVALID_RECEIPT_HANDLE: clients stop trying then."""
    receipt = renewals.release(group, topic, _parsed(handle))
    if receipt.expired(broker.clock.wall()) and not broker.pops.is_leased(
        receipt.real_topic(topic, group), group, receipt
    ):
        raise Refused(
            pb.INVALID_RECEIPT_HANDLE, "the invisible duration is over: the message may be someone else's now"
        )
    if receipt.broker_name != broker.config.name:
        raise Refused(
            pb.INVALID_RECEIPT_HANDLE,
            f"the handle is of broker {receipt.broker_name!r}, this is {broker.config.name!r}",
        )
    return receipt


def _parsed(handle: str) -> Receipt:
    try:
        return Receipt.parse(handle)
    except ProtocolError as error:
        raise Refused(pb.INVALID_RECEIPT_HANDLE, str(error)) from None
