# SPDX-License-Identifier: Apache-2.0
"""Pull (11) and lite pull (361)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aerobee.broker.operations.pull import Pull, code_of, pull, suggested_broker
from aerobee.net.connection import Reply
from aerobee.protocol.codes import VERSION, PullFlag
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.store.results import Found

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Later, Request
    from aerobee.protocol.command import Command

_COMMIT = int(PullFlag.COMMIT_OFFSET)
_SUSPEND = int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)

_LENGTHS = struct.Struct(">II").pack


def pull_message(request: Request, header: PullMessage, broker: Broker) -> Answer | Later:
    flags = header.sys_flag
    wanted = Pull(
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
    found = pull(wanted, broker)
    if type(found) is Found:
        return _answer(request.command, wanted, found, broker)
    return _held(request.command, wanted, found, broker)  # type: ignore[arg-type]


async def _held(command: Command, request: Pull, later: Coroutine[Any, Any, Found], broker: Broker) -> Answer:
    return _answer(command, request, await later, broker)


def _answer(command: Command, request: Pull, found: Found, broker: Broker) -> Answer:
    code, next_broker = code_of(found.status, request.offset), suggested_broker(request.group, found, broker)
    # A bulk reader finds the records by their units, whatever a damaged one says of itself.
    stored, counted, size = found.stored, "", found.size_bytes
    if stored is not None:
        counted, size = f'"recordCount":"{found.count}",', size + len(stored.units)
    if command.serialize == 0:
        # Written straight, see produce.py.
        head = (
            f'{{"code":{code.value},"extFields":{{"maxOffset":"{found.max_offset}","minOffset":"{found.min_offset}",'
            f'"nextBeginOffset":"{found.next_offset}",{counted}"suggestWhichBrokerId":"{next_broker}"}},"flag":1,'
            f'"language":"PYTHON","opaque":{command.opaque},"remark":"{found.status.value}",'
            f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        ).encode()
        lengths = _LENGTHS(len(head) + 4 + size, len(head))
        return b"".join((lengths, head, *found.messages)) if stored is None else stored.joined(lengths + head)
    result = PullResult(
        suggest_which_broker_id=next_broker,
        next_begin_offset=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        record_count=found.count if stored is not None else None,
    )
    body = b"".join(found.messages) if stored is None else stored.joined()
    return Reply(code, result, body, found.status.value)
