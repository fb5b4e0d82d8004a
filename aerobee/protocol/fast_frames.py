# SPDX-License-Identifier: Apache-2.0
"""The busiest requests and answers, written straight as JSON frames.

Objects for header and frame would cost more than storing the message does. Each is, to the byte, what `command.encode`
makes of the same with its fields in the order of their names; tests hold the two against each other. In answers, values
are numbers, or text that JSON writes as it is, which the caller sees to.
"""

from __future__ import annotations

import struct

import msgspec

from aerobee.protocol.codes import VERSION, RequestCode

_LENGTHS = struct.Struct(">II").pack
_json = msgspec.json.encode
_END = f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
_DONE = b'{"code":0,"extFields":{},"flag":1,"language":"PYTHON","opaque":%d,' + _END.encode()


# -- answers -------------------------------------------------------------------------------------------


def done(opaque: int) -> bytes:
    """Success, and nothing else to say."""
    head = _DONE % opaque
    size = len(head)
    return _LENGTHS(4 + size, size) + head


def sent(
    opaque: int, region: str, message_id: str, queue_id: int, queue_offset: int, unique_key: str
) -> bytes:
    head = (
        f'{{"code":0,"extFields":{{"MSG_REGION":"{region}","TRACE_ON":"true","msgId":"{message_id}",'
        f'"queueId":"{queue_id}","queueOffset":"{queue_offset}","transactionId":"{unique_key}"}},"flag":1,'
        f'"language":"PYTHON","opaque":{opaque},{_END}'
    ).encode()
    return _LENGTHS(4 + len(head), len(head)) + head


def sent_batch(opaque: int, region: str, message_ids: str, queue_id: int, queue_offset: int) -> bytes:
    head = (
        f'{{"code":0,"extFields":{{"MSG_REGION":"{region}","TRACE_ON":"true","msgId":"{message_ids}",'
        f'"queueId":"{queue_id}","queueOffset":"{queue_offset}"}},"flag":1,'
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


# -- requests: what stays the same for a client, topic and broker is rendered once ---------------------


def _escaped(text: str) -> bytes:
    return _json(text).replace(b"%", b"%%")


class SendTemplate:
    """Frames for one (producer group, topic, broker, request code)."""

    __slots__ = ("_head",)

    def __init__(
        self, code: int, group: str, topic: str, broker_name: str, template_topic: str, new_topic_queues: int
    ) -> None:
        batch = b"true" if code == RequestCode.SEND_BATCH_MESSAGE else b"false"
        self._head = b"".join(
            (
                b'{"code":%d,"extFields":{"a":' % code,
                _escaped(group),
                b',"b":',
                _escaped(topic),
                b',"c":',
                _escaped(template_topic),
                b',"d":"%d"' % new_topic_queues,
                b',"e":"%d","f":"%d","g":"%d","h":"%d","i":%b,"j":"%d","k":"false","m":"',
                batch,
                b'","n":',
                _escaped(broker_name),
                b'%b},"flag":%d,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":',
                b"%d}" % VERSION,
            )
        )

    def frame(self, opaque: int, queue_id: int, sending: Sending) -> bytes:
        head = self._head % (
            queue_id,
            sending.sys_flag,
            sending.born,
            sending.flag,
            _json(sending.properties_text),
            sending.reconsume_times,
            b"" if sending.max_reconsume is None else b',"l":"%d"' % sending.max_reconsume,
            sending.command_flag,
            opaque,
        )
        size, body = len(head), sending.body
        return b"".join((_LENGTHS(4 + size + len(body), size), head, body))


class AckTemplate:
    """Ack frames for one (consumer group, topic, broker)."""

    __slots__ = ("_head",)

    def __init__(self, group: str, topic: str, broker_name: str) -> None:
        self._head = b"".join(
            (
                b'{"code":%d,"extFields":{"bname":' % RequestCode.ACK_MESSAGE,
                _escaped(broker_name),
                b',"consumerGroup":',
                _escaped(group),
                b',"extraInfo":%b,"offset":"%b","queueId":"%b","topic":',
                _escaped(topic),
                b'},"flag":0,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":',
                b"%d}" % VERSION,
            )
        )

    def frame(self, opaque: int, receipt: str, queue_id: str, offset: str) -> bytes:
        head = self._head % (_json(receipt), offset.encode(), queue_id.encode(), opaque)
        return _LENGTHS(4 + len(head), len(head)) + head


class Sending(msgspec.Struct, gc=False):
    """A message ready for the wire."""

    topic: str
    body: bytes
    properties_text: str
    message_id: str
    born: int
    sys_flag: int = 0
    flag: int = 0
    command_flag: int = 0
    reconsume_times: int = 0
    max_reconsume: int | None = None
    may_merge: bool = False  # with others of its queue, in one frame
