# SPDX-License-Identifier: Apache-2.0
"""Words, times and JSON of the options become offsets, once, on the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.spark.option_values import EARLIEST, LATEST
from aerobee.spark.options import OptionError
from aerobee.spark.reading.plan import Bounds, edge, flat, get, places, put, tidy

if TYPE_CHECKING:
    from aerobee.spark.option_values import Offsets, Position
    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Place
    from aerobee.spark.reading.queue_source import QueueSource


def start(
    options: Read, source: QueueSource, bounds: Bounds, stored: list[int | None] | None = None
) -> Offsets:
    """`stored` are the group's offsets of all places, where they were asked for before."""
    position = options.start
    if position.word == "group":
        return _from_group(bounds, group_offsets(source, bounds) if stored is None else stored)
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
        return _given(position.offsets, bounds, options, side)
    times = {topic: _time(position, topic, side) for topic in bounds}
    filled = [(place, low, high) for place, low, high in places(bounds) if low < high]
    found = edge(bounds, 1)  # an empty queue has one place only
    asked = [place for place, _, _ in filled]
    offsets = source.offsets_at(asked, [times[place.topic] for place in asked])
    for (place, low, high), offset in zip(filled, offsets, strict=True):
        if offset >= high and side == "startingOffsets" and options.missing_time == "error":
            raise _too_late(place, times[place.topic], position)
        put(found, place.topic, place.broker, str(place.queue), min(max(offset, low), high))
    return tidy(found)


def _time(position: Position, topic: str, side: str) -> int:
    if position.timestamps is None:
        assert position.timestamp is not None
        return position.timestamp
    if topic not in position.timestamps:
        raise OptionError(f"option '{side}ByTimestamp' names no time for topic {topic!r}")
    return position.timestamps[topic]


def _too_late(place: Place, timestamp: int, position: Position) -> OptionError:
    """As in Kafka's source, a time that no message reaches is an error unless the strategy says latest."""
    name = "startingTimestamp" if position.timestamps is None else "startingOffsetsByTimestamp"
    return OptionError(
        f"option {name!r}: no message of {place.topic}/{place.broker}/{place.queue} is as late as {timestamp};"
        " set startingOffsetsByTimestampStrategy=latest to start at the end there"
    )


def _given(offsets: Offsets, bounds: Bounds, options: Read, side: str) -> Offsets:
    """JSON offsets; -2 is earliest, -1 latest; queues left out get the side's default."""
    found: Offsets = {}
    for (topic, broker, number), low, high in places(bounds):
        queue = str(number)
        default = low if side == "startingOffsets" else high
        offset = get(offsets, topic, broker, queue, default)
        offset = {EARLIEST: low, LATEST: high}.get(offset, offset)
        if offset > high and options.fail_on_data_loss:
            raise OptionError(
                f"option {side!r}: offset {offset} of {topic}/{broker}/{queue} is past its end, which is {high}"
            )
        put(found, topic, broker, queue, offset)
    return tidy(found)


def group_offsets(source: Any, bounds: Bounds) -> list[int | None]:
    """Of all places; None where the group has none."""
    stored: list[int | None] = source.group_offsets([place for place, _, _ in places(bounds)])
    return stored


def _from_group(bounds: Bounds, stored: list[int | None]) -> Offsets:
    """The group's stored offsets; a queue it never read starts at the earliest."""
    found: Offsets = {}
    for ((topic, broker, queue), low, _), offset in zip(places(bounds), stored, strict=True):
        put(found, topic, broker, str(queue), low if offset is None else max(offset, low))
    return tidy(found)
