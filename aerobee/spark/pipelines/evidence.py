# SPDX-License-Identifier: Apache-2.0
"""Where the ledger's facts come from: topics, stored offsets and schedule progress, by wire or from store files.

A consumer's committed offset and the delay levels' progress are small; they are read on the driver. Messages are frames.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.protocol import bodies
from aerobee.protocol.headers.offsets import AllConsumerOffsets, AllDelayOffsets
from aerobee.spark import schema
from aerobee.spark.cluster import Cluster
from aerobee.spark.options import Read, for_batch
from aerobee.spark.reading.queue_source import MISSING, BrokerQueues
from aerobee.spark.reading.store_scan import BROKER, StoreQueues, store_root

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Committed(NamedTuple):
    broker: str
    group: str
    topic: str
    queue: int
    offset: int


class Evidence:
    """One place to ask. `source` is the data source's own options: `namesrv` or `storePath`."""

    def __init__(self, spark: SparkSession, source: dict[str, str]) -> None:
        self.spark = spark
        self._source = source
        self._options: Read = for_batch({**source, "subscribe": "any"})
        self._queues: Any = (
            StoreQueues(self._options.store_path) if self._options.store_path else BrokerQueues(self._options)
        )

    def topics(self) -> list[str]:
        return list(self._queues.topics())

    def bounds(self, topic: str) -> dict[str, dict[str, tuple[int, int]]]:
        """broker -> queue -> (min, max); nothing when the topic was deleted since it was listed."""
        try:
            found: dict[str, dict[str, tuple[int, int]]] = self._queues.queues(topic)
        except MISSING:
            return {}
        return found

    def messages(self, topics: list[str], columns: str) -> DataFrame:
        reader = (
            self.spark.read.format("rocketmq").option("failOnDataLoss", "false").option("columns", columns)
        )
        # Names of retry topics may hold a plus sign, which no subscription may: they are assigned by queue.
        wanted = {t: {b: [int(q) for q in qs] for b, qs in self.bounds(t).items()} for t in topics}
        wanted = {t: brokers for t, brokers in wanted.items() if any(brokers.values())}
        if not wanted:
            return self.spark.createDataFrame([], schema.ddl(tuple(columns.split(","))))
        for name, value in {**self._source, "assign": json.dumps(wanted)}.items():
            reader = reader.option(name, value)
        return reader.load()

    def committed(self) -> list[Committed]:
        """Every stored consumer offset."""
        found = []
        for broker, text in self._documents("consumerOffset.json", AllConsumerOffsets()):
            table = bodies.decode(text, bodies.ConsumerOffsets).offset_table
            for key, queues in table.items():
                topic, _, group = key.partition("@")
                found += [Committed(broker, group, topic, int(q), int(o)) for q, o in queues.items()]
        return found

    def delay_progress(self) -> dict[tuple[str, int], int]:
        """(broker, queue of the schedule topic) -> next offset to deliver."""
        found = {}
        for broker, text in self._documents("delayOffset.json", AllDelayOffsets()):
            for level, offset in bodies.decode(text, bodies.DelayOffsets).offset_table.items():
                found[broker, int(level) - 1] = int(offset)
        return found

    def _documents(self, name: str, header: Any) -> list[tuple[str, bytes]]:
        if self._options.store_path:
            path: Path = store_root(self._options.store_path) / "config" / name
            return [(BROKER, path.read_bytes())] if path.exists() else []
        cluster = Cluster(self._options, self._options.retries + 1)
        try:
            return [
                (broker, cluster.ask(address, lambda link: link.call(header).body))
                for broker, address in cluster.masters().items()
            ]
        finally:
            cluster.close()
