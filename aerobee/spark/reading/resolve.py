# SPDX-License-Identifier: Apache-2.0
"""Words, times and JSON of the options become offsets, once, on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.spark.option_values import EARLIEST, LATEST
from aerobee.spark.options import OptionError
from aerobee.spark.reading.plan import Bounds, edge, flat, put, tidy

if TYPE_CHECKING:
    from aerobee.spark.option_values import Offsets, Position
    from aerobee.spark.options import Read
    from aerobee.spark.reading.queue_source import QueueSource


def start(options: Read, source: QueueSource, bounds: Bounds) -> Offsets:
    position = options.start
    if position.word == "group":
        return _from_group(source, bounds)
    return _resolved(position, options, source, bounds, side="startingOffsets")


def end(options: Read, source: QueueSource, bounds: Bounds) -> Offsets:
    return _resolved(options.end, options, source, bounds, side="endingOffsets")


def check_names(options: Read, topics: list[str], bounds: Bounds) -> None:
    """OptionError when start or end name what is not read: a misspelt broker would else be read from its default.
    `topics` are all that are chosen; `bounds` may leave out those that a query's filters rule out."""
    if not options.fail_on_data_loss:
        return
    for side, position in (("starting", options.start), ("ending", options.end)):
        for topic in position.timestamps or ():
            _check_topic(f"{side}OffsetsByTimestamp", topic, topics)
        for topic, broker, queue, _ in flat(position.offsets or {}):
            _check_topic(f"{side}Offsets", topic, topics)
            queues = bounds.get(topic, {}).get(broker, {})
            if topic in bounds and queue not in queues:
                there = ", ".join(f"{b}/{q}" for b, qs in bounds[topic].items() for q in sorted(qs, key=int))
                raise OptionError(
                    f"option '{side}Offsets' names queue {broker}/{queue} of {topic!r}, which has: {there}"
                )


def _check_topic(option: str, topic: str, topics: list[str]) -> None:
    if topic not in topics:
        raise OptionError(
            f"option {option!r} names topic {topic!r}, which is not read here ({', '.join(topics)})"
        )


def _resolved(
    position: Position, options: Read, source: QueueSource, bounds: Bounds, *, side: str
) -> Offsets:
    if position.word:
        return edge(bounds, 0 if position.word == "earliest" else 1)
    if position.offsets is not None:
        return _given(position.offsets, bounds, side)
    found: Offsets = {}
    for topic, brokers in bounds.items():
        timestamp = position.timestamp
        if position.timestamps is not None:
            if topic not in position.timestamps:
                raise OptionError(f"option '{side}ByTimestamp' names no time for topic {topic!r}")
            timestamp = position.timestamps[topic]
        assert timestamp is not None
        for broker, queues in brokers.items():
            for queue, (low, high) in queues.items():
                offset = source.offset_at(topic, broker, int(queue), timestamp) if high > low else high
                if (
                    offset >= high
                    and high > low
                    and side == "startingOffsets"
                    and options.missing_time == "error"
                ):
                    _check_time(topic, broker, queue, timestamp, position)
                put(found, topic, broker, queue, min(max(offset, low), high))
    return tidy(found)


def _check_time(topic: str, broker: str, queue: str, timestamp: int, position: Position) -> None:
    # As in Kafka's source, a per-topic time that no message reaches is an error unless the strategy says latest.
    if position.timestamps is not None:
        raise OptionError(
            f"option 'startingOffsetsByTimestamp': no message of {topic}/{broker}/{queue} is as late as {timestamp};"
            " set startingOffsetsByTimestampStrategy=latest to start at the end there"
        )


def _given(offsets: Offsets, bounds: Bounds, side: str) -> Offsets:
    """JSON offsets; -2 is earliest, -1 latest; queues left out get the side's default."""
    found: Offsets = {}
    for topic, brokers in bounds.items():
        for broker, queues in brokers.items():
            for queue, (low, high) in queues.items():
                default = low if side == "startingOffsets" else high
                offset = offsets.get(topic, {}).get(broker, {}).get(queue, default)
                put(found, topic, broker, queue, {EARLIEST: low, LATEST: high}.get(offset, offset))
    return tidy(found)


def _from_group(source: Any, bounds: Bounds) -> Offsets:
    """The group's stored offsets; a queue it never read starts at the earliest."""
    found: Offsets = {}
    for topic, brokers in bounds.items():
        for broker, queues in brokers.items():
            for queue, (low, _) in queues.items():
                stored = source.group_offset(topic, broker, int(queue))
                put(found, topic, broker, queue, low if stored is None else max(stored, low))
    return tidy(found)
