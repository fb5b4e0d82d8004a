# SPDX-License-Identifier: Apache-2.0
"""Ordered groups over gRPC: only the broker of a request counts, not the queue it names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol.bodies import GroupConfig

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow  # a server and a channel each

QUEUES = 4
USERS = [f"user-{i}" for i in range(8)]


@pytest.fixture
def fifo(client: Any) -> Any:
    client.server.broker.topics.ensure("t", queues=QUEUES)
    client.server.broker.groups.put(GroupConfig(group_name="g", consume_message_orderly=True))
    return client


async def send_all(client: Any, bodies: int = 1) -> None:
    for user in USERS:
        for i in range(bodies):
            await client.send("t", f"{user}:{i}".encode(), message_group=user)


def bodies(found: list[Any]) -> set[str]:
    return {message.body.decode() for message in found}


def queues(found: list[Any]) -> set[int]:
    return {message.system_properties.queue_id for message in found}


async def until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not met():  # noqa: ASYNC110 - a request has to cross two sockets
            await asyncio.sleep(0)


async def test_a_receive_takes_from_every_queue_whatever_it_names(fifo: Any) -> None:
    await send_all(fifo)
    _, found = await fifo.receive("t", queue=0)
    assert len(queues(found)) > 1
    assert bodies(found) == {f"{user}:0" for user in USERS}


async def test_a_held_receive_is_woken_by_an_arrival_in_any_queue(fifo: Any) -> None:
    parked = fifo.server.broker.pops.parked
    for user in USERS:
        waiting = asyncio.ensure_future(fifo.receive("t", queue=0, poll_ms=20_000))
        await until(lambda: parked.count)
        await fifo.send("t", user.encode(), message_group=user)
        _, (message,) = await waiting
        assert message.body == user.encode()
        await fifo.ack("t", message.system_properties.receipt_handle)


async def test_a_queue_is_blocked_for_every_receive_until_its_messages_are_acked(fifo: Any) -> None:
    await send_all(fifo, bodies=2)
    store, parked = fifo.server.broker.store, fifo.server.broker.pops.parked
    used = {queue for queue in range(QUEUES) if store.max_offset("t", queue)}
    out = {}
    for _ in used:
        _, (message,) = await fifo.receive("t", queue=0, batch=1)
        out[message.system_properties.queue_id] = message
    assert out.keys() == used, "one message of each queue and no more"
    for queue, first in out.items():
        waiting = asyncio.ensure_future(
            fifo.receive("t", queue=(queue + 1) % QUEUES, batch=1, poll_ms=20_000)
        )
        await until(lambda: parked.count)  # messages are there, and none of them is its
        await fifo.ack("t", first.system_properties.receipt_handle)
        _, (second,) = await waiting
        place = second.system_properties
        assert (place.queue_id, place.queue_offset) == (queue, first.system_properties.queue_offset + 1)


async def test_groups_keep_their_order_over_receives_that_name_any_queue(fifo: Any) -> None:
    await send_all(fifo, bodies=3)
    seen: dict[str, list[int]] = {user: [] for user in USERS}
    turn = 0
    while sum(map(len, seen.values())) < 3 * len(USERS):
        _, found = await fifo.receive("t", queue=turn % QUEUES, batch=5)
        turn += 1
        for message in found:
            user, _, number = message.body.decode().partition(":")
            seen[user].append(int(number))
            await fifo.ack("t", message.system_properties.receipt_handle)
    assert all(numbers == [0, 1, 2] for numbers in seen.values())
