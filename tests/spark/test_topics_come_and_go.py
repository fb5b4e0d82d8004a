# SPDX-License-Identifier: Apache-2.0
"""Topics are created, deleted and re-created under running queries; a command that must stop says why in one line."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from aerobee import Admin, Message, Producer
from aerobee.cli.main import run
from aerobee.spark.pipelines.evidence import Evidence
from aerobee.spark.reasons import reason
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def send(server: TestServer, topic: str, bodies: list[str]) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            await asyncio.gather(*(producer.send(Message(topic, body.encode())) for body in bodies))

    server.create_topic(topic, queues=1)
    asyncio.run(work())


def delete(server: TestServer, topic: str) -> None:
    async def work() -> None:
        async with Admin(server.namesrv) as admin:
            await admin.delete_topic(topic)

    asyncio.run(work())


def named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


class Stream:
    """A running stream of all topics of a pattern into Parquet."""

    def __init__(
        self, spark: SparkSession, server: TestServer, pattern: str, folder: Path, **more: str
    ) -> None:
        reader = spark.readStream.format("rocketmq").option("namesrv", server.namesrv)
        reader = reader.option("subscribePattern", pattern).option("startingOffsets", "earliest")
        for name, value in {"discoveryIntervalMs": "0", **more}.items():
            reader = reader.option(name, value)
        writer = reader.load().writeStream.format("parquet").option("path", str(folder / "out"))
        self._spark, self._out = spark, str(folder / "out")
        self.query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def takes(self, expected: list[str]) -> None:
        """Once all is processed that was there at the call, these rows are in the sink."""
        self.query.processAllAvailable()
        found = [bytes(row.body).decode() for row in self._spark.read.parquet(self._out).collect()]
        assert sorted(found) == sorted(expected)


def test_a_pattern_follows_topics_that_are_created_deleted_and_created_again(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "go-a", named("a", 20))
    stream = Stream(spark, server, "go-.*", tmp_path, failOnDataLoss="false", group="go-group")
    try:
        expected = named("a", 20)
        stream.takes(expected)
        send(server, "go-b", named("b", 5))
        expected += named("b", 5)
        stream.takes(expected)
        delete(server, "go-a")
        send(server, "go-a", named("again", 3))
        expected += named("again", 3)
        stream.takes(expected)
        send(server, "go-a", named("more", 3))
        expected += named("more", 3)
        stream.takes(expected)
        assert stream.query.exception() is None
    finally:
        stream.query.stop()


def test_a_re_created_topic_stops_the_stream_with_its_name_unless_loss_is_allowed(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    send(server, "back-a", named("a", 20))
    stream = Stream(spark, server, "back-.*", tmp_path)
    stream.takes(named("a", 20))
    delete(server, "back-a")
    send(server, "back-a", named("again", 3))
    with pytest.raises(Exception, match="back-a") as caught:
        stream.query.awaitTermination(60)
    # It may look before the three messages are there.
    assert re.fullmatch(
        r"back-a/broker-a/0: the stream is at offset 20, but the queue ends at [0-3]: it was deleted and re-created\."
        r" Set failOnDataLoss=false to read it from its beginning",
        reason(caught.value),
    )


COMMANDS = [
    ["lake", "nowhere", "{}/lake", "--once"],
    ["consume", "nowhere", "-g", "g", "--handler", "json:loads", "--once", "--checkpoint", "{}/c"],
    ["ledger", "nowhere"],
    ["report", "nowhere", "{}/report.html"],
    ["replay", "nowhere", "--name", "n", "--audit", "{}/audit"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("more", "said"), [([], "nowhere"), (["-o", "tls=yes"], "option 'tls' is 'yes': expected on or off")]
)
def test_a_pipeline_on_no_topic_or_with_a_wrong_option_says_so_in_one_line(
    spark: SparkSession,
    server: TestServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    command: list[str],
    more: list[str],
    said: str,
) -> None:
    code = run(["pipeline", *(part.format(tmp_path) for part in command), "-n", server.namesrv, *more])
    told = capfd.readouterr().err
    assert code == 1, told
    assert said in told
    assert "Traceback" not in told
    assert len([line for line in told.splitlines() if line.startswith("aerobee: ")]) == 1


def test_evidence_of_a_topic_that_is_gone_is_empty(spark: SparkSession, server: TestServer) -> None:
    evidence = Evidence(spark, {"namesrv": server.namesrv})
    assert evidence.bounds("nowhere") == {}
    assert evidence.messages(["nowhere"], "topic,queueOffset,properties").count() == 0
