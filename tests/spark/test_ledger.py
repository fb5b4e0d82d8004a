# SPDX-License-Identifier: Apache-2.0
"""The ledger's totals are the broker's own figures, whatever way a group consumes; here on a cluster of another name."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee import Admin, BrokerConfig, Message, Producer, PushConsumer, SimpleConsumer
from aerobee.spark.pipelines.ledger import ledger, of_key, summary
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer(config=BrokerConfig(cluster="elsewhere")) as running:
        yield running


async def fill(server: TestServer, topic: str, count: int) -> None:
    async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
        for i in range(count):
            await producer.send(Message(topic, b"%d" % i, keys=[str(i)], sharding_key="one"))


def totals(spark: SparkSession, server: TestServer, topic: str, group: str) -> Row:
    (row,) = summary(ledger(spark, [topic], [group], namesrv=server.namesrv)).collect()
    return row


def settled(
    spark: SparkSession, server: TestServer, topic: str, group: str, holds: Callable[[Any], bool]
) -> Any:
    """The totals once they are as expected: leases reach the revive log some seconds after the pop."""

    deadline = time.monotonic() + 60
    while not holds(row := totals(spark, server, topic, group)):
        assert time.monotonic() < deadline, row
    return row


@pytest.mark.parametrize("ordered", [False, True])
def test_a_pop_group_with_leases_open(spark: SparkSession, server: TestServer, *, ordered: bool) -> None:
    topic, group = f"leased-{ordered}", f"leased-group-{ordered}"
    server.create_topic(topic, queues=1)

    async def story() -> None:
        async with Admin(server.namesrv) as admin:
            await admin.create_group(group, consume_message_orderly=ordered)
        consumer = SimpleConsumer(server.namesrv, group=group, topics={topic: "*"}, ordered=ordered)
        async with consumer:
            held = await consumer.receive(max_messages=12, invisible_ms=600_000)
            assert len(held) == 12
            for message in held[:5]:
                await message.ack()

    asyncio.run(fill(server, topic, 20))
    server.flush()  # a pop ends where the queue's file does
    asyncio.run(story())
    # Of an ordered group's leases there is no record but the broker's own: they wait until the offset has passed.
    expected = (5, 0, 15) if ordered else (5, 7, 8)
    row = settled(spark, server, topic, group, lambda r: (r.acked, r.in_flight, r.waiting) == expected)
    lag = server.lag(group)
    assert row.waiting + row.in_flight == lag.ready + lag.in_flight == 15
    assert ordered or row.in_flight == lag.in_flight
    assert (row.sent, row.retrying, row.dead, row.lost) == (20, 0, 0, 0)


def test_a_push_group_with_retries_to_come(spark: SparkSession, server: TestServer) -> None:
    topic, group, seen = "retried", "retried-group", set[bytes]()
    server.create_topic(topic, queues=2)

    async def handle(message: Any) -> None:
        seen.add(message.body)
        if message.body in (b"3", b"7", b"11"):
            raise ValueError("later")

    async def story() -> None:
        await fill(server, topic, 20)
        async with PushConsumer(
            server.namesrv, group=group, topics={topic: "*"}, handler=handle, start="first"
        ):
            async with asyncio.timeout(60):
                while len(seen) < 20:  # noqa: ASYNC110 - the handler has no event for us
                    await asyncio.sleep(0.05)

    asyncio.run(story())
    row, lag = totals(spark, server, topic, group), server.lag(group)
    assert (row.sent, row.acked, row.waiting, row.dead, row.lost) == (20, 17, 0, 0, 0)
    assert row.retrying == 3 == lag.delayed + lag.retrying


def test_an_ordered_group_that_stands_before_a_message(spark: SparkSession, server: TestServer) -> None:
    topic, group, seen = "standing", "standing-group", set[bytes]()
    server.create_topic(topic, queues=1)

    async def handle(message: Any) -> None:
        seen.add(message.body)
        if message.body == b"8":
            raise ValueError("not before it is mended")

    async def story() -> None:
        await fill(server, topic, 20)
        consumer = PushConsumer(
            server.namesrv, group=group, topics={topic: "*"}, handler=handle, start="first", ordered=True
        )
        async with consumer, asyncio.timeout(60):
            while b"8" not in seen:  # noqa: ASYNC110 - the handler has no event for us
                await asyncio.sleep(0.05)

    asyncio.run(story())
    row, lag = totals(spark, server, topic, group), server.lag(group)
    assert (row.sent, row.acked, row.waiting, row.retrying, row.lost) == (20, 8, 12, 0, 0)
    assert lag.ready == 12


def test_a_key_is_found_whole_among_those_of_a_message(spark: SparkSession) -> None:
    kept = [(keys,) for keys in ("o-7", "o-70", "vip o-7", "o-7 vip", "xo-7", "", None)]
    found = of_key(spark.createDataFrame(kept, "keys STRING"), "o-7").collect()
    assert [row.keys for row in found] == ["o-7", "vip o-7", "o-7 vip"]
