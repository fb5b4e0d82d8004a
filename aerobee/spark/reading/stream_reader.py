# SPDX-License-Identifier: Apache-2.0
"""Streams: offsets live in Spark's checkpoint, the broker only mirrors them.

Theory of operation. One object lives in Spark's stream runner for the whole query. `latestOffset` is asked about a
hundred times a second while idle, and asks the brokers each time: who sends and then calls `processAllAvailable` is
promised that what was sent is there afterwards. Offsets are JSON text to Spark:
`{"v":1,"o":{topic:{broker:{queue:next}}}}`, always sorted; nothing new means returning `start` itself.

`initialOffset` is asked again when batch 0 is replayed after a crash, when "latest" means something else than before.
So the first end offset carries the start it was resolved from (`"from"`), and `partitions` believes that one.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aerobee.clock import SystemClock
from aerobee.errors import AerobeeError
from aerobee.spark.reading import plan, resolve, sizes, tasks
from aerobee.spark.reading.batch_reader import Part
from aerobee.spark.reading.queue_source import MISSING, BrokerQueues, chosen_topics, is_named, source_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.clock import Clock
    from aerobee.spark.option_values import Offsets
    from aerobee.spark.options import Read

log = logging.getLogger("aerobee.spark")

STREAM_TASK_ROWS = 20_000
FILES_MS = 100  # a look at store files is good for this long: a broker writes its queue units once a second
MIRROR_AGAIN_MS = 1_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Read) -> None:
        self._options = options
        self._source_now: Any = None
        self._sizes: sizes.Sizes | None = None
        self._clock: Clock = SystemClock()
        self._bounds: plan.Bounds = {}
        self._discovered_at = 0
        self._looked_at = 0
        self._topics: list[str] = []
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None
        self._mirrored: Offsets = {}
        self._waiting_since: int | None = None
        self._away: set[str] = set()
        self._mirror_failed_at = 0

    # -- Spark's questions --------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = plan.edge(self._look(fresh=True), 1)

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            bounds = self._look(fresh=True)
            resolve.check_names(self._options, self._topics, bounds)
            start = resolve.start(self._options, self._ask, bounds)
            self._initial = {"init": True, "o": start, "v": 1}
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin: Offsets = start["o"]
        self._mirror(start)
        bounds = self._look()
        heads = plan.edge(bounds, 1)
        if self._target is not None:
            heads = plan.capped(heads, self._target, begin)
        end = plan.advanced(begin, heads, fail_on_data_loss=self._options.fail_on_data_loss)
        if not self._worth_a_batch(begin, end):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        known = plan.counted_from(begin, bounds)
        end = plan.clip(known, end, self._row_limit(most, known, end))
        if end == begin:
            return start
        found: dict[str, Any] = {"o": end, "v": 1}
        if start.get("init"):
            found["from"] = begin
        return dict(sorted(found.items()))

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"o": plan.edge(self._bounds, 1), "v": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin = end["from"] if start.get("init") and "from" in end else start["o"]
        topics = {topic for topic, *_ in plan.flat(end["o"])}
        # What was planned must be read: a broker that is merely away stops the query, here or in a task.
        bounds = self._bounds_of(topics, left_out=MISSING)
        parts = plan.ranges(begin, end["o"], bounds, fail_on_data_loss=self._options.fail_on_data_loss)
        options = self._options
        groups = plan.pack(
            parts,
            at_least=options.min_partitions,
            at_most=options.max_partitions or max(1, os.cpu_count() or 1),
            max_records=options.max_records,
            target=STREAM_TASK_ROWS,
        )
        if options.store_path:
            return [Part(tasks.Task(options, group, {}, options.columns)) for group in groups]
        return [
            Part(task) for task in tasks.over_the_wire(self._ask, parts, groups, options, options.columns)
        ]

    def read(self, partition: InputPartition) -> Any:
        return tasks.read(partition.task) if isinstance(partition, Part) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Called one batch late and deadly when it raises: progress is mirrored from `latestOffset` instead."""

    def stop(self) -> None:
        """Not reliably called: nothing depends on it."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source_now": None, "_sizes": None}

    # -- looking at the heads -----------------------------------------------------------------------

    @property
    def _ask(self) -> Any:
        if self._source_now is None:
            self._source_now = source_for(self._options)
        return self._source_now

    def _look(self, *, fresh: bool = False) -> plan.Bounds:
        now = self._clock.now()
        if fresh or _is_past(self._discovered_at, self._options.discovery_ms, now):
            self._ask.forget_routes()
            self._topics = chosen_topics(self._options, self._ask)
            self._discovered_at = now
        if fresh or not self._options.store_path or _is_past(self._looked_at, FILES_MS, now):
            self._bounds = self._bounds_of(self._topics)
            self._looked_at = now
        return self._bounds

    def _bounds_of(
        self, topics: Iterable[str], left_out: tuple[type[AerobeeError], ...] = (AerobeeError,)
    ) -> plan.Bounds:
        found: plan.Bounds = {}
        for topic in topics:
            try:
                found[topic] = self._ask.queues(topic)
            except left_out as error:
                # Topics come and go under a pattern; a named one that was never there is the user's mistake.
                never = not self._bounds and is_named(self._options, topic)
                if never and self._options.fail_on_data_loss:
                    raise
                if topic not in self._away:
                    log.warning("topic=%s is left out until it is back: %s", topic, error)
                self._away.add(topic)
            else:
                self._away.discard(topic)
        return found

    # -- admission ----------------------------------------------------------------------------------

    def _worth_a_batch(self, begin: Offsets, end: Offsets) -> bool:
        behind = plan.backlog(begin, end)
        if end == begin:
            return False
        if not self._options.min_offsets or self._target is not None:
            return True
        now = self._clock.now()
        self._waiting_since = self._waiting_since if self._waiting_since is not None else now
        waited = _is_past(self._waiting_since, self._options.max_delay_ms, now)
        if behind < self._options.min_offsets and not waited:
            return False
        self._waiting_since = None
        return True

    def _row_limit(self, by_spark: int, begin: Offsets, end: Offsets) -> int:
        limits = [n for n in (by_spark, self._options.max_offsets) if n]
        if self._options.max_bytes:
            upto = plan.clip(begin, end, min(limits, default=0))
            limits.append(sizes.rows_within(self._options.max_bytes, begin, upto, self._message_sizes))
        return min(limits, default=0)

    @property
    def _message_sizes(self) -> sizes.Sizes:
        if self._sizes is None:
            if self._options.store_path:
                from aerobee.spark.reading.store_scan import store_root

                self._sizes = sizes.StoreSizes(store_root(self._options.store_path))
            else:
                self._sizes = sizes.BrokerSizes(self._options, self._ask.address)
        return self._sizes

    def _mirror(self, start: dict[str, Any]) -> None:
        """Tell the broker how far the group is; lag tools then see the stream. Never fails the query."""
        done: Offsets = start["o"]
        if not self._options.group or start.get("init") or done == self._mirrored:
            return
        if not _is_past(self._mirror_failed_at, MIRROR_AGAIN_MS, self._clock.now()):
            return
        assert isinstance(self._ask, BrokerQueues)
        told: Offsets = {}
        for topic, broker, queue, offset in plan.flat(done):
            try:
                if topic not in self._away and plan.get(self._mirrored, topic, broker, queue, -1) != offset:
                    self._ask.commit(topic, broker, int(queue), offset)
                plan.put(told, topic, broker, queue, offset)
            except (AerobeeError, KeyError) as error:
                log.warning("progress of group=%s not mirrored: %s", self._options.group, error)
                self._mirror_failed_at = self._clock.now()
        self._mirrored = told


def _is_past(since: int, interval_ms: int, now: int) -> bool:
    """Has the interval gone by? A clock that was set back says yes: too early once is better than late by the jump."""
    return not 0 <= now - since < interval_ms
