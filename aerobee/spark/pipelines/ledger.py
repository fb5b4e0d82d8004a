# SPDX-License-Identifier: Apache-2.0
"""One row per message and group: stored, delivered, and how it ended. Answers "was anything lost?".

Theory of operation. For a topic and a group the broker keeps a committed offset per queue, copies of failed messages in
the group's retry topics (on their way there in the schedule topic), the dead ones in its dead-letter topic, and the open
leases of POP in the revive log. A message is

    dead       a copy lies among the dead letters
    retrying   its latest copy waits in the schedule topic, or in a retry topic ahead of the group's offset there
    in_flight  its latest place is leased in the revive log and not acked
    acked      the group's offset has passed its latest place and none of the above holds
    waiting    the group's offset has not reached it
    lost       its offset exists but the message does not; or, with `traces="complete"`, the offset passed a message
               that no consumer was ever given (traces are best effort, so the user must vouch for them)

Copies carry the original's id (UNIQ_KEY, else ORIGIN_MESSAGE_ID), so a message and its copies are one row here. What a
replay has sent again is a message of its own: `replayOf` names what it repeats, whose row names it in `replayedAs`. What
only traces tell (deliveries, duplicates, when and by whom) is null where there are none, never 0. `lastError` is why its
consumer gave it back the last time, where that consumer told (ours do, Java's do not).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aerobee.protocol import names
from aerobee.protocol.properties import LAST_ERROR
from aerobee.spark.pipelines import traces as trace_records
from aerobee.spark.pipelines.evidence import Evidence
from aerobee.spark.pipelines.leases import open_leases
from aerobee.spark.pipelines.replay import OF
from aerobee.spark.reading.queue_source import meant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("aerobee.spark")

STATES = ("acked", "waiting", "retrying", "in_flight", "dead", "lost")
_COLUMNS = "topic,brokerName,queueId,queueOffset,msgId,tags,keys,storeTimestamp,reconsumeTimes,properties"


def ledger(
    spark: SparkSession,
    topics: list[str],
    groups: list[str] | None = None,
    *,
    cluster: str | None = None,
    traces: str = "partial",
    **source: str,
) -> DataFrame:
    """The ledger of `topics` for `groups` (all that have offsets there, when left out), as of now.

    `source` is `namesrv="host:port"` or `storePath="dir"`. Traces, where consumers write them, add who was given what
    and when; `traces="complete"` also takes a message without one for lost. Leases of POP are looked for in the revive
    log of `cluster`, or of every cluster there is.

    >>> book = ledger(spark, ["orders"], ["billing"], namesrv="127.0.0.1:9876")      # doctest: +SKIP
    >>> book.groupBy("group", "state").count().show()                                # doctest: +SKIP
    """
    evidence = Evidence(spark, source)
    committed = evidence.committed()
    found = [names_of for names_of in topics if names_of in evidence.topics()]
    if not found:
        raise ValueError(
            f"none of the topics {', '.join(topics)} is there; there are: {', '.join(evidence.topics()[:20])}"
        )
    if groups is None:
        groups = groups_on(evidence, found)
    known = {c.group for c in committed}
    for group in groups:
        if group not in known:
            log.warning("group=%s has no offsets anywhere, so all waits for it%s", group, meant(group, known))
    stored = _stored(evidence, found)
    books = [_book(evidence, stored, found, group, (cluster, traces)) for group in groups]
    if not books:
        raise ValueError(f"no group has offsets on {', '.join(found)}; name one, by groups=[...] or -g")
    whole = books[0]
    for book in books[1:]:
        whole = whole.unionByName(book)
    return whole


def groups_on(evidence: Evidence, topics: list[str]) -> list[str]:
    """The groups that have offsets on one of the topics."""
    return sorted(
        {c.group for c in evidence.committed() if c.topic in topics and not names.is_system_group(c.group)}
    )


def of_key(book: DataFrame, key: str) -> DataFrame:
    """The rows of messages that have this very key; a message may have several, blanks between them."""
    from pyspark.sql import functions as f

    return book.where(f.array_contains(f.split("keys", " "), key))


def summary(book: DataFrame) -> DataFrame:
    """A row per group and topic: how many messages are in each state, were tried again, or sent again by a replay.

    `traced` messages have traces; of the others nobody knows how often they were delivered, and where there are none
    `delivered` and `duplicates` are null.
    """
    from pyspark.sql import functions as f

    states = [f.count_if(f.col("state") == state).alias(state) for state in STATES]
    return (
        book.groupBy("group", "topic")
        .agg(
            f.count("*").alias("sent"),
            *states,
            f.count_if(f.col("attempts") > 1).alias("retried"),
            f.count_if((f.col("state") == "dead") & f.col("replayedAs").isNotNull()).alias("replayed"),
            f.count("deliveries").alias("traced"),
            f.sum("deliveries").alias("delivered"),
            f.sum("duplicates").alias("duplicates"),
        )
        .orderBy("group", "topic")
    )


def _stored(evidence: Evidence, topics: list[str]) -> DataFrame:
    """The messages, and a row for every offset that should hold one and does not."""
    from pyspark.sql import functions as f

    messages = _keyed(evidence.messages(topics, _COLUMNS))
    expected = [
        (topic, broker, int(queue), low, high)
        for topic in topics
        for broker, queues in evidence.bounds(topic).items()
        for queue, (low, high) in queues.items()
        if low < high
    ]
    if not expected:
        return messages.withColumn("missing", f.lit(False))
    bounds = evidence.spark.createDataFrame(
        expected, "topic STRING, brokerName STRING, queueId INT, low BIGINT, high BIGINT"
    )
    place = ["topic", "brokerName", "queueId"]
    counts = messages.groupBy(*place).agg(f.countDistinct("queueOffset").alias("held"))
    # Only queues that hold fewer messages than their bounds promise are looked at offset by offset.
    short = bounds.join(counts, place, "left").where("coalesce(held, 0) < high - low")
    every = short.select(*place, f.explode(f.sequence(f.col("low"), f.col("high") - 1)).alias("queueOffset"))
    gaps = every.join(messages.select(*place, "queueOffset"), [*place, "queueOffset"], "left_anti")
    return messages.withColumn("missing", f.lit(False)).unionByName(
        gaps.withColumn("missing", f.lit(True)), allowMissingColumns=True
    )


def _keyed(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    properties = f.col("properties")
    key = f.coalesce(properties["UNIQ_KEY"], properties["ORIGIN_MESSAGE_ID"], f.col("msgId"))
    return messages.withColumn("id", key)


def _book(
    evidence: Evidence, stored: DataFrame, topics: list[str], group: str, settings: tuple[str | None, str]
) -> DataFrame:
    """The rows of one group."""
    from pyspark.sql import functions as f

    place = ["topic", "brokerName", "queueId"]
    offsets = _offsets(evidence, group)
    cluster, traces = settings
    leased = open_leases(evidence, group, cluster)
    copies = _copies(evidence, topics, group, offsets, leased)
    mine = stored.where(f.col("topic").isin(*topics))
    mine = mine.join(f.broadcast(offsets), place, "left")
    mine = mine.join(leased, [*place, "queueOffset"], "left").join(copies, "id", "left")
    mine = mine.join(_replays(stored, copies), "id", "left")
    traced = _traced(evidence, group)
    mine = mine.join(traced, "id", "left") if traced is not None else mine.withColumns(_no_traces())
    state = _state(traced is not None and traces == "complete")
    attempts = f.coalesce(f.col("tries"), f.lit(0)) + f.when(
        f.col("state").isin("acked", "in_flight"), f.lit(1)
    ).otherwise(f.lit(0))
    return mine.withColumn("state", state).select(
        f.lit(group).alias("group"),
        "topic",
        "brokerName",
        "queueId",
        "queueOffset",
        "msgId",
        "keys",
        "tags",
        f.col("storeTimestamp").alias("storedAt"),
        "state",
        f.greatest(attempts, f.coalesce(f.col("deliveries"), f.lit(0))).cast("int").alias("attempts"),
        "deliveries",
        f.when(f.col("deliveries").isNotNull(), f.greatest(f.col("successes") - 1, f.lit(0))).alias(
            "duplicates"
        ),
        "consumers",
        f.timestamp_millis("firstAt").alias("firstDeliveredAt"),
        f.timestamp_millis("doneAt").alias("finishedAt"),
        f.col("copyAt").alias("lastCopyAt"),
        "lastError",
        f.col("properties")[OF].alias("replayOf"),
        "replayedAs",
    )


def _state(traced: bool) -> Column:  # noqa: FBT001 - a fact about the group
    from pyspark.sql import functions as f

    passed = f.col("queueOffset") < f.coalesce(f.col("committed"), f.lit(0))
    unseen = f.coalesce(f.col("deliveries"), f.lit(0)) == 0 if traced else f.lit(False)
    return (
        f.when(f.col("missing"), "lost")
        .when(f.col("isDead"), "dead")
        .when(f.col("copyState").isNotNull(), f.col("copyState"))
        .when(f.col("leased"), "in_flight")
        .when(passed & unseen, "lost")
        .when(passed, "acked")
        .otherwise("waiting")
    )


def _offsets(evidence: Evidence, group: str) -> DataFrame:
    rows = [(c.broker, c.topic, c.queue, c.offset) for c in evidence.committed() if c.group == group]
    return evidence.spark.createDataFrame(
        rows, "brokerName STRING, topic STRING, queueId INT, committed BIGINT"
    )


def _copies(
    evidence: Evidence, topics: list[str], group: str, offsets: DataFrame, leased: DataFrame
) -> DataFrame:
    """Per original message: is it dead, how often was it tried, where does its latest copy stand."""
    from pyspark.sql import functions as f

    there = set(evidence.topics())
    dead = names.dead_letter_topic(group)
    retries = [names.retry_topic(group)]
    retries += [
        make(topic, group) for topic in topics for make in (names.pop_retry_topic, names.pop_retry_topic_v2)
    ]
    wanted = [name for name in (dead, *retries) if name in there]
    empty = evidence.spark.createDataFrame(
        [],
        "id STRING, isDead BOOLEAN, copyState STRING, tries INT, copyAt TIMESTAMP, lastError STRING,"
        " copyIds ARRAY<STRING>",
    )
    parts = []
    if wanted:
        parts.append(_keyed(evidence.messages(wanted, _COLUMNS)))
    if names.SCHEDULE_TOPIC in there:
        parts.append(_pending(evidence, retries))
    if not parts:
        return empty
    found = parts[0]
    for part in parts[1:]:
        found = found.unionByName(part)
    place = ["topic", "brokerName", "queueId"]
    found = found.join(f.broadcast(offsets), place, "left").join(leased, [*place, "queueOffset"], "left")
    passed = f.col("queueOffset") < f.coalesce(f.col("committed"), f.lit(0))
    state = (
        f.when(f.col("topic") == names.SCHEDULE_TOPIC, "retrying")
        .when(f.col("leased"), "in_flight")
        .when(passed, "acked")
        .otherwise("retrying")
    )
    order = f.struct("reconsumeTimes", "storeTimestamp")
    found = found.withColumn("here", state).withColumn("dead", f.col("topic") == dead)
    return found.groupBy("id").agg(
        f.max("dead").alias("isDead"),
        f.max_by(f.when(~f.col("dead"), f.col("here")), f.when(~f.col("dead"), order)).alias("copyState"),
        f.max("reconsumeTimes").cast("int").alias("tries"),
        f.max("storeTimestamp").alias("copyAt"),
        f.max_by(f.col("properties")[LAST_ERROR], order).alias("lastError"),
        f.collect_set("msgId").alias("copyIds"),
    )


def _replays(stored: DataFrame, copies: DataFrame) -> DataFrame:
    """Per original message: the latest message that a replay made of it, or of a copy of it."""
    from pyspark.sql import functions as f

    again = stored.select(f.col("properties")[OF].alias("of"), f.col("msgId").alias("as"), "storeTimestamp")
    again = again.where("of IS NOT NULL")
    known = copies.select(f.explode("copyIds").alias("of"), f.col("id").alias("original")).where(
        "of <> original"
    )
    again = again.join(known, "of", "left").withColumn("id", f.coalesce("original", "of"))
    return again.groupBy("id").agg(f.max_by("as", "storeTimestamp").alias("replayedAs"))


def _pending(evidence: Evidence, retries: list[str]) -> DataFrame:
    """Copies of this group that wait for their delay: in the schedule topic, not delivered yet."""
    from pyspark.sql import functions as f

    progress = [(broker, queue, offset) for (broker, queue), offset in evidence.delay_progress().items()]
    done = evidence.spark.createDataFrame(progress, "brokerName STRING, queueId INT, delivered BIGINT")
    waiting = _keyed(evidence.messages([names.SCHEDULE_TOPIC], _COLUMNS))
    waiting = waiting.where(f.col("properties")["REAL_TOPIC"].isin(*retries))
    waiting = waiting.join(f.broadcast(done), ["brokerName", "queueId"], "left")
    return waiting.where("queueOffset >= coalesce(delivered, 0)").drop("delivered")


def _traced(evidence: Evidence, group: str) -> DataFrame | None:
    """Deliveries by the group's consumers, when they write traces; None when they do not."""
    from pyspark.sql import functions as f

    if trace_records.TRACE_TOPIC not in set(evidence.topics()):
        return None
    rows = trace_records.parse(evidence.messages([trace_records.TRACE_TOPIC], "bornHost,body")).where(
        f.col("group") == group
    )
    # A count, not a look at the first row: Spark's workers print a traceback when they are cut off early.
    if rows.count() == 0:
        return None
    given = f.col("kind") == "SubBefore"
    done = (f.col("kind") == "SubAfter") & f.col("ok")
    return rows.groupBy(f.col("msgId").alias("id")).agg(
        f.count_if(given).alias("deliveries"),
        f.count_if(done).alias("successes"),
        f.collect_set(f.when(given, f.col("client"))).alias("consumers"),
        f.min(f.when(given, f.col("at"))).alias("firstAt"),
        f.max(f.when(done, f.col("at"))).alias("doneAt"),
    )


def _no_traces() -> dict[str, Any]:
    from pyspark.sql import functions as f

    nothing = f.lit(None)
    return {
        "deliveries": nothing.cast("bigint"),
        "successes": nothing.cast("bigint"),
        "consumers": nothing.cast("array<string>"),
        "firstAt": nothing.cast("bigint"),
        "doneAt": nothing.cast("bigint"),
    }
