# SPDX-License-Identifier: Apache-2.0
"""A stream's look at its queues: never older than the question, and cheap while nothing happens. No Spark is started."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from aerobee import Admin, ManualClock, Message, Producer
from aerobee.protocol import bodies
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.reading import plan
from aerobee.spark.reading.stream_reader import StreamReader
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    WriteStore = Callable[[Path, list[Record]], None]

# Spark ends the runner process: no reader is closed.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def server() -> Iterator[TestServer]:
    with TestServer() as server:
        server.create_topic("look-0", queues=2)
        yield server


def reader(server: TestServer, **more: str) -> StreamReader:
    given = {"namesrv": server.namesrv, "subscribePattern": "look-.*", "startingOffsets": "earliest"}
    return StreamReader(options.for_stream({**given, "discoveryIntervalMs": "0", **more}))


def behind(stream: StreamReader, at: dict[str, Any]) -> int:
    return plan.backlog(at["o"], stream.latestOffset(at, ReadAllAvailable())["o"])


def send(server: TestServer, topic: str, count: int = 1) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="g", options=PATIENT) as producer:
            for _ in range(count):
                await producer.send(Message(topic, b"x"))

    server.run(work())


@pytest.mark.parametrize("topics", [1, 30], ids=["one topic", "a new topic for each message"])
def test_what_was_sent_before_the_question_is_in_the_answer(server: TestServer, topics: int) -> None:
    """Spark's `processAllAvailable` promises it."""
    stream = reader(server)
    at = stream.initialOffset()

    async def send_and_ask() -> None:
        async with Producer(server.namesrv, group="g", options=PATIENT) as producer:
            for i in range(30):
                await producer.send(Message(f"look-{i % topics}", b"x"))
                seen.append(await asyncio.to_thread(behind, stream, at))

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


def test_topics_and_queues_are_looked_for_at_their_interval_and_after_a_jump_of_the_clock(
    server: TestServer,
) -> None:
    stream, clock = reader(server, discoveryIntervalMs="5000"), ManualClock()
    stream._clock = clock
    at = stream.initialOffset()
    send(server, "look-0")
    assert behind(stream, at) == 1
    send(server, "look-more")
    clock.advance(4_999)
    assert behind(stream, at) == 1
    clock.advance(1)
    assert behind(stream, at) == 2
    send(server, "look-even-more")
    stream._clock = ManualClock(clock.now() - 24 * 3600_000)
    assert behind(stream, at) == 3


def test_a_topic_that_went_and_came_back_is_found_without_waiting(server: TestServer) -> None:
    stream = reader(server, discoveryIntervalMs="3600000", failOnDataLoss="false")
    at = stream.initialOffset()

    async def delete() -> None:
        async with Admin(server.namesrv) as admin:
            await admin.delete_topic("look-0")

    server.run(delete())
    assert behind(stream, at) == 0
    send(server, "look-0", 3)
    assert behind(stream, at) == 3


def test_a_batch_that_waits_for_more_does_not_wait_longer_when_the_clock_is_set_back(
    server: TestServer,
) -> None:
    stream, clock = reader(server, minOffsetsPerTrigger="100", maxTriggerDelay="10s"), ManualClock()
    stream._clock = clock
    at = stream.initialOffset()
    send(server, "look-0")
    assert behind(stream, at) == 0
    clock.advance(9_999)
    assert behind(stream, at) == 0
    stream._clock = ManualClock(clock.now() - 3600_000)
    assert behind(stream, at) == 1


def test_brokers_that_moved_are_found_by_a_new_route(server: TestServer) -> None:
    stream = reader(server, discoveryIntervalMs="3600000", numRetries="0")
    at = stream.initialOffset()
    send(server, "look-0", 2)
    stream._ask._heads["broker-a"].address = "127.0.0.1:1"
    assert behind(stream, at) == 2


def test_store_files_are_looked_at_ten_times_a_second(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path / "store", [Record("t", b"x", "", queue_id=0) for _ in range(10)])
    given = {"storePath": str(tmp_path / "store"), "subscribe": "t", "startingOffsets": "earliest"}
    stream, clock = (
        StreamReader(options.for_stream({**given, "discoveryIntervalMs": "3600000"})),
        ManualClock(),
    )
    stream._clock = clock
    at = stream.initialOffset()
    shutil.rmtree(tmp_path / "store")
    write_store(tmp_path / "store", [Record("t", b"x", "", queue_id=0) for _ in range(25)])
    assert behind(stream, at) == 10
    clock.advance(100)
    assert behind(stream, at) == 25
