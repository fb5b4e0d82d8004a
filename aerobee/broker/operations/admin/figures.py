# SPDX-License-Identifier: Apache-2.0
"""Exact figures of a group: pull, POP or both, connected or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.pop.in_flight import oldest_offset
from aerobee.broker.pop.pops import retry_topics
from aerobee.broker.turns import at_once
from aerobee.errors import GroupNotFound
from aerobee.protocol import names
from aerobee.protocol.bodies.figures import GroupLag, QueueLag

if TYPE_CHECKING:
    from collections.abc import Generator

    from aerobee.broker.broker import Broker


def group_figures(group: str, topic: str | None, broker: Broker) -> GroupLag:
    """All topics of the group, or one with its retry topics, in this turn of the loop. Raises GroupNotFound."""
    return at_once(counting(group, topic, broker))


def counting(group: str, topic: str | None, broker: Broker) -> Generator[None, None, GroupLag]:
    """The same for `in_turns`: stops after every queue. Raises GroupNotFound."""
    topics = {topic} if topic else topics_of(group, broker)
    if broker.groups.get(group) is None and not topics_of(group, broker):
        raise GroupNotFound(f"group '{group}' does not exist")
    normal = sorted(name for name in topics if not names.is_retry(name))
    retries = {name for one in normal for name in retry_topics(one, group)} | {names.retry_topic(group)}
    retries |= {name for name in topics if names.is_retry(name)}
    online = broker.clients.group(group)
    figures = GroupLag(
        group=group,
        online=online is not None,
        conflicts={} if online is None else online.conflicts,
        modes={name: broker.pops.modes.get(name, group).mode.value for name in normal},
        queues=[],
    )
    own_retries = names.retry_topic(group)
    has_retries = broker.topics.get(own_retries) is not None
    if has_retries:  # this may read for long; what comes after it is soon done
        yield from broker.stats.delayed.look(broker.store, broker.clock.now())
    for name in [*normal, *sorted(retries - {own_retries})]:
        for queue_id in range(_read_queues(name, broker)):
            _add(figures, queue_figures(broker, group, name, queue_id), is_retry=name in retries)
            yield
    # From here on in one turn: what is sent back goes from the delayed to its retry topic, from there to the delayed
    # again or to the dead letters, and is counted nowhere if it does so between two counts.
    if has_retries:
        at_once(broker.stats.delayed.look(broker.store, broker.clock.now()))
        figures.delayed, figures.delayed_is_exact = broker.stats.delayed.count(own_retries)
    for queue in lag(broker, group, own_retries):
        _add(figures, queue, is_retry=True)
    figures.dead = _stored(names.dead_letter_topic(group), broker)
    oldest = (max(queue.oldest_ready_ms, queue.oldest_in_flight_ms) for queue in figures.queues)
    figures.oldest_ms = max(oldest, default=0)
    return figures


def _add(figures: GroupLag, queue: QueueLag, *, is_retry: bool) -> None:
    figures.queues.append(queue)
    figures.retrying += queue.ready if is_retry else 0
    figures.ready += 0 if is_retry else queue.ready
    figures.in_flight += queue.in_flight


def topics_of(group: str, broker: Broker) -> set[str]:
    """Every topic the group has an offset, a subscription or a lease on."""
    found: set[str] = set(broker.offsets.topics_of(group))
    online = broker.clients.group(group)
    if online is not None and not names.is_system_group(
        group
    ):  # tools look at topics, they have no lag on them
        found |= set(online.subscriptions)
    found |= {lane.topic for lane in broker.pops.leases.in_flight.lanes_of(group) if lane.in_flight}
    return {name for name in found if broker.topics.get(name) is not None}


def lag(broker: Broker, group: str, topic: str) -> list[QueueLag]:
    """Each queue of the topic for the group; empty when there is no such topic."""
    return [queue_figures(broker, group, topic, queue_id) for queue_id in range(_read_queues(topic, broker))]


def _read_queues(topic: str, broker: Broker) -> int:
    config = broker.topics.get(topic)
    return 0 if config is None else config.read_queue_nums


def queue_figures(broker: Broker, group: str, topic: str, queue_id: int) -> QueueLag:
    store = broker.store
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    committed = broker.offsets.get(group, topic, queue_id)
    if committed < 0:
        committed = low  # never read: all of it is before the group
    lane = broker.pops.leases.in_flight.lanes.get((topic, group, queue_id))
    ordered, settled = broker.pops.orders.counts(topic, group, queue_id, broker.clock.wall())
    position, leased, skipped = committed, ordered, settled
    if lane is not None:
        position = lane.position(committed)
        leased += lane.in_flight
        skipped += sum(offset >= position for offset in lane.skip)
    pulled = broker.offsets.pull_offset(group, topic, queue_id)
    if broker.clients.group(group) is not None and committed < pulled <= high:
        leased += pulled - max(position, committed)  # in the buffers of its consumers
        position = max(position, pulled)
    ready = max(0, high - max(position, low) - skipped - ordered)
    figures = QueueLag(
        topic=topic,
        broker_name=broker.config.name,
        queue_id=queue_id,
        min_offset=low,
        max_offset=high,
        committed=committed,
        position=position,
        ready=ready,
        in_flight=max(0, leased),
    )
    figures.behind_bytes, figures.behind_ms = broker.stats.behind(group, topic, queue_id)
    if ready:
        figures.oldest_ready_ms = _age(broker, topic, queue_id, max(position, low))
    first = oldest_offset(lane) if lane is not None else None
    if first is None and figures.in_flight:
        first = committed
    if first is not None:
        figures.oldest_in_flight_ms = _age(broker, topic, queue_id, first)
    return figures


def _age(broker: Broker, topic: str, queue_id: int, offset: int) -> int:
    stored = broker.store.store_time(topic, queue_id, offset)
    return 0 if stored < 0 else max(0, broker.clock.wall() - stored)


def _stored(topic: str, broker: Broker) -> int:
    queues = range(_read_queues(topic, broker))
    return sum(broker.store.max_offset(topic, q) - broker.store.min_offset(topic, q) for q in queues)
