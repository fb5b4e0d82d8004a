# SPDX-License-Identifier: Apache-2.0
"""Where a group begins that has no offsets yet: chosen once, and kept in the checkpoint until there is a batch.

    checkpoint/_first_place.json     {"orders": {"broker-a": {"0": 12}}}

A stream that starts at the end and finds nothing new leaves no trace: Spark writes no batch, and a group that was given
nothing has no offset. The next run would start at the end of its own time, and what came in between would be nobody's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aerobee.spark.options import OptionError, for_stream
from aerobee.spark.reading.plan import flat, get, places, put
from aerobee.spark.reading.queue_source import BrokerQueues, bounds_of, chosen_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.spark.option_values import Offsets
    from aerobee.spark.pipelines.files import Files
    from aerobee.spark.reading.plan import Place

NAME = "_first_place.json"
FIRST, LAST = "first", "last"
Start = str | int  # "first", "last", or a time in epoch milliseconds


def starting_offsets(checkpoint: Files, reading: Mapping[str, str], start: Start | None) -> str:
    """The option `startingOffsets` for a stream whose other options are `reading`."""
    if isinstance(start, str) and start not in (FIRST, LAST):
        raise OptionError(f"start is {start!r}, expected {FIRST!r}, {LAST!r} or epoch milliseconds")
    kept: Offsets = checkpoint.read_json(NAME) if checkpoint.exists(NAME) else {}
    if not kept and start in (None, FIRST):
        return "group"
    options = for_stream({**reading, "includeRetries": "false"})
    source = BrokerQueues(options)
    try:
        bounds = list(places(bounds_of(options, source, chosen_topics(options, source))))
        read = source.group_offsets([place for place, _, _ in bounds])
        unread = [bound for bound, offset in zip(bounds, read, strict=True) if offset is None]
        if not unread:
            return "group"
        chosen = _chosen(source, unread, kept, FIRST if start is None else start)
    finally:
        source.close()
    if chosen != kept:
        checkpoint.write_json(NAME, chosen)
    for (place, low, _), offset in zip(bounds, read, strict=True):
        if offset is not None:
            put(chosen, place.topic, place.broker, str(place.queue), max(offset, low))
    return json.dumps(chosen)


def _chosen(
    source: BrokerQueues, unread: list[tuple[Place, int, int]], kept: Offsets, start: Start
) -> Offsets:
    """A place for each of the queues; one that has been chosen for a queue stays."""
    chosen: Offsets = {}
    for topic, broker, queue, offset in flat(kept):
        put(chosen, topic, broker, queue, offset)
    fresh = [bound for bound in unread if get(kept, *_names(bound[0]), -1) < 0]
    offsets = [low if start == FIRST else high for _, low, high in fresh]
    if isinstance(start, int):
        offsets = source.offsets_at([place for place, _, _ in fresh], [start] * len(fresh))
    for (place, low, high), offset in zip(fresh, offsets, strict=True):
        put(chosen, *_names(place), min(max(offset, low), high))
    return chosen


def _names(place: Place) -> tuple[str, str, str]:
    return place.topic, place.broker, str(place.queue)
