# SPDX-License-Identifier: Apache-2.0
"""Where one message is for one group: exact for POP too, whose acks come in any order."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker import checks
from aerobee.broker.operations.admin.figures import queue_figures
from aerobee.broker.pop.in_flight import BLOCK_SHIFT, MAX_BATCH, MAX_TIME, TIME_BITS, Sparse
from aerobee.errors import NoMessage
from aerobee.protocol import message
from aerobee.protocol.bodies.figures import MessageState, Place
from aerobee.protocol.receipt import MAX_BITS, CheckpointRecord, decode_checkpoint

if TYPE_CHECKING:
    from collections.abc import Generator

    from aerobee.broker.broker import Broker
    from aerobee.broker.pop.in_flight import Lane

STEP = 500  # leases looked at before others may have a turn
_EVER = 2**63 - 1


class Where(NamedTuple):
    group: str
    topic: str  # the real one: maybe a retry topic
    queue_id: int
    offset: int


def finding(where: Where, broker: Broker) -> Generator[None, None, MessageState]:
    """For `in_turns`. Raises TopicNotFound, InvalidParameter or NoMessage."""
    group, topic, queue_id, offset = where
    checks.readable_queue(broker.topics, topic, queue_id)
    low, high = broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id)
    if not low <= offset < high:
        raise NoMessage(f"topic '{topic}' queue {queue_id} holds offsets {low} to {high - 1}, not {offset}")
    ordered = _ordered(where, broker)
    if ordered is not None:
        return ordered
    lane = broker.pops.leases.in_flight.lanes.get((topic, group, queue_id))
    if lane is not None:
        leased = yield from _leased(lane, offset, broker)
        if leased is not None:
            return leased
        if offset in lane.skip:  # finished before the last start, though the group has not come past it
            return MessageState(group=group, place=Place.DONE)
    figures = queue_figures(broker, group, topic, queue_id)
    if offset >= figures.position:
        return MessageState(group=group, place=Place.WAITING)
    popped_up_to = figures.committed if lane is None else lane.position(figures.committed)
    return MessageState(group=group, place=Place.DONE if offset < popped_up_to else Place.HANDED_OUT)


def _ordered(where: Where, broker: Broker) -> MessageState | None:
    """Of a batch that an ordered pop took; None when the message is in none."""
    batch = broker.pops.orders.get(where.topic, where.group, where.queue_id)
    if batch is None or where.offset not in batch.absolute:
        return None
    if where.offset not in batch.open_offsets():
        return MessageState(group=where.group, place=Place.DONE)
    until = batch.visible_at(where.offset)
    if until <= broker.clock.wall():
        return MessageState(group=where.group, place=Place.WAITING)
    return MessageState(group=where.group, place=Place.LEASED, leased_until=until, popped_at=batch.pop_time)


def _leased(lane: Lane, offset: int, broker: Broker) -> Generator[None, None, MessageState | None]:
    checkpoints = iter(list(lane.young.values()))
    while some := list(islice(checkpoints, STEP)):
        for checkpoint in some:
            if offset in checkpoint.open_offsets:
                until = checkpoint.due + broker.clock.ahead
                return MessageState(
                    group=lane.group,
                    place=Place.LEASED,
                    leased_until=until,
                    popped_at=checkpoint.pop_time,
                    reason=checkpoint.failure,
                )
        yield
    in_flight = broker.pops.leases.in_flight
    for number in range(max(0, offset - MAX_BITS) >> BLOCK_SHIFT, (offset >> BLOCK_SHIFT) + 1):
        entries = iter(list(lane.cold.get(number, {}).items()))
        while logged := list(islice(entries, STEP)):
            for key, entry in logged:
                start, pop_time = key >> TIME_BITS, key & MAX_TIME - 1
                reach = entry.diffs[-1] + 1 if isinstance(entry, Sparse) else MAX_BATCH
                # Asked anew: it may have been acked since the list was made.
                if start <= offset < start + reach and offset in in_flight.open_offsets(
                    lane, start, pop_time
                ):
                    return _logged(lane, start, pop_time, broker)
            yield
    return None


def _logged(lane: Lane, start: int, pop_time: int, broker: Broker) -> MessageState:
    """Until when is in the revive log only, where the checkpoint is found by its key."""
    named = CheckpointRecord(
        group=lane.group,
        topic=lane.topic,
        queue_id=lane.queue_id,
        start_offset=start,
        pop_time=pop_time,
        broker_name=broker.config.name,
    )
    topic = broker.pops.leases.log.topic
    state = MessageState(group=lane.group, place=Place.LEASED, popped_at=pop_time)
    for raw in broker.store.find_by_key(topic, named.unique_key, 1, 0, _EVER):
        logged = decode_checkpoint(message.decode(raw).body)
        state.leased_until, state.reason = logged.revive_time, logged.failure or ""
    return state
