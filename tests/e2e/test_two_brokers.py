# SPDX-License-Identifier: Apache-2.0
"""Two brokers on one name server, which is in the first one's process: assignments span both, whoever is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee import BrokerConfig, Message, Producer, PushConsumer, Server
from aerobee.broker.background import topic_routes
from aerobee.broker.background.topic_routes import RemoteRoutes
from aerobee.client.admin import Admin
from aerobee.client.options import Options
from aerobee.clock import ManualClock
from aerobee.net.pool import Pool
from aerobee.protocol.bodies import Assignment, ConsumerData, Heartbeat, decode, encode
from aerobee.protocol.command import request
from aerobee.protocol.headers.consume import QueryAssignment, SendHeartbeat, SetRequestMode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.slow
CLIENTS = ("c1", "c2", "c3", "c4")


class Pair:
    def __init__(self, first: Server, second: Server, pool: Pool) -> None:
        self.namesrv, self.servers, self._pool = first.namesrv, (first, second), pool

    async def call(self, server: Server, header: Any, body: Any) -> bytes:
        connection = await self._pool.get(server.broker_address)
        answer = await connection.call(request(header, encode(body) if not isinstance(body, bytes) else body))
        assert answer.code == 0, answer.remark
        return answer.body

    async def assigned(
        self, server: Server, client: str, topic: str = "orders", **more: Any
    ) -> set[str] | None:
        query = {"topic": topic, "consumerGroup": "billing", "clientId": client, "strategyName": "AVG"}
        query |= {"messageModel": "CLUSTERING"} | more
        found = decode(await self.call(server, QueryAssignment(), msgspec.json.encode(query)), Assignment)
        queues = found.message_queue_assignments
        return (
            None
            if queues is None
            else {f"{q.message_queue.broker_name}/{q.message_queue.queue_id}" for q in queues}
        )

    async def all_assigned(self, **more: Any) -> list[set[str] | None]:
        """Of every client; both brokers must say the same."""
        first, second = [[await self.assigned(s, c, **more) for c in CLIENTS] for s in self.servers]
        assert first == second
        return first


@asynccontextmanager
async def two_brokers() -> AsyncIterator[Pair]:
    async with Server(ephemeral=True) as first:
        config = BrokerConfig(name="broker-b", namesrv=first.namesrv)
        async with Server(ephemeral=True, namesrv_port=-1, broker_port=0, config=config) as second:
            pool = Pool()
            try:
                yield Pair(first, second, pool)
            finally:
                await pool.close()


async def test_shares_and_strategies_span_both_brokers() -> None:
    async with two_brokers() as pair:
        async with Admin(pair.namesrv) as admin:
            await admin.create_topic("orders", queues=2)
        for server in pair.servers:
            for client in CLIENTS:
                data = ConsumerData(group_name="billing")
                beat = Heartbeat(client_id=client, consumer_data_set=[data])
                await pair.call(server, SendHeartbeat(), beat)
        a0, a1, b0, b1 = "broker-a/0", "broker-a/1", "broker-b/0", "broker-b/1"
        assert await pair.all_assigned() == [{a0}, {a1}, {b0}, {b1}]
        assert await pair.all_assigned(strategyName="AVG_BY_CIRCLE") == [{a0}, {a1}, {b0}, {b1}]
        assert await pair.all_assigned(messageModel="BROADCASTING") == [{a0, a1, b0, b1}] * 4
        assert await pair.all_assigned(strategyName="NO_SUCH") == [None] * 4
        assert await pair.all_assigned(topic="nowhere") == [None] * 4
        for share, wanted in (
            (1, [{a0, a1}, {a1, b0}, {b0, b1}, {b1, a0}]),
            (0, [{"broker-a/-1", "broker-b/-1"}] * 4),
        ):
            mode = {"topic": "orders", "consumerGroup": "billing", "mode": "POP", "popShareQueueNum": share}
            for server in pair.servers:
                await pair.call(server, SetRequestMode(), msgspec.json.encode(mode))
            assert await pair.all_assigned() == wanted


async def test_a_pop_consumer_gets_the_messages_of_both() -> None:
    seen: Counter[bytes] = Counter()
    done = asyncio.Event()

    def handle(message: Any) -> None:
        seen[message.body] += 1
        if len(seen) == 40:
            done.set()

    async with two_brokers() as pair:
        async with Admin(pair.namesrv) as admin:
            await admin.create_topic("orders", queues=2)
        mode = {"topic": "orders", "consumerGroup": "billing", "mode": "POP", "popShareQueueNum": 0}
        for server in pair.servers:
            await pair.call(server, SetRequestMode(), msgspec.json.encode(mode))
        async with Producer(pair.namesrv, group="shop") as producer:
            sent = [await producer.send(Message("orders", b"%d" % n)) for n in range(40)]
        assert {each.queue.broker_name for each in sent} == {"broker-a", "broker-b"}
        options = Options(rebalance_ms=500, rebalance_soon_ms=200, rebalance_min_ms=100)
        async with PushConsumer(
            pair.namesrv,
            group="billing",
            topics={"orders": "*"},
            handler=handle,
            options=options,
            start="first",
        ):
            async with asyncio.timeout(60):
                await done.wait()
        assert set(seen.values()) == {1}


async def test_a_route_is_asked_for_once_then_refreshed_and_forgotten() -> None:
    async with Server(ephemeral=True) as server:
        async with Admin(server.namesrv) as admin:
            await admin.create_topic("orders", queues=1)
        clock = ManualClock()
        routes = RemoteRoutes([server.namesrv], "broker-b", clock)
        try:
            assert routes.known("orders") is None
            await asyncio.gather(*(routes.look_up("orders") for _ in range(10)))
            (host,) = routes.known("orders") or ()
            assert (host.broker_name, host.read_queues, host.grpc_address) == ("broker-a", 1, "")
            await routes.look_up("nowhere")
            assert routes.known("nowhere") == ()
            clock.advance(topic_routes.ABSENT_MS)
            assert routes.known("nowhere") is None, "asked for again: it may be there by now"
            async with Admin(server.namesrv) as admin:
                await admin.create_topic("orders", queues=3)
            clock.advance(topic_routes.REFRESH_MS)
            async with asyncio.timeout(30):
                while [host.read_queues for host in routes.known("orders") or ()] != [3]:  # noqa: ASYNC110 - the name server has no event for us
                    await asyncio.sleep(0.01)
            await server.stop()
            clock.advance(topic_routes.REFRESH_MS)
            await asyncio.sleep(0)
            (kept,) = routes.known("orders") or ()
            assert kept.read_queues == 3, "kept while no name server answers"
            await routes.look_up("bills")
            assert routes.known("bills") is None
        finally:
            await routes.stop()


async def test_a_name_server_that_is_away_delays_only_the_first_question() -> None:
    async with Server(ephemeral=True) as server:
        async with Admin(server.namesrv) as admin:
            await admin.create_topic("orders", queues=1)
        routes = RemoteRoutes(["127.0.0.1:1", server.namesrv], "broker-b", ManualClock())
        try:
            await routes.look_up("orders")
            assert len(routes.known("orders") or ()) == 1
            assert next(iter(routes._servers)) == server.namesrv
        finally:
            await routes.stop()
