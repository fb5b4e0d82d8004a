# SPDX-License-Identifier: Apache-2.0
"""Routes over gRPC: what an unknown topic is answered, and every broker of a topic, as the name server knows them."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest

from aerobee import BrokerConfig, Message, Producer, Server
from aerobee.client.admin import Admin
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol.bodies import GroupConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.slow  # servers and channels

ENDPOINTS = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=1)])


async def route(client: Any, topic: str) -> Any:
    return await client.call(
        "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=ENDPOINTS)
    )


async def assignment(client: Any, topic: str, group: str = "g") -> Any:
    request = pb.QueryAssignmentRequest(
        topic=pb.Resource(name=topic), group=pb.Resource(name=group), endpoints=ENDPOINTS
    )
    return await client.call("QueryAssignment", request)


# -- unknown topics ------------------------------------------------------------------------------------------


async def test_an_unknown_topic_is_not_found_and_not_made_by_asking(client: Any) -> None:
    assert (await route(client, "new")).status.code == pb.TOPIC_NOT_FOUND
    assert (await assignment(client, "new")).status.code == pb.TOPIC_NOT_FOUND
    assert client.server.broker.topics.get("new") is None
    assert (await client.send("new")).status.code == pb.OK
    answer = await route(client, "new")
    assert (answer.status.code, len(answer.message_queues)) == (pb.OK, 4)


async def test_a_send_makes_no_topic_where_that_is_off(client_of: Any) -> None:
    async with client_of(auto_create_topics=False) as client:
        for fields in ({}, {"message_group": "user-1"}):
            assert (await client.send("new", **fields)).status.code == pb.TOPIC_NOT_FOUND
        assert client.server.broker.topics.get("new") is None


async def test_a_topic_is_made_by_asking_for_its_route_where_the_setting_says_so(client_of: Any) -> None:
    async with client_of(grpc_auto_create_on_route=True) as client:
        assert (await assignment(client, "new")).status.code == pb.TOPIC_NOT_FOUND
        assert (await route(client, "new")).status.code == pb.OK
        assert client.server.broker.topics.get("new") is not None
        assert (await route(client, "%RETRY%nobody")).status.code == pb.TOPIC_NOT_FOUND
    async with client_of(grpc_auto_create_on_route=True, auto_create_topics=False) as client:
        assert (await route(client, "new")).status.code == pb.TOPIC_NOT_FOUND


async def test_a_group_of_messages_makes_its_topic_too_and_stays_in_one_queue(client: Any) -> None:
    for i in range(4):
        assert (await client.send("new", b"%d" % i, message_group="user-1")).status.code == pb.OK
    _, found = await client.receive("new")
    assert len({message.system_properties.queue_id for message in found}) == 1


# -- several brokers -----------------------------------------------------------------------------------------


class Town:
    """Three brokers under one name server, which is in the first one's process."""

    def __init__(self, servers: list[Server], clients: list[Any]) -> None:
        self.servers, self.clients = servers, clients
        self.namesrv = servers[0].namesrv

    def client_at(self, endpoints: Any) -> Any:
        (address,) = endpoints.addresses
        at = {client.server.grpc_address: client for client in self.clients}
        return at[f"{address.host}:{address.port}"]


@asynccontextmanager
async def town(make_client: Any, *third: int) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        servers: list[Server] = []
        for name in ("broker-a", "broker-b", "broker-c"):
            first = not servers
            config = BrokerConfig(name=name, namesrv="" if first else servers[0].namesrv)
            port = third[0] if third and len(servers) == 2 else 0
            server = Server(ephemeral=True, namesrv_port=None if first else -1, grpc_port=port, config=config)
            servers.append(await stack.enter_async_context(server))
        clients = []
        for server in servers:
            if server.grpc_address:
                channel = grpc.aio.insecure_channel(server.grpc_address)
                clients.append(make_client(server, await stack.enter_async_context(channel)))
        yield Town(servers, clients)


@pytest.fixture
def make_client(client: Any) -> Any:
    return type(client)


@pytest.mark.seed("S000-13")
async def test_routes_and_assignments_name_every_broker_whoever_is_asked(make_client: Any) -> None:
    async with town(make_client) as three, Admin(three.namesrv) as admin:
        await admin.create_topic("t", queues=2)
        addresses = {server.broker.config.name: server.grpc_address for server in three.servers}
        for client in three.clients:
            answer = await route(client, "t")
            assert answer.status.code == pb.OK
            named = {(q.broker.name, q.id, _text(q.broker.endpoints)) for q in answer.message_queues}
            assert named == {(name, i, addresses[name]) for name in addresses for i in range(2)}
            assert all(q.permission == pb.READ_WRITE and q.broker.id == 0 for q in answer.message_queues)
            assert all(q.accept_message_types for q in answer.message_queues)
            shares = [each.message_queue for each in (await assignment(client, "t")).assignments]
            assert {(q.broker.name, q.id, _text(q.broker.endpoints)) for q in shares} == {
                (name, -1, addresses[name]) for name in addresses
            }


async def test_an_ordered_group_is_assigned_every_queue_of_every_broker(make_client: Any) -> None:
    async with town(make_client) as three, Admin(three.namesrv) as admin:
        await admin.create_topic("t", queues=2)
        for server in three.servers:
            server.broker.groups.put(GroupConfig(group_name="g", consume_message_orderly=True))
        shares = [each.message_queue for each in (await assignment(three.clients[1], "t")).assignments]
        assert sorted((q.broker.name, q.id) for q in shares) == [
            (f"broker-{letter}", i) for letter in "abc" for i in range(2)
        ]


async def test_what_remoting_spreads_over_three_brokers_is_received_over_grpc_from_all(
    make_client: Any,
) -> None:
    async with town(make_client) as three:
        async with Admin(three.namesrv) as admin:
            await admin.create_topic("t", queues=2)
        async with Producer(three.namesrv, group="shop") as producer:
            sent = [await producer.send(Message("t", b"%d" % i)) for i in range(30)]
        spread = Counter(each.queue.broker_name for each in sent)
        assert len(spread) == 3
        seen: Counter[str] = Counter()
        for share in (await assignment(three.clients[2], "t")).assignments:
            queue = share.message_queue
            at = three.client_at(queue.broker.endpoints)
            while seen[queue.broker.name] < spread[queue.broker.name]:
                _, found = await at.receive("t")
                for message in found:
                    assert message.system_properties.receipt_handle.split(" ")[5] == queue.broker.name
                    assert (await at.ack("t", message.system_properties.receipt_handle)).status.code == pb.OK
                    seen[queue.broker.name] += 1
        assert seen == spread


async def test_a_recall_reaches_the_broker_that_keeps_the_message(make_client: Any) -> None:
    """Clients recall at the address they were given."""
    async with town(make_client) as three, Admin(three.namesrv) as admin:
        await admin.create_topic("t", queues=1)
        due = three.servers[0].clock.now() + 3_600_000
        sent = await three.clients[1].send("t", deliver_at=due)
        request = pb.RecallMessageRequest(
            topic=pb.Resource(name="t"), recall_handle=sent.entries[0].recall_handle
        )
        for client in three.clients:
            answer = await client.call("RecallMessage", request)
            assert (answer.status.code, answer.message_id) == (pb.OK, "01" + "A" * 32)
        kept = [server.broker.store.max_offset("rmq_sys_wheel_timer", 0) for server in three.servers]
        assert kept == [0, 4, 0], "the message and three recalls"
        await three.servers[1].stop()
        answer = await three.clients[0].call("RecallMessage", request)
        assert answer.status.code != pb.OK


async def test_a_topic_that_is_only_elsewhere_is_found(make_client: Any) -> None:
    async with town(make_client) as three:
        three.servers[1].broker.topics.ensure("t", queues=3)
        async with asyncio.timeout(20):
            while (answer := await route(three.clients[2], "t")).status.code != pb.OK:
                pass  # until its registration has reached the name server
        assert {(q.broker.name, q.id) for q in answer.message_queues} == {("broker-b", i) for i in range(3)}
        assert all(q.accept_message_types for q in answer.message_queues)


async def test_a_broker_without_grpc_is_left_out(make_client: Any) -> None:
    async with town(make_client, -1) as three, Admin(three.namesrv) as admin:
        await admin.create_topic("t", queues=1)
        three.servers[2].broker.topics.ensure("only-there")
        answer = await route(three.clients[0], "t")
        assert {q.broker.name for q in answer.message_queues} == {"broker-a", "broker-b"}
        async with asyncio.timeout(20):
            while "broker-c" not in (answer := await route(three.clients[0], "only-there")).status.message:
                assert answer.status.code == pb.TOPIC_NOT_FOUND
        assert answer.status.code == pb.TOPIC_NOT_FOUND


async def test_without_a_name_server_a_broker_tells_what_it_has(client_of: Any) -> None:
    async with client_of() as client:
        client.server.broker.topics.ensure("t")
        client.server.broker.pops.routes = None
        assert [q.broker.name for q in (await route(client, "t")).message_queues] == ["broker-a"]


def _text(endpoints: Any) -> str:
    return ",".join(f"{address.host}:{address.port}" for address in endpoints.addresses)
