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
from aerobee.fronts.remoting.later import kept
from aerobee.net.connection import Reply
from aerobee.protocol.headers.produce import RecallMessage, RecallResult, SendReply, SendReplyV2, SendResult
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Later, Request
    from aerobee.protocol.headers import transaction as h


def end(request: Request, header: h.EndTransaction, broker: Broker) -> Answer | Later:
    try:
        outcome = Outcome(header.commit_or_rollback)
    except ValueError:
        raise SystemFailure(f"commitOrRollback {header.commit_or_rollback} is none of 0, 8 and 12") from None
    wanted = EndTransaction(
        header.producer_group,
        header.tran_state_table_offset,
        header.commit_log_offset,
        outcome,
        bool(header.from_transaction_check),
    )
    ended = end_transaction(wanted, broker)
    return Reply() if ended.unkept is None else kept(ended.unkept, Reply(), broker)


def resume(request: Request, header: h.ResumeCheck, broker: Broker) -> Answer:
    resume_check(header.msg_id or "", broker)
    return Reply()


def reply_v1(request: Request, header: SendReply, broker: Broker) -> Later:
    return _reply(request, header, broker)


def reply_v2(request: Request, header: SendReplyV2, broker: Broker) -> Later:
    return _reply(request, header, broker)


async def _reply(request: Request, header: SendReply | SendReplyV2, broker: Broker) -> Answer:
    record = Record(
        topic=header.topic,
        body=request.command.body,
        properties_text=header.properties or "",
        queue_id=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=request.connection.remote_packed,
        reconsume_times=header.reconsume_times or 0,
    )
    replied = await reply(record, header, broker)
    # The place of a reply is of no use to its sender; RocketMQ answers these values too.
    return Reply(header=SendResult(msg_id="0", queue_id=replied.queue_id, queue_offset=0))


def take_back(request: Request, header: RecallMessage, broker: Broker) -> Answer | Later:
    wanted = Recall(
        header.topic, header.recall_handle, header.producer_group or "", request.connection.remote_packed
    )
    unique_key, sent = recall(wanted, broker)
    reply = Reply(header=RecallResult(msg_id=unique_key))
    return reply if sent.unkept is None else kept(sent.unkept, reply, broker)
