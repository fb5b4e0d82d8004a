# SPDX-License-Identifier: Apache-2.0
"""Two ends of real sockets on 127.0.0.1, and frames by hand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from aerobee.clock import ManualClock
from aerobee.net.listener import Listener
from aerobee.net.pool import Pool
from tests import turning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aerobee.net.connection import Connection


class Ends:
    """Starts listeners and pools and ends them after the test."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.listeners: list[Listener] = []
        self.pools: list[Pool] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def listen(self, handler: Any, **options: Any) -> Listener:
        listener = Listener(handler, self.clock, **options)
        await listener.start("127.0.0.1", 0)
        self.listeners.append(listener)
        return listener

    def pool(self, *args: Any, **options: Any) -> Pool:
        pool = Pool(*args, **options)
        self.pools.append(pool)
        return pool

    async def dial(self, listener: Listener, *args: Any, **options: Any) -> Connection:
        return await self.pool(*args, **options).get(listener.address)

    async def raw(self, listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(listener.host, listener.port)
        self.writers.append(writer)
        return reader, writer

    async def end(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        for pool in self.pools:
            await pool.close()
        for listener in self.listeners:
            await listener.close(grace_ms=0)
        await settle()


async def settle(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Every test on both loops: they differ in when they write, pause and close."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def ends(clock: ManualClock) -> AsyncIterator[Ends]:
    ends = Ends(clock)
    yield ends
    await ends.end()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return turning.until
