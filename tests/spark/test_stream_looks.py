# SPDX-License-Identifier: Apache-2.0
"""A stream's look at its queues: never older than the question, and cheap while nothing happens. No Spark is started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from aerobee import Message, Producer
from aerobee.protocol import bodies
from aerobee.spark import options, plan
from aerobee.spark.stream_reader import StreamReader
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

# Spark ends the runner process: no reader is closed.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def server() -> Iterator[TestServer]:
    with TestServer() as server:
        server.create_topic("look-0", queues=2)
        yield server


def reader(server: TestServer) -> StreamReader:
    given = {"namesrv": server.namesrv, "subscribePattern": "look-.*", "startingOffsets": "earliest"}
    return StreamReader(options.for_stream({**given, "discoveryIntervalMs": "0"}))


@pytest.mark.parametrize("topics", [1, 30], ids=["one topic", "a new topic for each message"])
def test_what_was_sent_before_the_question_is_in_the_answer(server: TestServer, topics: int) -> None:
    """Spark's `processAllAvailable` promises it."""
    stream = reader(server)
    at = stream.initialOffset()

    async def send_and_ask() -> None:
        async with Producer(server.namesrv, group="g") as producer:
            for i in range(30):
                await producer.send(Message(f"look-{i % topics}", b"x"))
                found = await asyncio.to_thread(stream.latestOffset, at, ReadAllAvailable())
                seen.append(plan.backlog(at["o"], found["o"]))

    seen: list[int] = []
    server.run(send_and_ask())
    assert seen == list(range(1, 31))


def test_an_answer_that_came_before_is_not_read_again(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[type] = []
    decode = bodies.decode

    def counted(body: bytes, kind: type) -> object:
        read.append(kind)
        return decode(body, kind)

    monkeypatch.setattr(bodies, "decode", counted)
    stream = reader(server)
    at = stream.initialOffset()
    read.clear()
    for _ in range(10):
        assert stream.latestOffset(at, ReadAllAvailable()) is at
    assert set(read) == {bodies.TopicList}
