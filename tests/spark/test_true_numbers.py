# SPDX-License-Identifier: Apache-2.0
"""Every number a pipeline prints is compared with the truth, on real Spark and an embedded server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee import Message, Producer, StoreConfig
from aerobee.cli.main import run
from aerobee.spark.pipelines import report as report_page
from aerobee.spark.pipelines import totals
from aerobee.spark.pipelines.consume import Handled, consume
from aerobee.spark.pipelines.lake import Added, lake
from aerobee.spark.pipelines.ledger import ledger, summary
from aerobee.spark.pipelines.replay import replay
from aerobee.spark.pipelines.report import report
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer(store=StoreConfig(delay_levels=" ".join(["1s"] * 18))) as running:
        yield running


def send(server: TestServer, topic: str, bodies: list[bytes]) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            await asyncio.gather(*(producer.send(Message(topic, body)) for body in bodies))

    asyncio.run(work())


def frame(spark: SparkSession, server: TestServer, topic: str) -> Any:
    reader = spark.read.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    return reader.option("includeProperties", "true").load()


def test_a_lake_of_json_bodies_counts_each_message_once(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "counted", [b'{"n": %d}' % i for i in range(95)] + [b"no json"] * 5)
    told: list[Added] = []
    query = lake(
        spark, "counted", str(tmp_path / "lake"), json=True, once=True, told=told.append,
        options={"namesrv": server.namesrv, "maxOffsetsPerTrigger": "60"},
    )  # fmt: skip
    query.awaitTermination()
    assert [(one.batch, one.rows) for one in told] == [(0, 60), (1, 40)]
    assert sum(one.bad for one in told) == 5
    # What listeners are told comes from Spark itself, which counts what it reads.
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 100


def test_the_command_says_what_went_into_the_lake(
    spark: SparkSession, server: TestServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    send(server, "counted-too", [b'{"n": %d}' % i for i in range(70)] + [b"no json"] * 3)
    command = ["pipeline", "lake", "counted-too", str(tmp_path / "lake"), "--json-bodies", "--once"]
    assert run([*command, "-n", server.namesrv]) == 0
    told = capfd.readouterr().err
    assert f"73 messages into {tmp_path}/lake" in told
    assert "3 of them are no JSON object" in told
    assert re.search(r"lake: batch 0, 73 messages, [\d,]+/s, 0 behind", told), told
    assert run([*command, "-n", server.namesrv]) == 0
    assert f"0 messages into {tmp_path}/lake" in capfd.readouterr().err


GROUPS = ["billing", "audit", "shipping"]


@pytest.fixture(scope="module")
def read_by_three(server: TestServer) -> str:
    """20 orders: two groups have read all, the third half of them."""
    topic = "orders-of-three"
    server.create_topic(topic, queues=1)
    send(server, topic, [b"%d" % i for i in range(20)])

    async def offsets() -> None:
        for group, offset in zip(GROUPS, (20, 20, 10), strict=True):
            server.server.broker.offsets.set(group, topic, 0, offset)

    server.run(offsets())
    return topic


def test_a_message_of_three_groups_is_one_message(
    spark: SparkSession, server: TestServer, read_by_three: str, tmp_path: Path
) -> None:
    book = ledger(spark, [read_by_three], GROUPS, namesrv=server.namesrv).persist()
    assert totals.per_message(book) == {"messages": 20, "done": 10, "open": 10, "dead": 0, "lost": 0}
    rows = {row.group: row.asDict() for row in summary(book).collect()}
    assert {group: (row["sent"], row["acked"], row["waiting"]) for group, row in rows.items()} == {
        "billing": (20, 20, 0),
        "audit": (20, 20, 0),
        "shipping": (20, 10, 10),
    }
    report(book, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<b>20</b><span>messages</span>" in page
    assert "<b>60</b>" not in page


def test_what_is_open_is_shown_as_lag_without_traces_too(
    spark: SparkSession, server: TestServer, read_by_three: str, tmp_path: Path
) -> None:
    book = ledger(spark, [read_by_three], GROUPS, namesrv=server.namesrv).persist()
    figures = report(book, tmp_path / "report.html")
    assert {group: curve[-1][1] for group, curve in figures.lag.items()} == {"shipping": 10}
    assert max(at for at, _ in figures.lag["shipping"]) >= figures.span[1], "to the end of the chart"
    page = (tmp_path / "report.html").read_text()
    lag = page.partition("<h2>Lag: stored and not finished</h2>")[2].partition("<h2>")[0]
    assert "<polyline" in lag and "nothing to show" not in lag
    assert "shipping: without traces only what is open now is known" in lag
    report(book.where("group = 'audit'"), tmp_path / "report.html")
    assert "no message is open" in (tmp_path / "report.html").read_text()


def test_a_key_that_no_message_has_is_said_with_where_it_was_looked_for(
    spark: SparkSession, server: TestServer, read_by_three: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["pipeline", "ledger", read_by_three, "-n", server.namesrv, "--key", "nope"]
    assert run(command) == 1
    told = capfd.readouterr().err
    assert "no message with key 'nope' in orders-of-three (groups: audit, billing, shipping)" in told
    assert run([*command, "-g", "audit", "--json"]) == 1
    out, told = capfd.readouterr()
    assert json.loads(out) == []
    assert "in orders-of-three (groups: audit)" in told


def test_a_dry_run_names_no_audit_and_says_which_topic_would_be_made(
    spark: SparkSession,
    server: TestServer,
    read_by_three: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = tmp_path / "audit"
    command = [
        "pipeline",
        "replay",
        read_by_three,
        "--target",
        "not-there",
        "--name",
        "n",
        "--audit",
        str(audit),
    ]
    command += ["-n", server.namesrv]
    assert run([*command, "--dry-run"]) == 0
    told = capfd.readouterr().err + caplog.text
    assert "20 chosen, 0 sent before, would send 20\n" in told
    assert "\nto not-there (20)\n" in told
    assert "not-there: not there before, would be made by the first message" in told
    assert "left out" not in told and not audit.exists()
    assert run(command) == 0
    told = capfd.readouterr().err + caplog.text
    assert f"20 chosen, 0 sent before, sent 20 (audit: {audit}/n)" in told
    assert "not-there: not there before, was made by the first message" in told
    assert run(command) == 0
    told = capfd.readouterr().err + caplog.text
    assert "20 chosen, 20 sent before, sent 0" in told and "left out" not in told
    assert "\nto " not in told


def test_without_traces_nobody_claims_to_know_of_deliveries(
    spark: SparkSession,
    server: TestServer,
    read_by_three: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    book = ledger(spark, [read_by_three], ["audit"], namesrv=server.namesrv)
    (row,) = summary(book).collect()
    assert (row.acked, row.traced, row.delivered, row.duplicates) == (20, 0, None, None)
    assert book.where("duplicates IS NOT NULL OR deliveries IS NOT NULL").count() == 0
    assert run(["pipeline", "ledger", read_by_three, "-n", server.namesrv]) == 0
    out, err = capfd.readouterr()
    found = dict(line.split(None, 1) for line in out.splitlines() if line)
    assert found["delivered"].split() == found["duplicates"].split() == ["-"] * 3
    assert max(map(len, out.splitlines())) <= 80
    assert "20 messages: 10 done by every group, 10 open, 0 dead, 0 lost" in err
    assert "audit on orders-of-three: no traces" in err
    assert "Options(trace=True)" in err
    page = tmp_path / "report.html"
    assert run(["pipeline", "report", read_by_three, str(page), "-n", server.namesrv]) == 0
    assert "no traces" in page.read_text() and "<td>-</td>" in page.read_text()


def test_what_traces_do_not_tell_of_is_said() -> None:
    row = {"group": "g", "topic": "t", "sent": 20, "waiting": 4, "lost": 1, "traced": 9}
    (line,) = totals.missing([row])
    assert "9 of 15" in line
    (line,) = totals.missing([{**row, "traced": 0}])
    assert "aerobee pipeline consume writes none" in line
    assert totals.missing([{**row, "traced": 15}]) == []
    assert totals.missing([{**row, "sent": 5, "traced": 0}]) == [], "nothing was given to anybody"


def test_consume_says_what_became_of_the_messages_and_a_replay_is_linked_to_its_dead_letter(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    topic, group = "told", "told-group"
    server.create_topic(topic, queues=1)
    send(server, topic, [b"%d" % i for i in range(20)] + [b"shaky", b"poison"])
    mended = tmp_path / "mended"

    def handler(row: Any) -> None:
        body = bytes(row.body)
        if (body == b"poison" and not mended.exists()) or (body == b"shaky" and row.reconsumeTimes == 0):
            raise ValueError(body)

    told: list[Handled] = []

    def once() -> None:
        told.clear()
        consume(
            spark, topic, group, handler, namesrv=server.namesrv, checkpoint=str(tmp_path / "checkpoint"), once=True,
            max_reconsume=1, options={"discoveryIntervalMs": "0"}, told=told.append,
        ).awaitTermination()  # fmt: skip
        server.run(asyncio.sleep(1.3))  # the retry's delay level

    once()
    assert [one[1:6] for one in told] == [(22, 20, 2, 0, 0)]
    assert told[0].reasons == (("ValueError: b'poison'", 1), ("ValueError: b'shaky'", 1))
    once()
    assert [sum(column) for column in list(zip(*told, strict=True))[1:6]] == [2, 1, 0, 1, 0]

    dead = frame(spark, server, f"%DLQ%{group}")
    assert replay(dead, name="fix", namesrv=server.namesrv, audit=str(tmp_path / "audit")).sent == 1
    mended.touch()
    once()
    book = ledger(spark, [topic], [group], namesrv=server.namesrv).persist()
    (row,) = summary(book).collect()
    assert (row.sent, row.acked, row.dead, row.replayed) == (23, 22, 1, 1)
    (original,) = book.where("state = 'dead'").collect()
    (again,) = book.where("replayOf IS NOT NULL").collect()
    assert (again.replayOf, original.replayedAs, again.state) == (original.msgId, again.msgId, "acked")
    (shown,) = report(book, tmp_path / "report.html").dead
    assert (shown["replayedAs"], shown["now"]) == (again.msgId, "acked")
    assert shown["lastError"] == original.lastError == "ValueError: b'poison'"
    assert "ValueError: b&#x27;poison&#x27;" in (tmp_path / "report.html").read_text()


WRONG = """
def charge(message):
    number = int(message.body)
    if number >= 4:
        raise LookupError(f"no card [of] {number % 3}")
    return {}[number]
"""


def test_the_command_names_the_most_frequent_reasons(
    spark: SparkSession,
    server: TestServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(server, "wrong", [b"%d" % i for i in range(14)])
    (tmp_path / "wrong_charge.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["pipeline", "consume", "wrong", "-g", "wrong-group", "--handler", "wrong_charge:charge"]
    # The JVM was started elsewhere: relative paths are of another folder there.
    command += ["--py-files", str(tmp_path / "wrong_charge.py"), "--checkpoint", str(tmp_path / "checkpoint")]
    assert run([*command, "--once", "-n", server.namesrv]) == 0
    told = capfd.readouterr().err
    assert "14 messages through wrong_charge:charge: 0 done, 14 to be retried" in told
    assert re.findall(r"^\d+ failed with .*", told, re.MULTILINE) == [
        "10 failed with LookupError: no card [of] 0, or the like",
        "4 failed with KeyError: 0, or the like",
    ]


def test_a_batch_that_a_dead_driver_had_begun_is_given_again(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    topic, told = "begun", list[Handled]()
    send(server, topic, [b"%d" % i for i in range(10)])

    def once() -> None:
        consume(
            spark, topic, "begun-group", lambda row: None, namesrv=server.namesrv, once=True,
            checkpoint=str(tmp_path / "checkpoint"), told=told.append, options={"startingOffsets": "earliest"},
        ).awaitTermination()  # fmt: skip

    once()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    once()
    assert [(one.rows, one.done, one.repeated) for one in told] == [(10, 10, 0), (10, 10, 10)]


HANDLER = """
import os, pathlib, sys
def charge(row):
    mark = pathlib.Path(__file__).with_name("seen")
    if bytes(row.body) == b"7" and not mark.exists():
        mark.touch()
        os._exit(1)  # as the kernel would, out of memory
"""


def test_a_lost_worker_is_told(server: TestServer, tmp_path: Path) -> None:
    send(server, "worker-lost", [b"%d" % i for i in range(10)])
    (tmp_path / "billing.py").write_text(HANDLER)
    done = subprocess.run(
        [
            sys.executable, "-m", "aerobee", "pipeline", "consume", "worker-lost", "-g", "worker-lost-group",
            "--handler", "billing:charge", "--once", "-n", server.namesrv, "-o", "startingOffsets=earliest",
            "--out", str(tmp_path / "out"), "--tasks", "1", "--py-files", str(tmp_path / "billing.py"),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = "10 messages through billing:charge: 10 done, 0 to be retried, 0 dead (%DLQ%worker-lost-group)"
    assert said in done.stderr
    assert "10 of them were given again after a lost worker or driver" in done.stderr


def test_the_page_says_of_how_many_dead_letters_it_shows_the_oldest() -> None:
    letter = dict.fromkeys(report_page.DEAD, "x")
    figures = report_page.Figures(
        {}, [{"dead": 50}, {"dead": 10}], [], [], {}, [], [], [], [letter] * 20, (0.0, 0.0)
    )
    assert "the oldest 20 of 60" in report_page._dead_table(figures)
    assert "oldest 20" not in report_page._dead_table(figures._replace(groups=[{"dead": 20}]))


def test_counts_in_the_page_are_written_out(tmp_path: Path) -> None:
    from aerobee import charts

    assert "2,020" in charts.stacked([("g", {"acked": 2_000.0, "dead": 20.0})], ["acked", "dead"])
    assert "2,000" in charts.bars([("q", 2_000.0)])
    assert json.dumps(charts.stacked([("g", {"acked": 0.0})], ["acked"])).count("<td>0</td>") == 1
