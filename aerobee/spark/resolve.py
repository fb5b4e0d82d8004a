# SPDX-License-Identifier: Apache-2.0
"""Words, times and JSON of the options become offsets, once, on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.spark.options import EARLIEST, LATEST, OptionError
from aerobee.spark.plan import Bounds, edge, put, tidy

if TYPE_CHECKING:
    from aerobee.spark.heads import Heads
    from aerobee.spark.options import Offsets, Position, Read


def start(options: Read, heads: Heads, bounds: Bounds) -> Offsets:
    position = options.start
    if position.word == "group":
        return _from_group(heads, bounds)
    return _resolved(position, options, heads, bounds, side="startingOffsets")


def end(options: Read, heads: Heads, bounds: Bounds) -> Offsets:
    return _resolved(options.end, options, heads, bounds, side="endingOffsets")


def _resolved(position: Position, options: Read, heads: Heads, bounds: Bounds, *, side: str) -> Offsets:
    if position.word:
        return edge(bounds, 0 if position.word == "earliest" else 1)
    if position.offsets is not None:
        return _given(position.offsets, options, bounds, side)
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
                offset = heads.offset_at(topic, broker, int(queue), timestamp) if high > low else high
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


def _given(offsets: Offsets, options: Read, bounds: Bounds, side: str) -> Offsets:
    """JSON offsets; -2 is earliest, -1 latest; queues left out get the side's default."""
    for topic in offsets:
        if topic not in bounds and options.fail_on_data_loss:
            raise OptionError(
                f"option {side!r} names topic {topic!r}, which is not read here ({', '.join(bounds)})"
            )
    found: Offsets = {}
    for topic, brokers in bounds.items():
        for broker, queues in brokers.items():
            for queue, (low, high) in queues.items():
                default = low if side == "startingOffsets" else high
                offset = offsets.get(topic, {}).get(broker, {}).get(queue, default)
                put(found, topic, broker, queue, {EARLIEST: low, LATEST: high}.get(offset, offset))
    return tidy(found)


def _from_group(heads: Any, bounds: Bounds) -> Offsets:
    """The group's stored offsets; a queue it never read starts at the earliest."""
    found: Offsets = {}
    for topic, brokers in bounds.items():
        for broker, queues in brokers.items():
            for queue, (low, _) in queues.items():
                stored = heads.group_offset(topic, broker, int(queue))
                put(found, topic, broker, queue, low if stored is None else max(stored, low))
    return tidy(found)
