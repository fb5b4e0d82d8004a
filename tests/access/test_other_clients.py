# SPDX-License-Identifier: Apache-2.0
"""What the broker tells a client without being asked is told to that client alone: its id, its groups' names and its
correlation are no secrets, so saying them is not enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations.check_transaction import check_transactions
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.net.connection import Reply
from aerobee.net.pool import Pool
from aerobee.protocol import bodies, names
from aerobee.protocol.accounts import Credentials, sign
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.protocol.headers import consume as hr
from aerobee.protocol.headers import produce as hp
from aerobee.protocol.headers import route as hn
from tests.access.ports import ANN, ROOT, Ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.protocol.command import Command, Header

IN_USE = (16, "the client id victim is in use by another user")
SHOP = Credentials("shop", "shop-secret")


def said(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


def beat(client_id: str, *, producer: str = "", consumer: str = "") -> bytes:
    return bodies.encode(
        bodies.Heartbeat(
            client_id=client_id,
            producer_data_set=[bodies.ProducerData(group_name=producer)] if producer else [],
            consumer_data_set=[bodies.ConsumerData(group_name=consumer)] if consumer else [],
        )
    )


class Client:
    """A connection of its own that keeps what the broker asks over it."""

    def __init__(self, ports: Ports, who: Credentials) -> None:
        self._address = ports.server.broker_address
        self._who = who
        self.asked: list[Command] = []
        self._pool = Pool(self._note)

    def _note(self, connection: Any, command: Command) -> Reply:
        self.asked.append(command)
        return Reply()

    async def ask(self, header: Header, body: bytes = b"") -> Command:
        connection = await self._pool.get(self._address)
        return await connection.call(sign(request(header, body), self._who), 10_000)

    async def close(self) -> None:
        await self._pool.close()


@pytest.fixture
async def ports(ports: Ports) -> Ports:
    ports.grant("Topic:mine All", "Group:mine All")
    ports.add(SHOP)
    ports.grant("Topic:theirs All", "Group:theirs All", who=SHOP)
    for topic in ("mine", "theirs"):
        await ports.ask(ROOT, hp.SendMessageV2(topic=topic, queue_id=0), b"x")
    return ports


@pytest.fixture
async def shop(ports: Ports) -> AsyncIterator[Client]:
    client = Client(ports, SHOP)
    assert (await client.ask(hr.SendHeartbeat(), beat("victim", producer="p", consumer="theirs"))).code == 0
    yield client
    await client.close()


@pytest.fixture
async def ann(ports: Ports) -> AsyncIterator[Client]:
    client = Client(ports, ANN)
    yield client
    await client.close()


async def test_a_client_id_is_not_taken_over_by_a_heartbeat(ports: Ports, shop: Client, ann: Client) -> None:
    clients = ports.server.broker.clients
    before = clients.find_client("victim")
    assert before is not None
    link = before.link
    for body in (beat("victim", producer="other"), beat("victim", consumer="mine")):
        assert said(await ann.ask(hr.SendHeartbeat(), body)) == IN_USE
    assert clients.find_client("victim") is before
    assert before.link is link
    assert clients.group("mine") is None, "nothing of the heartbeat was done"
    assert (await ann.ask(hr.SendHeartbeat(), beat("own", consumer="mine"))).code == 0
    assert (await shop.ask(hr.SendHeartbeat(), beat("victim", producer="p"))).code == 0


async def test_another_users_client_is_not_sent_away(ports: Ports, shop: Client, ann: Client) -> None:
    leave = hr.Unregister(client_id="victim", producer_group="p")
    assert said(await ann.ask(leave)) == IN_USE
    assert [each.client_id for each in ports.server.broker.clients.producers("p")] == ["victim"]
    assert (await ann.ask(hr.Unregister(client_id="nobody", producer_group="p"))).code == 0
    assert (await shop.ask(leave)).code == 0
    assert ports.server.broker.clients.producers("p") == []


async def test_a_grpc_client_id_is_not_taken_over_by_remoting(ports: Ports, ann: Client) -> None:
    topics = [pb.Resource(name="theirs")]
    settings = pb.TelemetryCommand(settings=pb.Settings(publishing=pb.Publishing(topics=topics)))
    await ports.telemetry(SHOP, settings, x_mq_client_id="victim")
    assert said(await ann.ask(hr.SendHeartbeat(), beat("victim", producer="x"))) == IN_USE


@pytest.mark.parametrize("group", ["p", "theirs"], ids=["remoting's group", "gRPC's, which is the topic"])
async def test_a_half_message_is_shown_to_who_may_write_its_topic(
    ports: Ports, ann: Client, group: str
) -> None:
    """Every producer group may be joined by everybody; what is asked of it shows the message."""
    broker, clock = ports.server.broker, ports.server.clock
    half = hp.SendMessageV2(
        topic="theirs", queue_id=0, producer_group=group, sys_flag=4,
        properties=f"UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01{group}\x02",
    )  # fmt: skip
    assert (await ports.ask(SHOP, half, b"not hers to see")).code == 0
    assert (await ann.ask(hr.SendHeartbeat(), beat("nosy", producer=group))).code == 0
    clock.advance(120_000)  # type: ignore[attr-defined]
    check_transactions(clock.now(), broker)
    await ann.ask(hr.ConsumerList(consumer_group="mine"))  # what was sent before is there by then
    assert [each.code for each in ann.asked] == []
    shop = Client(ports, SHOP)
    await shop.ask(hr.SendHeartbeat(), beat("its-own", producer=group))
    clock.advance(120_000)  # type: ignore[attr-defined]
    check_transactions(clock.now(), broker)
    await shop.ask(hr.ConsumerList(consumer_group="theirs"))
    assert [each.code for each in shop.asked] == [RequestCode.CHECK_TRANSACTION_STATE]
    assert b"not hers to see" in shop.asked[0].body
    await shop.close()


async def test_a_reply_is_not_forged_by_who_may_not_reply(ports: Ports, shop: Client, ann: Client) -> None:
    properties = "REPLY_TO_CLIENT\x01victim\x02CORRELATION_ID\x01c\x02"
    forged = hp.SendReplyV2(topic="mine", queue_id=0, properties=properties)
    replies = names.reply_topic("DefaultCluster")
    assert (await ann.ask(forged, b"x")).code == 16
    ports.grant("Topic:mine All", f"Topic:{replies} Pub")
    reply = hp.SendReplyV2(topic=replies, queue_id=0, properties=properties)
    assert (await ann.ask(reply, b"x")).code == 0
    assert [each.code for each in shop.asked][-1:] == [RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]


async def test_a_property_said_twice(ports: Ports) -> None:
    """The operation takes the last one, so the last one needs the right."""
    for twice in ("mine+K\x02TIMER_DEL_UNIQKEY\x01theirs+K", "theirs+K"):
        properties = f"TIMER_DEL_UNIQKEY\x01{twice}\x02TIMER_DELAY_SEC\x0160\x02"
        recalling = hp.SendMessageV2(topic="mine", queue_id=0, properties=properties)
        assert "Topic:theirs" in str((await ports.ask(ANN, recalling, b"x")).remark)


async def test_nobody_makes_topics_by_calling_them_traces(ports: Ports) -> None:
    name = f"{names.TRACE_PREFIX}nowhere"
    assert (await ports.ask(ANN, hp.SendMessageV2(topic=name, queue_id=0), b"x")).code == 16
    assert ports.server.broker.topics.get(name) is None
    ports.server.broker.topics.ensure(name)
    assert (await ports.ask(ANN, hp.SendMessageV2(topic=name, queue_id=0), b"x")).code == 0


@pytest.mark.parametrize(
    "waits",
    ["DELAY\x011\x02", "TIMER_DELAY_SEC\x015\x02", "TRAN_MSG\x01true\x02PGROUP\x01p\x02"],
    ids=["level", "timer", "half"],
)
async def test_a_message_that_waits_goes_where_it_was_sent(ports: Ports, waits: str) -> None:
    """Where it goes in the end is written in its properties: not by its producer."""
    properties = f"REAL_TOPIC\x01theirs\x02REAL_QID\x010\x02{waits}REAL_TOPIC\x01theirs\x02"
    sent = await ports.ask(ANN, hp.SendMessageV2(topic="mine", queue_id=0, properties=properties), b"x")
    assert sent.code == 0
    place = int(sent.fields(hp.SendResult).msg_id[-16:], 16)
    assert ports.server.broker.access.look_up.topic_at(place) == "mine"


async def test_a_broker_of_another_cluster_is_not_replaced(ports: Ports) -> None:
    """Routes go by the broker's name: a right to one's own cluster is no right to a name in another."""
    ports.grant("Cluster:hers Update")
    false: dict[str, Any] = {"broker_addr": "10.6.6.6:10911", "broker_id": 0, "cluster_name": "hers"}
    body = bodies.encode(bodies.RegisterBrokerBody())
    theirs = hn.RegisterBroker(broker_name="broker-a", **false)
    assert said(await ports.ask_namesrv(ANN, theirs, body)) == (
        16,
        "broker 'broker-a' is of cluster 'DefaultCluster'",
    )
    gone = hn.UnregisterBroker(broker_name="broker-a", **false)
    assert (await ports.ask_namesrv(ANN, gone)).code == 16
    in_theirs = hn.RegisterBroker(broker_name="broker-b", **{**false, "cluster_name": "DefaultCluster"})
    assert (await ports.ask_namesrv(ANN, in_theirs, body)).code == 16
    route = await ports.ask_namesrv(ANN, hn.GetRoute(topic="theirs"))
    assert b"10.6.6.6" not in route.body
    own = hn.RegisterBroker(broker_name="broker-of-hers", **false)
    assert (await ports.ask_namesrv(ANN, own, body)).code == 0
    assert (await ports.ask_namesrv(ROOT, theirs, body)).code == 0, "a super user may move it"
