# SPDX-License-Identifier: Apache-2.0
"""Producers and consumers while everything around them comes and goes: consumers join and leave, connections are
cut, the broker restarts. Nothing acknowledged may be lost; duplicates stay within what was in flight; ordered
consumers see each queue in order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee import Message, Producer, PushConsumer, Server
from aerobee.client.admin import Admin
from aerobee.client.options import Options
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

SECONDS = 20
OPTIONS = Options(
    rebalance_ms=500,
    rebalance_soon_ms=100,
    rebalance_min_ms=50,
    exception_ms=100,
    offset_repair_ms=50,
    persist_offsets_ms=300,
    lock_renew_ms=300,
    send_timeout_ms=8_000,
    send_retries=20,
    send_back_timeout_ms=500,
    stop_wait_ms=3_000,
    queue_messages=64,
)


class World:
    """A server on fixed ports that can be restarted, and the people around it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.server: Server | None = None
        self.ports = (0, 0)
        self.acknowledged: dict[bytes, Any] = {}
        self.consumed = Counter[bytes]()
        self.order: dict[int, list[int]] = defaultdict(list)
        self.stopping = False

    async def start(self) -> None:
        self.server = Server(self.data, namesrv_port=self.ports[0], broker_port=self.ports[1])
        await self.server.start()
        host_and_port = [self.server.namesrv, self.server.broker_address]
        self.ports = tuple(int(address.rpartition(":")[2]) for address in host_and_port)  # type: ignore[assignment]

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    async def restart(self) -> None:
        assert self.server is not None
        await self.server.stop()
        await asyncio.sleep(0.3)
        await self.start()


async def produce(world: World, topic: str, name: str, limit: int) -> None:
    async with Producer(world.namesrv, group=f"p-{name}", options=OPTIONS) as producer:
        for n in range(limit):
            if world.stopping:
                return
            body = f"{name}-{n}".encode()
            try:
                sent = await producer.send(Message(topic, body))
            except AerobeeError:
                await asyncio.sleep(0.05)  # not acknowledged: it may be there or not
                continue
            world.acknowledged[body] = sent
            await asyncio.sleep(random.uniform(0, 0.01))


async def churn_consumers(world: World, make: Any) -> None:
    """One is always there; others join and leave every second."""
    steady = make()
    await steady.start()
    others: list[PushConsumer] = []
    while not world.stopping:
        await asyncio.sleep(1)
        if len(others) >= 3 or (others and random.random() < 0.5):
            await others.pop(random.randrange(len(others))).stop()
        else:
            others.append(make())
            with suppress(AerobeeError):
                await others[-1].start()
    for one in others:
        await one.stop()
    world.steady = steady  # type: ignore[attr-defined]


async def cut_connections(sessions: list[Any]) -> None:
    while True:
        await asyncio.sleep(random.uniform(0.5, 1.5))
        for session in list(sessions):
            for connection in list(session._pool.connections.values()):
                if random.random() < 0.3:
                    connection.abort()


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_nothing_acknowledged_is_lost(tmp_path: Path, ordered: bool) -> None:
    world = World(tmp_path / "data")
    await world.start()
    topic, group, sessions = "chaos", "chaos-group", []
    async with Admin(world.namesrv) as admin:
        await admin.create_topic(topic, queues=4)

    async def handle(message: Any) -> None:
        await asyncio.sleep(random.uniform(0, 0.004))
        world.consumed[message.body] += 1
        world.order[message.queue_id].append(message.queue_offset)

    def make() -> PushConsumer:
        consumer = PushConsumer(
            world.namesrv, group=group, topics={topic: "*"}, handler=handle, ordered=ordered, start="first",
            options=msgspec.structs.replace(OPTIONS),
        )  # fmt: skip
        sessions.append(consumer.session)
        return consumer

    async with asyncio.TaskGroup() as tasks:
        cutting = tasks.create_task(cut_connections(sessions))
        tasks.create_task(churn_consumers(world, make))
        producing = [tasks.create_task(produce(world, topic, f"p{n}", 100_000)) for n in range(3)]
        for _ in range(2):
            await asyncio.sleep(SECONDS / 3)
            await world.restart()
        await asyncio.sleep(SECONDS / 3)
        cutting.cancel()
        world.stopping = True
    assert all(task.done() for task in producing)
    for _ in range(1_500):
        if world.acknowledged.keys() <= world.consumed.keys():
            break
        await asyncio.sleep(0.02)
    missing = world.acknowledged.keys() - world.consumed.keys()
    await world.steady.stop()  # type: ignore[attr-defined]
    assert world.server is not None
    await world.server.stop()

    total, duplicates = len(world.acknowledged), sum(world.consumed.values()) - len(world.consumed)
    assert total > 500, f"only {total} messages, {duplicates} duplicates"
    assert missing == set(), f"{len(missing)} of {total} acknowledged messages were not consumed"
    # Every change of owner or connection may repeat what was fetched and not yet reported: at most the inboxes.
    disturbances = 4 * SECONDS + 2
    assert duplicates <= disturbances * 4 * OPTIONS.queue_messages
    if ordered:
        for offsets in world.order.values():
            firsts = list(dict.fromkeys(offsets))
            assert firsts == sorted(firsts), "a message was consumed before an earlier one of its queue"
