# SPDX-License-Identifier: Apache-2.0
"""A user's program with the async client, for type checkers: it is checked, not run. No expression may be Any."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import aerobee
from aerobee import (
    Admin,
    ConsumeResult,
    Message,
    MessageQueue,
    Options,
    Outcome,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullOptions,
    PushConsumer,
    PushOptions,
    ReceivedMessage,
    SendResult,
    SendStatus,
    Server,
    SimpleConsumer,
    SimpleOptions,
    Sql,
    TransactionProducer,
    TransactionState,
)
from aerobee.errors import BrokerError, NetworkError

if TYPE_CHECKING:
    from collections.abc import Sequence


async def handle(message: ReceivedMessage) -> Outcome | None:
    text: str = message.body.decode()
    first: str | None = message.keys[0] if message.keys else message.sharding_key
    print(text, first, message.attempt, message.born_at, message.queue.queue_id, message.property("a"))
    return Outcome(ConsumeResult.RETRY, delay_level=3) if message.attempt > 3 else None


def plain(message: ReceivedMessage) -> None:
    print(message.topic, message.tags, message.message_id, message.queue_offset, message.properties)


def batch(messages: list[ReceivedMessage]) -> bool:
    return len(messages) > 1


def choose(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    print(message.topic, argument)
    return queues[0]


def execute(message: Message, argument: str) -> TransactionState:
    print(message.topic, argument)
    return TransactionState.COMMIT


def check(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT if message.keys else TransactionState.UNKNOWN


async def producing(namesrv: str) -> None:
    options = ProducerOptions(send_retries=5, send_timeout_ms=10_000)
    async with Producer(namesrv, group="shop", options=options) as producer:
        try:
            sent: SendResult = await producer.send(
                Message(
                    "orders",
                    b"{}",
                    tags="paid",
                    keys=["o-1"],
                    properties={"a": "b"},
                    deliver_at=datetime.now(UTC),
                )
            )
        except (NetworkError, BrokerError) as error:
            print(str(error))
            return
        print(sent.status is SendStatus.OK, sent.message_id, sent.queue.broker_name, sent.queue_offset)
        if sent.recall_handle is not None:
            print(await producer.recall("orders", sent.recall_handle))
        queues = await producer.queues("orders")
        await producer.send(Message("orders", b"x"), queue=queues[0])
        await producer.send(Message("orders", b"x"), selector=choose, argument=1)
        results = await producer.send_batch([Message("orders", b"x")])
        print(len(results), results[0].offset_id)
        await producer.send_oneway(Message("orders", b"x"))
        reply = await producer.request(Message("orders", b"x"), timeout_ms=1_000)
        await producer.reply(reply, b"y")
    async with TransactionProducer(namesrv, group="shop", check=check) as transactions:
        done = await transactions.send_in_transaction(Message("orders", b"x"), execute, "argument")
        print(done.state, done.transaction_id)


async def consuming(namesrv: str) -> None:
    push = PushConsumer(
        namesrv,
        group="billing",
        topics={"orders": "paid||void", "refunds": Sql("amount > 100")},
        handler=handle,
        start=datetime.now(UTC),
        options=PushOptions(concurrency=64),
    )
    async with push as consumer:
        consumer.pause()
        consumer.resume()
        await consumer.subscribe("more")
        print(consumer.queues[0].topic)
        await consumer.wait()
    PushConsumer(namesrv, group="g", topics={"t": "*"}, handler=plain, model="broadcasting", ordered=True)
    PushConsumer(namesrv, group="g", topics={"t": "*"}, handler=batch, options=Options(consume_batch=5))
    options = PullOptions(auto_commit_ms=0)
    async with PullConsumer(
        namesrv, group="audit", topics={"orders": "*"}, start="first", options=options
    ) as pull:
        for message in await pull.poll(max_messages=32, timeout_ms=5_000):
            plain(message)
        async for message in pull:
            await pull.commit({message.queue: message.queue_offset + 1})
        low, high = await pull.offset_range(pull.assignment[0])
        print(low + high)
    async with SimpleConsumer(namesrv, group="s", topics={"orders": "*"}, options=SimpleOptions()) as simple:
        for message in await simple.receive(max_messages=32, invisible_ms=30_000):
            await message.ack()
        async with simple.messages() as messages:
            async for message in messages:
                await message.nack(1_000, "no stock")
                await message.extend(1_000)


async def looking(namesrv: str) -> None:
    async with Admin(namesrv) as admin:
        lag = await admin.lag("billing")
        print(lag.ready + lag.in_flight + lag.dead, lag.oldest_ms)
        async for letter in admin.dead_letters("billing"):
            plain(letter)
        await admin.create_topic("orders", queues=8, attributes={"reserve.time": "12"})
        print((await admin.message_by_id("id")).body, (await admin.topics())[0])


async def embedded() -> None:
    async with Server(ephemeral=True) as server:
        await producing(server.namesrv)


def main() -> None:
    aerobee.run(PushConsumer(group="worker", topics={"orders": "*"}, handler=handle), Producer(group="p"))
