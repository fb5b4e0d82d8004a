# SPDX-License-Identifier: Apache-2.0
"""Lag and rate of a running stream, from the query's own progress.

Spark's API for Python sources has no hook for metrics of their own (PySpark 4.3: `sources[].metrics` stays empty). But
every progress names the end of the batch and, since our reader tells it (`reportLatestOffset`), the heads of all queues
as of that batch; what lies between them is the lag. So figures cost no request, and they say what the query itself saw.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.spark.reading import plan
from aerobee.spark.reading.offsets import UnknownOffsets, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from aerobee.spark.option_values import Offsets


class Figures(msgspec.Struct, frozen=True):
    """One micro-batch. `lag` is how many messages of each topic were stored and not yet in a finished batch; empty where
    Spark asked for no heads, as before a batch that it makes again after a restart."""

    query: str
    batch: int
    rows: int
    rows_per_second: float
    batch_ms: int
    lag: dict[str, int]

    @property
    def behind(self) -> int:
        return sum(self.lag.values())

    @property
    def behind_told(self) -> str:
        return f"{self.behind:,} behind" if self.lag else "lag not known yet"

    def __str__(self) -> str:
        return (
            f"{self.query} batch {self.batch}: {self.rows:,} messages, {self.rows_per_second:,.0f}/s, "
            f"{self.behind_told}"
        )


def figures_of(progress: Any) -> Figures:
    """The figures of one progress, as in `query.lastProgress` or a listener's event.

    A query that ended, or has nothing to do, reports batches without rows: `query.recentProgress` has those before.
    Before its first batch there is no progress (None): a ValueError.

    >>> figures_of(query.lastProgress).lag                    # doctest: +SKIP
    {'orders': 1200}
    """
    if progress is None:
        raise ValueError("the query has reported no progress yet; ask again after its first batch")
    if hasattr(progress, "json"):
        progress = json.loads(progress.json)
    lag: dict[str, int] = {}
    for source in progress["sources"]:
        for topic, behind in _lag(source).items():
            lag[topic] = lag.get(topic, 0) + behind
    return Figures(
        query=progress.get("name") or str(progress["id"]),
        batch=progress["batchId"],
        rows=int(_total(progress, "numInputRows")),
        rows_per_second=_total(progress, "processedRowsPerSecond"),
        batch_ms=int(progress["durationMs"].get("triggerExecution", 0)),
        lag=lag,
    )


def listen(spark: SparkSession, callback: Callable[[Figures], None]) -> StreamingQueryListener:
    """Call `callback` with the figures of every batch of every stream of the session; `removeListener` ends it.

    >>> listen(spark, lambda figures: gauge.set(figures.behind))                    # doctest: +SKIP
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            callback(figures_of(event.progress))

        def onQueryTerminated(self, event: Any) -> None: ...

    listener = Listener()
    spark.streams.addListener(listener)
    return listener


def _lag(source: Any) -> dict[str, int]:
    heads, done = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
    lag = {topic: 0 for topic, *_ in plan.flat(heads)}
    for topic, broker, queue, head in plan.flat(heads):
        lag[topic] += max(0, head - plan.get(done, topic, broker, queue, 0))
    return lag


def _offsets(told: Any) -> Offsets:
    """Spark hands offsets over as text or as what the text says; other sources have others."""
    try:
        return offsets_of(told)
    except UnknownOffsets:
        return {}


def _total(progress: Any, name: str) -> float:
    """Of the query; a progress that came by Spark Connect has it of each source only."""
    if name in progress:
        return _number(progress[name])
    return sum(_number(source.get(name)) for source in progress["sources"])


def _number(told: Any) -> float:
    """Spark's JSON leaves out what is no number, as the rate of an instant."""
    return float(told) if isinstance(told, (int, float)) and told == told else 0.0
