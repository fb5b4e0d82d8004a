# SPDX-License-Identifier: Apache-2.0
"""A running broker and a peer that speaks the wire protocol to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.net.connection import Answer, Connection, Reply
from aerobee.net.pool import Pool
from aerobee.protocol.command import Command, Header, request
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.server import OFF, Server
from aerobee.settings import StoreConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 24, consume_queue_units=1000, index_slots=1000, index_entries=4000
)


class Peer:
    """One connection to the broker, as a client has it; `asked` collects the broker's own requests."""

    def __init__(self, connection: Connection, asked: list[Command]) -> None:
        self.connection = connection
        self.asked = asked

    async def call(self, header: Header, body: bytes = b"", **fields: Any) -> Command:
        command = request(header, body)
        for name, value in fields.items():
            setattr(command, name, value)
        return await self.connection.call(command, 10_000)

    async def send(
        self, topic: str = "orders", body: bytes = b"x", queue_id: int = 0, **more: Any
    ) -> Command:
        return await self.call(SendMessageV2(topic=topic, queue_id=queue_id, **more), body)

    def start_pull(
        self, topic: str = "orders", offset: int = 0, queue_id: int = 0, **more: Any
    ) -> Awaitable[Command]:
        values: dict[str, Any] = {"consumer_group": "billing", "sys_flag": 6, "subscription": "*", **more}
        values.setdefault("suspend_timeout_millis", 15_000)
        header = PullMessage(topic=topic, queue_id=queue_id, queue_offset=offset, **values)
        return self.connection.start_call(request(header))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(clock: ManualClock) -> AsyncIterator[Server]:
    async with Server(ephemeral=True, namesrv_port=OFF, clock=clock, store=SMALL) as running:
        yield running


@pytest.fixture
async def dial(server: Server) -> AsyncIterator[Callable[[], Awaitable[Peer]]]:
    pools: list[Pool] = []

    async def connect() -> Peer:
        asked: list[Command] = []

        def handle(connection: Connection, command: Command) -> Answer:
            asked.append(command)
            return Reply()

        pools.append(Pool(handle))
        return Peer(await pools[-1].get(server.broker_address), asked)

    yield connect
    for pool in pools:
        await pool.close()


@pytest.fixture
async def peer(dial: Callable[[], Awaitable[Peer]]) -> Peer:
    return await dial()
