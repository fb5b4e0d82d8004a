# SPDX-License-Identifier: Apache-2.0
"""How far a group has come, and where a queue begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker import checks
from aerobee.errors import GroupNotFound, InvalidParameter, QueryNotFound, TopicNotFound

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import Boundary


def query_offset(group: str, topic: str, queue_id: int, broker: Broker) -> int:
    """The offset the group goes on from, -1 when it has none."""
    return broker.offsets.get(group, topic, queue_id)


def first_offset(topic: str, queue_id: int, broker: Broker) -> int:
    """Where a group without an offset starts a young queue: 0. Else its consumer decides (QueryNotFound)."""
    if is_young(topic, queue_id, broker.store):
        return 0
    raise QueryNotFound(
        f"no offset for topic '{topic}' queue {queue_id}, and its first messages are long past"
    )


def is_young(topic: str, queue_id: int, store: MessageStore) -> bool:
    """Whether the queue's first message is still in memory, or yet to come: then who asked for the queue's end next
    would skip what was stored in between."""
    if store.max_offset(topic, queue_id) == 0:
        return True
    first = store.unit(topic, queue_id, 0)
    return (
        first is not None
        and store.min_offset(topic, queue_id) <= 0
        and store.in_memory(first.physical_offset)
    )


def update_offset(group: str, topic: str, queue_id: int, offset: int, broker: Broker) -> None:
    """Commit. Offsets may go back; while a reset waits for the group, commits are ignored."""
    if broker.groups.get(group) is None:  # unlike a pull, a commit creates no group
        raise GroupNotFound(f"group '{group}' does not exist; the offset was not stored")
    if broker.topics.get(topic) is None:
        raise TopicNotFound(f"topic '{topic}' does not exist; the offset was not stored")
    if queue_id < 0 or offset < 0:
        raise InvalidParameter(f"queue {queue_id} and offset {offset} must not be negative")
    if not broker.offsets.has_reset(group, topic, queue_id):
        broker.offsets.set(group, topic, queue_id, offset)


def search_offset(topic: str, queue_id: int, timestamp: int, boundary: Boundary, broker: Broker) -> int:
    """The offset at a time, kept within what the queue holds."""
    checks.topic_name(topic)
    store = broker.store
    offset = store.offset_by_time(topic, queue_id, timestamp, boundary)
    return max(store.min_offset(topic, queue_id), min(offset, store.max_offset(topic, queue_id)))


def earliest_store_time(topic: str, queue_id: int, broker: Broker) -> int:
    """When the oldest message of the queue was stored, -1 for an empty queue."""
    return broker.store.store_time(topic, queue_id, broker.store.min_offset(topic, queue_id))
