# SPDX-License-Identifier: Apache-2.0
"""Batch reads: resolve start and end once, plan the ranges, let executors read them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from aerobee.spark.reading import plan, pushdown, resolve, tasks
from aerobee.spark.reading.queue_source import bounds_of, chosen_topics, source_for
from aerobee.spark.reasons import plainly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from aerobee.spark.options import Read

log = logging.getLogger("aerobee.spark")

TASK_ROWS = 250_000  # below this a further task costs more than it saves


class Part(InputPartition):
    def __init__(self, task: tasks.Task) -> None:
        super().__init__(0)
        self.task = task


class BatchReader(DataSourceReader):
    def __init__(self, options: Read, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._narrow = pushdown.Narrow()

    @plainly()
    def partitions(self) -> list[InputPartition]:
        source = source_for(self._options)
        topics = chosen_topics(self._options, source)
        bounds: plan.Bounds = bounds_of(
            self._options, source, [topic for topic in topics if self._narrow.keeps_topic(topic)]
        )
        resolve.check_names(self._options, topics, bounds)
        stored = resolve.group_offsets(source, bounds) if self._options.group else []
        is_new = bool(stored) and all(offset is None for offset in stored)
        if is_new and self._options.start.word == "group":
            log.warning(
                "group=%s has no offsets on %s yet: each queue is read from its start",
                self._options.group,
                ", ".join(bounds),
            )
        start = resolve.start(self._options, source, bounds, stored)
        end = resolve.end(self._options, source, bounds)
        parts = plan.ranges(start, end, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
        parts = self._narrow.ranges(parts, source)
        # A pull makes its group where there is none; a look must not, so one that is not known is not named. With an
        # account it is: the rights may be for that one alone.
        group = "" if is_new and not self._options.access_key else self._options.group
        return [Part(task) for task in self._tasks(parts, source, group)]

    def _tasks(self, parts: list[plan.Range], source: Any, group: str) -> list[tasks.Task]:
        options = self._options
        most = options.max_partitions or max(2, os.cpu_count() or 2) * 2
        groups = plan.pack(
            parts,
            at_least=options.min_partitions,
            at_most=most,
            max_records=options.max_records,
            target=TASK_ROWS,
        )
        options = msgspec.structs.replace(options, tags=self._narrow.tags or options.tags, group=group)
        if not options.store_path:
            return tasks.over_the_wire(source, parts, groups, options, self._columns)
        if not options.ordered:
            from aerobee.spark.reading.store_scan import physical_split, store_root

            groups = physical_split(store_root(options.store_path), parts, len(groups))
        return [tasks.Task(options, group, {}, self._columns) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark replaces an empty plan by one partition without a task.
        return tasks.read(partition.task) if isinstance(partition, Part) else iter(())


class PushdownReader(BatchReader):
    """Seen only by Spark's push-down worker (see source.py)."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._narrow.take(filters, self._options)
