# SPDX-License-Identifier: Apache-2.0
"""What the data source is measured against: readers and a writer that work row by row, and a broker that only answers.

They plan as the real source does and differ in what a task does with its records.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class _Reader(DataSourceReader):
    def __init__(self, options: Any, names: tuple[str, ...]) -> None:
        from aerobee.spark import options as parsed
        from aerobee.spark.reading.batch_reader import BatchReader

        self._reader = BatchReader(parsed.for_batch(options, names), names)

    def partitions(self) -> Any:
        return self._reader.partitions()


class _TupleReader(_Reader):
    """The first thing one would write: decode a record, yield a tuple."""

    def read(self, partition: Any) -> Iterator[Any]:
        from datetime import UTC, datetime

        from aerobee.protocol import message

        for buffer, positions in _records(partition.task):
            view = memoryview(buffer)
            for position in positions.tolist():
                record = message.decode(view, position)
                found = record.properties
                yield (
                    record.topic, "store", record.queue_id, record.queue_offset, found.get("UNIQ_KEY"),
                    found.get("TAGS"), found.get("KEYS"), record.body,
                    datetime.fromtimestamp(record.born_timestamp / 1000, UTC),
                    datetime.fromtimestamp(record.store_timestamp / 1000, UTC), record.reconsume_times,
                )  # fmt: skip


class _PlainReader(_Reader):
    """Arrow batches, filled by the plain decoder record by record."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from aerobee.spark.decoding.plain import decode_plain

        for buffer, positions in _records(partition.task):
            yield decode_plain(buffer, positions, partition.task.columns, "store").batch


class _RepeatingReader(_Reader):
    """A batch of the scan decoded once and handed over again and again: what is left is Spark's own part."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        left = sum(map(len, partition.task.parts))
        batch = next(iter(self._reader.read(partition)))
        while left > 0:
            yield batch.slice(0, min(left, len(batch)))
            left -= len(batch)


def _records(task: Any) -> Iterator[tuple[pa.Buffer, Any]]:
    """Buffers and positions as the store scan finds them."""
    from aerobee.spark.reading import store_scan

    root = store_scan.store_root(task.options.store_path)
    return store_scan.stretches(root, task.parts, task.options)


class TupleSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_tuples"

    def schema(self) -> str:
        from aerobee.spark import schema

        return schema.ddl(schema.DEFAULT)

    def reader(self, schema: Any) -> DataSourceReader:
        return _TupleReader(self.options, tuple(schema.fieldNames()))


class PlainSource(TupleSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_plain"

    def reader(self, schema: Any) -> DataSourceReader:
        return _PlainReader(self.options, tuple(schema.fieldNames()))


class RepeatingSource(TupleSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_repeating"

    def reader(self, schema: Any) -> DataSourceReader:
        return _RepeatingReader(self.options, tuple(schema.fieldNames()))


# -- writing ---------------------------------------------------------------------------------------------------


class _RowWriter(DataSourceWriter):
    """A row, a batch entry; requests of the same size and window as the Arrow sink's."""

    def __init__(self, options: Any) -> None:
        from aerobee.spark import options as parsed

        self._options = parsed.for_write(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from aerobee.protocol import batch
        from aerobee.spark.writing.writer import Sender, Sent

        sender, items, size, rows = Sender(self._options), [], 0, 0
        topic, limit = self._options.topic, self._options.max_batch_bytes
        for row in iterator:
            text = f"UNIQ_KEY\x01{sender._ids.next()}\x02WAIT\x01true\x02TAGS\x01{row.tags}\x02KEYS\x01{row['keys']}\x02"
            items.append(batch.BatchItem(0, bytes(row.body), text))
            size += 22 + len(row.body) + len(text)
            rows += 1
            if size >= limit:
                sender._send_batch(topic, sender._next_queue(topic), batch.encode(items), f"up to {rows}")
                items, size = [], 0
        if items:
            sender._send_batch(topic, sender._next_queue(topic), batch.encode(items), f"up to {rows}")
        sender.finish()
        sender.close()
        return Sent(rows)


class RowSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_rows"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return _RowWriter(self.options)


class Acknowledging:
    """A name server and broker that reads requests and answers "stored" at once: what is left is the sink's own cost."""

    def __init__(self, queues: int = 8) -> None:
        self._queues = queues
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        from aerobee.protocol import command as wire

        with peer, peer.makefile("rb", buffering=1 << 16) as stream:
            while head := stream.read(8):
                size, header_size = int.from_bytes(head[:4], "big"), int.from_bytes(head[5:8], "big")
                text = stream.read(header_size)
                left = size - 4 - header_size
                while left > 0:
                    left -= len(stream.read(min(left, 1 << 20)))
                asked = wire.decode(head[4:] + text)
                body = self._route() if asked.code == 105 else b""
                fields = {"msgId": "0", "queueId": "0", "queueOffset": "0"}
                answer = wire.Command(0, asked.opaque, flag=1, ext=fields, body=body)
                peer.sendall(wire.encode(answer))

    def _route(self) -> bytes:
        import json

        queue = {"brokerName": "b", "perm": 6, "readQueueNums": self._queues, "writeQueueNums": self._queues}
        broker = {"brokerName": "b", "cluster": "c", "brokerAddrs": {"0": self.address}}
        return json.dumps(
            {"brokerDatas": [broker], "queueDatas": [{**queue, "topicSysFlag": 0}], "filterServerTable": {}}
        ).encode()

    def close(self) -> None:
        self._listener.close()
