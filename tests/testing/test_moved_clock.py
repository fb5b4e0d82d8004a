# SPDX-License-Identifier: Apache-2.0
"""The clock of a server under test, as its clients see it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aerobee import Message, Producer, PullConsumer, SimpleConsumer, blocking
from aerobee.clock import ManualClock, SystemClock
from aerobee.testing import TestClock, TestServer, eventually, wait_until
from aerobee.testing.moved_clock import StandingClock


def clock_here() -> TestClock:
    """A clock whose server is this thread's loop: moving it needs no other one."""

    def run(work: object) -> None:
        assert asyncio.iscoroutine(work)
        thread = threading.Thread(target=asyncio.run, args=(work,))
        thread.start()
        thread.join()

    return TestClock(ManualClock(1_000), run)


async def test_it_stands_still_until_it_is_moved() -> None:
    clock = clock_here()
    assert clock.now() == 1_000
    clock.advance(5, seconds=1, minutes=1, hours=1)
    assert clock.now() == 1_000 + 5 + 1_000 + 60_000 + 3_600_000
    with pytest.raises(ValueError, match="time moves on"):
        clock.advance(-1)


async def test_a_clients_long_wait_ends_when_the_clock_is_moved_past_it() -> None:
    clock = clock_here()
    woken: list[str] = []

    async def sleeper(name: str, ms: int) -> None:
        await clock.sleep(ms)
        woken.append(name)

    tasks = [
        asyncio.ensure_future(sleeper("hour", 3_600_000)),
        asyncio.ensure_future(sleeper("minute", 60_000)),
    ]
    await asyncio.sleep(0)
    clock.advance(minutes=2)
    await eventually(lambda: woken == ["minute"])
    clock.advance(hours=1)
    await asyncio.gather(*tasks)
    assert woken == ["minute", "hour"]


async def test_a_clients_short_wait_ends_by_itself() -> None:
    await asyncio.wait_for(clock_here().sleep(5), 10)


async def test_a_cancelled_timer_never_fires() -> None:
    clock = clock_here()
    fired: list[int] = []
    clock.call_at(clock.now() + 60_000, lambda: fired.append(1)).cancel()
    kept = clock.call_at(clock.now() + 60_000, lambda: fired.append(2))
    clock.advance(minutes=5)
    await eventually(lambda: fired == [2])
    kept.cancel()


def _server_threads() -> set[threading.Thread]:
    """Those of servers; others, such as the one that syncs files, come when they are needed first."""
    return {thread for thread in threading.enumerate() if thread.name == "aerobee-test-server"}


@pytest.mark.slow
def test_a_server_that_does_not_start_leaves_no_thread() -> None:
    with TestServer() as server:
        port = int(server.namesrv.rpartition(":")[2])
        before = _server_threads()
        with pytest.raises(Exception, match="cannot listen"), TestServer(namesrv_port=port):
            pass
        assert _server_threads() == before
        assert abs(server.clock.now() - SystemClock().now()) < 5_000


async def test_a_held_request_comes_back_after_its_wait_though_the_clock_stands(
    aerobee_manual_server: TestServer,
) -> None:
    server, topics = aerobee_manual_server, {"orders": "*"}
    server.create_topic("orders", queues=1)
    async with (
        asyncio.timeout(5),
        SimpleConsumer(server.namesrv, group="popping", topics=topics, clock=server.clock) as popping,
        SimpleConsumer(server.namesrv, group="real-time", topics=topics) as in_real_time,
        PullConsumer(server.namesrv, group="pulling", topics=topics) as pulling,
    ):
        assert await popping.receive(wait_ms=60) == []
        assert await in_real_time.receive(wait_ms=60) == []
        assert await pulling.poll(timeout_ms=60) == []


async def test_a_consumer_that_was_not_given_the_moved_clock_is_told_of(
    aerobee_manual_server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    server, topics = aerobee_manual_server, {"orders": "*"}
    server.create_topic("orders", queues=1)
    async with (
        Producer(server.namesrv, group="shop") as producer,
        SimpleConsumer(server.namesrv, group="shipping", topics=topics, start="first") as consumer,
    ):
        await producer.send(Message("orders", b"tea"))
        server.clock.advance(minutes=30)
        assert await consumer.receive(wait_ms=200) == []
    (told,) = [line for line in caplog.messages if "clock=server.clock" in line]
    assert "group=shipping topic=orders" in told


def test_delays_count_from_the_moved_clock_though_the_producer_lives_in_real_time(
    aerobee_manual_server: TestServer,
) -> None:
    server = aerobee_manual_server
    server.clock.advance(hours=5)
    now = server.clock.wall()
    with blocking.Producer(server.namesrv, group="shop") as producer:
        producer.send(Message("later", b"level", delay_level=16))
        producer.send(Message("later", b"delay", delay_ms=3_600_000))
        producer.send(Message("later", b"moment", deliver_at=now + 7_200_000))
    waiting = [(each.message.body, each.due) for each in server.delayed("later")]
    minutes = {body: round((due or 0) - now, -4) // 60_000 for body, due in waiting}
    assert minutes == {b"level": 30, b"delay": 60, b"moment": 120}
    server.clock.advance(minutes=61)
    wait_until(lambda: len(server.messages_of("later")) == 2)


async def test_moving_the_clock_ends_a_hold_too() -> None:
    clock, released = StandingClock(), list[int]()
    kept, gone = clock.release_at(clock.now() + 60_000, lambda: released.append(1)), list[int]()
    clock.release_at(clock.now() + 60_000, lambda: gone.append(1)).cancel()
    clock.advance(59_999)
    assert released == []
    clock.advance(1)
    kept.cancel()
    assert (released, gone) == ([1], [])
