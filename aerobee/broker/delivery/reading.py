# SPDX-License-Identifier: Apache-2.0
"""How a consumer reads a queue, be it by pull, pop or peek: through which filter, how much at once, how far behind it
is; and where a pop goes on: a pending reset, the first time, the usual case, and offsets that are wrong."""

from __future__ import annotations

import logging
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.broker.operations.offsets import is_young
from aerobee.errors import SubscriptionParseFailed, SystemFailure
from aerobee.protocol import names
from aerobee.protocol.filters import Accept, compile_filter
from aerobee.protocol.message import stored_at
from aerobee.store.results import Found, ReadLimit, ReadStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.broker import Broker
    from aerobee.broker.pop.in_flight import Lane
    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.pop")

SCAN = 800  # queue units looked at for a filter that matches little
_LEAST_BYTES = 100
CORRECTED = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL)


# -- through which filter ------------------------------------------------------------------------------


def accept_for(kind: str | None, expression: str | None, config: BrokerConfig) -> Accept | None:
    """The filter of an expression, None = every message. Raises SubscriptionParseFailed for a bad one."""
    if not expression or expression == "*":
        return None
    if kind and kind != "TAG" and not config.property_filter:
        raise SystemFailure(f"the broker does not support filters of type '{kind}' (enablePropertyFilter)")
    return _compiled(kind or "TAG", expression)


def accept_for_pop(kind: str | None, expression: str | None) -> Accept | None:
    """The filter a pop brings. Unlike a pull's, an SQL one works whatever `property_filter` says, as in RocketMQ."""
    if not expression or expression == "*":
        return None
    return _compiled(kind or "TAG", expression)


# Every request brings its expression, and compiling one takes far longer than a read. Held requests of the same
# expression share one filter, and so one line.
@lru_cache(maxsize=4096)
def _compiled(kind: str, expression: str) -> Accept | None:
    try:
        accept = compile_filter(kind, expression)
    except ValueError as error:
        raise SubscriptionParseFailed(str(error)) from None
    return None if accept.codes is None and accept.properties is None else accept


def relied_on(broker: Broker) -> tuple[object, ...]:
    """All that decides whether a reader may read, through which filter and how much: equal to what it was as long as
    nothing of it has changed."""
    return (
        broker.settings.value,
        broker.groups.data_version,
        broker.topics.data_version,
        broker.clients.changes,
    )


# -- how much at once, how far behind ------------------------------------------------------------------


def ordinary_limit(wanted: int, config: BrokerConfig, max_bytes: int | None = None) -> ReadLimit:
    """What was asked for, within what the broker transfers at once; less where it has to come from disk."""
    size, cold_size = config.pull_bytes, config.cold_pull_bytes
    if max_bytes is not None and max_bytes > 0:
        max_bytes = max(max_bytes, _LEAST_BYTES)
        size, cold_size = min(max_bytes, size), min(max_bytes, cold_size)
    most, cold_most = config.pull_messages, config.cold_pull_messages
    # Every pull and pop asks: a comparison is a tenth of what `min` and `max` cost.
    return ReadLimit(
        wanted if wanted < most else most,
        size,
        SCAN if wanted <= SCAN else max(SCAN, min(wanted, config.max_pull_messages)),
        wanted if wanted < cold_most else cold_most,
        cold_size,
    )


def note_distance(group: str, topic: str, queue_id: int, found: Found, broker: Broker) -> None:
    """How far behind the end of the log the group reads; bulk readers of whole records copy and do not consume."""
    if found.messages:
        behind_ms = broker.clock.wall() - stored_at(found.messages[-1])
        if behind_ms < 0:
            behind_ms = 0
        broker.stats.fell_behind(group, topic, queue_id, found.behind_bytes, behind_ms)
    elif found.status is ReadStatus.OFFSET_OVERFLOW_ONE:
        broker.stats.fell_behind(group, topic, queue_id, 0, 0)


# -- where a pop goes on -------------------------------------------------------------------------------


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


def waiting(topic: str, group: str, queue_ids: Iterable[int], broker: Broker) -> int:
    """What queues hold for the group. Every pop that is full asks it of all other queues, so it makes few calls."""
    offsets, store, lanes = broker.offsets, broker.store, broker.pops.leases.in_flight.lanes
    committed, count = offsets.of(group, topic), 0
    for queue_id in queue_ids:
        high, position = store.max_offset(topic, queue_id), committed.get(queue_id, -1)
        if position < 0:
            position = store.min_offset(topic, queue_id)
        lane = lanes.get((topic, group, queue_id))
        if lane is not None and lane.line and not offsets.has_reset(group, topic, queue_id):
            position = max(position, lane.line[-1].next_offset)
        if high > position:
            count += high - position
    return count


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
