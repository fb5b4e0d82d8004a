# SPDX-License-Identifier: Apache-2.0
"""Where a pop reads a queue next: a pending reset, the first time, the usual case, and offsets that are wrong."""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING

from aerobee.broker.operations.offsets import is_young
from aerobee.protocol import names
from aerobee.store.results import Found, ReadStatus

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.pop.in_flight import Lane

log = logging.getLogger("aerobee.pop")

CORRECTED = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL)


class Start(IntEnum):
    """Where a group without an offset begins; the wire's init mode."""

    MIN = 0
    MAX = 1


def position(lane: Lane, start: Start, broker: Broker) -> int:
    """The offset to read at. Applies a pending reset, and gives a new group its first offset."""
    group, topic, queue_id = lane.group, lane.topic, lane.queue_id
    reset = broker.offsets.take_reset(group, topic, queue_id)
    if reset is not None:
        broker.pops.reset(topic, group, queue_id, reset)
        return reset
    committed = broker.offsets.get(group, topic, queue_id)
    if committed < 0:
        committed = first_offset(topic, queue_id, start, broker)
        broker.offsets.set(group, topic, queue_id, committed)
    return lane.position(committed)


def peek_position(topic: str, group: str, queue_id: int, broker: Broker) -> int:
    """The same without touching anything."""
    committed = broker.offsets.get(group, topic, queue_id)
    if committed < 0:
        committed = broker.store.min_offset(topic, queue_id)
    if broker.offsets.has_reset(group, topic, queue_id):
        return committed
    lane = broker.pops.leases.in_flight.lanes.get((topic, group, queue_id))
    return committed if lane is None else lane.position(committed)


def first_offset(topic: str, queue_id: int, start: Start, broker: Broker) -> int:
    """MIN and retry topics: the oldest message. MAX: the newest, or 0 while message 0 is still in memory.

    That last rule is RocketMQ's (initPopOffsetByCheckMsgInMem): a young topic is read from its beginning,
    so a group that starts a moment after the first message does not miss it.
    """
    store = broker.store
    if start is Start.MIN or names.is_retry(topic):
        return store.min_offset(topic, queue_id)
    return 0 if is_young(topic, queue_id, store) else store.max_offset(topic, queue_id) - 1


def correct(lane: Lane, offset: int, found: Found, broker: Broker) -> int:
    """The offset does not exist: go on at the one the store suggests, and commit that."""
    log.warning(
        "pop offset corrected group=%s topic=%s queue=%d from=%d to=%d: %s",
        lane.group,
        lane.topic,
        lane.queue_id,
        offset,
        found.next_offset,
        found.status,
    )
    in_flight = broker.pops.leases.in_flight
    if found.next_offset >= offset:
        in_flight.passed(lane, found.next_offset)  # cleaned away; what is in line keeps its place
    else:
        # Past the end: the queue is shorter than it was, so the leases are of messages that no longer exist.
        broker.pops.leases.reset(lane, found.next_offset, broker.clock.now())
    return found.next_offset
