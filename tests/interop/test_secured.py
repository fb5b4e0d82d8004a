# SPDX-License-Identifier: Apache-2.0
"""Official clients with credentials on a server with access control: the right key works, a wrong key and a missing
right get the official code and text, and mqadmin takes its account from tools.yml."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import peers
import pytest
from servers import JAVA_SMALL, Aerobee, free_port, wait_until

from aerobee.protocol.access import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from conftest import Running
    from servers import Server

ROOT, SECRET = "interop-root", "interop-secret"
SHOP, SHOP_SECRET = "interop-shop", "shop-secret-1"
AUDIT = "audit.jsonl"
TOPIC, GROUP = "secured-topic", "secured-group"
AUTH = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
RIGHTS = "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
REMOTING = ["java", "go", "ons", "addon", "cpp"]
GRPC = ["java5", "go5", "node5", "python5"]
# These ask for the route first, and tell of its refusal in their own words.
OWN_WORDS = {"node5": "Failed to fetch topic routes", "python5": "failed to fetch topic"}
KEYS: dict[str, Any] = {"accessKey": SHOP, "secretKey": SHOP_SECRET}


@pytest.fixture(scope="module")
def secured(server_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from conftest import make

    settings = {
        "authenticationEnabled": "true",
        "authenticationMetadataProvider": AUTH,
        "authorizationEnabled": "true",
        "authorizationMetadataProvider": RIGHTS,
        "initAuthenticationUser": json.dumps({"username": ROOT, "password": SECRET}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": ROOT, "secretKey": SECRET}),
    }
    data = tmp_path_factory.mktemp("secured") / "data"
    if server_kind == "aerobee":
        settings["audit_log"] = str(data.with_name(AUDIT))
    server = make(server_kind, data, settings, proxy=True)
    if isinstance(server, Aerobee):
        server.ports["broker"] = str(free_port())  # a port that is known has one two below it
    server.start()
    yield server
    server.discard()


@pytest.fixture(scope="module")
def mqadmin(secured: Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """RocketMQ's own, in a process of its own: it reads tools.yml when it starts."""
    home: Path = tmp_path_factory.mktemp("home")
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ROOT}\nsecretKey: {SECRET}\n")
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    java = [
        "java",
        *JAVA_SMALL,
        "-Xmx256m",
        f"-Drocketmq.home.dir={home}",
        "-cp",
        peers.server_class_path(),
        main,
    ]

    def call(command: str, *arguments: str, flags: Sequence[str] = ()) -> str:
        done = subprocess.run(
            [java[0], *flags, *java[1:], command, "-n", secured.namesrv, *arguments],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": str(home)},
        )  # fmt: skip
        return done.stdout + done.stderr

    return call


@pytest.fixture(scope="module")
def prepared(secured: Server, mqadmin: Callable[..., str]) -> Server:
    cluster = ("-c", "DefaultCluster")
    assert "success" in mqadmin("updateTopic", *cluster, "-t", TOPIC, "-r", "4", "-w", "4")
    assert "success" in mqadmin("updateSubGroup", *cluster, "-g", GROUP)
    assert "create user to" in mqadmin("createUser", *cluster, "-u", SHOP, "-p", SHOP_SECRET)
    rights = f"Topic:{TOPIC},Group:{GROUP}*"
    actions = ",".join((Action.PUB, Action.SUB, Action.GET))
    made = mqadmin("createAcl", *cluster, "-s", f"User:{SHOP}", "-r", rights, "-a", actions, "-d", "Allow")
    assert "create acl to" in made, made
    return secured


def test_mqadmin_takes_its_account_from_tools_yml(prepared: Server, mqadmin: Callable[..., str]) -> None:
    listed = mqadmin("listUser", "-c", "DefaultCluster")
    assert f"{SHOP} " in listed
    assert "get user from" in listed
    assert f"Topic:{TOPIC}" in mqadmin("getAcl", "-c", "DefaultCluster", "-s", f"User:{SHOP}")
    assert TOPIC in mqadmin("topicList")
    assert "broker-a" in mqadmin("clusterList")
    refused = mqadmin(
        "createAcl", "-c", "DefaultCluster", "-s", "User:nobody", "-r", "Topic:x", "-a", "Pub", "-d", "Allow"
    )
    assert "CODE: 16" in refused
    assert "The subject of User:nobody is not exist." in refused


def test_the_port_that_the_dashboard_uses_asks_too(prepared: Server, mqadmin: Callable[..., str]) -> None:
    """The dashboard's requests are those of Java's admin client, which it tells to use the port two below."""
    vip = ["-Dcom.rocketmq.sendMessageWithVIPChannel=true"]
    at = ("-b", prepared.broker)
    assert "success" in mqadmin("updateTopic", *at, "-t", "by-vip", "-r", "1", "-w", "1", flags=vip)
    assert f"{SHOP} " in mqadmin("getUser", *at, "-u", SHOP, flags=vip)
    assert "CODE: 16" in mqadmin("getAcl", *at, "-s", "User:nobody", flags=vip)
    if isinstance(prepared, Aerobee):
        lines = prepared.data.with_name(AUDIT).read_text().splitlines()
        made = [line for line in map(json.loads, lines) if line["resources"] == ["Topic:by-vip"]]
        assert [(line["port"], line["user"], line["result"]) for line in made] == [("vip", ROOT, "allowed")]


@pytest.mark.parametrize("name", REMOTING)
def test_a_remoting_client_sends_and_consumes_with_its_key(
    name: str, running: Running, prepared: Server
) -> None:
    session = peers.Session(running.get(name), prepared.namesrv)
    try:
        consumer = session.consumer(f"{GROUP}-{name}", TOPIC, **KEYS)
        session.producer(f"{GROUP}-p-{name}", **KEYS).send({"topic": TOPIC, "body": f"by {name}"})
        consumer.wait_for(lambda seen: any(row["body"] == f"by {name}" for row in seen), 60, "its message")
    finally:
        session.close_all()


@pytest.mark.parametrize("name", REMOTING)
def test_a_remoting_client_without_the_key_or_the_right_is_told(
    name: str, running: Running, prepared: Server
) -> None:
    for topic, keys in (
        (TOPIC, {}),
        (TOPIC, {"accessKey": SHOP, "secretKey": "guessed-secret"}),
        ("TopicTest", {"accessKey": SHOP, "secretKey": SHOP_SECRET}),
    ):
        session = peers.Session(running.get(name), prepared.namesrv)
        try:
            with pytest.raises(peers.PeerError):
                session.producer(f"{GROUP}-q-{name}", **keys).send({"topic": topic, "body": "not stored"})
        finally:
            session.close_all()


@pytest.mark.parametrize("name", GRPC)
def test_a_grpc_client_sends_receives_and_acks_with_its_key(
    name: str, running: Running, prepared: Server
) -> None:
    session = peers.Session(running.get(name), prepared.grpc)
    body = f"by {name}"
    try:
        consumer = session.consumer(f"{GROUP}-{name}", TOPIC, kind="simple", **KEYS)
        session.producer(topics=[TOPIC], **KEYS).send({"topic": TOPIC, "body": body})
        found: list[peers.Row] = []

        def came() -> bool:
            for row in session.peer.call("receive", name=consumer.name, max=16, invisibleMs=30_000):
                session.peer.call("ack", name=consumer.name, handle=row["handle"])
                found.append(row)
            return any(row["body"] == body for row in found)

        wait_until(came, 60, "its message")
    finally:
        session.close_all()


@pytest.mark.parametrize("name", GRPC)
@pytest.mark.parametrize(
    ("topic", "keys", "why"),
    [
        (TOPIC, {"accessKey": SHOP, "secretKey": "guessed-secret"}, "check signature failed."),
        (TOPIC, {"accessKey": "nobody", "secretKey": "guessed-secret"}, "User:nobody is not found."),
        ("TopicTest", {"accessKey": SHOP, "secretKey": SHOP_SECRET}, "no permission to access Topic:TopicTest"),
    ],
    ids=["wrong key", "stranger", "missing right"],
)  # fmt: skip
def test_a_grpc_client_without_the_key_or_the_right_is_told(
    name: str, topic: str, keys: dict[str, Any], why: str, running: Running, prepared: Server
) -> None:
    session = peers.Session(running.get(name), prepared.grpc)
    told = OWN_WORDS.get(name, re.escape(why))
    try:
        with pytest.raises(peers.PeerError, match=told):
            session.producer(topics=[topic], **keys).send({"topic": topic, "body": "not stored"})
    finally:
        session.close_all()
