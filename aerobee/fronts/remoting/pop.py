# SPDX-License-Identifier: Apache-2.0
"""POP on the wire: pop, ack, batch ack, change of invisible time, peek, notification, polling info, assignment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack, batch_ack, read_receipt
from aerobee.broker.operations.admin.figures import counting
from aerobee.broker.operations.admin.message_state import Where, finding
from aerobee.broker.operations.assignment import query_assignment, route_of, set_mode
from aerobee.broker.operations.change_invisible import Change, change_invisible
from aerobee.broker.operations.notify import Notify, notify, polling_info
from aerobee.broker.operations.peek import Peek, peek
from aerobee.broker.operations.pop import Pop, pop
from aerobee.broker.turns import in_turns
from aerobee.errors import BrokerError, InvalidParameter, ProtocolError
from aerobee.fronts.gates.remoting import answer_of
from aerobee.net.connection import Reply
from aerobee.protocol import fast_frames, java_json
from aerobee.protocol.bodies import (
    Assignment,
    AssignmentQuery,
    MessageModel,
    Mode,
    RequestMode,
    decode_batch_ack,
    decode_request,
    encode,
)
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import ONE_WAY
from aerobee.protocol.headers.consume import (
    AckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
    Notification,
    NotificationResult,
    PeekMessage,
    PollingInfo,
    PollingInfoResult,
    PopMessage,
    PopResult,
)
from aerobee.protocol.receipt import msg_offset_info, start_offset_info

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from enum import Enum

    from aerobee.broker.broker import Broker
    from aerobee.broker.operations.notify import Notified
    from aerobee.broker.operations.pop import Popped
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Later, Request
    from aerobee.protocol.command import Command, Header
    from aerobee.protocol.headers.groups import FindMessage, GroupFigures


def pop_message(request: Request, header: PopMessage, broker: Broker) -> Answer | Later:
    wanted = pop_of(header, header.born_time or broker.clock.wall())
    return answer_of(pop(wanted, broker), partial(popped_answer, request.command))


def pop_of(header: PopMessage, born_time: int) -> Pop:
    return Pop(
        header.consumer_group,
        header.topic,
        Start.MAX if header.init_mode == Start.MAX else Start.MIN,
        header.queue_id,
        header.max_msg_nums,
        header.invisible_time,
        header.poll_time,
        born_time,
        header.exp,
        header.exp_type,
        bool(header.order),
        header.attempt_id,
    )


def popped_answer(command: Command, popped: Popped) -> bytes | Reply:
    if not popped.pop_time:  # refused before it was served: zeros and no strings
        return Reply(popped.code, PopResult(), remark="the request is older than its poll time")
    if command.serialize == 0 and not popped.order_counts:
        return fast_frames.popped(
            command.opaque,
            int(popped.code),
            popped.status,
            popped.pop_time,
            popped.invisible_ms,
            popped.revive_queue,
            popped.rest,
            start_offset_info(popped.taken),
            msg_offset_info(popped.taken),
            b"".join(popped.messages),
        )
    header = PopResult(
        pop_time=popped.pop_time,
        invisible_time=popped.invisible_ms,
        revive_qid=popped.revive_queue,
        rest_num=popped.rest,
        start_offset_info=start_offset_info(popped.taken),
        msg_offset_info=msg_offset_info(popped.taken),
        order_count_info=";".join(popped.order_counts) if popped.order_counts else None,
    )
    return Reply(popped.code, header, b"".join(popped.messages), popped.status)


def ack_message(request: Request, header: AckMessage, broker: Broker) -> Answer:
    receipt = read_receipt(header.extra_info, header.queue_id, header.offset)
    ack(Ack(header.consumer_group, header.topic, header.queue_id, header.offset, receipt), broker)
    return acked(request.command)


def acked(command: Command) -> bytes | Reply:
    if command.serialize == 0 and not command.flag & ONE_WAY:
        return fast_frames.done(command.opaque)
    return Reply()


def batch_ack_message(request: Request, header: Header, broker: Broker) -> Answer:
    return batch_acked(request.command.body, broker)


def batch_acked(body: bytes, broker: Broker) -> Reply:
    batch_ack(decode_batch_ack(body).acks if body else [], broker)
    return Reply()


def change_invisible_time(request: Request, header: ChangeInvisible, broker: Broker) -> Answer:
    try:
        receipt = read_receipt(header.extra_info, header.queue_id, header.offset)
        changed = change_invisible(
            Change(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.offset,
                receipt,
                header.invisible_time,
                header.failure or "",
            ),
            broker,
        )
    except BrokerError as error:
        return Reply(
            error.code, ChangeInvisibleResult(), remark=error.remark
        )  # its header comes all the same
    result = ChangeInvisibleResult(
        pop_time=changed.pop_time, invisible_time=changed.invisible_ms, revive_qid=changed.revive_queue
    )
    return Reply(header=result)


def peek_message(request: Request, header: PeekMessage, broker: Broker) -> Answer:
    peeked = peek(Peek(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums), broker)
    result = PopResult(rest_num=peeked.rest)
    if not peeked.messages:
        return Reply(ResponseCode.PULL_NOT_FOUND, result, remark="NO_MESSAGE_IN_QUEUE")
    return Reply(ResponseCode.SUCCESS, result, b"".join(peeked.messages), "FOUND")


def notification(request: Request, header: Notification, broker: Broker) -> Answer | Later:
    wanted = Notify(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.poll_time,
        header.born_time or broker.clock.wall(),
        bool(header.order),
        header.attempt_id,
        header.exp,
        header.exp_type,
    )
    return answer_of(notify(wanted, broker), _notified)


def _notified(notified: Notified) -> Answer:
    return Reply(header=NotificationResult(has_msg=notified.has_message, polling_full=notified.polling_full))


def polling_count(request: Request, header: PollingInfo, broker: Broker) -> Answer:
    count = polling_info(header.consumer_group, header.topic, header.queue_id, broker)
    return Reply(header=PollingInfoResult(polling_num=count))


# -- the broker balances ----------------------------------------------------------------------------------


def assignment(request: Request, header: Header, broker: Broker) -> Answer | Coroutine[Any, Any, Answer]:
    """SUCCESS even when nothing is known; the body then has no list."""
    try:
        query = decode_request(request.command.body, AssignmentQuery)
        model = java_json.parse_request(request.command.body).get(
            "messageModel", MessageModel.CLUSTERING.value
        )
    except (ProtocolError, AttributeError):
        return Reply(body=encode(Assignment()))
    if not _names(model.upper() if isinstance(model, str) else model, MessageModel):
        return Reply(body=encode(Assignment()))  # neither broadcasting nor clustering: "change nothing"
    look_up = route_of(query.topic, broker)
    return _assigned(query, broker) if look_up is None else _assigned_after(look_up, query, broker)


def _assigned(query: AssignmentQuery, broker: Broker) -> Reply:
    return Reply(body=encode(Assignment(message_queue_assignments=query_assignment(query, broker))))


async def _assigned_after(look_up: Awaitable[None], query: AssignmentQuery, broker: Broker) -> Answer:
    await look_up
    return _assigned(query, broker)


async def request_mode(request: Request, header: Header, broker: Broker) -> Answer:
    mode = decode_request(request.command.body, RequestMode)
    text = java_json.parse_request(request.command.body).get("mode")
    if not _names(text, Mode):
        raise InvalidParameter(f"mode {text!r} is neither PULL nor POP")
    await set_mode(mode, broker)
    return Reply()


def _names(value: object, kind: type[Enum]) -> bool:
    """Whether a JSON value is a member's name or its ordinal; the decoder takes anything else for the default."""
    return value in [member.value for member in kind] or (type(value) is int and 0 <= value < len(kind))


def request_modes(request: Request, header: Header, broker: Broker) -> Answer:
    return Reply(body=encode(broker.pops.modes.all()))


async def figures(request: Request, header: GroupFigures, broker: Broker) -> Answer:
    """Aerobee's own (20001), a JSON body back."""
    group = header.group or header.consumer_group
    if not group:
        raise InvalidParameter("field 'group' is missing: figures are asked for one group")
    return Reply(body=msgspec.json.encode(await in_turns(counting(group, header.topic, broker))))


async def message_state(request: Request, header: FindMessage, broker: Broker) -> Answer:
    """Aerobee's own (20006), a JSON body back."""
    where = Where(header.consumer_group, header.topic, header.queue_id, header.offset)
    return Reply(body=msgspec.json.encode(await in_turns(finding(where, broker))))
