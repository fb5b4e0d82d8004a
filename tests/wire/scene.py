# SPDX-License-Identifier: Apache-2.0
"""A broker on a port with its clock in the test's hand, and peers of it."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aerobee import BrokerConfig, ManualClock, Server, StoreConfig
from aerobee.protocol import message
from aerobee.server import OFF
from tests.wire.peer import Answer, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Exchange = Callable[["Scene"], Awaitable[None]]

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20, consume_queue_units=1000, index_slots=1000, index_entries=4000
)
NOW = 1_700_000_000_000
STAMP = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}  # in the answers to whatever stores a message
DONE = Answer()


@dataclass
class Scene:
    server: Server
    clock: ManualClock
    peer: Peer
    _exits: AsyncExitStack

    @property
    def address(self) -> str:
        return self.server.broker_address

    @property
    def broker(self) -> Any:
        """To look at what a request left behind; what is asked goes over the wire."""
        return self.server.broker

    async def dial(self) -> Peer:
        peer = await Peer.dial(self.address, self.peer.form)
        self._exits.push_async_callback(peer.hang_up)
        return peer

    async def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Answer:
        return await self.peer.ask(code, fields, body)

    async def send(
        self, topic: str = "orders", body: bytes = b"x", queue: int = 0, properties: str = "", **more: object
    ) -> Answer:
        """One message, in the form today's clients use."""
        fields = {
            "a": "shop", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": NOW, "h": 0,
            "i": properties, "j": 0, "k": False, "l": 0, "m": False, **more,
        }  # fmt: skip
        answer = await self.peer.ask(310, fields, body)
        assert answer.code == 0, answer.remark
        return answer

    def message_id(self, physical_offset: int) -> str:
        return f"{message.pack_host(*_host(self.address)).hex().upper()}{physical_offset:016X}"

    def stored(self, topic: str, queue: int = 0) -> list[message.Record]:
        store = self.broker.store
        return [store.record_of(topic, queue, at) for at in range(store.max_offset(topic, queue))]


def _host(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def scene(form: int, **settings: Any) -> AsyncIterator[Scene]:
    clock = ManualClock(NOW)
    async with AsyncExitStack() as exits:
        server = Server(
            ephemeral=True, namesrv_port=OFF, clock=clock, store=SMALL, config=BrokerConfig(**settings)
        )
        await exits.enter_async_context(server)
        peer = await Peer.dial(server.broker_address, form)
        exits.push_async_callback(peer.hang_up)
        yield Scene(server, clock, peer, exits)
