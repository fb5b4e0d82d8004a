# SPDX-License-Identifier: Apache-2.0
"""The sink: Arrow batches to RocketMQ, batched and pipelined, at least once.

Rows are grouped by topic (and, where a row asks for order or delay, sent singly or by queue); each group becomes
batch-send requests spread over the topic's queues, with `window` of them in flight. A failed request is tried again, on
another queue; when tries run out the error names the topic and the rows. Rows with a sharding key are pinned to their
queue: tried again there, and one request at a time, so that a later one cannot overtake it. So are rows that name their
queue themselves.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from aerobee.clock import SystemClock
from aerobee.errors import AerobeeError, BrokerError, NetworkError, TopicNotFound
from aerobee.protocol import command as wire
from aerobee.protocol.headers.produce import SendBatch, SendMessageV2
from aerobee.protocol.ids import UniqueIds
from aerobee.protocol.names import DEFAULT_TOPIC
from aerobee.protocol.routing import limited, place_of_key, unfold
from aerobee.spark.cluster import Cluster
from aerobee.spark.writing import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.routing import TopicQueues
    from aerobee.spark.blocking_connection import BlockingConnection
    from aerobee.spark.options import Write

_NEW_TOPIC_QUEUES = 4  # of a topic that the first row creates


class Sent(WriterCommitMessage):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class WriteFailed(AerobeeError):
    """Rows could not be sent; the text names topic, rows and the last error."""


class _Request(NamedTuple):
    topic: str
    queue: MessageQueue
    header: Any
    body: bytes
    rows: str
    pinned: bool = False  # to its queue, and behind what was sent there before
    tries: int = 0


class Sender:
    """One task's connection to the brokers."""

    def __init__(self, options: Write) -> None:
        self._options = options
        self._cluster = Cluster(options)
        self._routes: dict[str, TopicQueues] = {}
        self._turn = itertools.count(os.getpid())
        self._clock = SystemClock()
        self._ids = UniqueIds(bytes((127, 0, 0, 1)), os.getpid(), self._clock)
        self._window: deque[tuple[BlockingConnection, int, _Request]] = deque()
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        batch = encode.with_sharding_key(batch)
        for topic, rows in self._by_topic(batch):
            self._write_topic(topic, rows)
        self.rows += batch.num_rows

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if "topic" not in batch.schema.names:
            yield self._options.topic, batch
            return
        column = pc.fill_null(batch.column("topic"), self._options.topic)
        for value in pc.unique(column).to_pylist():
            if not value:
                raise WriteFailed(
                    "a row has neither a value in column 'topic' nor an option 'topic' to fall back on"
                )
            yield value, batch.filter(pc.equal(column, value))

    def _write_topic(self, topic: str, batch: pa.RecordBatch) -> None:
        names = set(batch.schema.names)
        text = encode.properties_text(batch, self._ids.many(batch.num_rows))
        single = self._needs_own_send(batch, names)
        if single is not None:
            for i in single:
                self._send_single(topic, batch.slice(i, 1), text[i].as_py())
            gone = set(single)
            keep = pa.array([i not in gone for i in range(batch.num_rows)])
            batch, text = batch.filter(keep), text.filter(keep)
        if names & {"shardingKey", "queueId"} and batch.num_rows:
            self._send_placed(topic, batch, text)
        elif batch.num_rows:
            for chunk in encode.chunks(encode.entries(batch, text), self._options.max_batch_bytes):
                rows = f"{chunk.first}..{chunk.first + chunk.rows - 1}"
                self._send_batch(topic, self._next_queue(topic), bytes(chunk.body), rows)

    @staticmethod
    def _needs_own_send(batch: pa.RecordBatch, names: set[str]) -> list[int] | None:
        """Delayed rows: a batch may not hold them."""
        delayed = None
        for column in ("delayLevel", "deliverAt"):
            if column in names:
                there = pc.is_valid(batch.column(column))
                delayed = there if delayed is None else pc.or_(delayed, there)
        return None if delayed is None else [i for i, v in enumerate(delayed.to_pylist()) if v]

    def _send_single(self, topic: str, row: pa.RecordBatch, text: str) -> None:
        body = (
            row.column("body" if "body" in row.schema.names else "value").cast(pa.binary())[0].as_py() or b""
        )
        queues = self._queues(topic)
        (at,) = self._places(row, queues)
        queue = self._next_queue(topic) if at is None else queues[at]
        header = SendMessageV2(**self._common(topic, queue), properties=text, batch=False)
        self._submit(_Request(topic, queue, header, body, "1 delayed row", pinned=at is not None))

    def _send_placed(self, topic: str, batch: pa.RecordBatch, text: pa.Array) -> None:
        """Rows are grouped by the queue they belong to, order within a queue kept."""
        queues = self._queues(topic)
        by_queue: dict[int, list[int]] = {}
        for i, place in enumerate(self._places(batch, queues)):
            at = next(self._turn) % len(queues) if place is None else place
            by_queue.setdefault(at, []).append(i)
        entries = encode.entries(batch, text)
        for at, places in sorted(by_queue.items()):
            for chunk in encode.chunks(entries.take(pa.array(places)), self._options.max_batch_bytes):
                rows = f"{chunk.rows} of queue {queues[at].broker_name}/{queues[at].queue_id}"
                self._send_batch(topic, queues[at], bytes(chunk.body), rows, pinned=True)

    @staticmethod
    def _places(batch: pa.RecordBatch, queues: Sequence[MessageQueue]) -> list[int | None]:
        """Which of the queues each row belongs to: the one it names, else that of its key, else to none. Rows that name
        a queue which is not there stay together in another one."""
        count, names = batch.num_rows, batch.schema.names
        keys, ids, brokers = (
            batch.column(name).to_pylist() if name in names else [None] * count
            for name in ("shardingKey", "queueId", "brokerName")
        )
        there: dict[tuple[str | None, int], int] = {}
        for at, queue in enumerate(queues):
            there[queue.broker_name, queue.queue_id] = at
            there.setdefault((None, queue.queue_id), at)
        places: list[int | None] = []
        for key, number, broker in zip(keys, ids, brokers, strict=True):
            if number is not None:
                spare = place_of_key(key or f"{broker}/{number}", len(queues))
                places.append(there.get((broker, number), spare))
            else:
                places.append(place_of_key(key, len(queues)) if key else None)
        return places

    def _send_batch(
        self, topic: str, queue: MessageQueue, body: bytes, rows: str, *, pinned: bool = False
    ) -> None:
        header = SendBatch(**self._common(topic, queue), properties="", batch=True)
        self._submit(_Request(topic, queue, header, body, rows, pinned))

    def _common(self, topic: str, queue: MessageQueue) -> dict[str, Any]:
        return {
            "producer_group": self._options.group,
            "topic": topic,
            "default_topic": DEFAULT_TOPIC,
            "default_topic_queue_nums": _NEW_TOPIC_QUEUES,
            "queue_id": queue.queue_id,
            "sys_flag": 0,
            "born_timestamp": self._clock.wall(),
            "flag": 0,
        }

    # -- the window of requests in flight -----------------------------------------------------------------

    def _submit(self, request: _Request) -> None:
        """Send it, and before it whatever has to be sent again; a loop, for a broker may be away for many tries."""
        waiting = [request]
        while waiting:
            if len(self._window) >= self._options.window or self._must_wait(waiting[-1]):
                waiting += self._settle()
                continue
            request = waiting.pop()
            try:
                link = self._link(request)
                opaque = link.send_command(wire.request(request.header, request.body))
            except NetworkError as error:
                waiting.append(self._next_try(request, error))
            else:
                self._window.append((link, opaque, request))

    def _must_wait(self, request: _Request) -> bool:
        return request.pinned and any(
            sent.pinned and sent.queue == request.queue for _, _, sent in self._window
        )

    def _settle(self) -> list[_Request]:
        """The oldest request in flight is answered, or is to be sent again."""
        link, opaque, request = self._window.popleft()
        try:
            link.receive(opaque)
        except (NetworkError, BrokerError) as error:
            if not error.retryable:
                raise WriteFailed(f"topic {request.topic!r}, rows {request.rows}: {error}") from None
            return [self._next_try(request, error)]
        return []

    def _next_try(self, request: _Request, error: AerobeeError) -> _Request:
        if request.tries >= self._options.retries:
            raise WriteFailed(
                f"topic {request.topic!r}, rows {request.rows}: not sent after {request.tries + 1} tries: {error}"
            ) from None
        time.sleep(self._options.retry_ms / 1000)
        if isinstance(error, NetworkError):
            # Requests in flight on that connection are lost with it; their rows are sent again (at least once).
            self._look_again(request.topic)
        queue = request.queue if request.pinned else self._next_queue(request.topic)
        header = msgspec.structs.replace(request.header, queue_id=queue.queue_id)
        return request._replace(queue=queue, header=header, tries=request.tries + 1)

    def finish(self) -> None:
        while self._window:
            for request in self._settle():
                self._submit(request)

    def close(self) -> None:
        self._cluster.close()

    # -- routes ---------------------------------------------------------------------------------------

    def _next_queue(self, topic: str) -> MessageQueue:
        queues = self._queues(topic)
        return queues[next(self._turn) % len(queues)]

    def _look_again(self, topic: str) -> None:
        """For a new route; where no name server answers either, the old one has to do."""
        known = self._routes.pop(topic)
        try:
            self._queues(topic)
        except NetworkError:
            self._routes[topic] = known

    def _queues(self, topic: str) -> Sequence[MessageQueue]:
        if topic not in self._routes:
            try:
                route = self._cluster.route(topic)
            except TopicNotFound:  # the broker creates it after its template
                template = self._cluster.route(DEFAULT_TOPIC).route
                route = unfold(topic, limited(template, _NEW_TOPIC_QUEUES))
            if not route.writable:
                raise WriteFailed(f"topic {topic!r} has no writable broker")
            self._routes[topic] = route
        return self._routes[topic].writable

    def _link(self, request: _Request) -> BlockingConnection:
        """Wherever the queue's broker is now."""
        address = self._routes[request.topic].masters.get(request.queue.broker_name)
        if address is None:
            raise NetworkError(f"broker {request.queue.broker_name!r} has no master now")
        return self._cluster.link(address)


def _write(options: Write, batches: Iterator[pa.RecordBatch]) -> Sent:
    sender = Sender(options)
    try:
        for batch in batches:
            sender.write(batch)
        sender.finish()
        return Sent(sender.rows)
    finally:
        sender.close()


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Write) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Write) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Messages are visible once sent: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """At least once: what was sent stays; Spark runs the batch again."""
