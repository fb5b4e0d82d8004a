# SPDX-License-Identifier: Apache-2.0
"""Bring a message that waited in a system topic to its real one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.destination import target_of
from aerobee.errors import MessageIllegal
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.message import MAX_PROPERTIES, RECORD_CHECK_SIZE

if TYPE_CHECKING:
    from aerobee.broker.state.stats import Stats
    from aerobee.protocol.message import Record
    from aerobee.store.message_store import MessageStore

log = logging.getLogger("aerobee.deliver")


def deliver(physical_offset: int, store: MessageStore, stats: Stats, now: int) -> Record | None:
    """Append a copy to REAL_TOPIC / REAL_QID; None when the message is gone. MessageIllegal when it may not go there.

    REAL_TOPIC, REAL_QID and the delay stay in its properties, as in RocketMQ; nothing delays it again.
    """
    waiting = store.record_at(physical_offset)
    if waiting is None:
        log.warning("message at physical_offset=%d is gone or damaged: not delivered", physical_offset)
        return None
    text = without_check(waiting.properties_text)
    target = target_of(text)
    if target is None:
        raise MessageIllegal("it names no topic and queue that a message may go to")
    if waiting.topic == names.TIMER_TOPIC:
        times = f"TIMER_ENQUEUE_MS\x01{waiting.store_timestamp}\x02TIMER_DEQUEUE_MS\x01{now}\x02"
        text = stamped(text, times)
    copy = msgspec.structs.replace(
        waiting, topic=target.topic, queue_id=target.queue_id, properties_text=text
    )
    store.append(copy)
    stats.moved(copy.topic, 1, copy.size)
    return copy


def stamped(text: str, stamps: str) -> str:
    """Properties text with more properties, if it can still be stored then: they are of use, but no message is
    worth losing for them."""
    longer = (text if not text or text[-1] == props.PAIR_END else text + props.PAIR_END) + stamps
    return longer if len(longer.encode()) <= MAX_PROPERTIES - RECORD_CHECK_SIZE else text


def without_check(text: str) -> str:
    """Properties text without the store's record check, which holds for the old bytes only."""
    if len(text) >= RECORD_CHECK_SIZE and text.startswith(
        f"{props.RECORD_CRC}\x01", len(text) - RECORD_CHECK_SIZE
    ):
        return text[:-RECORD_CHECK_SIZE]
    return text
