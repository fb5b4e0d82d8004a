# SPDX-License-Identifier: Apache-2.0
"""`aerobee serve --brokers 3`: one command, three broker processes, one name server; each may be killed at any time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import grpc.aio
import msgspec
import psutil
import pytest

from aerobee import Message, Producer, SimpleConsumer
from aerobee.client.admin import Admin
from aerobee.client.options import Options
from aerobee.errors import AerobeeError
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol.bodies import UserInfo
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

ANY_PORTS = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0", "--http-port", "-1"]
SERVICE = "/apache.rocketmq.v2.MessagingService/"
NAMES = ["broker-a", "broker-b", "broker-c"]


class Fleet:
    def __init__(self, log: Path, *arguments: str) -> None:
        self.log = log
        with log.open("w") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "aerobee", "serve", *arguments, *ANY_PORTS],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ready(self) -> dict[str, str]:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("aerobee ready "), line + self.log.read_text()
        return dict(re.findall(r"(\w+)=(\S+)", line))

    def brokers(self) -> dict[str, psutil.Process]:
        """By name."""
        found = {}
        for child in psutil.Process(self.popen.pid).children():
            named = re.search(r"name=(\S+)", " ".join(child.cmdline()))
            if named is not None:
                found[named[1]] = child
        return found

    def end(self) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        self.popen.communicate(timeout=60)
        return self.popen.returncode


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    started: list[Fleet] = []

    def run(*arguments: str) -> Fleet:
        started.append(Fleet(tmp_path / f"{len(started)}.log", *arguments))
        return started[-1]

    yield run
    for fleet in started:
        fleet.end()


async def send_all(producer: Producer, count: int, *, then: Callable[[int], None]) -> set[str]:
    """Until each is acknowledged; `then` is told how many were."""
    kept = set()
    for number in range(count):
        body = f"m{number}"
        async with asyncio.timeout(60):
            while body not in kept:
                try:
                    await producer.send(Message("orders", body.encode()))
                    kept.add(body)
                except AerobeeError:
                    await asyncio.sleep(0.05)
        then(number)
    return kept


async def receive_all(namesrv: str, wanted: set[str], options: Options | None = None) -> None:
    got: set[str] = set()
    async with SimpleConsumer(namesrv, group="billing", topics={"orders": "*"}, options=options) as consumer:
        async with asyncio.timeout(120):
            while not wanted <= got:
                for message in await consumer.receive(max_messages=32, invisible_ms=30_000):
                    got.add(message.body.decode())
                    await message.ack()


async def route(address: str, topic: str) -> dict[str, int]:
    """By broker name the gRPC port that the broker at that address tells."""
    async with grpc.aio.insecure_channel(address) as channel:
        ask = channel.unary_unary(
            SERVICE + "QueryRoute",
            request_serializer=pb.QueryRouteRequest.SerializeToString,
            response_deserializer=pb.QueryRouteResponse.FromString,
        )
        answer = await ask(
            pb.QueryRouteRequest(topic=pb.Resource(name=topic)),
            metadata=(("x-mq-client-id", "c"),),
            timeout=10,
        )
    return {queue.broker.name: queue.broker.endpoints.addresses[0].port for queue in answer.message_queues}


async def send_over_grpc(address: str, body: str) -> Any:
    message = pb.Message(topic=pb.Resource(name="orders"), body=body.encode())
    message.system_properties.message_id = f"01{'A' * 28}{body:>4}"
    async with grpc.aio.insecure_channel(address) as channel:
        send = channel.unary_unary(
            SERVICE + "SendMessage",
            request_serializer=pb.SendMessageRequest.SerializeToString,
            response_deserializer=pb.SendMessageResponse.FromString,
        )
        return await send(
            pb.SendMessageRequest(messages=[message]), metadata=(("x-mq-client-id", "c"),), timeout=10
        )


async def test_a_killed_broker_comes_back_while_the_others_go_on_and_nothing_is_lost(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = start("--brokers", "3", "--data", str(tmp_path / "data"))
    where = fleet.ready()
    fronts = where["grpc"].split(",")
    assert len(where["broker"].split(",")) == len(fronts) == 3
    before = fleet.brokers()
    assert sorted(before) == NAMES
    async with Admin(where["namesrv"]) as admin:
        await admin.create_topic("orders", queues=2)
    for front in fronts:
        ports = {name: int(each.rpartition(":")[2]) for name, each in zip(NAMES, fronts, strict=True)}
        assert await route(front, "orders") == ports, "every broker names all"

    def kill_one(sent: int) -> None:
        if sent == 100:
            os.kill(before["broker-b"].pid, signal.SIGKILL)

    async with Producer(where["namesrv"], group="shop", options=Options(send_timeout_ms=2_000)) as producer:
        kept = await send_all(producer, 300, then=kill_one)
    await until(lambda: "broker=broker-b" in fleet.log.read_text() and "is back" in fleet.log.read_text())
    after = fleet.brokers()
    assert after["broker-b"].pid != before["broker-b"].pid
    assert (after["broker-a"].pid, after["broker-c"].pid) == (before["broker-a"].pid, before["broker-c"].pid)
    for number, front in enumerate(fronts):  # the same ports as before
        assert (await send_over_grpc(front, f"g{number}")).status.code == pb.OK
    await receive_all(where["namesrv"], kept | {"g0", "g1", "g2"})
    assert fleet.end() == 0
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in after.values())
    assert " broker-b aerobee." in fleet.log.read_text(), "log lines tell whose they are"
    for name in NAMES:
        assert not (tmp_path / "data" / "brokers" / name / "store" / "abort").exists(), "a clean stop"


async def test_a_second_instance_and_mixed_data_are_refused(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    first = start("--brokers", "2", "--data", data)
    first.ready()
    for arguments, why in (
        (["--brokers", "2"], "is in use by process"),
        ([], "holds the data of several brokers: broker-a, broker-b; start it with --brokers 2"),
    ):
        other = start(*arguments, "--data", data)
        assert other.popen.wait(60) == 1
        assert why in other.log.read_text()
        assert "Traceback" not in other.log.read_text()


async def test_brokers_whose_keeper_is_killed_stop_in_order(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = start("--brokers", "2", "--data", str(tmp_path / "data"))
    fleet.ready()
    brokers = list(fleet.brokers().values())
    os.kill(fleet.popen.pid, signal.SIGKILL)
    await until(lambda: not any(each.is_running() for each in brokers))
    for name in NAMES[:2]:
        assert not (tmp_path / "data" / "brokers" / name / "store" / "abort").exists(), "as if told to stop"


async def test_a_broker_that_cannot_start_fails_the_whole_start(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] - 10  # the second broker's is ten above the first one's
        fleet = start("--brokers", "2", "--data", str(tmp_path / "data"), "--set", f"port={port}")
        assert fleet.popen.wait(60) == 1
    told = fleet.log.read_text()
    assert f"cannot listen on 127.0.0.1:{port + 10}" in told
    assert "aerobee: broker-b did not start: exit code 1" in told
    assert "Traceback" not in told


def secured(folder: Path) -> tuple[str, Options]:
    """Settings with TLS and accounts as `aerobee access init` makes them, and its first user's options."""
    command = [sys.executable, "-m", "aerobee", "access", "init", str(folder), "--host", "127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    user = tomllib.loads((folder / "profiles.toml").read_text())["dev"]
    signed = {name: user[name] for name in ("access_key", "secret_key", "tls", "tls_ca")}
    return str(folder / "server.toml"), Options(send_timeout_ms=2_000, **signed)


async def test_brokers_with_accounts_and_tls_know_each_other_through_kills_and_restarts(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    settings, options = secured(tmp_path / "access")
    arguments = ("--brokers", "3", "--config", settings, "--data", str(tmp_path / "data"))
    fleet = start(*arguments)
    where = fleet.ready()
    async with Admin(where["namesrv"], options=options) as admin:
        assert sorted((await admin.cluster()).broker_addr_table) == NAMES, "the name server takes their word"
        await admin.create_topic("orders", queues=2)
    killed = fleet.brokers()["broker-b"].pid

    def kill_one(sent: int) -> None:
        if sent == 50:
            os.kill(killed, signal.SIGKILL)

    async with Producer(where["namesrv"], group="shop", options=options) as producer:
        kept = await send_all(producer, 150, then=kill_one)
    await until(lambda: "is back" in fleet.log.read_text())
    stranger = msgspec.structs.replace(options, secret_key="not hers")
    async with Admin(where["namesrv"], options=stranger) as admin:
        with pytest.raises(AerobeeError, match="signature"):
            await admin.create_topic("hers")
    with pytest.raises(AerobeeError):  # what is not TLS is not heard
        async with Admin(where["namesrv"], options=msgspec.structs.replace(options, tls="off")) as admin:
            await admin.cluster()
    assert fleet.end() == 0
    again = start(*arguments)
    await receive_all(again.ready()["namesrv"], kept, options)
    assert "cannot register" not in fleet.log.read_text() + again.log.read_text()
    account = tmp_path / "data" / "brokers" / "account.json"
    assert account.stat().st_mode & 0o077 == 0
    secret = json.loads(account.read_text())["secretKey"]
    assert not any(secret in " ".join(each.cmdline()) for each in again.brokers().values())


async def test_a_password_and_a_user_made_while_running_count_at_the_name_server_too(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    settings, options = secured(tmp_path / "access")
    audit = tmp_path / "audit.jsonl"
    fleet = start(
        *("--brokers", "2", "--name", "mq", "--config", settings, "--data", str(tmp_path / "data")),
        *("--set", f"audit_log={audit}"),
    )
    namesrv = fleet.ready()["namesrv"]
    changed = msgspec.structs.replace(options, secret_key="another-secret")
    async with Admin(namesrv, options=options) as admin:
        for address in (await admin.masters()).values():
            await admin.update_user(address, UserInfo(username="admin", password="another-secret"))
        with pytest.raises(AerobeeError, match="signature"):
            await admin.topics()
    async with Admin(namesrv, options=changed) as admin:
        await admin.create_topic("orders")
        assert "orders" in await admin.topics()
        await admin.delete_topic("orders")
        assert "orders" not in await admin.topics()
        told = {name: await admin.audit(address, 100) for name, address in (await admin.masters()).items()}
    assert sorted(told) == ["mq-a", "mq-b"]
    assert {each["broker"] for lines in told.values() for each in lines} == {"mq-a", "mq-b"}
    assert sum(map(len, told.values())) == len(audit.read_text().splitlines())
    [refused] = [each for lines in told.values() for each in lines if each["result"] == "refused"]
    assert (refused["broker"], refused["port"], refused["request"]) == ("mq-a", "namesrv", "AllTopics")
