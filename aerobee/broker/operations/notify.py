# SPDX-License-Identifier: Apache-2.0
"""Tell a light client (a proxy) as soon as there is something to pop, and how many pops are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.reading import accept_for_pop, peek_position
from aerobee.broker.operations.pop import check_reader, hold_left, queues_of
from aerobee.broker.pop.held_pops import Parked, Reads
from aerobee.broker.pop.pops import retry_topics

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from aerobee.broker.broker import Broker
    from aerobee.protocol.filters import Accept


class Notify(msgspec.Struct, frozen=True):
    group: str
    topic: str
    queue_id: int = -1
    poll_ms: int = 0
    born_time: int = 0
    ordered: bool = False
    attempt_id: str | None = None
    expression: str | None = None
    expression_type: str | None = None


class Notified(msgspec.Struct, frozen=True):
    has_message: bool = False
    polling_full: bool = False


def notify(request: Notify, broker: Broker) -> Notified | Coroutine[Any, Any, Notified]:
    """Whether there is something, maybe after waiting for it.

    What is stored already is not filtered, so "yes" may turn out to be nothing for the group.
    """
    accept = _admit(request, broker)
    if _any(request, broker):
        return Notified(has_message=True)
    if request.poll_ms <= 0:
        return Notified()
    return _held(request, accept, broker)


async def _held(request: Notify, accept: Accept | None, broker: Broker) -> Notified:
    place = (request.topic, request.group, max(request.queue_id, -1))
    reads = Reads.TOPIC_ONLY if request.ordered else Reads.WITH_RETRIES
    deadline = broker.clock.now() + hold_left(request.born_time, request.poll_ms, broker.clock)
    if _any(request, broker):  # this runs a turn of the loop after the look that found nothing
        return Notified(has_message=True)
    while True:
        ended = await broker.pops.notices.wait(place, deadline, accept, reads)
        if ended is Parked.FULL:
            return Notified(polling_full=True)
        _admit(request, broker)
        if _any(request, broker):
            return Notified(has_message=True)
        if ended is Parked.EXPIRED:
            return Notified()


def _admit(request: Notify, broker: Broker) -> Accept | None:
    check_reader(request.group, request.topic, request.queue_id, broker)
    return accept_for_pop(request.expression_type, request.expression)


def _any(request: Notify, broker: Broker) -> bool:
    topics = [(request.topic, request.queue_id)]
    if not request.ordered:
        topics += [(topic, -1) for topic in retry_topics(request.topic, request.group)]
    return any(
        _ready(request, topic, queue_id, broker)
        for topic, wanted in topics
        for queue_id in queues_of(topic, wanted, 0, broker)
    )


def _ready(request: Notify, topic: str, queue_id: int, broker: Broker) -> bool:
    if request.ordered:
        key = (topic, request.group, queue_id)
        if broker.pops.orders.blocked(key, request.attempt_id, broker.clock.wall()):
            info = broker.pops.orders.get(*key)
            if info is not None:
                broker.pops.release_at(key, info.free_at())
            return False
    return broker.store.max_offset(topic, queue_id) > peek_position(topic, request.group, queue_id, broker)


def polling_info(group: str, topic: str, queue_id: int, broker: Broker) -> int:
    """How many pops are held under the key."""
    check_reader(group, topic, queue_id, broker)
    return broker.pops.parked.waiting(topic, group, queue_id)
