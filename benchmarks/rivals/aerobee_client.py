# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aerobee
from benchmarks.rivals.client import AT_ONCE, NAME, QUEUES, Client

if TYPE_CHECKING:
    from collections.abc import Callable


class BenchClient(Client):
    promise = (
        'in the broker\'s log, in the page cache: survives a killed process (`flush = "sync"`: power loss)'
    )

    async def open(self) -> None:
        async with aerobee.Admin(self.address) as admin:
            await admin.create_topic(NAME, queues=QUEUES)
            while not await admin.topic_exists(NAME):  # noqa: ASYNC110 - another process says when
                await asyncio.sleep(0.02)
        self.producer = aerobee.Producer(self.address, group="bench")
        self.consumers: list[Any] = []
        await self.producer.start()

    async def close(self) -> None:
        await self._stop_consumers()
        await self.producer.stop()

    async def _stop_consumers(self) -> None:
        while self.consumers:
            await self.consumers.pop().stop()

    async def send(self, body: bytes) -> None:
        await self.producer.send(aerobee.Message(NAME, body))

    async def take_and_ack(self, count: int) -> None:
        async with aerobee.SimpleConsumer(
            self.address, group="bench-ack", topics={NAME: "*"}, start="first"
        ) as consumer:
            taken = 0
            while taken < count:
                messages = await consumer.receive(AT_ONCE)
                await asyncio.gather(*[message.ack() for message in messages])
                taken += len(messages)

    async def drain(self, count: int) -> None:
        done, left = asyncio.Event(), count

        async def handle(message: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        await self._push("bench-drain", handle, "first")
        await done.wait()

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        async def handle(message: Any) -> None:
            heard(message.body)

        await self._stop_consumers()
        await self._push("bench-listen", handle, "last")

    async def _push(self, group: str, handler: Any, start: Any) -> None:
        consumer = aerobee.PushConsumer(
            self.address, group=group, topics={NAME: "*"}, handler=handler, start=start
        )
        await consumer.start()
        self.consumers.append(consumer)


async def code_for_retries(address: str, handle: Any) -> None:
    consumer = aerobee.PushConsumer(
        address,
        group="billing",
        topics={"orders": "*"},
        handler=handle,
        options=aerobee.Options(max_reconsume=3),
    )
    async with consumer:  # a handler that raises is called again later; at the end stands %DLQ%billing
        await consumer.wait()
