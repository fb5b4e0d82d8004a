# SPDX-License-Identifier: Apache-2.0
"""Requests that finish what a send began: end transaction (37), resume check (323), reply (324, 325), recall (370)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.check_transaction import resume_check
from aerobee.broker.operations.end_transaction import EndTransaction, end_transaction
from aerobee.broker.operations.recall import Recall, recall
from aerobee.broker.operations.reply import reply
from aerobee.broker.state.half_messages import Outcome
from aerobee.errors import SystemFailure
from aerobee.fronts.remoting.peer import born_host
from aerobee.net.connection import Reply
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers import transaction as h
from aerobee.protocol.headers.produce import RecallMessage, RecallResult, SendReply, SendReplyV2, SendResult
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.routes import Adapter, Later
    from aerobee.net.connection import Answer, Connection
    from aerobee.protocol.command import Command


def end(connection: Connection, command: Command, broker: Broker) -> Answer | Later:
    header = command.fields(h.EndTransaction)
    try:
        outcome = Outcome(header.commit_or_rollback)
    except ValueError:
        raise SystemFailure(f"commitOrRollback {header.commit_or_rollback} is none of 0, 8 and 12") from None
    request = EndTransaction(
        header.producer_group,
        header.tran_state_table_offset,
        header.commit_log_offset,
        outcome,
        bool(header.from_transaction_check),
    )
    ended = end_transaction(request, broker)
    return _when_durable(ended.end, Reply(), broker)


def resume(connection: Connection, command: Command, broker: Broker) -> Answer:
    resume_check(command.fields(h.ResumeCheck).msg_id or "", broker)
    return Reply()


def reply_v1(connection: Connection, command: Command, broker: Broker) -> Later:
    return _reply(connection, command, command.fields(SendReply), broker)


def reply_v2(connection: Connection, command: Command, broker: Broker) -> Later:
    return _reply(connection, command, command.fields(SendReplyV2), broker)


async def _reply(
    connection: Connection, command: Command, header: SendReply | SendReplyV2, broker: Broker
) -> Answer:
    record = Record(
        topic=header.topic,
        body=command.body,
        properties_text=header.properties or "",
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=born_host(connection),
        reconsume_times=header.reconsume_times or 0,
    )
    replied = await reply(record, header, broker)
    # The place of a reply is of no use to its sender; RocketMQ answers these values too.
    return Reply(header=SendResult(msg_id="0", queue_id=replied.queue_id, queue_offset=0))


def take_back(connection: Connection, command: Command, broker: Broker) -> Answer | Later:
    header = command.fields(RecallMessage)
    request = Recall(header.topic, header.recall_handle, header.producer_group or "", born_host(connection))
    unique_key, sent = recall(request, broker)
    return _when_durable(sent.end, Reply(header=RecallResult(msg_id=unique_key)), broker)


def _when_durable(end: int, answer: Reply, broker: Broker) -> Answer | Later:
    return _wait(end, answer, broker) if end and broker.store.needs_sync else answer


async def _wait(end: int, answer: Reply, broker: Broker) -> Answer:
    await broker.store.durable(end)
    return answer


ROUTES: dict[int, Adapter] = {
    RequestCode.END_TRANSACTION: end,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: resume,
    RequestCode.SEND_REPLY_MESSAGE: reply_v1,
    RequestCode.SEND_REPLY_MESSAGE_V2: reply_v2,
    RequestCode.RECALL_MESSAGE: take_back,
}
