# SPDX-License-Identifier: Apache-2.0
"""The shop: orders, and the three groups that consume them. Plain client code, as a user would write it.

billing   push: 1 % of the orders fail; most succeed on a retry, some never do and end as dead letters
shipping  POP with three consumers, one of which hangs for ever: its messages come back to the others
audit     ordered per user: each user's orders must come in the order they were placed
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee import Admin, Message, Producer, PushConsumer
from aerobee.client.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import ReceivedMessage

TOPIC = "orders"
GROUPS = ("audit", "billing", "shipping")
USERS = 200
QUEUES = 8
INVISIBLE_MS = 6_000
MAX_RECONSUME = 2
TRACED = Options(trace=True, compress_over_bytes=1 << 30)


class CardRefused(Exception):
    """A payment that does not go through."""


class Shop:
    """What happened so far, for the screen; the proof is the ledger's."""

    def __init__(self, namesrv: str, orders: int) -> None:
        self.namesrv = namesrv
        self.orders = orders
        self.sent = 0
        self.handled: dict[str, set[int]] = {group: set() for group in GROUPS}
        self.deliveries: Counter[str] = Counter()
        self.failures = 0
        self.hung: set[int] = set()
        self.rescued = 0
        self.out_of_order = 0
        self._last_of_user: dict[str, int] = {}

    # -- the producer -----------------------------------------------------------------------------------

    async def place_orders(self) -> None:
        async with Producer(self.namesrv, group="shop", options=TRACED) as producer:
            for first in range(0, self.orders, 250):
                wave = [self._order(n) for n in range(first, min(first + 250, self.orders))]
                # One queue per user keeps each user's orders in the order they were placed.
                await asyncio.gather(*(producer.send(order) for order in wave))
                self.sent += len(wave)

    def _order(self, number: int) -> Message:
        user = f"user-{number % USERS}"
        body = json.dumps({"order": number, "user": user, "amount": (number * 37) % 500 + 1})
        tags = "paid" if number % 3 else "void"
        return Message(TOPIC, body.encode(), tags=tags, keys=[f"o-{number}"], sharding_key=user)

    # -- the consumers ----------------------------------------------------------------------------------

    async def bill(self, message: ReceivedMessage) -> None:
        order = self._seen("billing", message)
        never, later = order % 1000 == 7, order % 125 == 3
        if never or (later and message.reconsume_times == 0):
            self.failures += 1
            raise CardRefused(f"order {order}")
        self.handled["billing"].add(order)

    async def ship(self, message: ReceivedMessage) -> None:
        order = self._seen("shipping", message)
        if order in self.hung:
            self.rescued += 1
        self.handled["shipping"].add(order)

    async def hang(self, message: ReceivedMessage) -> None:
        """A consumer that takes orders and never finishes one."""
        self.hung.add(self._seen("shipping", message))
        await asyncio.Event().wait()

    async def audit(self, message: ReceivedMessage) -> None:
        order = self._seen("audit", message)
        user = json.loads(message.body)["user"]
        self.out_of_order += order <= self._last_of_user.get(user, -1)
        self._last_of_user[user] = order
        self.handled["audit"].add(order)

    def _seen(self, group: str, message: ReceivedMessage) -> int:
        self.deliveries[group] += 1
        return int(json.loads(message.body)["order"])

    @property
    def dead_expected(self) -> set[int]:
        return {n for n in range(self.orders) if n % 1000 == 7}

    def done(self) -> bool:
        billed = len(self.handled["billing"]) >= self.orders - len(self.dead_expected)
        return billed and all(len(self.handled[group]) >= self.orders for group in ("audit", "shipping"))


async def run(shop: Shop, tick: Callable[[], None]) -> None:
    """The whole story: set up, place orders, consume until all is done or dead. `tick` redraws the screen."""
    async with Admin(shop.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        for group in GROUPS:
            await admin.create_group(group)
        await admin.set_consume_mode(TOPIC, "shipping", "POP")
    async with AsyncExitStack() as stack:
        for consumer in _consumers(shop):
            await stack.enter_async_context(consumer)
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            tasks.create_task(shop.place_orders())
            tasks.create_task(_watch(shop, tick))
        await _dead_letters_settled(shop)


def _consumers(shop: Shop) -> list[PushConsumer]:
    billing = msgspec.structs.replace(TRACED, max_reconsume=MAX_RECONSUME, concurrency=64)
    shipping = msgspec.structs.replace(TRACED, pop_invisible_ms=INVISIBLE_MS, stop_wait_ms=200)

    def consumer(group: str, handler: Any, options: Options, *, ordered: bool = False) -> PushConsumer:
        return PushConsumer(
            shop.namesrv,
            group=group,
            topics={TOPIC: "*"},
            handler=handler,
            ordered=ordered,
            start="first",
            options=options,
        )

    return [
        consumer("billing", shop.bill, billing),
        *(consumer("shipping", handler, shipping) for handler in (shop.hang, shop.ship, shop.ship)),
        consumer("audit", shop.audit, TRACED, ordered=True),
    ]


async def _watch(shop: Shop, tick: Callable[[], None]) -> None:
    while not shop.done():
        tick()
        await asyncio.sleep(0.1)
    tick()


async def _dead_letters_settled(shop: Shop) -> None:
    """The refused orders are retried to the end: wait until all of them are dead letters."""
    wanted = len(shop.dead_expected)
    async with Admin(shop.namesrv) as admin, asyncio.timeout(60):
        while (await admin.lag("billing")).dead < wanted:  # noqa: ASYNC110 - the broker is asked, as a user would
            await asyncio.sleep(0.2)
