# SPDX-License-Identifier: Apache-2.0
"""A row in a database and a message, both or neither: transaction messages instead of polling an outbox table.

The message is stored first, seen by nobody ("half"). Then the row is written. Then the broker is told to show the
message or to drop it. When the program dies in between, the broker asks any producer of the group later, and the
database, which has the row or has it not, is the answer. A row that is not there may still come, as long as somebody
may be at work on it: such a message is dropped only when it is older than that.

    python examples/transactional_outbox.py
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee import BrokerConfig, Message, PushConsumer, Server, TransactionProducer, TransactionState
from aerobee.testing import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aerobee import ReceivedMessage

TOPIC = "outbox-orders"
LONGEST_WORK_MS = 60_000  # no order takes longer to be written
# The broker asks after 1 s instead of RocketMQ's 6 s to 30 s: an example should end soon.
QUICK_CHECKS = BrokerConfig(transaction_timeout_ms=500, transaction_check_ms=500)


@asynccontextmanager
async def name_server() -> AsyncGenerator[str]:
    """The one named by AEROBEE_NAMESRV, or a server inside this process."""
    if given := os.environ.get("AEROBEE_NAMESRV"):
        yield given
        return
    async with Server(ephemeral=True, config=QUICK_CHECKS) as server:
        print(f"embedded server: name server at {server.namesrv}")
        yield server.namesrv


class Orders:
    """The database. The outbox is one column: the id of the message that goes with the row."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file)
        self._database.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, message_id TEXT)")

    def place(self, message: Message, how_it_goes: str) -> TransactionState:
        """Called once the half message is stored: the local transaction."""
        number = message.keys[0]
        with self._database:
            self._database.execute("INSERT INTO orders VALUES (?, ?)", (number, message.message_id))
            if how_it_goes == "no stock":
                self._database.rollback()
                print(f"{number}: no stock, row and message are dropped")
                return TransactionState.ROLLBACK
        if how_it_goes == "crash":
            print(f"{number}: row written, then the program dies before it can say so")
            return TransactionState.UNKNOWN
        print(f"{number}: row written, message shown")
        return TransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> TransactionState:
        """The broker asks: what became of this one?"""
        query = "SELECT 1 FROM orders WHERE message_id = ?"
        if self._database.execute(query, (message.message_id,)).fetchone() is not None:
            print(f"{message.keys[0]}: the broker asks; the row is there: show it")
            return TransactionState.COMMIT
        age_ms = time.time() * 1000 - message.born_timestamp
        return TransactionState.ROLLBACK if age_ms > LONGEST_WORK_MS else TransactionState.UNKNOWN

    def numbers(self) -> list[str]:
        return [row[0] for row in self._database.execute("SELECT number FROM orders ORDER BY number")]

    def close(self) -> None:
        self._database.close()


async def main(directory: str) -> None:
    orders = Orders(Path(directory) / "orders.db")
    delivered: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        delivered.append(message.keys[0])

    # New numbers for each run: the consumer looks only at those.
    stories = {"order-1": "fine", "order-2": "no stock", "order-3": "crash", "order-4": "fine"}
    async with name_server() as namesrv:
        producing = TransactionProducer(namesrv, group="outbox-shop", check=orders.check)
        consuming: Any = PushConsumer(
            namesrv, group="outbox-mail", topics={TOPIC: "*"}, handler=handle, start="first"
        )
        async with producing as producer, consuming:
            for number, story in stories.items():
                message = Message(TOPIC, f"{number} was placed".encode(), keys=[number])
                await producer.send_in_transaction(message, execute=orders.place, argument=story)
            await eventually(lambda: set(delivered) >= set(orders.numbers()), timeout_ms=90_000)
    print(f"rows in the database: {orders.numbers()}")
    print(f"messages delivered:   {sorted(set(delivered))}")
    orders.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))
