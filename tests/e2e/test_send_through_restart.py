# SPDX-License-Identifier: Apache-2.0
"""A broker that restarts, or is killed and comes back, costs its producers time and no message."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from aerobee import Message, Producer, PullConsumer, PushConsumer, Server
from aerobee.client.options import ProducerOptions
from aerobee.errors import NetworkError
from benchmarks.outage import outage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

KEYS = 4
AWAY_S = 1.5


async def test_a_restart_fails_no_send_and_keeps_the_order_of_each_key(tmp_path: Path) -> None:
    async with Server(data=tmp_path, namesrv_port=0, broker_port=0) as first:
        namesrv, ports = first.namesrv, first.ports
        producer = Producer(namesrv, options=ProducerOptions(send_timeout_ms=20_000))
        await producer.start()
        await producer.send(Message("orders", b"warm"))
        stop = asyncio.Event()
        sending = [asyncio.create_task(_send_keyed(producer, f"k{n}", stop)) for n in range(KEYS)]
        plain = asyncio.create_task(_send_plain(producer, stop))
        await asyncio.sleep(0.3)
    await asyncio.sleep(AWAY_S)
    async with Server(data=tmp_path, **ports):
        await asyncio.sleep(0.5)
        stop.set()
        counts = await asyncio.gather(*sending)
        sent = await plain
        found = await _all(namesrv, sum(counts) + sent)
        await producer.stop()
    for key, count in zip([f"k{n}" for n in range(KEYS)], counts, strict=True):
        seen = list(dict.fromkeys(body for body in found if body.startswith(key.encode() + b":")))
        assert seen == [f"{key}:{n}".encode() for n in range(count)], key
    assert {body for body in found if body.startswith(b"p:")} == {b"p:%d" % n for n in range(sent)}


@pytest.mark.parametrize(("by", "away_s"), [(signal.SIGKILL, 2.0), (signal.SIGTERM, 0.0)])
async def test_a_server_that_is_killed_or_stopped_and_comes_back_fails_no_send_and_keeps_the_order(
    tmp_path: Path, by: signal.Signals, away_s: float
) -> None:
    # `python -m benchmarks.outage` has the default of 3 s, which a machine that is busy with tests may need to start.
    seen = await outage(str(tmp_path), by, away_s, 1_000, ProducerOptions(send_timeout_ms=30_000))
    assert seen.failed == []
    assert seen.wrong == []
    assert sum(seen.sent.values()) > 20


async def test_a_send_ends_in_its_time_when_the_server_takes_connections_and_says_nothing(
    tmp_path: Path,
) -> None:
    async with Server(data=tmp_path, namesrv_port=0, broker_port=0) as server:
        producer = Producer(server.namesrv, options=ProducerOptions(send_timeout_ms=400))
        await producer.start()
        await producer.send(Message("orders", b"warm"))
        ports = (server.ports["namesrv_port"], server.ports["broker_port"])
    mute = [socket.create_server(("127.0.0.1", port)) for port in ports]
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(NetworkError, match="'orders'"):
        await producer.send(Message("orders", b"x"))
    assert loop.time() - began < 2.5, "the greeting of a new connection has 3 s of its own"
    for each in mute:
        each.close()
    await producer.stop()


async def test_a_broker_that_stays_away_is_an_error_that_says_what_was_tried(tmp_path: Path) -> None:
    async with Server(data=tmp_path, namesrv_port=0, broker_port=0) as server:
        producer = Producer(server.namesrv, options=ProducerOptions(send_timeout_ms=400))
        await producer.start()
        await producer.send(Message("orders", b"warm"))
    with pytest.raises(
        NetworkError, match=r"'orders' could not be sent: \d+ tries in \d+ ms.*send_timeout_ms"
    ):
        await producer.send(Message("orders", b"x"))
    await producer.stop()


async def test_a_recall_waits_for_a_broker_that_restarts(tmp_path: Path) -> None:
    async with Server(data=tmp_path, namesrv_port=0, broker_port=0) as first:
        ports = first.ports
        producer = Producer(first.namesrv, options=ProducerOptions(send_timeout_ms=20_000))
        await producer.start()
        sent = await producer.send(Message("orders", b"later", delay_ms=3_600_000))
    assert sent.recall_handle is not None
    recall = asyncio.create_task(producer.recall("orders", sent.recall_handle))
    await asyncio.sleep(0.2)
    assert not recall.done()
    async with Server(data=tmp_path, **ports):
        assert await recall == sent.message_id
        await producer.stop()


async def _send_keyed(producer: Producer, key: str, stop: asyncio.Event) -> int:
    """Several under way at once: order must not hang on waiting for each."""
    count, under_way = 0, []
    while not stop.is_set():
        under_way.append(
            asyncio.create_task(producer.send(Message("orders", f"{key}:{count}".encode(), sharding_key=key)))
        )
        count += 1
        await asyncio.sleep(0.02)
    await asyncio.gather(*under_way)
    return count


async def _send_plain(producer: Producer, stop: asyncio.Event) -> int:
    count = 0
    while not stop.is_set():
        await producer.send(Message("orders", b"p:%d" % count))
        count += 1
        await asyncio.sleep(0.02)
    return count


async def _all(namesrv: str, least: int) -> list[bytes]:
    found: list[bytes] = []
    async with PullConsumer(namesrv, group="reader", topics={"orders": "*"}, start="first") as consumer:
        while len(found) <= least:
            part = await consumer.poll(max_messages=32, timeout_ms=5_000)
            if not part:
                break
            found += [message.body for message in part]
    return found


async def test_consumers_of_a_broker_that_is_away_say_so_once_and_go_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.client")
    got: list[bytes] = []
    async with Server(data=tmp_path, namesrv_port=0, broker_port=0) as first:
        namesrv, ports = first.namesrv, first.ports
        producer = Producer(namesrv, options=ProducerOptions(send_timeout_ms=20_000))
        await producer.start()
        await producer.send(Message("orders", b"before"))
        consumer = PushConsumer(
            namesrv,
            group="billing",
            topics={"orders": "*"},
            start="first",
            handler=lambda message: got.append(message.body),
        )
        await consumer.start()
        await _until(lambda: got == [b"before"])
        caplog.clear()
    await asyncio.sleep(3)
    away = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    async with Server(data=tmp_path, **ports):
        await producer.send(Message("orders", b"after"))
        await _until(lambda: b"after" in got)
        await consumer.stop()
        await producer.stop()
    assert away, "somebody must be told"
    assert len(away) == len(set(away)) <= 2 * 2, (
        away
    )  # name server and broker, each its line, perhaps in two words
    back = [record.getMessage() for record in caplog.records if "answers again" in record.getMessage()]
    assert back


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - a handler of ours has no event to wait for
            await asyncio.sleep(0.02)
