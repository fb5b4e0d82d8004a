# SPDX-License-Identifier: Apache-2.0
"""A store scan over the wire: of a large range an Aerobee broker is asked for queue units and for whole stretches of its
log, which cost it no more than their copying, and the records are found here, as in a scan of files.

Worth it where the log holds mostly what is wanted; `cut` looks at samples of the units before it says so. Everything
else goes by pulls (`tasks`): small ranges, filters the broker applies, queue by queue in order, Apache brokers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from aerobee.errors import AerobeeError, BrokerError, NetworkError, TopicNotFound
from aerobee.protocol.headers.consume import LogBounds, ReadLog, ReadUnits, UnitsRead
from aerobee.spark.decoding import columns
from aerobee.spark.reading.store_scan import UNIT, RecordPlaces, in_log_order, real_units, report_lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from aerobee.protocol.command import Header
    from aerobee.spark.blocking_connection import BlockingConnection
    from aerobee.spark.decoding.spans import Ints
    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Range
    from aerobee.spark.reading.queue_source import BrokerQueues

LARGE = 100_000  # messages from which on it is worth a look at samples
SAMPLES = 1_000  # of a queue
STRETCH = 15 * 1024 * 1024  # asked for at once; the broker sends it from where it lies
WANTED_SHARE = 0.5  # of the log's bytes


# -- the plan, on the driver ------------------------------------------------------------------------------------


class _Sampled(NamedTuple):
    """Every `step`th unit of a range."""

    part: Range
    step: int
    position: Ints
    size: Ints


def cut(source: BrokerQueues, parts: list[Range], tasks: int, options: Read) -> list[list[Range]] | None:
    """The ranges cut at common places of the log into `tasks` of about equal size; None where pulls serve better."""
    filtered = options.tags != "*" or bool(options.sql)
    if filtered or options.ordered or options.max_records or sum(map(len, parts)) < LARGE:
        return None
    if len({part.broker for part in parts}) != 1:
        return None
    known = _sampled(source, parts)
    if known is None or not _is_dense(known):
        return None
    edges = _edges(known, tasks)
    bins: list[list[Range]] = [[] for _ in range(tasks)]
    for part, step, position, _ in known:
        inner = [part.start + int(at) * step for at in np.searchsorted(position, edges)]
        for i, (a, b) in enumerate(zip([part.start, *inner], [*inner, part.end], strict=True)):
            if a < min(b, part.end):
                bins[i].append(msgspec.structs.replace(part, start=a, end=min(b, part.end)))
    return [one for one in bins if one]


def _sampled(source: BrokerQueues, parts: list[Range]) -> list[_Sampled] | None:
    """Samples of all ranges, or None."""
    steps = [max(1, -(-len(part) // SAMPLES)) for part in parts]
    sampled = []
    for part, step, found in zip(parts, steps, source.units_of(parts, steps), strict=True):
        if isinstance(found, AerobeeError):
            if isinstance(found, NetworkError):
                raise found
            return None  # Apache's answer; should something else be wrong, a pull will tell
        wanted = -(-len(part) // step)
        if len(found) != wanted * UNIT.itemsize:
            return None
        units = real_units(np.frombuffer(found, UNIT))
        if len(units) != wanted:
            return None
        sampled.append(
            _Sampled(part, step, units["position"].astype(np.int64), units["size"].astype(np.int64))
        )
    return sampled


def _is_dense(sampled: list[_Sampled]) -> bool:
    wanted = sum(int(one.size.sum()) * one.step for one in sampled)
    first = min(int(one.position[0]) for one in sampled)
    last = max(int(one.position[-1] + one.size[-1] * one.step) for one in sampled)
    return wanted >= (last - first) * WANTED_SHARE


def _edges(sampled: list[_Sampled], tasks: int) -> Ints:
    """Places in the log with about as many of the messages before the first, between each two and after the last."""
    position = np.concatenate([one.position for one in sampled])
    weight = np.concatenate([np.full(len(one.position), one.step, np.int64) for one in sampled])
    order = np.argsort(position, kind="stable")
    reached = np.cumsum(weight[order])
    shares = reached[-1] * np.arange(1, tasks) // tasks
    return np.asarray(position[order][np.searchsorted(reached, shares)], np.int64)


# -- the reading, in a task -------------------------------------------------------------------------------------


def scan(
    link: BlockingConnection, parts: list[Range], names: tuple[str, ...], options: Read
) -> Iterator[columns.Decoded]:
    """Record batches of the ranges, in the order of the log."""
    asking = _Asking(link, options)
    queues = [_Queue(asking, part) for part in parts]
    broker = parts[0].broker
    for places in in_log_order(queues, parts, None, options):
        stretches = list(_stretches(places, options.batch_rows, min(options.batch_bytes, STRETCH)))
        ahead = link.ahead(_wanted(stretches[0]))
        for i, stretch in enumerate(stretches):
            got = asking.log(stretch, ahead)
            held, body = _held(stretch, got, asking, parts, options)
            ahead = link.ahead(_wanted(stretches[i + 1])) if i + 1 < len(stretches) else None
            if len(held.position):
                yield columns.decode(body, held.position - held.position[0], names, broker)


def _stretches(places: RecordPlaces, rows: int, size: int) -> Iterator[RecordPlaces]:
    """Runs of records that lie within `size` bytes; a larger record is one by itself."""
    ends = places.position + places.size
    start, count = 0, len(ends)
    while start < count:
        within = int(np.searchsorted(ends, places.position[start] + size, side="right"))
        stop = min(start + rows, max(within, start + 1))
        yield RecordPlaces(places.position[start:stop], places.size[start:stop])
        start = stop


def _wanted(stretch: RecordPlaces) -> ReadLog:
    first, last = int(stretch.position[0]), int(stretch.position[-1] + stretch.size[-1])
    return ReadLog(position=first, size=last - first)


def _held(
    stretch: RecordPlaces, got: _Bytes, asking: _Asking, parts: list[Range], options: Read
) -> tuple[RecordPlaces, memoryview]:
    """What of a stretch the broker still has, and its bytes; the rest is reported."""
    gone = int(np.searchsorted(stretch.position, got.log_begin))
    if gone:
        report_lost(gone, parts, "were deleted from the broker's log meanwhile", options)
        stretch = stretch.after(gone)
        if not len(stretch.position):
            return stretch, got.body
        got = asking.log(stretch, None)
    end = int(stretch.position[0]) + len(got.body)
    whole = int(np.searchsorted(stretch.position + stretch.size, end, side="right"))
    report_lost(len(stretch.position) - whole, parts, "lie behind the end of the broker's log", options)
    return stretch.upto(whole), got.body


class _Bytes(NamedTuple):
    body: memoryview
    log_begin: int


class _Asking:
    """Requests with retries."""

    def __init__(self, link: BlockingConnection, options: Read) -> None:
        self._link = link
        self._options = options

    def log(self, stretch: RecordPlaces, opaque: int | None) -> _Bytes:
        bounds, body = self._answer(_wanted(stretch), opaque)
        return _Bytes(body, bounds.fields(LogBounds).min_position)

    def units(self, header: ReadUnits) -> tuple[int, npt.NDArray[Any]]:
        """Some of them, and the offset of the first."""
        answer, body = self._answer(header, None)
        return answer.fields(UnitsRead).offset, np.frombuffer(bytes(body), UNIT)

    def _answer(self, header: Header, opaque: int | None) -> tuple[Any, memoryview]:
        failures = 0
        while True:
            try:
                return self._link.receive_view(self._link.send(header) if opaque is None else opaque)
            except (NetworkError, BrokerError) as error:
                failures += 1
                if failures > self._options.retries or not error.retryable:
                    raise
                opaque = None
                time.sleep(self._options.retry_ms / 1000)


class _Queue:
    """A broker's queue, its units by offset."""

    def __init__(self, asking: _Asking, part: Range) -> None:
        self._asking = asking
        self._part = part

    def units(self, start: int, end: int) -> npt.NDArray[Any]:
        found = [np.empty(0, UNIT)]
        while start < end:
            header = ReadUnits(
                topic=self._part.topic, queue_id=self._part.queue, offset=start, count=end - start
            )
            try:
                first, units = self._asking.units(header)
            except TopicNotFound:
                break  # the caller counts what is missing
            if not len(units):
                break
            found.append(units)
            start = first + len(units)
        return np.concatenate(found)
