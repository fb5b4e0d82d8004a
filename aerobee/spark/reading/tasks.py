# SPDX-License-Identifier: Apache-2.0
"""What an executor does with its share of the ranges: read records, hand Arrow batches to Spark.

A task carries all it needs and is pickled to the worker; it connects there. Over the wire it asks for bulk (thousands
of messages, up to 4 MiB): Aerobee grants that, an Apache broker answers within its own limits, and the code is the same.
The next request leaves before the last answer is decoded.
"""

from __future__ import annotations

import gc
import logging
import time
from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.errors import BrokerError, NetworkError, TopicNotFound
from aerobee.memory import keep_freed
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.filters import compile_filter
from aerobee.protocol.filters.tags import Subscription, parse_tags
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.reading import PullRequest, pull
from aerobee.spark.blocking_connection import BlockingConnection, connection_to
from aerobee.spark.decoding import columns
from aerobee.spark.options import DEFAULT_GROUP, Read
from aerobee.spark.reading import wire_scan
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.store_scan import UNIT, scan, store_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.spark.decoding.spans import Ints
    from aerobee.spark.reading.queue_source import BrokerQueues

log = logging.getLogger("aerobee.spark")

BULK_MESSAGES = 16_384
BULK_BYTES = 4 * 1024 * 1024
PARTS_AHEAD = 16
SMALL_PART = 1_000  # messages
KEPT_BYTES = 128 * 1024 * 1024


class Task(msgspec.Struct, frozen=True):
    """One Spark task: ranges of one topic set, and where to read them."""

    options: Read
    parts: list[Range]
    addresses: dict[str, str]  # broker name -> address; empty for a store scan
    columns: tuple[str, ...]
    in_log_order: bool = False  # over the wire, but as a scan: `wire_scan.cut` made the ranges


def over_the_wire(
    source: BrokerQueues,
    parts: list[Range],
    groups: list[list[Range]],
    options: Read,
    names: tuple[str, ...],
) -> list[Task]:
    """Tasks for the ranges: as a scan of the broker's log where that serves better, else the `groups` by pulls."""
    addresses = {part.broker: source.address(part.broker) for part in parts}
    stretches = wire_scan.cut(source, parts, len(groups), options)
    in_log_order = stretches is not None
    return [Task(options, group, addresses, names, in_log_order) for group in stretches or groups]


def read(task: Task) -> Iterator[pa.RecordBatch]:
    """The task's rows as record batches of exactly `task.columns`."""
    _settle()
    asked = _with_filter_columns(task)
    for decoded in _decoded(task, asked):
        for bad in decoded.bad[:5]:
            log.warning("left out bad record position=%d: %s", bad.position, bad.reason)
        batch = _matching(task.options, _undamaged(task.options, decoded.batch))
        if batch.num_rows:
            yield batch.select(list(task.columns))


@cache
def _settle() -> None:
    """Once in a worker. What imports made will stay: Spark collects garbage after every task, and would look
    at all of it each time. And memory that one batch gave back is kept for the next."""
    gc.freeze()
    keep_freed(KEPT_BYTES)


def _decoded(task: Task, asked: tuple[str, ...]) -> Iterator[columns.Decoded]:
    if task.options.store_path:
        return _scanned(task, asked)
    return _scanned_over_the_wire(task, asked) if task.in_log_order else _pulled(task, asked)


def _with_filter_columns(task: Task) -> tuple[str, ...]:
    """A filter looks at its column even when the user did not ask for that one."""
    needed = {"tags"} if task.options.tags != "*" else set()
    if task.options.sql and task.options.store_path:
        needed.add("properties")
    if task.options.check_bodies:
        needed.add("bodyCrcOk")
    return (*task.columns, *sorted(needed - set(task.columns)))


def _undamaged(options: Read, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the rows whose body is not what was stored, if asked so."""
    if not options.check_bodies:
        return batch
    whole = batch.filter(batch.column("bodyCrcOk"))
    if whole.num_rows < batch.num_rows:
        log.warning("left out %d records whose body does not match its CRC", batch.num_rows - whole.num_rows)
    return whole


def _matching(options: Read, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Exact tags: brokers and queue units compare hashes only. SQL is the broker's work, ours in a store scan."""
    if options.tags != "*":
        wanted = sorted(parse_tags(options.tags))
        batch = batch.filter(pc.is_in(batch.column("tags"), pa.array(wanted, pa.string())))
    if options.sql and options.store_path:
        accepts = compile_filter("SQL92", options.sql).properties
        assert accepts is not None
        held = [accepts(dict(pairs)) for pairs in batch.column("properties").to_pylist()]
        batch = batch.filter(pa.array(held, pa.bool_()))
    return batch


def _scanned(task: Task, asked: tuple[str, ...]) -> Iterator[columns.Decoded]:
    root = store_root(task.options.store_path)
    for group in [[part] for part in task.parts] if task.options.ordered else [task.parts]:
        yield from scan(root, group, asked, task.options)


def _scanned_over_the_wire(task: Task, asked: tuple[str, ...]) -> Iterator[columns.Decoded]:
    (link,) = _links(task).values()
    try:
        yield from wire_scan.scan(link, task.parts, asked, task.options)
    finally:
        link.close()


def _links(task: Task) -> dict[str, BlockingConnection]:
    options = task.options
    return {name: connection_to(address, options) for name, address in task.addresses.items()}


def _pulled(task: Task, asked: tuple[str, ...]) -> Iterator[columns.Decoded]:
    options = task.options
    links = _links(task)
    held = _Held(asked, options)
    try:
        for part, first in _opened(task, links):
            for body, positions in _bodies(links[part.broker], part, options, first):
                yield from held.taken(part.broker, body, positions)
        yield from held.decoded()
    finally:
        for link in links.values():
            link.close()


def _opened(task: Task, links: dict[str, BlockingConnection]) -> Iterator[tuple[Range, int | None]]:
    """The parts, and the first request of each. Small ones, as of a stream's batch, are asked for some at a time:
    one wait instead of one for each."""
    asked: dict[int, int | None] = {}
    for i, part in enumerate(task.parts):
        for j in range(i, min(i + PARTS_AHEAD, len(task.parts))):
            following = task.parts[j]
            if j not in asked and (j == i or len(following) <= SMALL_PART):
                asked[j] = links[following.broker].ahead(request(following, following.start, task.options))
        yield part, asked.pop(i)


class _Held:
    """Answers that wait to be decoded together: what decoding costs, and Spark, is by the batch (32 messages come at a
    time from an Apache broker)."""

    def __init__(self, asked: tuple[str, ...], options: Read) -> None:
        self._asked = asked
        self._options = options
        self._broker = ""
        self._bodies: list[bytes | memoryview] = []
        self._positions: list[Ints] = []
        self._rows = self._size = 0

    def taken(self, broker: str, body: memoryview, positions: Ints) -> Iterator[columns.Decoded]:
        """What is decoded by now; `body` is not needed any more when this is through."""
        if broker != self._broker:
            yield from self.decoded()
            self._broker = broker
        self._positions.append(positions + self._size)
        self._rows += len(positions)
        self._size += len(body)
        if self._rows >= self._options.batch_rows or self._size >= self._options.batch_bytes // 8:
            self._bodies.append(body)
            yield from self.decoded()
        else:
            self._bodies.append(bytes(body))

    def decoded(self) -> Iterator[columns.Decoded]:
        if not self._bodies:
            return
        data = self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)
        positions = np.concatenate(self._positions)
        self._bodies, self._positions, self._rows, self._size = [], [], 0, 0
        yield columns.decode(data, positions, self._asked, self._broker)


def _bodies(
    link: BlockingConnection, part: Range, options: Read, opaque: int | None
) -> Iterator[tuple[memoryview, Ints]]:
    """Answer bodies and the positions of their records inside the range; one request is always ahead of the decoding,
    `opaque` is the first. A body is good until the next is asked for."""
    at, failures = part.start, 0
    while at < part.end:
        try:
            if opaque is None:
                opaque = link.send(request(part, at, options))
            answer, body = link.receive_view(opaque)
            result = answer.fields(PullResult)
            at = _next_offset(answer.code, result, part, at, options)
        except (NetworkError, BrokerError) as error:
            failures += 1
            if failures > options.retries or not error.retryable:
                if isinstance(error, TopicNotFound):
                    _deleted(part, at, options)
                    return
                raise
            time.sleep(options.retry_ms / 1000)
            opaque = None
            continue
        failures = 0
        opaque = link.ahead(request(part, at, options)) if at < part.end else None
        if answer.code == ResponseCode.SUCCESS and len(body):
            yield body, _within(body, _positions(body, result.record_count), part)


def _deleted(part: Range, at: int, options: Read) -> None:
    """The topic went away between plan and read."""
    said = f"{part.topic}/{part.broker}/{part.queue}: the topic was deleted before offsets {at}..{part.end} were read"
    if options.fail_on_data_loss:
        raise DataLoss(f"{said}. Set failOnDataLoss=false to go on with what is there")
    log.warning("%s", said)


def _positions(body: memoryview, count: int | None) -> Ints:
    """Where the records are: Aerobee puts their queue units first, in other brokers' answers each leads to the next."""
    if count is None:
        return columns.positions_of(body)
    sizes = np.frombuffer(body, UNIT, count)["size"].astype(np.int64)
    return UNIT.itemsize * count + np.cumsum(sizes) - sizes


def _within(body: memoryview, positions: Ints, part: Range) -> Ints:
    """The records up to the range's end: an answer may run past it, and the surplus belongs to another task."""
    if not len(positions) or positions[-1] + 28 > len(body):
        return positions
    offsets = np.ndarray((len(body) - 7,), ">i8", buffer=body, strides=(1,))[positions + 20]
    return positions[: int(np.searchsorted(offsets, part.end))]


def request(part: Range, at: int, options: Read) -> PullMessage:
    kind, expression = ("SQL92", options.sql) if options.sql else ("TAG", options.tags)
    asked = PullRequest(
        group=options.group or DEFAULT_GROUP,
        queue=MessageQueue(part.broker, part.queue, part.topic),
        offset=at,
        subscription=Subscription(part.topic, expression, kind),
        max_messages=min(BULK_MESSAGES, part.end - at),
        max_bytes=BULK_BYTES,
    )
    return msgspec.structs.replace(pull(asked), as_stored=True)


def _next_offset(code: int, result: PullResult, part: Range, at: int, options: Read) -> int:
    if code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        return max(result.next_begin_offset, at + 1)
    if code == ResponseCode.PULL_OFFSET_MOVED and result.next_begin_offset > at:
        if options.fail_on_data_loss:
            raise DataLoss(
                f"{part.topic}/{part.broker}/{part.queue}: offsets {at}..{result.next_begin_offset} were deleted"
                " while reading. Set failOnDataLoss=false to go on with what is there"
            )
        return result.next_begin_offset
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{part.topic}/{part.broker}/{part.queue}: the broker holds {result.min_offset}..{result.max_offset},"
            f" planned were {at}..{part.end}"
        )
    return part.end
