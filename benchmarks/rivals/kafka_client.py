# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.rivals.client import AT_ONCE, NAME, QUEUES, Client

if TYPE_CHECKING:
    from collections.abc import Callable


class BenchClient(Client):
    promise = "in the leader's log, in the page cache (acks=1): survives a killed process"

    async def open(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        await admin.create_topics([NewTopic(NAME, QUEUES, 1)])
        await admin.close()
        self.producer = AIOKafkaProducer(bootstrap_servers=self.address)
        await self.producer.start()
        self.listening: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self.listening is not None:
            self.listening.cancel()
            await asyncio.gather(self.listening, return_exceptions=True)
        await self.producer.stop()

    async def send(self, body: bytes) -> None:
        await self.producer.send_and_wait(NAME, body)

    def _consumer(self, group: str, start: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            NAME,
            bootstrap_servers=self.address,
            group_id=group,
            auto_offset_reset=start,
            enable_auto_commit=False,
        )

    async def take_and_ack(self, count: int) -> None:
        """Messages have no ack of their own: the offset is committed after each lot."""
        async with self._consumer("ack", "earliest") as consumer:
            taken = 0
            while taken < count:
                lots = await consumer.getmany(timeout_ms=5_000, max_records=AT_ONCE)
                await consumer.commit()
                taken += sum(map(len, lots.values()))

    async def drain(self, count: int) -> None:
        left = count
        async with self._consumer("drain", "earliest") as consumer:
            async for _ in consumer:
                left -= 1
                if not left:
                    await consumer.commit()
                    return

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        async def read() -> None:
            async with self._consumer("listen", "latest") as consumer:
                async for message in consumer:
                    heard(message.value)

        self.listening = asyncio.ensure_future(read())


async def code_for_retries(address: str, handle: Any) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=address)
    consumer = AIOKafkaConsumer(
        "orders", "orders-again", bootstrap_servers=address, group_id="billing", enable_auto_commit=False
    )
    async with producer, consumer:
        async for message in consumer:
            headers = dict(message.headers)
            times, due = int(headers.get("times", 0)), float(headers.get("due", 0))
            # Waiting for one message here holds up all behind it in its partition.
            await asyncio.sleep(max(0.0, due - time.time()))
            try:
                await handle(message)
            except Exception:
                times += 1
                due = time.time() + 10 * times
                again = [("times", str(times).encode()), ("due", str(due).encode())]
                topic = "orders-again" if times < 3 else "orders-dead"
                await producer.send_and_wait(topic, message.value, key=message.key, headers=again)
            await consumer.commit()
