# SPDX-License-Identifier: Apache-2.0
"""Offset algebra and planning, pure: maps of offsets in, ranges and tasks out. The end of a range is exclusive.

An offset map is `topic -> broker -> queue -> next offset`, with queues as text, sorted at every level: Spark compares
offsets as JSON text, and another key order would be another offset.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.errors import AerobeeError
    from aerobee.spark.option_values import Offsets

Bounds = dict[str, dict[str, dict[str, tuple[int, int]]]]  # topic -> broker -> queue -> (min, max)


class Place(NamedTuple):
    """A queue of a broker."""

    topic: str
    broker: str
    queue: int


class Look(NamedTuple):
    """Where queues begin and end at one moment. While none moves, the bounds are the very object of the last look."""

    bounds: Bounds
    failed: dict[str, AerobeeError]  # why nothing is known of a topic
    away: dict[str, AerobeeError]  # brokers that did not answer
    brokers: frozenset[str]  # brokers that did
    gone: frozenset[tuple[str, str]] = frozenset()  # topics that a broker itself says it has no more


class Range(msgspec.Struct, frozen=True, order=True):
    topic: str
    broker: str
    queue: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class DataLoss(Exception):
    """Offsets that were promised are gone, and `failOnDataLoss` is true."""


def tidy(offsets: Offsets) -> Offsets:
    """The same map with every level sorted (queues by number)."""
    return {
        topic: {
            broker: dict(sorted(queues.items(), key=lambda item: int(item[0])))
            for broker, queues in sorted(brokers.items())
        }
        for topic, brokers in sorted(offsets.items())
    }


def flat(offsets: Offsets) -> Iterator[tuple[str, str, str, int]]:
    for topic, brokers in offsets.items():
        for broker, queues in brokers.items():
            for queue, offset in queues.items():
                yield topic, broker, queue, offset


def places(bounds: Bounds) -> Iterator[tuple[Place, int, int]]:
    """Every queue with its first offset and the one behind its last."""
    for topic, brokers in bounds.items():
        for broker, queues in brokers.items():
            for queue, (low, high) in queues.items():
                yield Place(topic, broker, int(queue)), low, high


def get(offsets: Offsets, topic: str, broker: str, queue: str, default: int) -> int:
    return offsets.get(topic, {}).get(broker, {}).get(queue, default)


def put(offsets: Offsets, topic: str, broker: str, queue: str, offset: int) -> None:
    offsets.setdefault(topic, {}).setdefault(broker, {})[queue] = offset


def edge(bounds: Bounds, index: int) -> Offsets:
    """All minima (0) or all maxima (1)."""
    return tidy(
        {
            topic: {
                broker: {queue: pair[index] for queue, pair in queues.items()}
                for broker, queues in brokers.items()
            }
            for topic, brokers in bounds.items()
        }
    )


def unlike(begin: Offsets, bounds: Bounds, target: Offsets | None = None) -> set[str]:
    """Topics with a queue that ends elsewhere than `begin` is, or where `target` is elsewhere: the few of thousands that
    a plan is about."""
    found = {topic for topic, brokers in (target or {}).items() if begin.get(topic) != brokers}
    for topic, brokers in bounds.items():
        places = begin.get(topic)
        if places is None:
            found.add(topic)
            continue
        for broker, queues in brokers.items():
            at = places.get(broker, {})
            if any(at.get(queue) != high for queue, (_, high) in queues.items()):
                found.add(topic)
                break
    return found


def moving(begin: Offsets, end: Offsets) -> Offsets:
    """Of `end` the queues that are elsewhere than at `begin`."""
    found: Offsets = {}
    for topic, broker, queue, offset in flat(end):
        if get(begin, topic, broker, queue, -1) != offset:
            put(found, topic, broker, queue, offset)
    return found


def covers(bounds: Bounds, end: Offsets) -> bool:
    """Are all messages before `end` within the bounds?"""
    return all(
        queue in (seen := bounds.get(topic, {}).get(broker, {})) and offset <= seen[queue][1]
        for topic, broker, queue, offset in flat(end)
    )


def backlog(start: Offsets, end: Offsets) -> int:
    return sum(max(0, offset - get(start, t, b, q, 0)) for t, b, q, offset in flat(end))


def clip(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """`limit` messages between `start` and the result, shared in proportion to each queue's backlog.

    Every queue with a backlog moves by at least one, so that none starves behind a large neighbour: where there are more
    queues than `limit`, so many. Shares are cut from the backlogs laid end to end: none is rounded by itself.
    """
    total = backlog(start, end)
    if limit <= 0 or total <= limit:
        return end
    behind = [left for t, b, q, offset in flat(end) if (left := offset - get(start, t, b, q, 0)) > 0]
    first = 0 if min(behind) * limit >= total else 1  # of each queue, before the rest is shared
    rest, of = max(0, limit - first * len(behind)), max(1, total - first * len(behind))
    passed = given = 0
    result: Offsets = {}
    for topic, broker, queue, stop in flat(end):
        begin = min(get(start, topic, broker, queue, 0), stop)
        if begin < stop:
            passed += stop - begin - first
            share = passed * rest // of - given
            given += share
            begin += first + share
        put(result, topic, broker, queue, begin)
    return tidy(result)


def ranges(start: Offsets, end: Offsets, bounds: Bounds, *, fail_on_data_loss: bool) -> list[Range]:
    """What to read for start..end; a queue missing in `start` is new and begins at its earliest offset."""
    found = []
    for topic, broker, queue, stop in flat(end):
        seen = bounds.get(topic, {}).get(broker, {}).get(queue)
        low, high = seen or (0, 0)
        begin = get(start, topic, broker, queue, low)
        problem = ""
        if seen is None:
            problem = f"offsets {begin}..{stop} are gone with their topic or broker" if begin < stop else ""
        elif begin > high:
            problem = f"offset {begin} is past the end {high}: the queue was deleted and re-created"
            # A stop behind the start was planned when the new queue was there already: it is read from its beginning.
            begin = low if stop <= high else high
        elif begin < low:
            problem = f"offsets {begin}..{min(low, stop)} were deleted (the earliest is {low})"
        elif stop > high:
            problem = f"offset {stop} is past the end {high}: the queue was deleted or re-created"
        if problem and fail_on_data_loss:
            raise DataLoss(
                f"{topic}/{broker}/{queue}: {problem}. Set failOnDataLoss=false to go on with what is there,"
                " or start from other offsets"
            )
        begin, stop = max(begin, low), min(stop, high)
        if begin < stop:
            found.append(Range(topic, broker, int(queue), begin, stop))
    return sorted(found)


def advanced(begin: Offsets, heads: Offsets, *, fail_on_data_loss: bool) -> Offsets:
    """Where a stream at `begin` may go: to the heads; a queue out of sight keeps its place (its broker may come back).

    A head behind the stream's place means that the queue was deleted and re-created, or lost its end.
    """
    merged: Offsets = {}
    for topic, broker, queue, offset in flat(begin):
        put(merged, topic, broker, queue, offset)
    for topic, broker, queue, offset in flat(heads):
        at = get(merged, topic, broker, queue, -1)
        if offset < at and fail_on_data_loss:
            raise DataLoss(
                f"{topic}/{broker}/{queue}: the stream is at offset {at}, but the queue ends at {offset}: it was"
                " deleted and re-created. Set failOnDataLoss=false to read it from its beginning"
            )
        put(merged, topic, broker, queue, offset)
    return tidy(merged)


def capped(heads: Offsets, target: Offsets, begin: Offsets) -> Offsets:
    """Heads, no further than `target` and, where `begin` was taken later, than that. What is out of sight now is planned
    all the same, so that it is read or its loss is noticed."""
    found: Offsets = {}
    for topic, broker, queue, stop in flat(target):
        most = max(stop, get(begin, topic, broker, queue, -1))
        put(found, topic, broker, queue, min(most, get(heads, topic, broker, queue, most)))
    return tidy(found)


def counted_from(begin: Offsets, bounds: Bounds) -> Offsets:
    """`begin` with new and re-created queues at their earliest offset, for counting the backlog."""
    known: Offsets = edge(bounds, 0)
    for topic, broker, queue, offset in flat(begin):
        seen = bounds.get(topic, {}).get(broker, {}).get(queue)
        if seen is None or offset <= seen[1]:
            put(known, topic, broker, queue, offset)
    return known


def split(parts: Iterable[Range], most: int) -> list[Range]:
    """No range longer than `most` messages."""
    cut = []
    for part in parts:
        pieces = max(1, math.ceil(len(part) / most))
        edges = [part.start + len(part) * i // pieces for i in range(pieces + 1)]
        cut += [msgspec.structs.replace(part, start=a, end=b) for a, b in itertools.pairwise(edges) if a < b]
    return cut


def pack(
    parts: list[Range], *, at_least: int, at_most: int, max_records: int, target: int
) -> list[list[Range]]:
    """Ranges into tasks: as few as useful, at least/at most as asked, no task above `max_records`.

    `target` messages make one task worth starting. A task's cost in Spark is that of thousands of
    messages, so small queues share a task and only a large one is cut.
    """
    total = sum(map(len, parts))
    if not total:
        return []
    tasks = max(1, math.ceil(total / target))
    if at_most:
        tasks = min(tasks, at_most)
    tasks = max(tasks, at_least)
    if max_records:
        tasks = max(tasks, math.ceil(total / max_records))
    most = math.ceil(total / tasks)
    if max_records:
        most = min(most, max_records)
    bins: list[list[Range]] = []
    room = 0
    for part in split(sorted(parts), most):
        while part is not None and len(part):
            if room == 0:
                bins.append([])
                room = most
            take = min(room, len(part))
            bins[-1].append(msgspec.structs.replace(part, end=part.start + take))
            room -= take
            part = msgspec.structs.replace(part, start=part.start + take)
    return bins
