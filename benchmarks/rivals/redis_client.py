# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import redis.asyncio as redis

from benchmarks.rivals.client import AT_ONCE, NAME, Client

if TYPE_CHECKING:
    from collections.abc import Callable

NEW = {NAME: ">"}


class BenchClient(Client):
    promise = (
        "in memory; on disk with the next snapshot, within minutes: a killed process loses what came since"
    )

    async def open(self) -> None:
        host, _, port = self.address.rpartition(":")
        self.redis = redis.Redis(host=host, port=int(port))
        self.listening: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self.listening is not None:
            self.listening.cancel()
        await self.redis.aclose()

    async def send(self, body: bytes) -> None:
        await self.redis.xadd(NAME, {"body": body})

    async def take_and_ack(self, count: int) -> None:
        await self.redis.xgroup_create(NAME, "ack", id="0")
        taken = 0
        while taken < count:
            for _, messages in await self.redis.xreadgroup("ack", "me", NEW, count=AT_ONCE, block=5_000):
                await asyncio.gather(*[self.redis.xack(NAME, "ack", number) for number, _ in messages])
                taken += len(messages)

    async def drain(self, count: int) -> None:
        """There is no push: a loop of its own, an ack for all that it read."""
        await self.redis.xgroup_create(NAME, "drain", id="0")
        taken = 0
        while taken < count:
            for _, messages in await self.redis.xreadgroup("drain", "me", NEW, count=AT_ONCE, block=5_000):
                await self.redis.xack(NAME, "drain", *[number for number, _ in messages])
                taken += len(messages)

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        await self.redis.xgroup_create(NAME, "listen", id="$")

        async def read() -> None:
            while True:
                for _, messages in await self.redis.xreadgroup("listen", "me", NEW, count=AT_ONCE, block=0):
                    for number, fields in messages:
                        heard(fields[b"body"])
                        await self.redis.xack(NAME, "listen", number)

        self.listening = asyncio.ensure_future(read())


async def code_for_retries(address: str, handle: Any) -> None:
    store = redis.Redis.from_url(address)
    await store.xgroup_create("orders", "billing", id="0", mkstream=True)

    async def attempt(number: bytes, fields: dict[bytes, bytes], times: int) -> None:
        try:
            await handle(fields)
        except Exception:
            if times < 3:
                return  # stays pending; taken up again below when it has rested
            await store.xadd("orders-dead", fields)
        await store.xack("orders", "billing", number)

    while True:
        for _, messages in await store.xreadgroup("billing", "me", {"orders": ">"}, count=32, block=1_000):
            for number, fields in messages:
                await attempt(number, fields, 1)
        for entry in await store.xpending_range("orders", "billing", "-", "+", 32, idle=10_000):
            number, times = entry["message_id"], entry["times_delivered"] + 1
            for _, fields in await store.xclaim("orders", "billing", "me", 10_000, [number]):
                await attempt(number, fields, times)
