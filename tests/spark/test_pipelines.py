# SPDX-License-Identifier: Apache-2.0
"""The five pipelines on real Spark and an embedded server."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from aerobee import Admin, Message, Producer, PushConsumer, StoreConfig
from aerobee.client.options import Options
from aerobee.clock import SystemClock
from aerobee.protocol import properties
from aerobee.protocol.message import Record
from aerobee.protocol.routing import place_of_key
from aerobee.spark.options import OptionError
from aerobee.spark.pipelines import replay as replays
from aerobee.spark.pipelines.consume import consume
from aerobee.spark.pipelines.lake import lake
from aerobee.spark.pipelines.ledger import ledger, summary
from aerobee.spark.pipelines.parquet_table import Table
from aerobee.spark.pipelines.replay import replay
from aerobee.spark.pipelines.report import report
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

QUICK_RETRIES = "1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s"


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer(store=StoreConfig(delay_levels=QUICK_RETRIES)) as running:
        yield running


def send(server: TestServer, topic: str, bodies: list[str], **fields: Any) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            messages = [Message(topic, b.encode(), keys=[f"k{i}"], **fields) for i, b in enumerate(bodies)]
            await asyncio.gather(*(producer.send(message) for message in messages))

    asyncio.run(work())


def orders(n: int) -> list[str]:
    return [json.dumps({"n": i, "user": f"u{i % 3}"}) for i in range(n)]


# -- lake ----------------------------------------------------------------------------------------------


def run_lake(spark: SparkSession, server: TestServer, topics: str, out: Path, **settings: Any) -> None:
    query = lake(spark, topics, str(out), once=True, options={"namesrv": server.namesrv}, **settings)
    query.awaitTermination()


def test_a_lake_grows_by_what_is_new_and_infers_its_schema_once(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    send(server, "lake-json", orders(100))
    run_lake(spark, server, "lake-json", out, json=True)
    send(server, "lake-json", ["no json", '{"n": 100, "user": "u", "new": 1}', "[1]"])
    run_lake(spark, server, "lake-json", out, json=True)
    frame = Table(spark, str(out)).read()
    assert frame.count() == 103
    assert frame.selectExpr("sum(data.n)").first()[0] == sum(range(101))
    bad = [bytes(row.badBody).decode() for row in frame.where("badBody IS NOT NULL").collect()]
    assert sorted(bad) == ["[1]", "no json"]
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"lake-json"}
    # Every other reader of the directory sees the same rows.
    assert spark.read.parquet(str(out)).count() == 103
    # Batch 0 of another checkpoint is not batch 0 of this one: it must neither be skipped nor come twice.
    with pytest.raises(StreamingQueryException, match="was filled with another checkpoint"):
        run_lake(spark, server, "lake-json", out, json=True, checkpoint=str(tmp_path / "new"))
    assert Table(spark, str(out)).read().count() == 103


def test_times_of_a_lake_are_in_utc_for_every_reader_and_alike_in_all_its_files(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    def kinds(out: Path) -> set[str]:
        files = [*out.glob("topic=*/date=*/*.parquet")]
        return {str(pq.read_schema(file).field(name).type) for file in files for name in TIMES}

    TIMES = ("bornTimestamp", "storeTimestamp")
    send(server, "lake-times", ["x"])
    for name in ("new", "old"):
        run_lake(spark, server, "lake-times", tmp_path / name)
    assert kinds(tmp_path / "new") == {"timestamp[us, tz=UTC]"}
    assert str(pq.read_schema(tmp_path / "new" / "_common_metadata").field("storeTimestamp").type) in kinds(
        tmp_path / "new"
    )
    # One that began when files had times without a zone keeps them so.
    (commit,) = (tmp_path / "old" / "_commits").iterdir()
    commit.write_text(json.dumps({**json.loads(commit.read_text()), "times": "INT96"}))
    for file in (tmp_path / "old").glob("topic=*/date=*/*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None), file, use_deprecated_int96_timestamps=True)
    send(server, "lake-times", ["y"])
    run_lake(spark, server, "lake-times", tmp_path / "old")
    assert kinds(tmp_path / "old") == {"timestamp[ns]"}
    assert Table(spark, str(tmp_path / "old")).compact() == 1
    assert kinds(tmp_path / "old") == {"timestamp[ns]"}
    rows = Table(spark, str(tmp_path / "old")).read()
    assert rows.where("storeTimestamp > current_timestamp() - INTERVAL 1 HOUR").count() == 2


@pytest.mark.parametrize("left_over", ["staged", "moved"])
def test_a_driver_killed_before_the_commit_leaves_neither_gap_nor_duplicate(
    spark: SparkSession, server: TestServer, tmp_path: Path, left_over: str
) -> None:
    out, topic = tmp_path / "lake", f"lake-kill-{left_over}"
    send(server, topic, orders(50))
    run_lake(spark, server, topic, out)
    send(server, topic, orders(30))
    before = shutil.copytree(out, tmp_path / "before")
    run_lake(spark, server, topic, out)
    # Undo what the second batch did after its files were written: no commit file, no entry in Spark's commit log.
    (out / "_commits" / "b00000000001.json").unlink()
    (out / "_checkpoint" / "commits" / "1").unlink()
    (out / "_checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    if left_over == "staged":
        for path in out.glob("topic=*/date=*/b00000000001-*.parquet"):
            path.unlink()
        shutil.copytree(next(before.glob("topic=*")), out / "_staging" / "b00000000001" / f"topic={topic}")
    run_lake(spark, server, topic, out)
    assert spark.read.parquet(str(out)).count() == 80
    assert Table(spark, str(out)).read().select("msgId").distinct().count() == 80


def test_compaction_joins_small_files_and_keeps_the_rows(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    for _ in range(3):
        send(server, "lake-small", orders(10))
        run_lake(spark, server, "lake-small", out)
    table = Table(spark, str(out))
    files = len(table.files())
    joined = {name: (out / name).read_bytes() for name in table.files()}
    assert table.compact() == files - 1
    assert len(table.files()) == 1
    assert table.read().count() == spark.read.parquet(str(out)).count() == 30
    # Killed after its commit, a compaction leaves what it joined: the next one takes it away.
    for name, data in joined.items():
        (out / name).write_bytes(data)
    assert Table(spark, str(out)).compact() == 0
    assert spark.read.parquet(str(out)).count() == 30


# -- ledger and report ---------------------------------------------------------------------------------


async def consume_all(namesrv: str, topic: str, group: str, expected: int, **settings: Any) -> set[str]:
    """Push consume: bodies holding "poison" never succeed, "shaky" succeeds on the second try."""
    seen: set[str] = set()
    done = asyncio.Event()

    async def handle(message: Any) -> None:
        body = message.body.decode()
        if "poison" in body or ("shaky" in body and message.reconsume_times == 0):
            raise ValueError(body)
        seen.add(body)
        if len(seen) >= expected:
            done.set()

    options = Options(max_reconsume=1, trace=settings.pop("trace", False), pop_invisible_ms=5_000)
    consumer = PushConsumer(
        namesrv, group=group, topics={topic: "*"}, handler=handle, start="first", options=options
    )
    async with consumer, asyncio.timeout(60):
        await done.wait()
        async with Admin(namesrv) as admin:
            while (await admin.lag(group)).dead < settings.get("dead", 0):  # noqa: ASYNC110 - asked as a user would
                await asyncio.sleep(0.1)
    return seen


BODIES = [f"fine-{i}" for i in range(40)] + ["shaky-1", "shaky-2", "poison-1"]


@pytest.mark.parametrize("mode", ["PULL", "POP"])
def test_the_ledger_knows_what_became_of_every_message(
    spark: SparkSession, server: TestServer, mode: str, tmp_path: Path
) -> None:
    topic, group = f"ledger-{mode}", f"group-{mode}"
    server.create_topic(topic)

    async def story() -> None:
        async with Admin(server.namesrv) as admin:
            await admin.create_group(group, retry_max_times=1)
            await admin.set_consume_mode(topic, group, mode)
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            for body in BODIES:
                await producer.send(Message(topic, body.encode(), keys=[body]))
        await consume_all(server.namesrv, topic, group, len(BODIES) - 1, trace=True, dead=1)
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            for i in range(5):
                await producer.send(Message(topic, b"waiting", keys=[f"w-{i}"]))

    asyncio.run(story())
    book = ledger(spark, [topic], [group], namesrv=server.namesrv).persist()
    (row,) = summary(book).collect()
    assert (row.sent, row.acked, row.dead, row.waiting, row.lost) == (
        len(BODIES) + 5,
        len(BODIES) - 1,
        1,
        5,
        0,
    )
    states = {r["keys"]: (r.state, r.attempts) for r in book.collect()}
    assert states["fine-0"] == ("acked", 1)
    assert states["shaky-1"] == ("acked", 2)
    assert states["poison-1"] == ("dead", 2)
    figures = report(book, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert figures.lost == 0
    assert "Nothing was lost" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_a_message_missing_from_the_store_is_found_lost(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "ledger-lost", [f"m{i}" for i in range(20)])
    server.run(_set_offsets(server, "ledger-lost", "g-lost"))
    server.flush()
    copy = shutil.copytree(str(server.server.data), tmp_path / "copy")
    store = copy / "store"
    record = server.server.broker.store.record_of("ledger-lost", *_first_place(server, "ledger-lost"))
    assert record is not None
    (segment,) = sorted((store / "commitlog").iterdir())
    with segment.open("r+b") as file:
        file.seek(record.physical_offset + 4)
        file.write(b"\0\0\0\0")
    book = ledger(spark, ["ledger-lost"], ["g-lost"], storePath=str(copy))
    (row,) = summary(book).collect()
    assert (row.sent, row.lost) == (20, 1)
    (lost,) = book.where("state = 'lost'").collect()
    assert (lost.queueId, lost.queueOffset) == (record.queue_id, record.queue_offset)


def _first_place(server: TestServer, topic: str) -> tuple[int, int]:
    store = server.server.broker.store
    queue = next(q for q in store.queue_ids(topic) if store.max_offset(topic, q) > 0)
    return queue, 0


async def _set_offsets(server: TestServer, topic: str, group: str) -> None:
    broker = server.server.broker
    for queue in broker.store.queue_ids(topic):
        broker.offsets.set(group, topic, queue, broker.store.max_offset(topic, queue))
    broker.offsets.save()


# -- replay --------------------------------------------------------------------------------------------


def topic_frame(spark: SparkSession, server: TestServer, topic: str) -> Any:
    reader = spark.read.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    return reader.option("includeProperties", "true").load()


@pytest.mark.parametrize("target", ["there", "not there yet"])
def test_a_replay_sends_once_however_often_it_runs(
    spark: SparkSession, server: TestServer, tmp_path: Path, target: str
) -> None:
    source, to = f"replay-from-{len(target)}", f"replay-to-{len(target)}"
    send(server, source, [f"m{i}" for i in range(60)], tags="A")
    if target == "there":
        server.create_topic(to)
    rows = topic_frame(spark, server, source)
    settings: dict[str, Any] = {
        "name": "r1",
        "namesrv": server.namesrv,
        "audit": str(tmp_path),
        "target": to,
    }
    new = () if target == "there" else (to,)
    assert replay(rows, dry_run=True, **settings) == (60, 0, 0, new, ((to, 60),))
    steps: list[tuple[int, int]] = []
    first = replay(rows.where("keys < 'k3'"), progress=lambda a, b: steps.append((a, b)), **settings)
    assert steps[-1] == (first.sent, first.sent) and first.new_topics == new
    shutil.rmtree(tmp_path / "r1" / "sent")  # killed after sending, before the audit was written
    assert replay(rows, **settings) == (60, first.sent, 60 - first.sent, (), ((to, 60 - first.sent),))
    assert replay(rows, **settings) == (60, 60, 0, (), ())
    sent = topic_frame(spark, server, to)
    assert sorted(bytes(r.body).decode() for r in sent.collect()) == sorted(f"m{i}" for i in range(60))
    assert sent.where("tags = 'A' AND properties['REPLAY_NAME'] = 'r1'").count() == 60


def store(server: TestServer, topic: str, rows: list[tuple[int, str, str]]) -> None:
    """Messages as queue, key, body; as a producer puts them that chooses the queue itself."""

    async def work() -> None:
        for number, (queue, key, body) in enumerate(rows):
            text = properties.render(
                {"UNIQ_KEY": f"{topic}-{number}", **({"__SHARDINGKEY": key} if key else {})}
            )
            server.server.broker.store.append(Record(topic, body.encode(), text, queue))

    server.create_topic(topic, queues=4)
    server.run(work())


def held(spark: SparkSession, server: TestServer, topic: str) -> dict[int, list[str]]:
    """Bodies by queue, in their order."""
    found: dict[int, list[str]] = {}
    for row in topic_frame(spark, server, topic).orderBy("queueOffset").collect():
        found.setdefault(row.queueId, []).append(bytes(row.body).decode())
    return found


def test_a_replay_keeps_queue_and_order(
    spark: SparkSession, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "CHUNK", 70)
    by_key = [(3, f"user-{i % 5}", f"k{i:03d}") for i in range(100)]  # their producer has a rule of its own
    store(server, "in-order", [(i * i % 4, "", f"m{i:03d}") for i in range(100)] + by_key)
    server.create_topic("in-order-again", queues=4)
    server.create_topic("in-order-narrow", queues=2)
    before = held(spark, server, "in-order")
    rows = topic_frame(spark, server, "in-order")
    for target in ("in-order-again", "in-order-narrow"):
        settings: dict[str, Any] = {
            "name": target,
            "namesrv": server.namesrv,
            "audit": str(tmp_path),
            "target": target,
        }
        assert replay(rows.repartition(7), **settings).sent == 200
    assert held(spark, server, "in-order-again") == before
    narrow = held(spark, server, "in-order-narrow")
    assert narrow.keys() <= {0, 1}
    for queue in (0, 1):  # the third and the fourth are in one of these, all of each and in its order
        assert [body for body in narrow[queue] if body in before[queue]] == before[queue]


def test_dead_letters_of_one_key_come_back_in_order_to_the_queue_of_the_key(
    spark: SparkSession, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "CHUNK", 30)
    store(server, "%DLQ%orderly", [(0, f"user-{i % 5}", f"user-{i % 5}:{i:03d}") for i in range(100)])
    server.create_topic("dead-again", queues=4)
    rows = topic_frame(spark, server, "%DLQ%orderly").repartition(5)
    settings: dict[str, Any] = {
        "name": "d",
        "namesrv": server.namesrv,
        "audit": str(tmp_path),
        "target": "dead-again",
    }
    assert replay(rows, **settings).sent == 100
    found = held(spark, server, "dead-again")
    for key in (f"user-{n}" for n in range(5)):
        got = [body for body in found[place_of_key(key, 4)] if body.startswith(f"{key}:")]
        assert got == [f"{key}:{i:03d}" for i in range(100) if key == f"user-{i % 5}"]


# -- consume -------------------------------------------------------------------------------------------


def test_the_consumption_flow_runs_on_executors_with_retries_and_dead_letters(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    topic, group = "consume-flow", "spark-billing"
    server.create_topic(topic, queues=1)
    send(server, topic, [f"fine-{i}" for i in range(20)] + ["shaky", "poison"])

    def handler(row: Any) -> str:
        body = bytes(row.body).decode()
        if body == "poison" or (body == "shaky" and row.reconsumeTimes == 0):
            raise ValueError(body)
        return body.upper()

    results = str(tmp_path / "results")
    for _ in range(4):
        query = consume(
            spark, topic, group, handler, namesrv=server.namesrv, checkpoint=str(tmp_path / "checkpoint"),
            once=True, tasks=4, max_reconsume=1, sink=lambda frame, _: frame.write.mode("append").parquet(results),
            options={"discoveryIntervalMs": "0"},
        )  # fmt: skip
        query.awaitTermination()
        server.run(asyncio.sleep(1.3))  # the retry's delay level
    rows = spark.read.parquet(results).collect()
    assert sorted(r.result for r in rows if r.ok) == sorted([f"FINE-{i}" for i in range(20)] + ["SHAKY"])
    assert {r.error.splitlines()[-1] for r in rows if not r.ok} == {"ValueError: shaky", "ValueError: poison"}
    broker = server.server.broker
    assert broker.store.max_offset(f"%DLQ%{group}", 0) == 1
    assert broker.offsets.get(group, topic, 0) == 22
    (dead,) = topic_frame(spark, server, f"%DLQ%{group}").collect()
    assert dead.properties["AEROBEE_LAST_ERROR"] == "ValueError: poison"


@pytest.mark.parametrize("start", ["last", "time"])
def test_a_new_group_begins_where_it_is_told_to_and_misses_nothing_after(
    spark: SparkSession, server: TestServer, tmp_path: Path, start: str
) -> None:
    topic, seen = f"begin-{start}", tmp_path / "seen"
    server.create_topic(topic, queues=2)
    send(server, topic, ["old"] * 6)
    server.run(asyncio.sleep(0.05))
    begin = start if start == "last" else SystemClock().wall()

    def handler(row: Any) -> None:
        with seen.open("a") as file:
            file.write(bytes(row.body).decode() + " ")

    def once(start: str | int | None) -> None:
        consume(
            spark, topic, f"group-{topic}", handler, namesrv=server.namesrv, once=True, start=start,
            checkpoint=str(tmp_path / "checkpoint"),
        ).awaitTermination()  # fmt: skip

    once(begin)
    assert not seen.exists(), "and yet it has begun: what comes from now on is the group's"
    send(server, topic, ["new"] * 3)
    once(None if start == "time" else start)
    assert seen.read_text().split() == ["new"] * 3
    send(server, topic, ["newer"])
    once(start=start if start == "last" else 0)
    assert seen.read_text().split() == ["new"] * 3 + ["newer"]


def test_a_place_to_begin_that_is_none_is_named(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"namesrv": server.namesrv, "checkpoint": str(tmp_path), "once": True}
    with pytest.raises(OptionError, match="start is 'lst', expected 'first', 'last' or epoch milliseconds"):
        consume(spark, "any", "any", print, start="lst", **settings)
    with pytest.raises(OptionError, match="not both"):
        consume(spark, "any", "any", print, start="last", options={"startingOffsets": "latest"}, **settings)


@pytest.mark.parametrize("bodies", [[], ["not json"]])
def test_pipelines_run_on_topics_with_nothing_good(
    spark: SparkSession, server: TestServer, tmp_path: Path, bodies: list[str]
) -> None:
    topic = f"poor-{len(bodies)}"
    server.create_topic(topic)
    if bodies:
        send(server, topic, bodies)
    run_lake(spark, server, topic, tmp_path / "lake", json=True)
    book = ledger(spark, [topic], ["nobody"], namesrv=server.namesrv)
    figures = report(book, tmp_path / "report.html")
    assert [row["waiting"] for row in figures.groups] == ([len(bodies)] if bodies else [])
    outcome = replay(
        topic_frame(spark, server, topic), name="n", namesrv=server.namesrv, audit=str(tmp_path), dry_run=True
    )
    assert outcome.chosen == len(bodies)
    query = consume(
        spark, topic, f"poor-group-{len(bodies)}", lambda row: json.loads(bytes(row.body)), once=True,
        namesrv=server.namesrv, checkpoint=str(tmp_path / "checkpoint"),
    )  # fmt: skip
    assert query.exception() is None
    if bodies:  # what no function can read is not lost: it waits for its next try
        waiting = server.lag(f"poor-group-{len(bodies)}")
        assert waiting.ready + waiting.delayed + waiting.retrying == len(bodies)
