# SPDX-License-Identifier: Apache-2.0
"""The consumption flow on Spark: topic -> the user's function on the executors -> offsets, retries, dead letters.

A micro-batch is cut into as many tasks as the cluster has cores, whatever the number of queues. Each message goes
through the user's function; rows whose function raised go back to the group's retry topic with their delay level
(in the end the dead letters) before the batch is committed, and only then does the group's offset move. So a crash
repeats the batch: at least once, as RocketMQ's own consumers.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.errors import AerobeeError, GroupNotFound
from aerobee.protocol.failure_text import OF_ONE, USUAL_LENGTH, failure_text
from aerobee.spark import schema
from aerobee.spark.options import OptionError, connection, for_batch
from aerobee.spark.pipelines.files import Files
from aerobee.spark.pipelines.first_place import starting_offsets
from aerobee.spark.sessions import cores_of
from aerobee.spark.starting import started
from aerobee.spark.writing.sending_back import send_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from aerobee.spark.pipelines.first_place import Start

log = logging.getLogger("aerobee.spark.consume")

COLUMNS = (*schema.DEFAULT, "properties", "physicalOffset")
RESULT = (
    "topic STRING, brokerName STRING, physicalOffset BIGINT, reconsumeTimes INT, msgId STRING,"
    " ok BOOLEAN, result STRING, error STRING, reason STRING, attempt INT, run BIGINT"
)
_CARRIED = ("topic", "brokerName", "physicalOffset", "reconsumeTimes", "msgId")
# No business of a sink.
_OURS = ("brokerName", "physicalOffset", "reconsumeTimes", "reason", "attempt", "run")
REASONS = 10  # of a batch that are told


class Outcome(NamedTuple):
    """What the handler made of a message: a result, or an error (its trace) and the reason in a line."""

    result: str | None = None
    error: str | None = None
    reason: str | None = None


class Handled(NamedTuple):
    """What became of a batch: each message is done, to be retried, or dead. `repeated` ones were given to the handler
    by a worker or driver that was lost before it could tell how they ended, and once more by another. `reasons` are the
    most frequent ones of failures, with their counts; of those that differ by an id or a number only, one for all."""

    batch: int
    rows: int
    done: int
    retried: int
    dead: int
    repeated: int
    reasons: tuple[tuple[str, int], ...] = ()


def consume(
    spark: SparkSession,
    topics: str,
    group: str,
    handler: Callable[[Any], Any],
    *,
    namesrv: str,
    checkpoint: str,
    per: str = "message",
    start: Start | None = None,
    tasks: int | None = None,
    max_reconsume: int = 16,
    failure_text_length: int = USUAL_LENGTH,
    once: bool = False,
    every: str = "0 seconds",
    sink: Callable[[DataFrame, int], None] | None = None,
    options: dict[str, str] | None = None,
    told: Callable[[Handled], None] | None = None,
) -> StreamingQuery:
    """Run `handler` on every message of `topics` for `group`; the running (or, with `once`, finished) query.

    `per` says what the handler gets: "message" (a row; its return value, if any, becomes the result), "batch" (a
    list of rows; returns a list of results, or raises for all), or "arrow" (a record batch; raises for all, results are
    its own business).

    A row is a `pyspark.sql.Row` with topic, brokerName, queueId, queueOffset, msgId, tags, keys (texts or None; several
    keys with blanks between), body (bytes), bornTimestamp, storeTimestamp (datetimes in UTC), reconsumeTimes (0 at the
    first try, 1 at the second), properties (a dict of texts) and physicalOffset. In a record batch they are columns. A
    message that is tried again comes from the topic %RETRY%group; `properties["RETRY_TOPIC"]` is its own.

    What the handler raises sends the message back: it is tried again after 10 s, 30 s, 1 min ..., `max_reconsume` times,
    and is a dead letter then, with the first `failure_text_length` characters of the exception (0: none). `once` ends
    when all that is there now was given to the handler; it does not wait for tries that are due later: run it again.

    `start` is where a group begins that has no offsets on a queue yet: "first" (that is the default), "last", or a time
    in epoch milliseconds. Afterwards its offsets count, and once there was a batch, the `checkpoint`.
    `every` is the least time from one batch to the next, in Spark's words.
    `sink(frame, batch_id)` receives a frame of results (topic, msgId, ok, result, error), `told` the figures of
    every batch.

    >>> consume(spark, "orders", "billing", charge, namesrv="127.0.0.1:9876",
    ...         checkpoint="/tmp/billing", once=True).awaitTermination()      # doctest: +SKIP
    """
    if per not in _ROADS:
        raise ValueError(f"per is {per!r}, expected one of {', '.join(_ROADS)}")
    width = tasks or cores_of(spark)
    road = _ROADS[per](handler, failure_text_length)
    brokers: dict[str, Any] = {"namesrv": namesrv, **connection(options or {})}

    begun = _begun(spark, checkpoint)

    def one_batch(frame: DataFrame, batch_id: int) -> None:
        done = frame.mapInArrow(road, RESULT).persist()
        try:
            runs = _runs(done, max_reconsume)
            reasons: tuple[tuple[str, int], ...] = ()
            if sum(run.failed for run in runs):
                failed = done.where("NOT ok")
                send_back(failed, group, max_reconsume=max_reconsume, reason="reason", **brokers)
                reasons = _reasons(failed)
            if sink is not None:
                sink(done.drop(*_OURS), batch_id)
                again = _runs(done, max_reconsume)
            else:
                again = runs
        finally:
            done.unpersist()
        if told is not None:
            handled = _handled(batch_id, runs, again, was_begun=batch_id <= begun)
            told(handled._replace(reasons=reasons))

    reading = {
        "namesrv": namesrv,
        "subscribe": topics,
        "group": group,
        "includeRetries": "true",
        "columns": ",".join(COLUMNS),
        "minPartitions": str(width),
        "checkBodies": "true",
        **(options or {}),
    }
    if "startingoffsets" not in {name.lower() for name in reading}:
        place = Files(spark, checkpoint)
        reading["startingOffsets"] = "group" if begun >= 0 else starting_offsets(place, reading, start)
    elif start is not None:
        raise OptionError(f"give start ({start}) or the option 'startingOffsets', not both")
    writer = (
        spark.readStream.format("rocketmq")
        .options(**reading)
        .load()
        .writeStream.foreachBatch(one_batch)
        .option("checkpointLocation", checkpoint)
    )
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    query = started(writer.queryName(f"consume-{group}").trigger(**trigger))
    if once:
        query.awaitTermination()
        _final_commit(query, group, brokers)
    return query


def _begun(spark: SparkSession, checkpoint: str) -> int:
    """The last batch that a driver before this one has begun: if it comes again, it comes for the second time."""
    names = Files(spark, checkpoint).glob("offsets/*")
    return max(
        (int(name) for name in (path.rpartition("/")[2] for path in names) if name.isdigit()), default=-1
    )


def _runs(done: DataFrame, max_reconsume: int) -> list[Any]:
    """The runs of the handler that made these results, a row for each task."""
    from pyspark.sql import functions as f

    dead = f"NOT ok AND reconsumeTimes >= {max_reconsume}"  # the broker's rule
    counted = done.groupBy("run", "attempt").agg(
        f.count("*").alias("rows"),
        f.count_if(f.expr("NOT ok")).alias("failed"),
        f.count_if(f.expr(dead)).alias("dead"),
    )
    return counted.collect()


def _reasons(failed: DataFrame) -> tuple[tuple[str, int], ...]:
    from pyspark.sql import functions as f

    alike = failed.where("reason IS NOT NULL").groupBy(f.regexp_replace("reason", OF_ONE, "#"))
    counted = alike.agg(f.count("*").alias("count"), f.min("reason").alias("reason"))
    most = counted.orderBy(f.desc("count"), "reason").limit(REASONS).collect()
    return tuple((row.reason, row["count"]) for row in most)


def _handled(batch_id: int, runs: list[Any], again: list[Any], *, was_begun: bool) -> Handled:
    """`again` are the runs as the sink saw them: those that are not among `runs` replace what was lost with an
    executor after it was done."""
    rows, failed, dead = (sum(run[name] for run in runs) for name in ("rows", "failed", "dead"))
    known = {run.run for run in runs}
    anew = sum(run.rows for run in again if run.run not in known)
    repeated = rows if was_begun else anew + sum(run.rows for run in runs if run.attempt)
    return Handled(batch_id, rows, rows - failed, failed - dead, dead, repeated)


def _per_message(
    handler: Callable[[Any], Any], told_length: int = USUAL_LENGTH
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def road(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql import Row

        for batch in batches:
            outcomes: list[Outcome] = []
            for values in _plain(batch):
                try:
                    outcomes.append(Outcome(_text(handler(Row(**values)))))
                except Exception as error:
                    outcomes.append(_failed(error, told_length))
            yield _results(batch, outcomes)

    return road


def _per_batch(
    handler: Callable[[Any], Any], told_length: int = USUAL_LENGTH
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def road(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.sql import Row

        for batch in batches:
            try:
                found = handler([Row(**values) for values in _plain(batch)])
                results = list(found) if found is not None else [None] * batch.num_rows
                if len(results) != batch.num_rows:
                    raise ValueError(
                        f"the handler returned {len(results)} results for {batch.num_rows} messages"
                    )
                outcomes = [Outcome(_text(value)) for value in results]
            except Exception as error:
                outcomes = [_failed(error, told_length)] * batch.num_rows
            yield _results(batch, outcomes)

    return road


def _per_arrow(
    handler: Callable[[Any], Any], told_length: int = USUAL_LENGTH
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def road(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                handler(batch)
                outcomes = [Outcome()] * batch.num_rows
            except Exception as error:
                outcomes = [_failed(error, told_length)] * batch.num_rows
            yield _results(batch, outcomes)

    return road


_ROADS: dict[str, Callable[..., Any]] = {"message": _per_message, "batch": _per_batch, "arrow": _per_arrow}


def _text(value: Any) -> str | None:
    import json

    if value is None:
        return None
    told = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    told.encode()  # what is no text fails this message, not the query
    return told


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Spark would give them: a map is a dict, not pairs."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        if row.get("properties") is not None:
            row["properties"] = dict(row["properties"])
    return rows


def _failed(error: Exception, told_length: int) -> Outcome:
    trace = "".join(traceback.format_exception(error, limit=-3))
    reason = failure_text(error, told_length)
    return Outcome(None, trace.encode(errors="backslashreplace").decode(), reason or None)


def _results(batch: pa.RecordBatch, outcomes: list[Outcome]) -> pa.RecordBatch:
    import pyarrow as pa
    from pyspark import TaskContext

    task = TaskContext.get()
    # Attempts are counted within a stage; a stage that is done again has tasks with other ids.
    attempt, run = (task.attemptNumber(), task.taskAttemptId()) if task is not None else (0, 0)
    columns = {
        **{name: batch.column(name) for name in _CARRIED},
        "ok": pa.array([one.error is None for one in outcomes], pa.bool_()),
        "result": pa.array([one.result for one in outcomes], pa.string()),
        "error": pa.array([one.error for one in outcomes], pa.string()),
        "reason": pa.array([one.reason for one in outcomes], pa.string()),
        "attempt": pa.repeat(pa.scalar(attempt, pa.int32()), batch.num_rows),
        "run": pa.repeat(pa.scalar(run, pa.int64()), batch.num_rows),
    }
    return pa.RecordBatch.from_pydict(columns)


def _final_commit(query: StreamingQuery, group: str, brokers: dict[str, str]) -> None:
    """Mirror the last batch's end: a stream only tells its progress when the next batch is planned."""
    from aerobee.spark.reading.offsets import offsets_of
    from aerobee.spark.reading.plan import flat
    from aerobee.spark.reading.queue_source import BrokerQueues

    progress = query.lastProgress
    if not progress or not progress["sources"][0]["endOffset"]:
        return
    offsets = offsets_of(progress["sources"][0]["endOffset"])
    source = BrokerQueues(for_batch({"subscribe": "any", "group": group, **brokers}))
    for topic, broker, queue, offset in flat(offsets):
        try:
            source.commit(topic, broker, int(queue), offset)
        except GroupNotFound:  # nothing was there to be read, so nobody has made the group known
            return
        except AerobeeError as error:  # the topic was deleted meanwhile; nothing is left to be told
            log.warning("group=%s: offset of %s/%s/%s not told: %s", group, topic, broker, queue, error)
