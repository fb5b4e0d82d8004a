# SPDX-License-Identifier: Apache-2.0
"""A test server that goes and comes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee import (
    BrokerConfig,
    Message,
    Producer,
    ProducerOptions,
    Server,
    SimpleConsumer,
    StoreConfig,
    blocking,
)
from aerobee.errors import NetworkError
from aerobee.server_thread import LoopThread
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def bodies(server: TestServer) -> list[bytes]:
    return [message.body for message in server.messages_of("orders")]


def test_a_restart_keeps_ports_messages_and_clients() -> None:
    with TestServer(config=BrokerConfig(default_queues=1), grpc_port=0, http_port=0) as server:
        before = (server.namesrv, server.server.ports)
        with blocking.Producer(server.namesrv, group="shop") as producer:
            producer.send(Message("orders", b"before"))
            server.restart()
            producer.send(Message("orders", b"after"))
        assert (server.namesrv, server.server.ports) == before
        assert -1 not in before[1].values()
        assert bodies(server) == [b"before", b"after"]


async def test_between_stop_and_start_there_is_nobody() -> None:
    with TestServer() as server:
        options = ProducerOptions(send_timeout_ms=300)
        async with Producer(server.namesrv, group="shop", options=options) as producer:
            await producer.send(Message("orders", b"before"))
            server.stop()
            with pytest.raises(NetworkError):
                await producer.send(Message("orders", b"lost"))
            with pytest.raises(RuntimeError, match="after `stop` comes `start`"):
                server.server  # noqa: B018 - it raises
            server.start()
        assert bodies(server) == [b"before"]
        with pytest.raises(RuntimeError, match="the server runs"):
            server.start()


async def test_a_simple_consumer_that_did_not_see_the_restart_receives_acks_and_gives_back() -> None:
    with TestServer() as server:
        topics = {"orders": "*"}
        async with (
            Producer(server.namesrv, group="shop") as producer,
            SimpleConsumer(server.namesrv, group="shipping", topics=topics, start="first") as consumer,
        ):
            for body in (b"one", b"two", b"three"):
                await producer.send(Message("orders", body))
            server.restart()  # our loop stands meanwhile: its connections look open
            received = await consumer.receive()
            while len(received) < 3:
                received += await consumer.receive()
            first, second, third = received
            server.restart()
            await first.ack()
            server.restart()
            await second.nack(60_000)
            server.restart()
            await asyncio.gather(third.ack(), first.ack())
            assert server.lag("shipping").in_flight == 1
            server.stop()
            with pytest.raises(NetworkError, match="cannot connect"):
                await consumer.receive()
            server.start()


def test_time_stands_still_through_a_restart() -> None:
    with TestServer.with_manual_clock() as server:
        with blocking.Producer(server.namesrv, group="shop") as producer:
            producer.send(Message("orders", b"later", delay_level=3))
        server.restart()
        assert bodies(server) == []
        server.clock.advance(seconds=11)
        with blocking.PullConsumer(
            server.namesrv, group="g", topics={"orders": "*"}, start="first"
        ) as consumer:
            assert [message.body for message in consumer.poll(timeout_ms=10_000)] == [b"later"]


async def test_a_moved_clock_leases_and_reminders_outlive_a_restart() -> None:
    with TestServer.with_manual_clock() as server:
        began, topics = server.clock.wall(), {"orders": "*"}
        server.create_topic("orders", queues=1)
        async with (
            Producer(server.namesrv, group="shop") as producer,
            SimpleConsumer(
                server.namesrv, group="shipping", topics=topics, start="first", clock=server.clock
            ) as consumer,
        ):
            await producer.send(Message("orders", b"leased"))
            (leased,) = await consumer.receive(invisible_ms=120_000)
            await producer.send(Message("orders", b"reminder", delay_ms=600_000))
            server.clock.advance(minutes=1)
            server.restart()
            assert server.clock.wall() == began + 60_000
            assert server.lag("shipping").in_flight == 1
            assert [waiting.message.body for waiting in server.delayed("orders")] == [b"reminder"]
            assert await consumer.receive(wait_ms=100) == [], "it is still leased"
            server.clock.advance(seconds=61)
            (again,) = await consumer.receive(wait_ms=5_000)
            assert (again.body, again.attempt) == (b"leased", leased.attempt + 1)
            await again.ack()
            server.clock.advance(minutes=8)
            (reminder,) = await consumer.receive(wait_ms=5_000)
            assert reminder.body == b"reminder"


@pytest.mark.parametrize("where", ["data", "store"])
def test_a_directory_of_the_tests_own_is_used_and_kept(tmp_path: Path, where: str) -> None:
    data = {"data": tmp_path} if where == "data" else {"store": StoreConfig(data=str(tmp_path))}
    with TestServer(**data) as first, blocking.Producer(first.namesrv, group="shop") as producer:
        producer.send(Message("orders", b"kept"))
    with TestServer(**data) as second:
        assert bodies(second) == [b"kept"]


def test_a_directory_of_its_own_is_removed_and_one_that_is_named_beside_it_refused(tmp_path: Path) -> None:
    with TestServer() as server:
        server.restart()
        data = server.server.data
        assert data is not None
        assert data.exists()
    assert not data.exists()
    with pytest.raises(ValueError, match="leave out `data`"):
        Server(ephemeral=True, store=StoreConfig(data=str(tmp_path)))


def test_a_server_is_entered_once() -> None:
    with TestServer() as server, pytest.raises(RuntimeError, match="entered once"):
        server.__enter__()


async def test_waits_tell_of_a_group_that_nobody_has_met() -> None:
    with TestServer() as server:
        with pytest.raises(AssertionError, match="not idle after 50 ms: the broker has met no consumer"):
            await server.wait_until_idle("nobody", timeout_ms=50)
        with pytest.raises(AssertionError, match="within 50 ms: the broker has met no consumer"):
            await server.wait_for_dead_letter("nobody", timeout_ms=50)


def test_a_group_that_nobody_has_met_lags_by_nothing() -> None:
    with TestServer() as server:
        assert (server.lag("nobody").ready, server.lag("nobody").delayed) == (0, 0)


def test_what_is_still_under_way_ends_with_the_thread() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        return task

    thread = LoopThread("a-test")
    thread.start()
    task = thread.run(begin())
    thread.end()
    assert task.cancelled()
    assert ended == [True]


def test_a_stopped_server_still_tells_where_it_was() -> None:
    with TestServer() as server:
        before = server.namesrv, server.broker_address, server.grpc_address
        server.stop()
        assert (server.namesrv, server.broker_address, server.grpc_address) == before
        server.start()
        assert (server.namesrv, server.broker_address, server.grpc_address) == before
        with pytest.raises(RuntimeError, match="ServerProcess"):
            server.kill()


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_producer_of_another_event_loop_says_so(before: int) -> None:
    with TestServer() as server, asyncio.Runner() as its_own, asyncio.Runner() as other:
        producer = Producer(server.namesrv, group="shop")
        its_own.run(producer.start())
        for _ in range(before):  # the second makes ready what further ones need
            its_own.run(producer.send(Message("orders", b"first")))
        with pytest.raises(RuntimeError, match=r"another event loop.*loop_scope"):
            other.run(producer.send(Message("orders", b"x")))
        assert its_own.run(producer.send(Message("orders", b"y"))).message_id
        its_own.run(producer.stop())
