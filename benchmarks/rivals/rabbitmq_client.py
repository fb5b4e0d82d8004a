# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aio_pika
from aio_pika import DeliveryMode, Message

from benchmarks.rivals.client import NAME, Client

if TYPE_CHECKING:
    from collections.abc import Callable


class BenchClient(Client):
    """A durable queue, persistent messages, confirms: what its tutorials say for work that must not be lost."""

    promise = "confirmed when written to the queue's file (synced): survives power loss"

    async def open(self) -> None:
        self.connection = await aio_pika.connect(f"amqp://guest:guest@{self.address}/")
        self.channel = await self.connection.channel()
        self.queue = await self.channel.declare_queue(NAME, durable=True)

    async def close(self) -> None:
        await self.connection.close()

    async def send(self, body: bytes) -> None:
        message = Message(body, delivery_mode=DeliveryMode.PERSISTENT)
        await self.channel.default_exchange.publish(message, routing_key=NAME)

    async def take_and_ack(self, count: int) -> None:
        await self._consume(count, prefetch=64)

    async def drain(self, count: int) -> None:
        await self._consume(count, prefetch=1_000)

    async def _consume(self, count: int, prefetch: int) -> None:
        done, left = asyncio.Event(), count
        channel = await self.connection.channel()
        await channel.set_qos(prefetch_count=prefetch)
        queue = await channel.declare_queue(NAME, durable=True)

        async def handle(message: Any) -> None:
            nonlocal left
            left -= 1
            own = left  # others go on while this one waits
            if own >= 0:
                await message.ack()
            if own == 0:
                done.set()

        await queue.consume(handle)
        await done.wait()
        await channel.close()

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        await self.queue.purge()

        async def handle(message: Any) -> None:
            heard(message.body)
            await message.ack()

        await self.queue.consume(handle)


async def code_for_retries(address: str, handle: Any) -> None:
    connection = await aio_pika.connect_robust(address)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=32)
    orders = await channel.declare_queue("orders", durable=True)
    waiting = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": 10_000}
    await channel.declare_queue("orders.waiting", durable=True, arguments=waiting)
    await channel.declare_queue("orders.dead", durable=True)
    async with orders.iterator() as messages:
        async for message in messages:
            try:
                await handle(message)
            except Exception:
                times = int(message.headers.get("times", 0)) + 1
                again = Message(message.body, headers={"times": times}, delivery_mode=DeliveryMode.PERSISTENT)
                place = "orders.waiting" if times < 3 else "orders.dead"
                await channel.default_exchange.publish(again, routing_key=place)
            await message.ack()
