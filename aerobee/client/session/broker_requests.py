# SPDX-License-Identifier: Apache-2.0
"""What brokers ask of clients, on the client's own connection: one table, one small function each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from aerobee.errors import RequestCodeNotSupported, SystemFailure
from aerobee.net.connection import Answer, Connection, Reply
from aerobee.protocol import bodies, message
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.consume import ConsumeDirectly, NotifyIdsChanged
from aerobee.protocol.headers.groups import RunningInfo
from aerobee.protocol.headers.offsets import ClientConsumerStatus, ResetClientOffset
from aerobee.protocol.headers.produce import PushReply
from aerobee.protocol.headers.transaction import CheckTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.client.session.session import Session
    from aerobee.protocol.command import Command
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.client.session")


class Consumer(Protocol):
    """What a session needs of the consumers it serves."""

    def heartbeat_data(self) -> bodies.ConsumerData: ...
    def route_changed(self, topic: str) -> None: ...
    def members_changed(self) -> None: ...
    def reset_offsets(
        self, topic: str, offsets: dict[bodies.MessageQueue, int]
    ) -> Coroutine[Any, Any, None]: ...
    def status(self, topic: str) -> dict[bodies.MessageQueue, int]: ...
    def running_info(self) -> bodies.ConsumerRunningInfo: ...
    def consume_directly(
        self, record: Record, broker_name: str
    ) -> Coroutine[Any, Any, bodies.ConsumeDirectlyResult]: ...


class Producer(Protocol):
    """What a session needs of the producers it serves."""

    def check_transaction(
        self, address: str, header: CheckTransaction, record: Record
    ) -> Coroutine[Any, Any, None]: ...
    def reply_arrived(self, header: PushReply, body: bytes) -> bool: ...


def handle(
    session: Session, connection: Connection, command: Command
) -> Answer | Coroutine[Any, Any, Answer]:
    answer = _TABLE.get(command.code)
    if answer is None:
        raise RequestCodeNotSupported(f"request code {command.code} is not supported by this client")
    return answer(session, connection, command)


def _members_changed(session: Session, connection: Connection, command: Command) -> Answer:
    group = command.fields(NotifyIdsChanged).consumer_group
    log.debug("broker=%s says members changed group=%s", connection.remote_text, group)
    if (consumer := session.consumers.get(group)) is not None:
        consumer.members_changed()
    return None


async def _reset_offsets(session: Session, connection: Connection, command: Command) -> Answer:
    header = command.fields(ResetClientOffset)
    consumer = session.consumers.get(header.group)
    if consumer is not None:
        body = bodies.decode(command.body, bodies.ResetOffsetBody)
        log.info(
            "broker resets offsets group=%s topic=%s queues=%d",
            header.group,
            header.topic,
            len(body.offset_table),
        )
        await consumer.reset_offsets(header.topic, body.offset_table)
    return None


def _status(session: Session, connection: Connection, command: Command) -> Answer:
    header = command.fields(ClientConsumerStatus)
    consumer = _consumer(session, header.group)
    return Reply(body=bodies.encode(bodies.QueueOffsets(message_queue_table=consumer.status(header.topic))))


def _running_info(session: Session, connection: Connection, command: Command) -> Answer:
    return Reply(
        body=bodies.encode(_consumer(session, command.fields(RunningInfo).consumer_group).running_info())
    )


async def _consume_directly(session: Session, connection: Connection, command: Command) -> Answer:
    header = command.fields(ConsumeDirectly)
    consumer = _consumer(session, header.consumer_group)
    result = await consumer.consume_directly(message.decode(command.body), header.broker_name or "")
    return Reply(body=bodies.encode(result))


async def _check_transaction(session: Session, connection: Connection, command: Command) -> Answer:
    header = command.fields(CheckTransaction)
    record = message.decode(command.body)
    group = props.get(record.properties_text, props.PGROUP)
    producer = session.producers.get(group or "")
    if producer is None:
        log.warning("transaction check for group=%s: no such producer here", group)
    else:
        await producer.check_transaction(connection.attributes["address"], header, record)
    return None


def _reply_arrived(session: Session, connection: Connection, command: Command) -> Answer:
    header = command.fields(PushReply)
    for producer in session.producers.values():
        if producer.reply_arrived(header, command.body):
            return Reply()
    raise SystemFailure("no request waits for this reply; it may have timed out")


def _consumer(session: Session, group: str) -> Consumer:
    consumer = session.consumers.get(group)
    if consumer is None:
        raise SystemFailure(f"the consumer group {group!r} does not exist in this client")
    return consumer


_TABLE: dict[int, Callable[[Session, Connection, Command], Answer | Coroutine[Any, Any, Answer]]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _check_transaction,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _members_changed,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset_offsets,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: _reply_arrived,
}
