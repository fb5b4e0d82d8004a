# SPDX-License-Identifier: Apache-2.0
"""Take messages and make them invisible to everybody else for a while; nothing there holds the request.

One visit per queue: find where to read, read, lease, move on. All of a request happens in one turn of the
loop, so no two requests can read a queue at the same time; RocketMQ's lock per queue is not needed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.broker import checks
from aerobee.broker.delivery import reading
from aerobee.broker.delivery.reading import accept_for_pop, note_distance, ordinary_limit
from aerobee.broker.pop.held_pops import Parked, Reads
from aerobee.broker.pop.orders import OrderedBatch
from aerobee.broker.pop.pops import retry_topics
from aerobee.errors import BrokerError, InvalidParameter, StoreError
from aerobee.protocol import message
from aerobee.protocol import properties as props
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.receipt import ORDERLY_QUEUE, Receipt, Taken, order_count_entries, retry_flag
from aerobee.store.results import Found, ReadStatus

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aerobee.broker.broker import Broker
    from aerobee.broker.delivery.reading import Start
    from aerobee.broker.pop.in_flight import Lane
    from aerobee.clock import Clock
    from aerobee.protocol.filters import Accept

log = logging.getLogger("aerobee.pop")

MAX_MESSAGES = 32
STALE_MS = 500

# Nothing to deliver there, yet the reading may go on after it.
_NOTHING_MATCHED = (
    ReadStatus.NO_MATCHED_MESSAGE,
    ReadStatus.OFFSET_FOUND_NULL,
    ReadStatus.MESSAGE_WAS_REMOVING,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE,
)


class Pop(msgspec.Struct, frozen=True):
    group: str
    topic: str  # the normal one; the group's retries are mixed in
    start: Start
    queue_id: int = -1  # < 0 = any
    max_messages: int = MAX_MESSAGES
    invisible_ms: int = 60_000
    poll_ms: int = 0
    born_time: int = 0
    expression: str | None = None
    expression_type: str | None = None
    ordered: bool = False
    attempt_id: str | None = None


class Popped(msgspec.Struct):
    code: ResponseCode = ResponseCode.SUCCESS
    pop_time: int = 0
    invisible_ms: int = 0
    revive_queue: int = 0
    rest: int = 0  # messages that are there and were not taken
    messages: list[bytes] = []
    taken: list[Taken] = []
    order_counts: list[str] = []
    advanced: bool = False  # something was read past though nothing matched: looking again is worth while

    @property
    def status(self) -> str:
        return "FOUND" if self.messages else "NO_MESSAGE_IN_QUEUE"


def pop(request: Pop, broker: Broker) -> Popped | Coroutine[Any, Any, Popped]:
    """What there is, or a coroutine that waits for something."""
    left_ms = hold_left(request.born_time, request.poll_ms, broker.clock)
    if left_ms < -STALE_MS:
        return _given_up(request, left_ms, broker)
    return _pop(request, _admit(request, broker), broker)


class Plain(msgspec.Struct, frozen=True):
    """A pop that was admitted, and its filter."""

    request: Pop
    accept: Accept | None


def plain(request: Pop, broker: Broker) -> Plain | None:
    """Such pops are admitted, whenever they come, as long as `reading.relied_on` stays the same; None for one that is
    to take the whole way: it is refused, or ordered."""
    if request.ordered or request.attempt_id is not None or broker.groups.get(request.group) is None:
        return None
    try:
        return Plain(request, _admit(request, broker))
    except BrokerError:
        return None


def pop_again(known: Plain, born_time: int, broker: Broker) -> Popped | Coroutine[Any, Any, Popped]:
    """As `pop`, of a plain one."""
    request = msgspec.structs.replace(known.request, born_time=born_time)
    left_ms = hold_left(born_time, request.poll_ms, broker.clock)
    if left_ms < -STALE_MS:
        return _given_up(request, left_ms, broker)
    return _pop(request, known.accept, broker)


def _given_up(request: Pop, left_ms: int, broker: Broker) -> Popped:
    """By its client, if that has the right time."""
    broker.pops.late.met(request.group, request.topic, -left_ms, broker.clock.now())
    return Popped(ResponseCode.POLLING_TIMEOUT)


def _pop(request: Pop, accept: Accept | None, broker: Broker) -> Popped | Coroutine[Any, Any, Popped]:
    _learn(request, broker)
    popped = _take(request, accept, broker)
    if popped.messages:
        return popped
    if request.poll_ms <= 0:
        popped.code = ResponseCode.POLLING_TIMEOUT
        return popped
    place = (request.topic, request.group, max(request.queue_id, -1))
    if not popped.advanced and broker.pops.parked.full(place):
        popped.code = ResponseCode.POLLING_FULL
        return popped
    return _held(request, accept, broker)


async def _held(request: Pop, accept: Accept | None, broker: Broker) -> Popped:
    place = (request.topic, request.group, max(request.queue_id, -1))
    deadline = broker.clock.now() + hold_left(request.born_time, request.poll_ms, broker.clock)
    reads = Reads.TOPIC_ONLY if request.ordered else Reads.WITH_RETRIES
    # This runs a turn of the loop after the look that found nothing; a message may have come in between.
    popped = _take(request, accept, broker)
    if popped.messages:
        return popped
    while True:
        if popped.advanced and broker.clock.now() < deadline:
            await asyncio.sleep(0)  # a filter that matches little: read on, and let others have their turn
            ended = Parked.WOKEN
        else:
            # No await since the last look, so no arrival can slip in between.
            ended = await broker.pops.parked.wait(place, deadline, accept, reads)
        if ended is Parked.FULL:
            popped.code = ResponseCode.POLLING_FULL
            return popped
        accept = _admit(request, broker)  # the topic may be gone, the group disabled
        _learn(request, broker)
        popped = _take(request, accept, broker)
        if popped.messages:
            return popped
        if ended is Parked.EXPIRED:
            popped.code = ResponseCode.POLLING_TIMEOUT
            return popped


def hold_left(born_time: int, poll_ms: int, clock: Clock) -> int:
    """How long a request may still be held, by the client's clock; below 0 its client has given up.

    When our clock was set, its client's may have been or not: the reading in its favour counts.
    """
    earliest = clock.now() + min(0, clock.ahead)
    return min(poll_ms, born_time + poll_ms - earliest)


def _admit(request: Pop, broker: Broker) -> Accept | None:
    """All refusals, in RocketMQ's order; returns the filter, None = everything."""
    checks.broker_readable(broker.settings.value)
    if not 0 < request.max_messages <= MAX_MESSAGES:
        raise InvalidParameter(f"pop of {request.max_messages} messages; 1 to {MAX_MESSAGES} are allowed")
    check_reader(request.group, request.topic, request.queue_id, broker)
    return accept_for_pop(request.expression_type, request.expression)


def _learn(request: Pop, broker: Broker) -> None:
    broker.clients.learn(
        request.group, request.topic, request.expression_type, request.expression or "*", broker.clock.now()
    )


def check_reader(group: str, topic: str, queue_id: int, broker: Broker) -> None:
    """What pop, peek and notification ask alike; a negative queue id is any queue."""
    checks.broker_readable(broker.settings.value)
    config = checks.readable_topic(broker.topics, topic)
    if queue_id >= config.read_queue_nums:
        raise InvalidParameter(
            f"topic '{topic}' has {config.read_queue_nums} queues to read; asked for {queue_id}"
        )
    checks.consuming_group(broker.groups, group)


def _take(request: Pop, accept: Accept | None, broker: Broker) -> Popped:
    drawn = broker.pops.draw()
    revive_queue = ORDERLY_QUEUE if request.ordered else broker.pops.next_revive_queue()
    popped = Popped(
        pop_time=broker.clock.wall(),
        invisible_ms=request.invisible_ms,
        revive_queue=revive_queue,
        messages=[],
        taken=[],
        order_counts=[],
    )
    visit = _Visit(request, accept, broker, popped)
    retry_first = not request.ordered and drawn < broker.settings.value.pop_retry_percent
    if retry_first:
        visit.retries(drawn)
    visit.queues(request.topic, queues_of(request.topic, request.queue_id, drawn, broker))
    if not (request.ordered or retry_first or visit.room <= 0):
        visit.retries(drawn)
    if popped.messages and popped.rest > 0:
        broker.pops.parked.wake(request.topic, request.group, max(request.queue_id, -1))
    return popped


def queues_of(topic: str, queue_id: int, drawn: int, broker: Broker) -> list[int]:
    """The queue asked for, or all of them, beginning anywhere."""
    config = broker.topics.get(topic)
    if config is None:
        return []  # no retry topic yet
    if queue_id >= 0:
        return [queue_id]
    count = config.read_queue_nums
    return [(drawn + i) % count for i in range(count)]


class _Visit:
    """One request on its way over the queues."""

    __slots__ = ("accept", "broker", "popped", "request")

    def __init__(self, request: Pop, accept: Accept | None, broker: Broker, popped: Popped) -> None:
        self.request = request
        self.accept = accept
        self.broker = broker
        self.popped = popped

    @property
    def room(self) -> int:
        return self.request.max_messages - len(self.popped.messages)

    def retries(self, drawn: int) -> None:
        """Both of the group's retry topics, so that none is stranded when the setting is changed."""
        for topic in retry_topics(self.request.topic, self.request.group):
            self.queues(topic, queues_of(topic, -1, drawn, self.broker))

    def queues(self, topic: str, queue_ids: list[int]) -> None:
        """A queue that fails is left out; the others are read. When there are enough, what they hold is counted."""
        group, popped = self.request.group, self.popped
        for number, queue_id in enumerate(queue_ids):
            if self.room <= 0 and not self.request.ordered:
                popped.rest += reading.waiting(topic, group, queue_ids[number:], self.broker)
                return
            try:
                self._queue(topic, queue_id)
            except StoreError as error:
                log.error("pop topic=%s queue=%d group=%s: %s", topic, queue_id, group, error)
                popped.rest += reading.waiting(topic, group, [queue_id], self.broker)

    def _queue(self, topic: str, queue_id: int) -> None:
        request, broker, popped = self.request, self.broker, self.popped
        lane = broker.pops.leases.in_flight.lane(topic, request.group, queue_id)
        offset = reading.position(lane, request.start, broker)
        if request.ordered and self._blocked(lane):
            return  # not counted as rest: nobody could take it (8592)
        waiting = broker.store.max_offset(topic, queue_id) - offset
        room = self.room
        if room <= 0 or not waiting:
            popped.rest += max(0, waiting)
            return
        limit = ordinary_limit(room, broker.settings.value)
        found = broker.store.read(topic, queue_id, offset, limit, self.accept)
        if found.status in reading.CORRECTED:
            offset = reading.correct(lane, offset, found, broker)
            found = broker.store.read(topic, queue_id, offset, limit, self.accept)
        if lane.skip and found.messages:
            _leave_out(found, lane.skip)
        taken = bool(found.messages) and self._hand_out(lane, offset, found)
        if not found.messages and found.next_offset > offset and found.status in _NOTHING_MATCHED:
            self._pass(lane, found.next_offset)
        popped.rest += max(0, found.max_offset - found.next_offset)
        if found.messages and not taken:
            popped.rest += len(found.messages)

    def _blocked(self, lane: Lane) -> bool:
        key = (lane.topic, lane.group, lane.queue_id)
        orders = self.broker.pops.orders
        if not orders.blocked(key, self.request.attempt_id, self.popped.pop_time):
            return False
        info = orders.get(*key)
        if info is not None:
            self.broker.pops.release_at(key, info.free_at())
        return True

    def _pass(self, lane: Lane, next_offset: int) -> None:
        """Nothing matched in a range: progress moves over it all the same."""
        self.popped.advanced = True
        if self.request.ordered:
            self.broker.offsets.set(lane.group, lane.topic, lane.queue_id, next_offset)
        else:
            self.broker.pops.leases.in_flight.passed(lane, next_offset)

    def _hand_out(self, lane: Lane, offset: int, found: Found) -> bool:
        """Lease what was found and add it to the answer. False when the lease cannot be recorded."""
        request, popped, flag = self.request, self.popped, retry_flag(lane.topic)
        receipt = Receipt(
            offset,
            popped.pop_time,
            request.invisible_ms,
            popped.revive_queue,
            flag,
            self.broker.settings.value.name,
            lane.queue_id,
            offset,
        )
        if request.ordered:
            popped.order_counts += self._order(lane, offset, found.offsets)
        elif not self.broker.pops.leases.lease(lane, found.offsets, found.next_offset, receipt):
            return False
        popped.taken.append(Taken(flag, lane.queue_id, offset, found.offsets))
        if flag == "0":
            popped.messages += found.messages
        else:
            for raw, place in zip(found.messages, found.offsets, strict=True):
                popped.messages.append(as_of_topic(raw, request.topic, receipt._replace(offset=place)))
        self.broker.stats.got(lane.group, lane.topic, len(found.messages), found.size_bytes)
        note_distance(lane.group, lane.topic, lane.queue_id, found, self.broker)
        self.broker.stats.popped(lane.group, lane.topic, len(found.messages))
        return True

    def _order(self, lane: Lane, offset: int, offsets: list[int]) -> list[str]:
        request, popped = self.request, self.popped
        key = (lane.topic, lane.group, lane.queue_id)
        lease = OrderedBatch(
            pop_time=popped.pop_time,
            invisible_time=request.invisible_ms,
            last_consume=popped.pop_time,
            attempt_id=request.attempt_id,
        )
        counts = self.broker.pops.orders.popped(key, offsets, lease)
        # A restart reads the batch again: the committed offset stays at its first message.
        self.broker.offsets.set(lane.group, lane.topic, lane.queue_id, offset)
        self.broker.pops.release_at(key, popped.pop_time + request.invisible_ms)
        return order_count_entries("0", lane.queue_id, counts)


def _leave_out(found: Found, skip: set[int]) -> None:
    """Messages leased or acked before a restart, which the committed offset has not passed yet."""
    both = zip(found.messages, found.offsets, strict=True)
    kept = [(raw, place) for raw, place in both if place not in skip]
    found.messages = [raw for raw, _ in kept]
    found.offsets = [place for _, place in kept]
    if not kept:
        found.status = ReadStatus.NO_MATCHED_MESSAGE


def as_of_topic(raw: bytes, topic: str, receipt: Receipt) -> bytes:
    """A message of a retry topic as the consumer sees it: of the normal topic, its receipt in a property.

    The receipt replaces any that the message brought along, which would be stale (7531).
    """
    record = message.decode(raw)
    properties = record.properties
    properties[props.POP_CK] = receipt.text
    record.topic = topic
    record.properties_text = props.render(properties)
    return message.encode(record)
