# SPDX-License-Identifier: Apache-2.0
"""A running cluster for the client's scenarios; `tests/interop/test_client_on_rocketmq.py` runs the same ones on a
real RocketMQ by giving them another `cluster`."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import BrokerConfig, Server
from aerobee.client.admin import Admin
from aerobee.client.options import Options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@dataclass
class Cluster:
    """Where to connect, and names that no other test uses."""

    namesrv: str
    kind: str = "aerobee"
    # Inner timing that a test need not wait for; what peers can see keeps its defaults.
    options: Options = Options(  # noqa: RUF009 - frozen
        rebalance_ms=500,
        rebalance_soon_ms=200,
        rebalance_min_ms=100,
        exception_ms=200,
        offset_repair_ms=100,
        persist_offsets_ms=500,
        send_back_timeout_ms=2_000,
    )

    def fresh(self, kind: str) -> str:
        return f"{kind}-{uuid.uuid4().hex[:12]}"

    async def topic(self, queues: int = 4) -> str:
        """A new topic that the name servers already know."""
        name = self.fresh("topic")
        async with Admin(self.namesrv) as admin:
            await admin.create_topic(name, queues=queues)
            for _ in range(100):
                if await admin.topic_exists(name):
                    return name
                await asyncio.sleep(0.05)
        raise AssertionError(f"{name} is not routed")

    async def group(self, **settings: Any) -> str:
        name = self.fresh("group")
        async with Admin(self.namesrv) as admin:
            await admin.create_group(name, **settings)
        return name


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    config = BrokerConfig(transaction_check_ms=500, transaction_timeout_ms=300)
    async with Server(ephemeral=True, config=config) as server:
        yield Cluster(server.namesrv)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait for something that another task will make true."""

    async def wait(check: Callable[[], Any], timeout: float = 20, what: str = "") -> Any:
        for _ in range(round(timeout / 0.02)):
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {timeout} s: {what or check}")

    return wait
