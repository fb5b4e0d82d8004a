# SPDX-License-Identifier: Apache-2.0
"""Testing your own consumer with pytest: a real broker in the test process, and time that you move yourself.

`pip install aerobee pytest-asyncio` brings the fixtures and async tests; there is nothing to configure. Run it with

    pytest examples/test_with_pytest.py
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import aerobee.blocking
from aerobee import ConsumeResult, Message, Outcome, Producer, PushConsumer, SimpleConsumer
from aerobee.testing import eventually, wait_until

if TYPE_CHECKING:
    from aerobee import ReceivedMessage
    from aerobee.testing import TestServer

HALF_AN_HOUR = 16  # RocketMQ's delay level 16 is 30 minutes


class Payments:
    """The code under test: the bank refuses the first attempt."""

    def __init__(self) -> None:
        self.attempts: list[int] = []

    async def pay(self, message: ReceivedMessage) -> Outcome | None:
        self.attempts.append(message.attempt)
        if message.attempt == 1:
            return Outcome(ConsumeResult.RETRY, delay_level=HALF_AN_HOUR)
        return None


@pytest.mark.asyncio
async def test_a_refused_payment_is_tried_again_after_half_an_hour(aerobee_manual_server: TestServer) -> None:
    server, payments = aerobee_manual_server, Payments()
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("payments", b"42 EUR"))
        async with PushConsumer(
            server.namesrv,
            group="billing",
            topics={"payments": "*"},
            handler=payments.pay,
            start="first",
            clock=server.clock,  # the consumer lives in the server's time
        ):
            await eventually(lambda: payments.attempts == [1])
            await eventually(lambda: server.lag("billing").delayed == 1)  # the broker has it back

            server.clock.advance(minutes=29, seconds=59)
            assert server.lag("billing").delayed == 1  # still: the server moved with its clock at once

            server.clock.advance(seconds=2)
            await eventually(lambda: payments.attempts == [1, 2])


@pytest.mark.asyncio
async def test_what_a_dead_worker_held_comes_back(aerobee_manual_server: TestServer) -> None:
    server = aerobee_manual_server
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("parcels", b"to Graz"))
    async with SimpleConsumer(
        server.namesrv, group="shipping", topics={"parcels": "*"}, clock=server.clock
    ) as consumer:
        [first] = await consumer.receive(invisible_ms=60_000)  # ... and never acked
        server.clock.advance(minutes=2)
        [again] = await consumer.receive(invisible_ms=60_000)
        assert (again.body, again.attempt) == (first.body, 2)
        await again.ack()


def test_without_async(aerobee_server: TestServer, aerobee_topic: str, aerobee_group: str) -> None:
    seen: list[bytes] = []
    with aerobee.blocking.Producer(aerobee_server.namesrv, group="shop") as producer:
        producer.send(Message(aerobee_topic, b"hello"))
    with aerobee.blocking.PushConsumer(
        aerobee_server.namesrv,
        group=aerobee_group,
        topics={aerobee_topic: "*"},
        handler=lambda message: seen.append(message.body),
        start="first",
    ):
        wait_until(lambda: seen == [b"hello"])


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-v", __file__]))
