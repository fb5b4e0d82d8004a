# SPDX-License-Identifier: Apache-2.0
"""Bring a message that waited in a system topic to its real one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.message import RECORD_CHECK_SIZE

if TYPE_CHECKING:
    from aerobee.protocol.message import Record
    from aerobee.store.message_store import MessageStore

log = logging.getLogger("aerobee.deliver")


def deliver(physical_offset: int, store: MessageStore, now: int) -> Record | None:
    """Append a copy to REAL_TOPIC / REAL_QID; None when the message is gone.

    REAL_TOPIC, REAL_QID and the delay stay in its properties, as in RocketMQ; nothing delays it again.
    """
    waiting = store.record_at(physical_offset)
    if waiting is None:
        log.warning("message at physical_offset=%d is gone or damaged: not delivered", physical_offset)
        return None
    text = without_check(waiting.properties_text)
    topic, queue_id = props.get(text, props.REAL_TOPIC), props.get(text, props.REAL_QID)
    if topic is None or queue_id is None or not queue_id.isdigit():
        log.error("message at physical_offset=%d names no real topic: not delivered", physical_offset)
        return None
    if waiting.topic == names.TIMER_TOPIC:
        text += f"TIMER_ENQUEUE_MS\x01{waiting.store_timestamp}\x02TIMER_DEQUEUE_MS\x01{now}\x02"
    copy = msgspec.structs.replace(waiting, topic=topic, queue_id=int(queue_id), properties_text=text)
    store.append(copy)
    return copy


def without_check(text: str) -> str:
    """Properties text without the store's record check, which holds for the old bytes only."""
    if len(text) >= RECORD_CHECK_SIZE and text.startswith(
        f"{props.RECORD_CRC}\x01", len(text) - RECORD_CHECK_SIZE
    ):
        return text[:-RECORD_CHECK_SIZE]
    return text
