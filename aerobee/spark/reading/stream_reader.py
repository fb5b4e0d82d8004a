# SPDX-License-Identifier: Apache-2.0
"""Streams: offsets live in Spark's checkpoint, the broker only mirrors them.

Theory of operation. One object lives in Spark's stream runner for the whole query. `latestOffset` is asked about a
hundred times a second while idle, and asks the brokers each time: who sends and then calls `processAllAvailable` is
promised that what was sent is there afterwards. That costs one small request a broker (`heads`), and while nothing moved
the answer is `start` itself, whatever the number of queues. After a second of that the next looks wait a little.
What `latestOffset` saw serves `partitions` too.

`initialOffset` is asked again when batch 0 is replayed after a crash, when "latest" means something else than before.
So the first end offset carries the start it was resolved from (`offsets`), and `partitions` believes that one.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aerobee.clock import SystemClock
from aerobee.errors import NetworkError
from aerobee.spark.reading import plan, resolve, sizes, tasks
from aerobee.spark.reading.batch_reader import Part
from aerobee.spark.reading.mirror import Mirror
from aerobee.spark.reading.offsets import OffsetTexts
from aerobee.spark.reading.queue_source import MISSING, chosen_topics, is_named, source_for, with_nearest
from aerobee.spark.reading.quiet import Quiet, is_past

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import Clock
    from aerobee.spark.option_values import Offsets
    from aerobee.spark.options import Read

log = logging.getLogger("aerobee.spark")

STREAM_TASK_ROWS = 20_000
FILES_MS = 100  # a look at store files is good for this long: a broker writes its queue units once a second
GONE_MS = 60_000  # so long must a topic be gone before the stream forgets its place in it


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Read) -> None:
        self._options = options
        self._source_now: Any = None
        self._sizes: sizes.Sizes | None = None
        self._clock: Clock = SystemClock()
        self._sleep: Callable[[float], None] = time.sleep
        self._texts = OffsetTexts()
        self._look = plan.Look({}, {}, {}, frozenset())
        self._heads: tuple[plan.Bounds, dict[str, Any]] | None = None
        self._quiet = Quiet()
        self._mirror: Mirror | None = None
        self._discovered_at = 0
        self._looked_at = 0
        self._topics: frozenset[str] = frozenset()
        self._carried: frozenset[tuple[str, str]] = frozenset()
        self._gone_since: dict[tuple[str, str], int] = {}
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None
        self._waiting_since: int | None = None
        self._away: set[str] = set()

    # -- Spark's questions --------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = plan.edge(self._look_at_all(), 1)

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            bounds = self._look_at_all()
            resolve.check_names(self._options, sorted(self._topics), bounds)
            start = resolve.start(self._options, self._ask, bounds)
            self._initial = self._texts.initial(start)
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        place = self._texts.read(start)
        self._tell_group(start, place)
        if pause_ms := self._quiet.pause_ms(self._clock.now()):
            self._sleep(pause_ms / 1000)
        look = self._look_when_due()
        if self._quiet.is_so(start, look.bounds):
            return start
        place = self._without_gone(place, look)
        topics = plan.unlike(place, look.bounds, self._target)
        begin = {topic: place[topic] for topic in topics & place.keys()}
        bounds = {topic: look.bounds[topic] for topic in topics & look.bounds.keys()}
        end = self._advanced(begin, bounds, topics)
        if end == begin:
            self._quiet.note(start, look.bounds, self._clock.now())
            return start
        self._quiet.end()
        if not self._worth_a_batch(begin, end):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        if most or self._options.max_offsets or self._options.max_bytes:
            known = plan.counted_from(begin, bounds)
            end = plan.clip(known, end, self._row_limit(most, known, end))
            if end == begin:
                return start
        reached = dict(sorted({**place, **end}.items()))
        return self._texts.reached(reached, started=place if start.get("init") else None)

    def _advanced(self, begin: Offsets, bounds: plan.Bounds, topics: set[str]) -> Offsets:
        heads = plan.edge(bounds, 1)
        if self._target is not None:
            target = {topic: self._target[topic] for topic in topics & self._target.keys()}
            heads = plan.capped(heads, target, begin)
        return plan.advanced(begin, heads, fail_on_data_loss=self._options.fail_on_data_loss)

    def reportLatestOffset(self) -> dict[str, Any]:
        bounds = self._look.bounds
        if self._heads is None or self._heads[0] is not bounds:
            self._heads = bounds, self._texts.reached(plan.edge(bounds, 1))
        return self._heads[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, stop = self._texts.start_of(start, end), self._texts.read(end)
        moving = plan.moving(begin, stop)
        bounds = self._bounds_for(moving)
        parts = plan.ranges(begin, moving, bounds, fail_on_data_loss=self._options.fail_on_data_loss)
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

    def __reduce__(self) -> Any:
        """A task needs nothing of what the driver has seen."""
        return StreamReader, (self._options,)

    # -- looking at the heads -----------------------------------------------------------------------

    @property
    def _ask(self) -> Any:
        if self._source_now is None:
            self._source_now = source_for(self._options)
        return self._source_now

    def _look_at_all(self) -> plan.Bounds:
        """Before a stream starts: what does not answer now would later be taken for new, and read from its beginning."""
        self._discover()
        look = self._noted(self._ask.look(self._topics))
        for error in look.away.values():
            raise error
        return look.bounds

    def _look_when_due(self) -> plan.Look:
        now = self._clock.now()
        if is_past(self._discovered_at, self._options.discovery_ms, now):
            self._discover()
        if not self._options.store_path or is_past(self._looked_at, FILES_MS, now):
            self._noted(self._ask.look(self._topics, self._carried))
            self._looked_at = now
            self._quiet.looks_ms.append(self._clock.now() - now)
        return self._look

    def _bounds_for(self, moving: Offsets) -> plan.Bounds:
        """The bounds by which those queues are planned: the ones seen when the batch was made or, when that was in an
        earlier run, those of now. What was planned must be read: a broker that is merely away stops the query, here or
        in a task."""
        if plan.covers(self._look.bounds, moving):
            return self._look.bounds
        look: plan.Look = self._ask.look(moving)
        needed = {broker for brokers in moving.values() for broker in brokers}
        for error in (*(look.away[broker] for broker in needed & look.away.keys()), *look.failed.values()):
            if not isinstance(error, MISSING):
                raise error
        return look.bounds

    def _discover(self) -> None:
        self._discovered_at = self._looked_at = self._clock.now()
        self._ask.forget_routes()
        try:
            topics = frozenset(chosen_topics(self._options, self._ask))
        except NetworkError as error:
            if not self._topics:
                raise
            log.warning("new topics are not looked for now: %s", error)
        else:
            self._topics = topics

    def _noted(self, look: plan.Look) -> plan.Look:
        # Topics come and go under a pattern; a named one that was never there is the user's mistake.
        never = not self._look.bounds and self._options.fail_on_data_loss
        for topic, error in look.failed.items():
            if never and is_named(self._options, topic):
                raise with_nearest(error, topic, self._ask)
            if topic not in self._away:
                log.warning("topic=%s is left out until it is back: %s", topic, error)
        for broker, error in look.away.items():
            if broker not in self._away:
                log.warning("broker=%s is left out until it is back: %s", broker, error)
        self._away = {*look.failed, *look.away}
        self._look = look
        return look

    def _without_gone(self, begin: Offsets, look: plan.Look) -> Offsets:
        """The stream's place without topics that were deleted a while ago. Till then one that is made again, and ends
        before that place, is known for another; after that it is a new one, and read from its beginning."""
        now = self._clock.now()
        unseen = {
            (topic, broker)
            for topic, brokers in begin.items()
            for broker in brokers
            if broker not in look.bounds.get(topic, ())
        }
        self._carried = frozenset(unseen)
        self._gone_since = {place: self._gone_since.get(place, now) for place in unseen & look.gone}
        forgotten = {p for p, since in self._gone_since.items() if now - since >= GONE_MS}
        if not forgotten:
            return begin
        kept = {t: {b: qs for b, qs in bs.items() if (t, b) not in forgotten} for t, bs in begin.items()}
        return {topic: brokers for topic, brokers in kept.items() if brokers}

    # -- admission ----------------------------------------------------------------------------------

    def _worth_a_batch(self, begin: Offsets, end: Offsets) -> bool:
        if not self._options.min_offsets or self._target is not None:
            return True
        behind = plan.backlog(begin, end)
        now = self._clock.now()
        self._waiting_since = self._waiting_since if self._waiting_since is not None else now
        waited = is_past(self._waiting_since, self._options.max_delay_ms, now)
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

    def _tell_group(self, start: dict[str, Any], place: Offsets) -> None:
        if self._options.group and not start.get("init"):
            if self._mirror is None:
                self._mirror = Mirror(self._options.group, self._ask.commit_each)
            self._mirror.tell(start, place, self._away, self._clock.now())
