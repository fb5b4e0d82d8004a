# SPDX-License-Identifier: Apache-2.0
"""Request-reply: a reply is pushed to the client that waits for it (code 326), and stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.operations.send import Origin, send_reply
from aerobee.errors import NetworkError, SystemFailure
from aerobee.protocol import command
from aerobee.protocol import properties as props
from aerobee.protocol.headers.produce import PushReply
from aerobee.protocol.message import host_text

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.protocol.message import Record

PUSH_TIMEOUT_MS = 10_000


class Replied(msgspec.Struct, frozen=True):
    queue_id: int


async def reply(record: Record, origin: Origin, broker: Broker) -> Replied:
    """Store the reply and push it to who asked. Raises SystemFailure when it could not be pushed."""
    text = record.properties_text
    # Stored first: the topic's checks come before anything is done, and a reply nobody takes is on record.
    sent = send_reply(record, origin, broker)
    await _push(record, props.parse(text), origin, broker)
    return Replied(sent.queue_id)


async def _push(record: Record, properties: dict[str, str], origin: Origin, broker: Broker) -> None:
    now = broker.clock.wall()
    client_id = properties.get(props.REPLY_TO_CLIENT)
    if client_id is None:
        raise SystemFailure("the message has no REPLY_TO_CLIENT property; it cannot be a reply")
    member = broker.clients.find_client(client_id)
    if member is None or not member.link.is_open:
        raise SystemFailure(
            f"client '{client_id}', which waits for the reply, is not connected to this broker"
        )
    properties[props.PUSH_REPLY_TIME] = str(now)
    header = PushReply(
        producer_group=origin.producer_group,
        topic=record.topic,
        default_topic=origin.default_topic,
        default_topic_queue_nums=origin.default_topic_queue_nums,
        queue_id=record.queue_id,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        flag=record.flag,
        properties=props.render(properties),
        reconsume_times=record.reconsume_times,
        unit_mode=False,
        born_host=host_text(record.born_host),
        store_host=host_text(broker.store.store_host),
        store_timestamp=now,
    )
    try:
        answer = await member.link.call(command.request(header, record.body), PUSH_TIMEOUT_MS)
    except NetworkError as error:
        raise SystemFailure(f"the reply did not reach client '{client_id}': {error}") from None
    if answer.code:
        raise SystemFailure(f"client '{client_id}' refused the reply: {answer.remark or answer.code}")
