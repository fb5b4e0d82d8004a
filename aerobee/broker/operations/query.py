# SPDX-License-Identifier: Apache-2.0
"""Look messages up: by their place in the log, by key, and the raw units of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.reading import accept_for
from aerobee.errors import QueryNotFound, SystemFailure
from aerobee.protocol import message as wire
from aerobee.protocol.bodies import ConsumeQueueUnit, ConsumeQueueView

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import SubscriptionData

MAX_FOUND = 64
MAX_FOUND_UNIQUE = 32  # a unique key may be on several: the message, its retries, its dead letter
MAX_UNITS = 1000


class KeyQuery(msgspec.Struct, frozen=True):
    topic: str
    key: str
    max_messages: int = 32
    begin: int = 0
    end: int = 2**63 - 1
    unique: bool = False  # the key is a UNIQ_KEY, not one of KEYS


class KeyResult(msgspec.Struct, frozen=True):
    messages: list[bytes]  # raw records, newest first
    index_time: int
    index_offset: int


def view_message(physical_offset: int, broker: Broker) -> bytes:
    """The record at a commit-log offset."""
    raw = broker.store.raw_at(physical_offset) if physical_offset >= 0 else None
    if raw is None:
        raise SystemFailure(f"there is no message at commit-log offset {physical_offset}, or no longer")
    return raw


def query_by_key(query: KeyQuery, broker: Broker) -> KeyResult:
    """Messages of the topic with the key. By hash: whoever asks compares the keys once more."""
    limit = MAX_FOUND_UNIQUE if query.unique else max(0, min(query.max_messages, MAX_FOUND))
    found = broker.store.find_by_key(query.topic, query.key, limit, query.begin, query.end)
    if not found:
        raise QueryNotFound(
            f"topic '{query.topic}' has no message with key '{query.key}' from {query.begin} to {query.end}"
        )
    time, offset = broker.store.index_last_update
    return KeyResult(found, time, offset)


def query_queue(
    topic: str, queue_id: int, start: int, count: int, group: str, broker: Broker
) -> ConsumeQueueView:
    """Units of a consume queue, and whether the group's filter would take each message."""
    store = broker.store
    if queue_id not in store.queue_ids(topic):
        raise SystemFailure(f"topic '{topic}' has no queue {queue_id} with messages")
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    subscription = broker.clients.subscription(group, topic) if group else None
    units = [
        _unit(topic, queue_id, offset, subscription, broker)
        for offset in range(max(start, low), min(max(start, low) + min(count, MAX_UNITS), high))
    ]
    return ConsumeQueueView(
        max_queue_index=high, min_queue_index=low, queue_data=units, subscription_data=subscription
    )


def _unit(
    topic: str, queue_id: int, offset: int, subscription: SubscriptionData | None, broker: Broker
) -> ConsumeQueueUnit:
    unit = broker.store.unit(topic, queue_id, offset)
    if unit is None:
        return ConsumeQueueUnit(msg="gone")
    shown = ConsumeQueueUnit(
        physic_offset=unit.physical_offset, physic_size=unit.size, tags_code=unit.tags_code, eval=True
    )
    if subscription is None:
        return shown
    accept = accept_for(subscription.expression_type, subscription.sub_string, broker.config)
    if accept is None:
        return shown
    shown.eval = accept.codes is None or unit.tags_code in accept.codes
    raw = broker.store.raw_at(unit.physical_offset) if accept.properties is not None else None
    if raw is not None and accept.properties is not None:
        shown.eval = accept.properties(wire.decode(raw).properties)
    return shown
