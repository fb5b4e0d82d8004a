# SPDX-License-Identifier: Apache-2.0
"""With access control on, every port asks who it is and what they may, and says no in RocketMQ's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol.access import UserStatus, UserType
from aerobee.protocol.accounts import Credentials, sign
from aerobee.protocol.command import Command, Header, request
from aerobee.protocol.headers.cluster import GetBrokerConfig
from aerobee.protocol.headers.consume import SendHeartbeat
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import AllTopics, GetClusterInfo, GetRoute, WipeWritePerm
from aerobee.server import OFF, Server
from aerobee.settings import BrokerConfig, NamesrvConfig
from tests.access.ports import ANN, NOBODY, ROOT, Ports, authorization, running

if TYPE_CHECKING:
    from pathlib import Path

SEND = SendMessageV2(topic="orders", queue_id=0)
STRANGER, IMPOSTOR = Credentials("eve", "x"), Credentials("ann", "guessed")
WHO = [
    (NOBODY, "username cannot be null."),
    (STRANGER, "User:eve is not found."),
    (IMPOSTOR, "check signature failed."),
    (
        ANN,
        "User:ann has no permission to access Topic:orders from 127.0.0.1, no matched policies. "
        "Needs Pub on Topic:orders.",
    ),
]


def grpc_send(*topics: str) -> Any:
    sent = pb.SendMessageRequest(
        messages=[pb.Message(body=b"x", topic=pb.Resource(name=name)) for name in topics]
    )
    for number, message in enumerate(sent.messages):
        message.system_properties.message_id = f"01{number:032X}"
    return sent


@pytest.mark.parametrize(("who", "why"), WHO, ids=["nobody", "stranger", "impostor", "without the right"])
async def test_who_may_not_is_told_why_on_every_port(ports: Ports, who: Credentials, why: str) -> None:
    for answer in (await ports.ask(who, SEND), await ports.ask_vip(who, SEND)):
        assert (answer.code, answer.remark) == (16, why)
    status = (await ports.call(who, "SendMessage", grpc_send("orders"))).status
    assert (status.code, status.message) == (pb.UNAUTHORIZED, why)
    queue = pb.MessageQueue(topic=pb.Resource(name="orders"))
    (answer,) = await ports.stream(who, "PullMessage", pb.PullMessageRequest(message_queue=queue))
    assert answer.status.code == pb.UNAUTHORIZED
    topics = [pb.Resource(name="orders")]
    settings = pb.TelemetryCommand(settings=pb.Settings(publishing=pb.Publishing(topics=topics)))
    (told,) = await ports.telemetry(who, settings)
    assert (told.status.code, told.status.message, told.WhichOneof("command")) == (
        pb.UNAUTHORIZED,
        why,
        None,
    )
    answer = await ports.ask_namesrv(who, WipeWritePerm(broker_name="broker-a"))
    of_cluster = why.replace("Pub on", "Update on").replace("Topic:orders", "Cluster:DefaultCluster")
    assert (answer.code, answer.remark) == (16, of_cluster)
    assert ports.server.broker.topics.get("orders") is None


async def test_who_may_is_served_and_loses_it_with_the_right(ports: Ports) -> None:
    ports.grant("Topic:orders Pub")
    assert (await ports.ask(ANN, SEND, b"x")).code == 0
    assert (await ports.ask_vip(ANN, SEND, b"x")).code == 0
    assert (await ports.call(ANN, "SendMessage", grpc_send("orders"))).status.code == pb.OK
    ports.grant("Deny Topic:orders Pub")
    assert "the decision is deny" in str((await ports.ask(ANN, SEND, b"x")).remark)
    access = ports.server.broker.access
    ann = access.users.get("ann")
    assert ann is not None
    access.put_user(type(ann)(username="ann", password=ann.password, user_status=UserStatus.DISABLE))
    assert (await ports.ask(ANN, SEND, b"x")).remark == "User:ann is disabled."


async def test_a_super_user_may_everything(ports: Ports) -> None:
    broken = await ports.ask(ROOT, SendHeartbeat(), b"xx")
    assert (broken.code, "authorization" in str(broken.remark)) == (1, False), (
        "it is told what is wrong with it"
    )
    assert (await ports.ask(ROOT, SEND, b"x")).code == 0
    assert (await ports.ask(ROOT, GetBrokerConfig())).code == 0
    assert (await ports.call(ROOT, "SendMessage", grpc_send("orders"))).status.code == pb.OK
    assert (await ports.ask_namesrv(ROOT, AllTopics())).code == 0


async def test_a_request_that_nobody_serves(ports: Ports) -> None:
    class New(Header):
        code = 9999

    ports.grant("* All")
    assert (await ports.ask(NOBODY, New())).code == 16
    assert (await ports.ask(ANN, New())).remark == "authorization context is empty."
    assert (await ports.ask(ROOT, New())).code == 3
    answer = await ports.send(Command(9999))
    assert (answer.code, answer.remark) == (16, "username cannot be null."), "no extFields at all"


async def test_routes_are_open_at_the_name_server_and_nothing_else(ports: Ports) -> None:
    await ports.ask(ROOT, SEND, b"x")
    for who in (NOBODY, STRANGER, IMPOSTOR, ANN):
        assert (await ports.ask_namesrv(who, GetRoute(topic="orders"))).code == 0
        assert (await ports.ask_namesrv(who, GetClusterInfo())).code == 0
        assert (await ports.ask_namesrv(who, AllTopics())).code == 16
    ports.grant("Topic:* List")
    assert (await ports.ask_namesrv(ANN, AllTopics())).code == 0


async def test_authentication_alone_asks_for_a_signature_only() -> None:
    async with running(authorization=False) as ports:
        assert (await ports.ask(ANN, SEND, b"x")).code == 0
        assert (await ports.ask(IMPOSTOR, SEND, b"x")).code == 16
        assert (await ports.ask(ANN, type("New", (Header,), {"code": 9999})())).code == 3


async def test_white_lists_open_what_they_name() -> None:
    send = "310,apache.rocketmq.v2.SendMessageRequest"
    async with running(authentication_whitelist=send) as ports:
        assert (await ports.ask(NOBODY, SEND, b"x")).remark == "username cannot be null.", (
            "rights need a user"
        )
        assert (await ports.ask(ROOT, SEND, b"x")).code == 0, "who signs is known all the same"
        forged = sign(request(SEND, b"x"), Credentials("root", "guessed"))
        assert (await ports.send(forged)).code == 16
    async with running(authentication_whitelist=send, authorization_whitelist=send) as ports:
        assert (await ports.ask(NOBODY, SEND, b"x")).code == 0
        assert (await ports.ask(IMPOSTOR, SEND, b"x")).code == 0
        assert (await ports.call(NOBODY, "SendMessage", grpc_send("orders"))).status.code == pb.OK
        assert (await ports.ask(NOBODY, GetBrokerConfig())).code == 16


async def test_with_access_control_off_a_malformed_header_is_nobodys_business() -> None:
    async with running(authentication=False, authorization=False) as ports:
        answer = await ports.call(NOBODY, "SendMessage", grpc_send("orders"), authorization="nonsense")
        assert answer.status.code == pb.OK
        assert (await ports.ask(IMPOSTOR, SEND, b"x")).code == 0


async def test_routes_have_no_gate_when_access_control_is_off() -> None:
    async with running(authentication=False, authorization=False) as ports:
        path = ports.server._listeners[0]._handler.__self__  # type: ignore[attr-defined]
        assert {310, 11, 200050, 200051, 3001} <= path._open.keys()


async def test_authentication_comes_before_the_client_id(ports: Ports) -> None:
    answer = await ports.call(NOBODY, "SendMessage", grpc_send("orders"), x_mq_client_id="")
    assert answer.status.code == pb.UNAUTHORIZED
    (told,) = await ports.telemetry(NOBODY, x_mq_client_id="")
    assert told.status.code == pb.UNAUTHORIZED
    (told,) = await ports.telemetry(ROOT, x_mq_client_id="")
    assert told.status.code == pb.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"authorization": "MQv2-HMAC-SHA1"}, "authentication header is incorrect."),
        ({"x_mq_date_time": ""}, "datetime is null."),
        ({"x_mq_date_time": "20250102T030405Z"}, "check signature failed."),
        (
            {"authorization": authorization(ANN)["authorization"].replace("Signature=", "Signature=zz")},
            "create authentication context error.",
        ),
    ],
)
async def test_grpc_headers_that_are_wrong(ports: Ports, said: dict[str, str], why: str) -> None:
    status = (await ports.call(ANN, "SendMessage", grpc_send("orders"), **said)).status
    assert (status.code, status.message) == (pb.UNAUTHORIZED, why)


async def test_a_name_server_alone_asks_too(tmp_path: Path) -> None:
    config = BrokerConfig(port=OFF, init_user='{"username":"root","password":"root-secret"}')
    name_server = NamesrvConfig(authentication=True, port=0)
    async with Server(tmp_path, broker_port=OFF, config=config, namesrv=name_server) as alone:
        inner = '{"accessKey":"root","secretKey":"root-secret"}'
        signing = BrokerConfig(namesrv=alone.namesrv, inner_credentials=inner, name="signs")
        stranger = BrokerConfig(namesrv=alone.namesrv, name="does-not", port=0)
        async with (
            Server(ephemeral=True, namesrv_port=OFF, config=signing) as server,
            Server(ephemeral=True, namesrv_port=OFF, config=stranger),
        ):
            ports = Ports(server)
            answer = await ports.send(request(GetClusterInfo()), alone.namesrv)
            assert b'"signs"' in answer.body
            assert b"does-not" not in answer.body
            assert (await ports.send(request(AllTopics()), alone.namesrv)).code == 16
            assert (await ports.send(sign(request(AllTopics()), ROOT), alone.namesrv)).code == 0
            await ports.close()


async def test_a_user_that_is_super_no_more_may_no_more(ports: Ports) -> None:
    other = Credentials("boss", "b")
    ports.add(other, UserType.SUPER)
    assert (await ports.ask(other, GetBrokerConfig())).code == 0
    ports.add(other, UserType.NORMAL)
    assert (await ports.ask(other, GetBrokerConfig())).code == 16
