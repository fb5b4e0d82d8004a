# SPDX-License-Identifier: Apache-2.0
"""A store read in bulk by those who decode records themselves (Spark): queue units and bytes of the log, nothing looked
at, so that a message costs the broker no more than its sending."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker import checks

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

MOST_BYTES = 15 * 1024 * 1024  # within a frame of 16
MOST_UNITS = 50_000
MOST_SAMPLES = 1_024  # each is looked up by itself
MOST_TOPICS = 256  # named in one question about heads: queues that nobody used yet are looked for on disk


class Heads(NamedTuple):
    stamp: str  # of the moment they were looked at
    since: str  # the stamp they go on from: what did not move is left out; empty when nothing is
    topics: dict[str, list[tuple[int, int, int]]]  # queue, first offset, next offset


def units_of(
    topic: str, queue_id: int, offset: int, count: int, step: int, broker: Broker
) -> tuple[int, bytes]:
    """The units of [offset, offset + count) that there are, or every `step`th, and the offset of the first: it is a
    later one where some were deleted since they were asked about."""
    checks.broker_readable(broker.config)
    checks.readable_queue(broker.topics, topic, queue_id)
    step = max(1, step)
    end = offset + min(count, MOST_UNITS if step == 1 else MOST_SAMPLES * step)
    first = max(offset, broker.store.min_offset(topic, queue_id))
    return first, broker.store.units(topic, queue_id, first, end - first, step)


def log_from(position: int, size: int, broker: Broker) -> memoryview | bytes:
    """Bytes of the log, a view of it where possible: what is written once never changes, and a file that is deleted
    meanwhile stays readable through the view."""
    checks.broker_readable(broker.config)
    return broker.store.log_from(position, min(size, MOST_BYTES))


def heads_of(names: list[str], since: str, broker: Broker) -> Heads:
    """Where the queues of these topics begin and end, unless nothing at all has moved. Of topics that are not to be read
    here, nothing."""
    checks.broker_readable(broker.config)
    stamp = _stamp(broker)
    if since == stamp:
        return Heads(stamp, since, {})
    found = {}
    for name in names:
        config = broker.topics.get(name)
        if config is not None and config.perm & checks.READ:
            queues = range(config.read_queue_nums)
            found[name] = [(queue, *broker.store.bounds(name, queue)) for queue in queues]
    return Heads(stamp, "", found)


def moved_heads(since: str, broker: Broker) -> Heads:
    """Where those queues of all topics begin and end that moved. When more than appends happened since, they cannot be
    told: then it is nothing, and the answer goes on from no stamp."""
    checks.broker_readable(broker.config)
    stamp, position = _stamp(broker), _position(since, broker)
    if position is None:
        return Heads(stamp, "", {})
    found: dict[str, list[tuple[int, int, int]]] = {}
    for name, queue in broker.store.moved_since(position) if since != stamp else ():
        config = broker.topics.get(name)
        if config is not None and config.perm & checks.READ and queue < config.read_queue_nums:
            found.setdefault(name, []).append((queue, *broker.store.bounds(name, queue)))
    return Heads(stamp, since, found)


def _stamp(broker: Broker) -> str:
    """This start of the broker, its topics, the log's beginning and its end: queues only grow while all but the last
    stay as they are."""
    version, store = broker.topics.data_version, broker.store
    known = (broker.stats.started_at, version.timestamp, version.counter, store.log_min, store.log_max)
    return ".".join(map(str, known))


def _position(since: str, broker: Broker) -> int | None:
    """Where the log ended at that stamp; None where more than appends happened since, or it is no stamp of ours."""
    then, _, position = since.rpartition(".")
    now, _, end = _stamp(broker).rpartition(".")
    if then != now or not (position.isascii() and position.isdecimal()) or len(position) > 19:
        return None
    return int(position) if int(position) <= int(end) else None
