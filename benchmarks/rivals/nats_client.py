# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

from benchmarks.rivals.client import AT_ONCE, NAME, Client

if TYPE_CHECKING:
    from collections.abc import Callable


class BenchClient(Client):
    promise = "in JetStream's file, in the page cache (synced every two minutes): survives a killed process"

    async def open(self) -> None:
        self.connection = await nats.connect(self.address)
        self.stream = self.connection.jetstream()
        await self.stream.add_stream(name=NAME, subjects=[NAME])

    async def close(self) -> None:
        await self.connection.close()

    async def send(self, body: bytes) -> None:
        await self.stream.publish(NAME, body)

    async def take_and_ack(self, count: int) -> None:
        pulling = await self.stream.pull_subscribe(NAME, durable="ack")
        taken = 0
        while taken < count:
            messages = await pulling.fetch(AT_ONCE, timeout=5)
            for message in messages:
                await message.ack()  # written, not confirmed
            taken += len(messages)
        await self.connection.flush()
        await pulling.unsubscribe()

    async def drain(self, count: int) -> None:
        done, left = asyncio.Event(), count

        async def handle(message: object) -> None:  # acked by the client when it returns
            nonlocal left
            left -= 1
            if not left:
                done.set()

        pushing = await self.stream.subscribe(NAME, durable="drain", cb=handle)
        await done.wait()
        await pushing.unsubscribe()

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        async def handle(message: Any) -> None:
            heard(message.data)

        await self.stream.subscribe(NAME, cb=handle, config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW))


async def code_for_retries(address: str, handle: Any) -> None:
    stream = (await nats.connect(address)).jetstream()
    await stream.add_stream(name="dead", subjects=["dead.>"])
    orders = await stream.pull_subscribe("orders", durable="billing", config=ConsumerConfig(max_deliver=3))
    while True:
        for message in await orders.fetch(32, timeout=None):
            try:
                await handle(message)
            except Exception:
                if message.metadata.num_delivered < 3:
                    await message.nak(delay=10 * message.metadata.num_delivered)
                    continue
                await stream.publish("dead.orders", message.data, headers=message.headers)
                await message.term()
            else:
                await message.ack()
