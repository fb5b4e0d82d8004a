# SPDX-License-Identifier: Apache-2.0
"""A store of two queues whose messages take turns in the log, and what tests do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.message_store import MessageStore

COUNT = 40  # 16 units a file


def two_queues(kit: Any) -> MessageStore:
    store: MessageStore = kit.open()
    for n in range(COUNT):
        store.append(kit.message(body=b"%d" % n, text="TAGS\x01a\x02"))
        store.append(kit.message("other", body=b"other%d" % n))
    return store


def queue_of(store: MessageStore, topic: str = "orders") -> ConsumeQueue:
    queue = store._queues.find(topic, 0)
    assert queue is not None
    return queue


def units_of(store: MessageStore, topic: str = "orders") -> list[Any]:
    return [store.unit(topic, 0, n) for n in range(store.max_offset(topic, 0))]


def spoil_record(store: MessageStore, n: int, topic: str = "orders") -> None:
    """A byte of its body is another."""
    unit = store.unit(topic, 0, n)
    assert unit is not None
    at = unit.physical_offset + 88
    log_map: Any = store._log.map
    log_map[at : at + 1] = bytes([log_map[at] ^ 1])
