# SPDX-License-Identifier: Apache-2.0
"""Sends of one key are stored in the order of their calls, awaited or not, also when nothing is known and open yet."""

from __future__ import annotations

import asyncio

import pytest

from aerobee import Message, Producer, ProducerOptions
from aerobee.testing import TestServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("turns", [1, 2, 7])
@pytest.mark.parametrize("knows_route", [False, True])
async def test_sends_of_a_key_keep_their_order_on_a_producer_that_is_cold(
    turns: int, knows_route: bool
) -> None:
    with TestServer() as server:
        server.create_topic("orders", queues=4)
        async with Producer(server.namesrv, group="shop") as producer:
            if knows_route:
                await producer.queues("orders")
            sends = []
            for number in range(80):
                message = Message("orders", b"%d" % number, sharding_key="k")
                sends.append(asyncio.create_task(producer.send(message)))
                for _ in range(turns):
                    await asyncio.sleep(0)
            offsets = [sent.queue_offset for sent in await asyncio.gather(*sends)]
        assert offsets == list(range(80))


@pytest.mark.parametrize("is_warm", [False, True])
async def test_sends_of_a_key_keep_their_order_through_a_restart(is_warm: bool) -> None:
    patient = ProducerOptions(send_timeout_ms=20_000)
    with TestServer() as server:
        server.create_topic("orders", queues=1)
        async with Producer(server.namesrv, group="shop", options=patient) as producer:
            if is_warm:
                await producer.send(Message("orders", b"first", sharding_key="k"))
            server.restart()
            messages = [Message("orders", b"%d" % number, sharding_key="k") for number in range(20)]
            await asyncio.gather(*map(producer.send, messages))
        stored = [message.body for message in server.messages_of("orders")][is_warm:]
        assert stored == [message.body for message in messages]
