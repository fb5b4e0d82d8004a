# SPDX-License-Identifier: Apache-2.0
"""The answers of the busiest requests, written straight as JSON frames.

Objects for header and frame would cost more than storing the message does. Each is, to the byte, what `command.encode`
makes of the same answer with its fields in the order of their names; values are numbers, or text that JSON writes
as it is, which the caller sees to.
"""

from __future__ import annotations

import struct

from aerobee.protocol.codes import VERSION

_LENGTHS = struct.Struct(">II").pack
_END = f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'


def done(opaque: int) -> bytes:
    """Success, and nothing else to say."""
    head = f'{{"code":0,"extFields":{{}},"flag":1,"language":"PYTHON","opaque":{opaque},{_END}'.encode()
    return _LENGTHS(4 + len(head), len(head)) + head


def sent(
    opaque: int, region: str, message_id: str, queue_id: int, queue_offset: int, unique_key: str
) -> bytes:
    head = (
        f'{{"code":0,"extFields":{{"MSG_REGION":"{region}","TRACE_ON":"true","msgId":"{message_id}",'
        f'"queueId":"{queue_id}","queueOffset":"{queue_offset}","transactionId":"{unique_key}"}},"flag":1,'
        f'"language":"PYTHON","opaque":{opaque},{_END}'
    ).encode()
    return _LENGTHS(4 + len(head), len(head)) + head


def pulled(  # noqa: PLR0913 - the fields of one answer
    opaque: int,
    code: int,
    status: str,
    bounds: tuple[int, int],
    next_offset: int,
    next_broker: int,
    record_count: int | None,
    body_bytes: int,
) -> bytes:
    """All but the body; `bounds` are the queue's first and last offset."""
    counted = "" if record_count is None else f'"recordCount":"{record_count}",'
    head = (
        f'{{"code":{code},"extFields":{{"maxOffset":"{bounds[1]}","minOffset":"{bounds[0]}",'
        f'"nextBeginOffset":"{next_offset}",{counted}"suggestWhichBrokerId":"{next_broker}"}},"flag":1,'
        f'"language":"PYTHON","opaque":{opaque},"remark":"{status}",{_END}'
    ).encode()
    return _LENGTHS(4 + len(head) + body_bytes, len(head)) + head


def popped(  # noqa: PLR0913 - the fields of one answer
    opaque: int,
    code: int,
    status: str,
    pop_time: int,
    invisible_ms: int,
    revive_queue: int,
    rest: int,
    start_offsets: str,
    message_offsets: str,
    body: bytes,
) -> bytes:
    head = (
        f'{{"code":{code},"extFields":{{"invisibleTime":"{invisible_ms}","msgOffsetInfo":"{message_offsets}",'
        f'"popTime":"{pop_time}","restNum":"{rest}","reviveQid":"{revive_queue}",'
        f'"startOffsetInfo":"{start_offsets}"}},"flag":1,"language":"PYTHON","opaque":{opaque},'
        f'"remark":"{status}",{_END}'
    ).encode()
    return b"".join((_LENGTHS(4 + len(head) + len(body), len(head)), head, body))
