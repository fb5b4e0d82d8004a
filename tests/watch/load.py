# SPDX-License-Identifier: Apache-2.0
"""A little of everything that brokers count, by our own client against any of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aerobee import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    PushOptions,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPIC, TIMED, DELAYED, HALVES, FIFO = (
    "orders",
    "orders-timed",
    "orders-delayed",
    "orders-halves",
    "orders-fifo",
)
GROUPS = ("billing", "shipping", "hung", "failing", "offline")
MESSAGES = 40
HUNG_MS = 10_000


class Load:
    """`async with Load(namesrv)`: runs until it is left; consumers stay connected while a test scrapes."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._stack = AsyncExitStack()
        self.read = 0
        self.acked = 0
        self.failed = 0

    async def __aenter__(self) -> Load:
        await self._prepare()
        producer = await self._stack.enter_async_context(Producer(self._namesrv, group="shop"))
        await self._send(producer)
        await self._decide()
        await self._consume()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _prepare(self) -> None:
        async with Admin(self._namesrv) as admin:
            for topic in (TOPIC, TIMED, DELAYED, HALVES, FIFO):
                kind = {TIMED: "DELAY", DELAYED: "DELAY", HALVES: "TRANSACTION", FIFO: "FIFO"}.get(
                    topic, "NORMAL"
                )
                await admin.create_topic(topic, queues=4, attributes={"message.type": kind})
            for group in GROUPS:
                await admin.create_group(group)

    async def _send(self, producer: Producer) -> None:
        for n in range(MESSAGES):
            await producer.send(Message(TOPIC, b"x" * 100 * (n + 1), tags="paid", keys=[f"o-{n}"]))
        await producer.send_batch([Message(TOPIC, b"y" * 50) for _ in range(5)])
        await producer.send(Message(TOPIC, b"z" * 2_000_000))
        for ahead in (timedelta(seconds=2), timedelta(minutes=30)):
            await producer.send(Message(TIMED, b"t", deliver_at=datetime.now(UTC) + ahead))
        await producer.send(Message(DELAYED, b"d", delay_level=1))
        for n in range(4):
            await producer.send(Message(FIFO, b"f", sharding_key=f"user-{n % 2}"))

    async def _decide(self) -> None:
        async with TransactionProducer(
            self._namesrv, group="halves", check=lambda message: TransactionState.UNKNOWN
        ) as producer:
            for state in TransactionState:
                await producer.send_in_transaction(
                    Message(HALVES, state.name.encode()), lambda message, argument: argument, state
                )

    async def _consume(self) -> None:
        async def billed(message: Any) -> None:
            self.read += 1

        async def failing(message: Any) -> None:
            self.failed += 1
            raise ValueError("no such order")

        for group, handler in (("billing", billed), ("failing", failing)):
            # The client says how often it wants a message back: not at all is straight to the dead letters.
            options = PushOptions(max_reconsume=0 if group == "failing" else -1)
            await self._stack.enter_async_context(
                PushConsumer(
                    self._namesrv,
                    group=group,
                    topics={TOPIC: "*"},
                    handler=handler,
                    start="first",
                    options=options,
                )
            )
        hung = await self._stack.enter_async_context(
            SimpleConsumer(self._namesrv, group="hung", topics={TOPIC: "*"})
        )
        await hung.receive(max_messages=8, invisible_ms=HUNG_MS)
        shipping = await self._stack.enter_async_context(
            SimpleConsumer(self._namesrv, group="shipping", topics={TOPIC: "*"})
        )
        async for message in _received(shipping):
            await message.ack()
            self.acked += 1


async def _received(consumer: SimpleConsumer) -> AsyncIterator[Any]:
    """All but one batch, so that something is left to do."""
    async with asyncio.timeout(60):
        seen = 0
        while seen < MESSAGES // 2:
            for message in await consumer.receive(max_messages=16, invisible_ms=60_000):
                seen += 1
                yield message
