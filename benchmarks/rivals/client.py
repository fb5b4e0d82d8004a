# SPDX-License-Identifier: Apache-2.0
"""What every rival's client can do, and the five that do it. Each is used as its documentation shows first, with its
defaults; all run on uvloop.

`code_for_retries` of each is what a user writes so that a failed message is tried again later, three times in all, and
then kept aside: it is read, counted in lines, and not run by the benchmark.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "bench"
AT_ONCE = 32  # messages asked for at once by whoever asks
QUEUES = 8  # or partitions, where there are any


class Client(ABC):
    promise: ClassVar[str]  # what a send that has returned means, with the defaults

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make what is sent to."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def send(self, body: bytes) -> None:
        """Return when the server has it."""

    @abstractmethod
    async def take_and_ack(self, count: int) -> None:
        """Take so many, some at a time, and ack each by itself."""

    @abstractmethod
    async def drain(self, count: int) -> None:
        """Have a function called with each of so many that wait already."""

    @abstractmethod
    async def listen(self, heard: Callable[[bytes], None]) -> None:
        """From now on call `heard` with what is sent."""


# Name on the page -> module and its client. RocketMQ has no client of its own for asyncio: Aerobee's is used.
CLIENTS = {
    "Aerobee": "aerobee_client",
    "RocketMQ": "aerobee_client",
    "NATS": "nats_client",
    "Redis": "redis_client",
    "RabbitMQ": "rabbitmq_client",
    "Kafka": "kafka_client",
}


def client_of(name: str) -> type[Client]:
    module = importlib.import_module(f"benchmarks.rivals.{CLIENTS[name]}")
    found: type[Client] = module.BenchClient
    return found
