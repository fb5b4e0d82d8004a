# SPDX-License-Identifier: Apache-2.0
"""Pull (11) and lite pull (361)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aerobee.broker.operations.pull import Pull, code_of, pull, suggested_broker
from aerobee.fronts.gates.remoting import answer_of
from aerobee.net.connection import Reply
from aerobee.protocol import fast_frames
from aerobee.protocol.codes import PullFlag
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.store.results import Found

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Later, Request
    from aerobee.protocol.codes import ResponseCode
    from aerobee.protocol.command import Command

_COMMIT = int(PullFlag.COMMIT_OFFSET)
_SUSPEND = int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)


def pull_message(request: Request, header: PullMessage, broker: Broker) -> Answer | Later:
    wanted = pull_of(header)
    found = pull(wanted, broker)
    if type(found) is Found:
        return _answer(request.command, wanted, broker, found)
    return answer_of(found, partial(_answer, request.command, wanted, broker))


def pull_of(header: PullMessage) -> Pull:
    flags = header.sys_flag
    return Pull(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.queue_offset,
        header.max_msg_nums,
        header.max_msg_bytes,
        header.suspend_timeout_millis if flags & _SUSPEND else 0,
        header.commit_offset if flags & _COMMIT else None,
        (header.subscription or "*") if flags & _SUBSCRIPTION else None,
        header.expression_type,
        header.sub_version,
        bool(header.as_stored),
        bool(header.bulk),
    )


def _answer(command: Command, request: Pull, broker: Broker, found: Found) -> bytes | Reply:
    code, next_broker = code_of(found.status, request.offset), suggested_broker(request.group, found, broker)
    return pulled(command, code, next_broker, found)


def pulled(command: Command, code: ResponseCode, next_broker: int, found: Found) -> bytes | Reply:
    # A bulk reader finds the records by their units, whatever a damaged one says of itself.
    stored = found.stored
    count = None if stored is None else len(stored.records)
    if command.serialize == 0:
        head = fast_frames.pulled(
            command.opaque,
            code._value_,  # `value` is a function in Python, called for every pull
            found.status._value_,
            (found.min_offset, found.max_offset),
            found.next_offset,
            next_broker,
            count,
            found.size_bytes + (0 if stored is None else len(stored.units)),
        )
        return b"".join((head, *found.messages)) if stored is None else stored.joined(head)
    result = PullResult(
        suggest_which_broker_id=next_broker,
        next_begin_offset=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        record_count=count,
    )
    body = b"".join(found.messages) if stored is None else stored.joined()
    return Reply(code, result, body, found.status.value)
