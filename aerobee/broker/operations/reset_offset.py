# SPDX-License-Identifier: Apache-2.0
"""An operator moves a group on a topic: to a time, to an offset, or to the end.

Server side (RocketMQ 5.2 and later): the new offsets are stored, and each queue's reader is told at its next pull.
Client side (older): the offsets are sent to the group's consumers, who move themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import ConsumerNotOnline, GroupNotFound, SystemFailure, TopicNotFound
from aerobee.protocol.bodies import MessageQueue, ResetOffsetBody, ResetOffsetEntry, ResetOffsetList, encode
from aerobee.protocol.command import request as command_of
from aerobee.protocol.headers.offsets import ResetClientOffset
from aerobee.store.results import Boundary

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import TopicConfig

_OLDEST_TOLD = 28  # clients from 3.0.7 on understand the request


class Reset(msgspec.Struct, frozen=True):
    group: str
    topic: str
    timestamp: int = -1  # < 0 = to the end
    queue_id: int = -1  # < 0 = all
    offset: int = -1  # >= 0 = to this offset, whatever the timestamp
    force: bool = True  # also move groups forward that are behind the time


async def reset_offset(reset: Reset, broker: Broker) -> dict[MessageQueue, int]:
    """Move the group; returns the new offset of every queue. A move that cannot be saved is in force all the same, for
    its readers may have been told; it is saved later."""
    topic = broker.topics.get(reset.topic)
    if topic is None:
        raise TopicNotFound(f"topic '{reset.topic}' does not exist")
    if broker.groups.get(reset.group) is None:
        raise GroupNotFound(f"group '{reset.group}' does not exist")
    if not broker.config.server_side_reset:
        return _tell_clients(reset, topic, broker)
    wanted = {queue_id: _target(reset, queue_id, broker) for queue_id in _queues(reset, topic)}
    for queue_id, offset in wanted.items():
        broker.offsets.set_reset(reset.group, reset.topic, queue_id, offset)
        broker.pops.reset(reset.topic, reset.group, queue_id, offset)
        # Held readers are told now, not at their deadline.
        broker.parked.wake(reset.topic, queue_id)
        broker.pops.wake(reset.topic, reset.group, queue_id)
    await broker.offsets.saved()
    return {
        MessageQueue(broker.config.name, queue_id, reset.topic): offset for queue_id, offset in wanted.items()
    }


def _queues(reset: Reset, topic: TopicConfig) -> range:
    if reset.queue_id < 0:
        return range(topic.write_queue_nums)
    if reset.queue_id >= topic.write_queue_nums:
        raise SystemFailure(
            f"topic '{reset.topic}' has {topic.write_queue_nums} queues; asked for {reset.queue_id}"
        )
    return range(reset.queue_id, reset.queue_id + 1)


def _target(reset: Reset, queue_id: int, broker: Broker) -> int:
    store = broker.store
    low, high = store.min_offset(reset.topic, queue_id), store.max_offset(reset.topic, queue_id)
    if reset.offset >= 0:
        if not low <= reset.offset <= high + 1:
            raise SystemFailure(
                f"topic '{reset.topic}' queue {queue_id} holds offsets {low} to {high}; asked for {reset.offset}"
            )
        return reset.offset
    if reset.timestamp < 0:
        return high
    return store.offset_by_time(reset.topic, queue_id, reset.timestamp, Boundary.LOWER)


def _tell_clients(reset: Reset, topic: TopicConfig, broker: Broker) -> dict[MessageQueue, int]:
    table: dict[MessageQueue, int] = {}
    for queue_id in _queues(reset, topic):
        now_at = broker.offsets.get(reset.group, reset.topic, queue_id)
        if now_at < 0:
            raise SystemFailure(
                f"group '{reset.group}' has no offset on topic '{reset.topic}' queue {queue_id} yet"
            )
        target = _target(reset, queue_id, broker)
        moved = target if reset.force or target < now_at else now_at
        table[MessageQueue(broker.config.name, queue_id, reset.topic)] = moved
    group = broker.clients.group(reset.group)
    if group is None:
        raise ConsumerNotOnline(f"group '{reset.group}' has no consumer online to be told of the reset")
    header = ResetClientOffset(
        topic=reset.topic, group=reset.group, timestamp=reset.timestamp, is_force=reset.force
    )
    for member in group.members.values():
        if member.version >= _OLDEST_TOLD:
            member.link.send(command_of(header, offsets_body(table, member.language)))
    return table


def offsets_body(table: dict[MessageQueue, int], language: str) -> bytes:
    """The new offsets as JSON; C++ clients read a list where the others read Java's map keyed by objects."""
    if language != "CPP":
        return encode(ResetOffsetBody(offset_table=table))
    rows = [
        ResetOffsetEntry(
            broker_name=queue.broker_name, offset=offset, queue_id=queue.queue_id, topic=queue.topic
        )
        for queue, offset in table.items()
    ]
    return encode(ResetOffsetList(offset_table=rows))
