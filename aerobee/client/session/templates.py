# SPDX-License-Identifier: Apache-2.0
"""The requests sent once per message, as bytes formatted straight into a template: what a fast producer, and a fast
POP consumer, spend their time on.

A frame is the one `command.encode(request(SendMessageV2(...)))` would make, field for field; a test holds the two
against each other. Everything that stays the same for a producer, topic and broker is rendered once.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.codes import VERSION, RequestCode

if TYPE_CHECKING:
    from aerobee.client.options import SendOptions

_LENGTHS = struct.Struct(">II").pack
_json = msgspec.json.encode


def _escaped(text: str) -> bytes:
    return _json(text).replace(b"%", b"%%")


class SendTemplate:
    """Frames for one (producer group, topic, broker, request code)."""

    __slots__ = ("_head",)

    def __init__(
        self, code: RequestCode, group: str, topic: str, broker_name: str, options: SendOptions
    ) -> None:
        batch = b"true" if code == RequestCode.SEND_BATCH_MESSAGE else b"false"
        self._head = b"".join(
            (
                b'{"code":%d,"extFields":{"a":' % code,
                _escaped(group),
                b',"b":',
                _escaped(topic),
                b',"c":',
                _escaped(options.template_topic),
                b',"d":"%d"' % options.new_topic_queues,
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
