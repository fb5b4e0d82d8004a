# SPDX-License-Identifier: Apache-2.0
"""All of it through a Spark Connect server: a session without a JVM, a context or RDDs.

The client is a process of its own: PySpark keeps one kind of session per process. It does everything once and says how
each thing ended; the tests look at that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("grpc_status")

import connect_server as connect

from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

CLIENT = """
import asyncio, json, sys, threading
from pathlib import Path

from aerobee import Message, Producer
from aerobee.spark import figures_of, listen, read, read_stream, send_back, session, write
from aerobee.spark.pipelines.consume import consume
from aerobee.spark.pipelines.lake import lake
from aerobee.spark.pipelines.ledger import ledger, summary
from aerobee.spark.pipelines.replay import replay
from aerobee.spark.pipelines.report import report
from aerobee.spark.pipelines.tables import table_of
from aerobee.spark.sessions import cores_of, is_remote

url, namesrv, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
brokers = {"namesrv": namesrv}


async def send():
    async with Producer(namesrv, group="g") as producer:
        bodies = (b'{"number": %d}' % n for n in range(300))
        await asyncio.gather(*(producer.send(Message("orders", body, keys=["k"])) for body in bodies))


def streamed():
    heard, first = [], threading.Event()
    listen(spark, lambda figures: (heard.append(figures.rows), first.set()))
    stream = read_stream(spark, "orders", startingOffsets="earliest", **brokers)
    writer = stream.select("body").writeStream.format("rocketmq").options(**brokers).option("topic", "copy")
    writer = writer.option("checkpointLocation", str(folder / "copy")).queryName("copy")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    first.wait(60)  # and not removed: PySpark 4.3 waits for its own thread while holding the lock that one needs
    told = figures_of(query.lastProgress)
    return [query.name, told.rows, told.behind, heard[:1], read(spark, "copy", **brokers).count()]


def filled(kind):
    for _ in range(2):  # the second finds nothing new
        query = lake(spark, "orders", str(folder / kind), json=True, once=True, format=kind, options=brokers)
        query.awaitTermination()
    table = table_of(spark, str(folder / kind), kind)
    return [row.n for row in table.read().selectExpr("data.number AS n").orderBy("n").collect()]


def consumed():
    out = str(folder / "results")

    def handler(row):
        if json.loads(bytes(row.body))["number"] % 100 == 7:
            raise ValueError("seven")

    def sink(frame, _):
        frame.write.mode("append").parquet(out)

    settings = {"startingOffsets": "earliest"}
    consume(spark, "orders", "billing", handler, namesrv=namesrv, checkpoint=str(folder / "consume"), once=True,
            sink=sink, options=settings)
    return {str(row.ok): row["count"] for row in spark.read.parquet(out).groupBy("ok").count().collect()}


def replayed():
    rows = read(spark, "orders", includeProperties=True, **brokers)
    again = {"name": "again", "audit": str(folder / "audit"), "target": "again", **brokers}
    first, second = replay(rows, **again), replay(rows, **again)
    return [first.sent, second.sent, second.already, read(spark, "again", **brokers).count()]


def booked():
    (row,) = summary(ledger(spark, ["orders"], ["billing"], namesrv=namesrv)).collect()
    return {name: row[name] for name in ("acked", "retrying", "lost")}


def reported():
    page = folder / "report.html"
    figures = report(ledger(spark, ["orders"], ["billing"], namesrv=namesrv), page, title="orders")
    return [page.stat().st_size > 1000, figures.groups[0]["acked"]]


asyncio.run(send())
spark = session(remote=url)
assert is_remote(spark)
steps = {
    "cores": lambda: cores_of(spark),
    "read": lambda: read(spark, "orders", **brokers).count(),
    "json": lambda: read(spark, "orders", json=True, **brokers).selectExpr("sum(data.number) AS n").first().n,
    "write": lambda: write(spark.range(10).selectExpr("string(id) AS body"), "ten", **brokers),
    "written": lambda: read(spark, "ten", **brokers).count(),
    "stream": streamed,
    "parquet": lambda: filled("parquet"),
    "delta": lambda: filled("delta"),
    "iceberg": lambda: filled("iceberg"),
    "consume": consumed,
    "ledger": booked,
    "report": reported,
    "replay": replayed,
    "send_back": lambda: send_back(
        read(spark, "orders", columns="topic,brokerName,physicalOffset", **brokers).limit(5), "other", **brokers
    ),
}
told = {}
for name, step in steps.items():
    try:
        told[name] = step()
    except BaseException as error:
        told[name] = f"{type(error).__name__}: {error}"[:2000]
spark.stop()
print(json.dumps(told))
"""


COMMANDS = [
    ["lake", "orders", "{folder}/by-command", "--once"],
    ["consume", "orders", "-g", "shipping", "--handler", "shipping:ship", "--py-files", "{folder}/shipping.py",
     "--once", "-o", "startingOffsets=earliest", "--checkpoint", "{folder}/shipping"],
]  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("connect")
    with TestServer() as server, connect.ConnectServer(folder / "server") as running:
        command = [sys.executable, "-c", CLIENT, running.url, server.namesrv, str(folder)]
        done = subprocess.run(
            command, cwd=folder, env={**connect.environment()}, capture_output=True, text=True, timeout=800,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr[-3000:]}\n{running.log()}"
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        (folder / "shipping.py").write_text("def ship(message):\n    return message.msgId\n")
        for words in COMMANDS:
            command = [sys.executable, "-m", "aerobee", "pipeline", *words, "--master", running.url]
            done = subprocess.run(
                [word.replace("{folder}", str(folder)) for word in command], cwd=folder, capture_output=True,
                env={**connect.environment(), "AEROBEE_NAMESRV": server.namesrv}, text=True, timeout=400, check=False,
            )  # fmt: skip
            found[f"aerobee {words[0]}"] = done.stderr
    return found


def test_topics_are_read_and_written(told: dict[str, Any]) -> None:
    assert told["read"] == 300
    assert told["json"] == sum(range(300))
    assert told["write"] is None
    assert told["written"] == 10


def test_a_stream_runs_from_topic_to_topic_and_its_figures_come_back(told: dict[str, Any]) -> None:
    assert told["stream"] == ["copy", 300, 0, [300], 300]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_lake_holds_each_message_once(told: dict[str, Any], kind: str) -> None:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}.get(kind, "pyarrow"))
    assert told[kind] == list(range(300))


def test_failed_messages_are_retried(told: dict[str, Any]) -> None:
    assert told["cores"] == 2
    assert told["consume"] == {"True": 297, "False": 3}
    assert told["send_back"] == 5


def test_the_ledger_and_the_report_see_it(told: dict[str, Any]) -> None:
    assert told["ledger"] == {"acked": 297, "retrying": 3, "lost": 0}
    assert told["report"] == [True, 297]


def test_a_replay_sends_once(told: dict[str, Any]) -> None:
    assert told["replay"] == [300, 0, 300, 300]


def test_commands_count_what_they_did(told: dict[str, Any]) -> None:
    assert "300 messages into" in told["aerobee lake"], told["aerobee lake"]
    assert "300 messages through shipping:ship; aerobee pipeline ledger" in told["aerobee consume"]
