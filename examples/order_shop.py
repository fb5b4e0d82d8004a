# SPDX-License-Identifier: Apache-2.0
"""An order shop: one producer, two groups that consume the same orders in their own way.

billing  wants paid orders only (a tag filter); a card that is refused is tried again later
audit    wants every order of a user in the order they were placed (sharding key and an ordered consumer)

    python examples/order_shop.py
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aerobee import Admin, Message, Producer, PushConsumer, Server, StoreConfig
from aerobee.testing import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aerobee import ReceivedMessage

TOPIC, ORDERS, USERS = "shop-orders", 30, 3
# Retries after 1 s instead of RocketMQ's 10 s, 30 s, 1 min ...: an example should end soon.
QUICK_RETRIES = StoreConfig(delay_levels=" ".join(["1s"] * 18))


@asynccontextmanager
async def name_server() -> AsyncGenerator[str]:
    """The one named by AEROBEE_NAMESRV, or a server inside this process."""
    if given := os.environ.get("AEROBEE_NAMESRV"):
        yield given
        return
    async with Server(ephemeral=True, store=QUICK_RETRIES) as server:
        print(f"embedded server: name server at {server.namesrv}")
        yield server.namesrv


class Billing:
    def __init__(self) -> None:
        self.billed: set[int] = set()
        self.refused = 0

    async def handle(self, message: ReceivedMessage) -> None:
        order = json.loads(message.body)
        if order["number"] % 10 == 7 and message.attempt == 1:
            self.refused += 1
            raise RuntimeError("card refused")  # raised = comes again later
        self.billed.add(order["number"])


class Audit:
    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = defaultdict(list)

    async def handle(self, message: ReceivedMessage) -> None:
        order = json.loads(message.body)
        self.seen[order["user"]].append(order["number"])


async def place_orders(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for number in range(ORDERS):
            user = f"user-{number % USERS}"
            body = json.dumps({"number": number, "user": user}).encode()
            tags = "void" if number % 5 == 0 else "paid"
            await producer.send(Message(TOPIC, body, tags=tags, keys=[f"order-{number}"], sharding_key=user))


async def main() -> None:
    async with name_server() as namesrv, Admin(namesrv) as admin:
        if not await admin.topic_exists(TOPIC):
            await admin.create_topic(TOPIC, queues=4)
        billing, audit = Billing(), Audit()
        async with (
            PushConsumer(
                namesrv, group="shop-billing", topics={TOPIC: "paid"}, handler=billing.handle, start="first"
            ),
            PushConsumer(
                namesrv, group="shop-audit", topics={TOPIC: "*"}, handler=audit.handle, ordered=True
            ),
        ):
            await place_orders(namesrv)
            paid = {number for number in range(ORDERS) if number % 5}
            await eventually(lambda: billing.billed == paid, timeout_ms=60_000)
            await eventually(lambda: sum(map(len, audit.seen.values())) == ORDERS, timeout_ms=60_000)
        print(f"billing: {len(billing.billed)} paid orders billed, {billing.refused} cards refused at first")
        for user, numbers in sorted(audit.seen.items()):
            print(f"audit: {user} placed {numbers}, in order: {numbers == sorted(numbers)}")
        for group in ("shop-billing", "shop-audit"):
            lag = await admin.lag(group)
            print(
                f"{group}: ready {lag.ready}, in flight {lag.in_flight}, retrying {lag.retrying}, dead {lag.dead}"
            )


if __name__ == "__main__":
    asyncio.run(main())
