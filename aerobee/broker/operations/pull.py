# SPDX-License-Identifier: Apache-2.0
"""Read a queue from an offset on; an empty queue holds the reader for a while (long polling).

A held pull is a coroutine that has not returned yet. It is woken by an arrival its filter accepts, by the safety
check, or by its deadline, reads once more, and answers whatever it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aerobee.broker import checks
from aerobee.broker.delivery.reading import SCAN, accept_for, note_distance, ordinary_limit
from aerobee.errors import BrokerError, NoPermission, SubscriptionNotFound, SubscriptionNotLatest
from aerobee.protocol.codes import ResponseCode
from aerobee.store.reader import units_wanted
from aerobee.store.results import Found, ReadLimit, ReadStatus

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from aerobee.broker.broker import Broker
    from aerobee.protocol.filters import Accept


class Pull(msgspec.Struct, frozen=True):
    group: str
    topic: str
    queue_id: int
    offset: int
    max_messages: int = 32
    max_bytes: int | None = None
    hold_ms: int = 0  # 0 = answer at once
    commit_offset: int | None = None  # stored as the group's offset on arrival
    expression: str | None = None  # the reader's own filter; None = what its group subscribed
    expression_type: str | None = None
    sub_version: int = 0
    as_stored: bool = False  # a bulk reader that checks records itself
    bulk: bool = False  # as many as the broker gives at all, not as ordinary consumers get


def pull(request: Pull, broker: Broker) -> Found | Coroutine[Any, Any, Found]:
    """What there is, or a coroutine that waits for something."""
    accept = _admit(request, broker)
    _learn(request, broker)
    reset = _pending_reset(request, broker)
    if reset is not None:
        return reset
    if request.commit_offset is not None:
        # Before the answer is delivered, and never by the second run of a held pull.
        broker.offsets.set(request.group, request.topic, request.queue_id, request.commit_offset)
    found = _read(request, accept, broker)
    if request.hold_ms > 0 and code_of(found.status, request.offset) == ResponseCode.PULL_NOT_FOUND:
        return _held(request, accept, found.max_offset, broker)
    return found


async def _held(request: Pull, accept: Accept | None, end: int, broker: Broker) -> Found:
    # This runs a turn of the loop after the read that found nothing; a message may have come in between. From here
    # to the parking there is no await, so none can slip in any more.
    config = broker.settings.value
    hold_ms = request.hold_ms if config.long_polling else config.short_polling_ms
    deadline = broker.clock.now() + hold_ms
    if broker.store.max_offset(request.topic, request.queue_id) == end:
        await broker.parked.until_past(request.topic, request.queue_id, request.offset, deadline, accept)
    return _pending_reset(request, broker) or _read(request, accept, broker)


def code_of(status: ReadStatus, offset: int) -> ResponseCode:
    """The response code that says how a lookup ended."""
    code = _CODES[status]
    if code is None:  # nothing was ever stored there: only offset 0 is right
        return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return code


_CODES: dict[ReadStatus, ResponseCode | None] = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: None,
    ReadStatus.NO_MESSAGE_IN_QUEUE: None,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


def _admit(request: Pull, broker: Broker) -> Accept | None:
    """All refusals, in RocketMQ's order; returns the filter, None = everything."""
    checks.broker_readable(broker.settings.value)
    group = checks.consuming_group(broker.groups, request.group)
    checks.readable_queue(broker.topics, request.topic, request.queue_id)
    if request.expression is not None:
        return accept_for(request.expression_type, request.expression, broker.settings.value)
    online = broker.clients.group(request.group)
    if online is None:
        raise SubscriptionNotFound(f"group '{request.group}' is not connected; send a heartbeat first")
    if online.broadcasting and not group.consume_broadcast_enable:
        raise NoPermission(f"group '{request.group}' may not consume by broadcasting")
    if broker.groups.forbidden(request.group, request.topic):
        raise NoPermission(f"group '{request.group}' may not read topic '{request.topic}'")
    subscription = online.subscriptions.get(request.topic)
    if subscription is None:
        raise SubscriptionNotFound(f"group '{request.group}' does not subscribe topic '{request.topic}'")
    if subscription.sub_version < request.sub_version:
        raise SubscriptionNotLatest(
            f"group '{request.group}' topic '{request.topic}': subscription {subscription.sub_version} is known, "
            f"the pull has {request.sub_version}; send a heartbeat first"
        )
    return accept_for(subscription.expression_type, subscription.sub_string, broker.settings.value)


def _learn(request: Pull, broker: Broker) -> None:
    if request.expression is not None:
        broker.clients.learn(
            request.group, request.topic, request.expression_type, request.expression, broker.clock.now()
        )


def _pending_reset(request: Pull, broker: Broker) -> Found | None:
    """An operator moved the group: the reader is told, once. One that just begins there, with nothing in work from
    before, has nothing to be told: being sent elsewhere costs clients up to ten seconds."""
    offset = broker.offsets.take_reset(request.group, request.topic, request.queue_id)
    begins = offset == request.offset and (offset == 0 or request.commit_offset == offset)
    if offset is None or begins:
        return None
    store, topic, queue_id = broker.store, request.topic, request.queue_id
    return Found(
        ReadStatus.OFFSET_RESET,
        offset,
        store.min_offset(topic, queue_id),
        store.max_offset(topic, queue_id),
        [],
        [],
        0,
    )


def _read(request: Pull, accept: Accept | None, broker: Broker) -> Found:
    found = broker.store.read(
        request.topic,
        request.queue_id,
        request.offset,
        _limit(request, broker),
        accept,
        checked=not request.as_stored,
    )
    broker.offsets.pulled(request.group, request.topic, request.queue_id, found.next_offset)
    count = len(found.messages) if found.stored is None else len(found.stored.records)
    if count:
        broker.stats.got(request.group, request.topic, count, found.size_bytes)
    else:
        broker.stats.missed()
    note_distance(request.group, request.topic, request.queue_id, found, broker)
    return found


def _limit(request: Pull, broker: Broker) -> ReadLimit:
    config, count, size = broker.settings.value, max(1, request.max_messages), request.max_bytes
    if not (request.bulk or request.as_stored):
        return ordinary_limit(count, config, size)
    count = min(count, config.max_pull_messages)
    size = min(size, config.max_pull_bytes) if size is not None and size > 0 else config.max_pull_bytes
    return ReadLimit(count, size, max(SCAN, count))


# -- for who serves many pulls of one reader ---------------------------------------------------------------


class Plain(msgspec.Struct, frozen=True):
    """What is the same for all pulls of one reader that find something."""

    request: Pull
    accept: Accept | None
    limit: ReadLimit
    units: int  # of the queue, looked at for one answer


def plain(request: Pull, broker: Broker) -> Plain | None:
    """How such pulls are served, at any offset, as long as `reading.relied_on` stays the same; None for one that is to
    take the whole way: it is refused, or its answer needs more than units and records."""
    if request.bulk or request.as_stored or broker.settings.value.slave_read:
        return None
    if broker.groups.get(request.group) is None:  # the first of a group makes it
        return None
    try:
        accept = _admit(request, broker)
    except BrokerError:
        return None
    if accept is not None and accept.properties is not None:
        return None
    limit = _limit(request, broker)
    return Plain(request, accept, limit, units_wanted(limit, accept))


class Served(Protocol):
    """A plain pull that was answered with messages."""

    @property
    def request(self) -> Pull: ...
    @property
    def commit_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def end(self) -> int: ...  # of the last message, in the log
    @property
    def stored_at(self) -> int: ...  # that message


def settle(pulls: Sequence[Served], broker: Broker) -> None:
    """All that `pull` would have noted of these, which it was not asked for."""
    offsets, stats, log_end, wall = broker.offsets, broker.stats, broker.store.log_max, broker.clock.wall()
    for served in pulls:
        request = served.request
        group, topic, queue_id = request.group, request.topic, request.queue_id
        _learn(request, broker)
        if request.commit_offset is not None:
            offsets.set(group, topic, queue_id, served.commit_offset)
        offsets.pulled(group, topic, queue_id, served.next_offset)
        stats.got(group, topic, served.count, served.size_bytes)
        stats.fell_behind(group, topic, queue_id, log_end - served.end, max(0, wall - served.stored_at))


def suggested_broker(group: str, found: Found, broker: Broker) -> int:
    """The id of the broker to ask next. A reader of what has left memory is sent to a slave, where they serve reads."""
    if not broker.settings.value.slave_read:
        return 0
    config = broker.groups.require(group)
    is_slow = found.behind_bytes > broker.store.memory_bytes
    return config.which_broker_when_consume_slowly if is_slow else config.broker_id
