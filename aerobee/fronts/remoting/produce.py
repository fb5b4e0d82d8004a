# SPDX-License-Identifier: Apache-2.0
"""Requests that store messages: send (10, 310), batch (320), send back (36)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.broker.operations import send as sending
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.fronts.remoting.later import kept
from aerobee.net.connection import Reply
from aerobee.protocol import batch, fast_frames
from aerobee.protocol.command import ONE_WAY
from aerobee.protocol.headers.produce import SendBack, SendMessage, SendMessageV2, SendResult
from aerobee.protocol.message import Record
from aerobee.protocol.recall_handle import recall_handle

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.operations.send import Sent
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Later, Request
    from aerobee.protocol.command import Command

SendHeader = SendMessage | SendMessageV2

_FIRST_OLD_LIMIT = 121  # clients from 3.4.9 on know the limit of retries they send


@lru_cache(maxsize=16)
def _hex(host: bytes) -> str:
    return host.hex().upper()


def send_v2(request: Request, header: SendMessageV2, broker: Broker) -> Answer | Later:
    if header.batch and _is_true(request.command, "m"):
        return _send_batch(request, header, broker)
    return _send(request, header, broker)


def send_v1(request: Request, header: SendMessage, broker: Broker) -> Answer | Later:
    if header.batch and _is_true(request.command, "batch"):
        return _send_batch(request, header, broker)
    return _send(request, header, broker)


def _is_true(command: Command, name: str) -> bool:
    """To Java only the word is true: the C++ client writes 1 for a batch that the broker then keeps whole."""
    return command.ext_dict().get(name, "").lower() == "true"


def send_batch(request: Request, header: SendMessageV2, broker: Broker) -> Answer | Later:
    return _send_batch(request, header, broker)


def _send(request: Request, header: SendHeader, broker: Broker) -> Answer | Later:
    command = request.command
    record = Record(
        header.topic,
        command.body,
        header.properties or "",
        header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=request.connection.remote_packed,
        reconsume_times=header.reconsume_times or 0,
    )
    sent = sending.send(record, header, broker)
    if command.flag & ONE_WAY:
        return None
    reply = _sent_reply(command, header, record.store_host, sent, broker)
    return reply if sent.unkept is None else kept(sent.unkept, reply, broker)


def _sent_reply(command: Command, header: SendHeader, host: bytes, sent: Sent, broker: Broker) -> Answer:
    if command.serialize == 0 and not sent.timer_out and sent.unique_key.isalnum():
        return fast_frames.sent(
            command.opaque,
            broker.settings.value.region,
            f"{_hex(host)}{sent.physical_offset:016X}",
            sent.queue_id,
            sent.queue_offset,
            sent.unique_key,
        )
    return Reply(header=_result(sent, _handle(header.topic, sent, broker), broker))


def _send_batch(request: Request, header: SendHeader, broker: Broker) -> Answer | Later:
    wanted = batch.Batch(
        header.topic,
        header.queue_id,
        batch.columns(request.command.body, sending.MAX_BATCH),
        header.sys_flag,
        header.born_timestamp,
        request.connection.remote_packed,
        header.reconsume_times or 0,
    )
    places, unkept = sending.send_batch(wanted, header, broker)
    host, command = _hex(broker.store.store_host), request.command
    ids = ",".join([f"{host}{place:016X}" for place in places.physical_offsets])
    reply: Answer
    if command.serialize == 0:
        region = broker.settings.value.region
        reply = fast_frames.sent_batch(command.opaque, region, ids, wanted.queue_id, places.queue_offset)
    else:
        reply = Reply(
            header=SendResult(msg_id=ids, queue_id=wanted.queue_id, queue_offset=places.queue_offset)
        )
    return reply if unkept is None else kept(unkept, reply, broker)


def _result(sent: Sent, handle: str | None, broker: Broker) -> SendResult:
    return SendResult(
        msg_id=f"{_hex(broker.store.store_host)}{sent.physical_offset:016X}",
        queue_id=sent.queue_id,
        queue_offset=sent.queue_offset,
        transaction_id=sent.unique_key,
        recall_handle=handle,
    )


def _handle(topic: str, sent: Sent, broker: Broker) -> str | None:
    if not sent.timer_out or not broker.config.recall:
        return None
    return recall_handle(topic, broker.config.name, sent.timer_out, sent.unique_key)


def send_message_back(request: Request, header: SendBack, broker: Broker) -> Answer | Later:
    limit = header.max_reconsume_times if request.command.version >= _FIRST_OLD_LIMIT else None
    wanted = SendBackRequest(header.group, header.offset, header.delay_level, limit, header.failure or "")
    unkept = send_back(wanted, broker)
    return Reply() if unkept is None else kept(unkept, Reply(), broker)
