# SPDX-License-Identifier: Apache-2.0
"""A small shop at work: topics with messages, groups that keep up, lag, fail, conflict and have nobody."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from aerobee import Admin, Message, Producer, PushConsumer
from aerobee.client.options import Options

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage

HOSTILE_BODIES = {
    "script": b"<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">",
    "rtl": "abc \u202e txt.exe \u2066 مرحبا".encode(),
    "binary": bytes(range(256)),
    "large": b"x" * (4 * 1024 * 1024 - 1024),
}
QUICK = Options(
    rebalance_ms=500, rebalance_soon_ms=200, rebalance_min_ms=100, persist_offsets_ms=500, stop_wait_ms=200
)


class Scene:
    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self._stack = AsyncExitStack()
        self.ids: dict[str, str] = {}  # of messages, for paths

    async def start(self) -> None:
        await self._make()
        traced = Producer(self.namesrv, group="shop", options=Options(trace=True))
        producer = await self._stack.enter_async_context(traced)
        await self._fill(producer)
        for group, topic, handler, options in (
            ("billing", "orders", _some_fail, Options(max_reconsume=1)),
            ("shipping", "orders", _fine, Options()),
            ("stuck", "payments", _hang, Options()),
        ):
            await self._consume(group, {topic: "*"}, handler, options)
        await self._consume("mixed", {"orders": "paid"}, _fine, Options())
        await self._consume("mixed", {"orders": "void"}, _fine, Options())

    async def stop(self) -> None:
        await self._stack.aclose()

    async def _make(self) -> None:
        async with Admin(self.namesrv) as admin:
            await admin.create_topic("orders", queues=8)
            for topic in ("payments", "emails", "hostile", "empty"):
                await admin.create_topic(topic, queues=4)
            for group in ("billing", "shipping", "stuck", "mixed", "audit"):
                await admin.create_group(group)
            await admin.set_consume_mode("orders", "shipping", "POP")

    async def _fill(self, producer: Producer) -> None:
        for number in range(400):
            body = json.dumps({"order": number, "amount": number * 37 % 500, "user": f"u-{number % 20}"})
            tags = "paid" if number % 3 else "void"
            sent = await producer.send(
                Message(
                    "orders",
                    body.encode(),
                    tags=tags,
                    keys=[f"o-{number}"],
                    properties={"amount": str(number)},
                )
            )
            if number == 7:
                self.ids["refused"] = sent.message_id
        for number in range(40):
            sent = await producer.send(Message("payments", b'{"payment": %d}' % number))
            self.ids["stuck"] = sent.message_id
            await producer.send(Message("emails", b"Dear customer"))
        for name, hostile in HOSTILE_BODIES.items():
            await producer.send(Message("hostile", hostile, tags=name, properties={"note": "<b>bold</b>"}))
        await producer.send(Message("hostile", HOSTILE_BODIES["script"], delay_level=18))
        await producer.send(Message("hostile", HOSTILE_BODIES["script"], delay_ms=3_600_000))
        async with Admin(self.namesrv) as admin:
            await admin.reset_offsets("audit", "orders", "first")

    async def _consume(self, group: str, topics: dict[str, str], handler: Any, options: Options) -> None:
        import msgspec

        mixed = msgspec.structs.replace(QUICK, max_reconsume=options.max_reconsume, trace=True)
        consumer = PushConsumer(
            self.namesrv, group=group, topics=topics, handler=handler, start="first", options=mixed
        )
        await self._stack.enter_async_context(consumer)


async def _fine(message: ReceivedMessage) -> None:
    await asyncio.sleep(0)


async def _some_fail(message: ReceivedMessage) -> None:
    if json.loads(message.body)["order"] % 50 == 7:
        raise RuntimeError("card refused")


async def _hang(message: ReceivedMessage) -> None:
    await asyncio.Event().wait()
