# SPDX-License-Identifier: Apache-2.0
"""A message that failed goes back: the broker keeps it in the group's retry topic and delivers it again later."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from aerobee.client.consume import backoff
from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.failure_text import failure_text
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.headers.produce import SendBack, SendMessageV2

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.options import PushOptions
    from aerobee.client.session.session import Session
    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.client.consumer")


async def send_back(
    session: Session[PushOptions],
    group: str,
    message: ReceivedMessage,
    delay_level: int,
    max_reconsume: int,
    error: BaseException | None = None,
) -> None:
    """Ask the broker to deliver `message` again; when that fails, send it to the retry topic ourselves. Raises when
    that fails too."""
    header = SendBack(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=message.topic,
        unit_mode=False,
        max_reconsume_times=max_reconsume,
        broker_name=message.broker_name,
        failure=failure_text(error, session.options.failure_text_length) or None,
    )
    timeout_ms = session.options.send_back_timeout_ms
    try:
        address = await session.master(message.broker_name, message.topic)
        await session.call(address, header, timeout_ms=timeout_ms)
    except AerobeeError as refusal:
        log.warning("send-back of %s failed, sending to the retry topic: %s", message.message_id, refusal)
        await send_to_retry_topic(session, group, message, max_reconsume, error)


async def send_to_retry_topic(
    session: Session[PushOptions],
    group: str,
    message: ReceivedMessage,
    max_reconsume: int,
    error: BaseException | None = None,
) -> None:
    """As an ordinary message; the broker makes a dead letter of it when the count is past the limit."""
    topic = names.retry_topic(group)
    queues = (await session.route(topic)).writable
    queue = next((q for q in queues if q.broker_name == message.broker_name), None) or queues[0]
    failure = failure_text(error, session.options.failure_text_length)
    sending = retry_copy(message, group, max_reconsume, failure)
    address = await session.master(queue.broker_name, topic)
    await session.call(
        address, _header(sending, queue, group), sending.body, timeout_ms=session.options.send_timeout_ms
    )


def tell_of_death(group: str, message: ReceivedMessage) -> None:
    """It has gone where nobody looks unasked."""
    log.warning(
        "no retries left topic=%s message_id=%s group=%s attempts=%d: it went to %s; "
        "`aerobee groups dead %s` shows it, `aerobee groups resend %s` sends it again",
        message.topic, message.message_id, group, message.attempt, names.dead_letter_topic(group),
        shlex.quote(group), shlex.quote(group),
    )  # fmt: skip


def retry_copy(message: ReceivedMessage, group: str, max_reconsume: int, failure: str = "") -> Sending:
    """The message as a producer of the retry topic sends it."""
    found = message.properties
    for name in (props.TRAN_MSG, props.DELAY, props.MIN_OFFSET, props.MAX_OFFSET, props.POP_CK):
        found.pop(name, None)
    found.setdefault(props.ORIGIN_MESSAGE_ID, message.offset_id)
    found.setdefault(props.RETRY_TOPIC, message.topic)
    if failure:
        found[props.LAST_ERROR] = failure
    found[props.DELAY] = str(backoff.retry_level(message.reconsume_times))
    return Sending(
        topic=names.retry_topic(group),
        body=message.body,
        properties_text=props.render(found),
        message_id=message.message_id,
        born=message.born_timestamp,
        sys_flag=message.sys_flag
        & ~(SysFlag.TRANSACTION_MASK | SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6),
        flag=message.flag,
        reconsume_times=message.reconsume_times + 1,
        max_reconsume=max_reconsume,
    )


def _header(sending: Sending, queue: MessageQueue, group: str) -> SendMessageV2:
    return SendMessageV2(
        producer_group=names.INNER_PRODUCER_GROUP,
        topic=sending.topic,
        queue_id=queue.queue_id,
        sys_flag=sending.sys_flag,
        born_timestamp=sending.born,
        flag=sending.flag,
        properties=sending.properties_text,
        reconsume_times=sending.reconsume_times,
        unit_mode=False,
        max_reconsume_times=sending.max_reconsume,
        batch=False,
        broker_name=queue.broker_name,
    )
