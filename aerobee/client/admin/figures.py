# SPDX-License-Identifier: Apache-2.0
"""Where a group's messages are, in numbers: asked exactly from Aerobee, worked out from what RocketMQ tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol import bodies, names
from aerobee.protocol.bodies.figures import GroupLag, QueueLag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.message import ReceivedMessage
    from aerobee.protocol.bodies import MessageQueue


def merge(parts: list[GroupLag]) -> GroupLag:
    """The same group on several brokers."""
    whole = parts[0]
    for part in parts[1:]:
        whole = GroupLag(
            group=whole.group,
            online=whole.online or part.online,
            modes={**whole.modes, **part.modes},
            ready=whole.ready + part.ready,
            in_flight=whole.in_flight + part.in_flight,
            retrying=whole.retrying + part.retrying,
            delayed=whole.delayed + part.delayed,
            dead=whole.dead + part.dead,
            oldest_ms=max(whole.oldest_ms, part.oldest_ms),
            delayed_is_exact=whole.delayed_is_exact and part.delayed_is_exact,
            conflicts={**whole.conflicts, **part.conflicts},
            queues=whole.queues + part.queues,
            exact=whole.exact and part.exact,
        )
    return whole


def place_of(message: ReceivedMessage, lag: GroupLag) -> str | None:
    """Where a message is for a group: 'consumed', 'handed out' or 'waiting'; None when the group does not read its
    queue. What was acked out of turn still counts as handed out, and so does what waits for a retry."""
    for queue in lag.queues:
        where = (queue.topic, queue.broker_name, queue.queue_id)
        if where != (message.topic, message.broker_name, message.queue_id):
            continue
        if message.queue_offset < queue.committed:
            return "consumed"
        return "handed out" if message.queue_offset < queue.position else "waiting"
    return None


def from_stats(
    group: str, progress: Mapping[MessageQueue, bodies.QueueProgress], now: int, *, online: bool, dead: int
) -> GroupLag:
    """The best that can be said from consume stats (code 208). Of a group without members nothing is in flight, whatever
    was pulled: a broker also counts what it read for the held pull of one who has gone."""
    figures = GroupLag(group=group, online=online, dead=dead, exact=False, queues=[])
    for queue, entry in sorted(progress.items()):
        pulled = max(entry.pull_offset, entry.consumer_offset) if online else entry.consumer_offset
        one = QueueLag(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            max_offset=entry.broker_offset,
            committed=entry.consumer_offset,
            position=pulled,
            ready=max(0, entry.broker_offset - pulled),
            in_flight=pulled - entry.consumer_offset,
        )
        if one.lag and entry.last_timestamp > 0:
            one.oldest_ready_ms = max(0, now - entry.last_timestamp)
        figures.queues.append(one)
        figures.in_flight += one.in_flight
        if names.is_retry(queue.topic):
            figures.retrying += one.ready
        else:
            figures.ready += one.ready
        figures.oldest_ms = max(figures.oldest_ms, one.oldest_ready_ms)
    return figures
