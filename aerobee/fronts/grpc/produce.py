# SPDX-License-Identifier: Apache-2.0
"""SendMessage, EndTransaction, RecallMessage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.delivery.keeping import until_kept
from aerobee.broker.operations.end_transaction import EndTransaction, end_transaction
from aerobee.broker.operations.recall import Recall, kept_elsewhere, recall
from aerobee.broker.operations.send import PlainOrigin, Sent, send
from aerobee.broker.state.half_messages import Outcome
from aerobee.errors import AerobeeError
from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.neighbours import recall_at
from aerobee.fronts.grpc.route import accepted_types
from aerobee.fronts.grpc.status import OK, Refused, common, status_of
from aerobee.protocol.recall_handle import recall_handle
from aerobee.protocol.transaction_id import TransactionId

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.delivery.keeping import Unkept
    from aerobee.fronts.grpc.caller import Caller
    from aerobee.fronts.grpc.telemetry import Peer
    from aerobee.protocol.message import Record


def transaction_id(half: Record) -> str:
    """The id of a half message the broker asks about."""
    return TransactionId(half.queue_offset, half.physical_offset, half.unique_key or "").text


def send_message(caller: Caller, request: Any, broker: Broker) -> Any:
    """The answer; a coroutine of it where messages must be kept first."""
    messages = request.messages
    topic = _one_topic(messages)
    for message in messages:
        _check(message, topic, broker)
    entries, unkept = [], None
    for message in messages:
        try:
            sent = _send(message, topic, broker, caller.peer)
            unkept = sent.unkept or unkept
            entries.append(_entry(message, topic, sent, broker))
        except AerobeeError as error:
            if len(messages) == 1:
                raise  # the whole request's: clients that look at its status only see the reason
            entries.append(pb.SendResultEntry(status=status_of(error)))
    answer = pb.SendMessageResponse(status=common([entry.status for entry in entries]), entries=entries)
    return _when_kept(unkept, answer, broker) if unkept else answer


async def _when_kept(unkept: Unkept, answer: Any, broker: Broker) -> Any:
    await until_kept(unkept, broker)
    return answer


def _one_topic(messages: Any) -> str:
    if not messages:
        raise Refused(pb.MESSAGE_CORRUPTED, "a request holds the messages of one topic, at least one")
    topic = limits.topic_name(messages[0].topic)
    if len(messages) > 1 and any(limits.resolved(message.topic) != topic for message in messages):
        raise Refused(pb.MESSAGE_CORRUPTED, "a request holds the messages of one topic, at least one")
    return topic


def _check(message: Any, topic: str, broker: Broker) -> None:
    system = message.system_properties
    limits.check_message(message, broker.store.config.max_message_bytes)
    limits.check_no_lite_topic(system)
    limits.check_delivery_time(system, broker.clock.wall(), broker.config.grpc_max_delay_ms)
    _check_type(message, topic, broker)


def _check_type(message: Any, topic: str, broker: Broker) -> None:
    config = broker.topics.get(topic)
    kind = convert.message_type(message.system_properties)
    if config is not None and kind not in accepted_types(config):
        raise Refused(
            pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"topic {topic!r} takes {config.attributes.get('message.type')} messages, not {pb.MessageType.Name(kind)}",
        )


def _send(message: Any, topic: str, broker: Broker, peer: Peer) -> Sent:
    record = convert.to_record(message, topic, peer.host, broker.clock.wall())
    return send(record, PlainOrigin(producer_group=topic), broker)


def _entry(message: Any, topic: str, sent: Sent, broker: Broker) -> Any:
    system = message.system_properties
    entry = pb.SendResultEntry(status=OK, message_id=system.message_id, offset=sent.queue_offset)
    kind = convert.message_type(system)
    if kind == pb.TRANSACTION:
        entry.transaction_id = TransactionId(sent.queue_offset, sent.physical_offset, sent.unique_key).text
    if kind == pb.DELAY and sent.timer_out and broker.config.recall:
        entry.recall_handle = recall_handle(topic, broker.config.name, sent.timer_out, sent.unique_key)
    return entry


async def end(caller: Caller, request: Any, broker: Broker) -> Any:
    topic = limits.topic_name(request.topic)
    if not request.transaction_id.strip():
        raise Refused(pb.INVALID_TRANSACTION_ID, "the transaction id is empty")
    known = TransactionId.parse(request.transaction_id)
    if known is None:
        text = request.transaction_id[:200]
        raise Refused(pb.INVALID_TRANSACTION_ID, f"transaction id {text!r} was not given by this broker")
    outcome = {pb.COMMIT: Outcome.COMMIT, pb.ROLLBACK: Outcome.ROLLBACK}.get(request.resolution)
    if outcome is None:
        raise Refused(pb.BAD_REQUEST, "a transaction ends by COMMIT or ROLLBACK")
    asked = request.source == pb.SOURCE_SERVER_CHECK
    ended = end_transaction(
        EndTransaction(topic, known.half_offset, known.physical_offset, outcome, asked), broker
    )
    if ended.unkept:
        await until_kept(ended.unkept, broker)
    return pb.EndTransactionResponse(status=OK)


async def recall_message(caller: Caller, request: Any, broker: Broker) -> Any:
    topic = limits.topic_name(request.topic)
    asked = Recall(topic, request.recall_handle, topic, caller.peer.host)
    keeper = await kept_elsewhere(asked, broker)
    if keeper is not None:
        return pb.RecallMessageResponse(status=OK, message_id=await recall_at(keeper, asked, broker.config))
    message_id, sent = recall(asked, broker)
    if sent.unkept:
        await until_kept(sent.unkept, broker)
    return pb.RecallMessageResponse(status=OK, message_id=message_id)
