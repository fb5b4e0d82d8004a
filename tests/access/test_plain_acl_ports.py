# SPDX-License-Identifier: Apache-2.0
"""`aclEnable`: every port decides by plain_acl.yml, and a change of the file counts without a restart."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.access.plain_acl import POLL_MS
from aerobee.errors import AerobeeError
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.protocol.accounts import Credentials
from aerobee.protocol.headers.accounts import CreateUser
from aerobee.protocol.headers.cluster import GetBrokerConfig, UpdateBrokerConfig
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import AllTopics, WipeWritePerm
from tests.access.ports import NOBODY, Ports, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ACCOUNTS = """
accounts:
- accessKey: shop-account
  secretKey: shop-secret
  topicPerms: [orders=PUB]
- accessKey: admin-account
  secretKey: admin-secret
  admin: true
"""
SHOP, ADMIN = Credentials("shop-account", "shop-secret"), Credentials("admin-account", "admin-secret")
SEND = SendMessageV2(topic="orders", queue_id=0)
SAYS = "org.apache.rocketmq.acl.common.AclException: "


def write(file: Path, text: str) -> None:
    file.write_text(text)
    os.utime(file, ns=(1, 1))  # another time, however fast the test is


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    return path


@pytest.fixture
async def ports(file: Path) -> AsyncIterator[Ports]:
    async with running(authentication=False, authorization=False, acl=True, acl_file=str(file)) as made:
        yield made


async def test_every_port_decides_by_the_list(ports: Ports) -> None:
    assert (await ports.ask(SHOP, SEND, b"x")).code == 0
    assert (await ports.ask_vip(SHOP, SEND, b"x")).code == 0
    other = await ports.ask(SHOP, SendMessageV2(topic="other", queue_id=0))
    assert (other.code, other.remark) == (1, f"{SAYS}No default permission for topic:other")
    assert (await ports.ask(NOBODY, SEND)).remark == f"{SAYS}No accessKey is configured"
    guessed = Credentials("shop-account", "guessed-secret")
    assert (
        await ports.ask(guessed, SEND)
    ).remark == f"{SAYS}Check signature failed for accessKey=shop-account"
    message = pb.Message(body=b"x", topic=pb.Resource(name="other"))
    status = (await ports.call(SHOP, "SendMessage", pb.SendMessageRequest(messages=[message]))).status
    assert (status.code, status.message) == (pb.UNAUTHORIZED, f"{SAYS}No default permission for topic:other")
    assert (await ports.ask_namesrv(SHOP, AllTopics())).code == 0
    assert "Need admin permission for request code=205" in str(
        (await ports.ask_namesrv(SHOP, WipeWritePerm(broker_name="broker-a"))).remark
    )


async def test_only_admins_change_anything(ports: Ports) -> None:
    assert (await ports.ask(SHOP, GetBrokerConfig())).code == 0
    for header in (UpdateBrokerConfig(), CreateUser(username="x")):
        assert "Need admin permission" in str((await ports.ask(SHOP, header)).remark)
    assert (await ports.ask(ADMIN, UpdateBrokerConfig(), b"brokerPermission=6")).code == 0


async def test_a_change_of_the_file_counts_for_the_next_request(ports: Ports, file: Path) -> None:
    assert (await ports.ask(SHOP, SEND, b"x")).code == 0
    write(file, ACCOUNTS.replace("orders=PUB", "orders=SUB"))
    ports.server.clock.advance(POLL_MS)  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    assert (await ports.ask(SHOP, SEND, b"x")).remark == f"{SAYS}No permission for topic:orders"


async def test_a_list_that_cannot_be_read_keeps_the_server_from_starting(file: Path) -> None:
    write(file, "accounts: [")
    with pytest.raises(AerobeeError, match=r"plain_acl.yml: it is no YAML"):
        async with running(authentication=False, authorization=False, acl=True, acl_file=str(file)):
            pass


async def test_accounts_can_be_made_users_at_a_start(file: Path) -> None:
    async with running(migrate_acl=True, acl_file=str(file)) as ports:
        assert (await ports.ask(SHOP, SEND, b"x")).code == 0
        assert (await ports.ask(SHOP, GetBrokerConfig())).code == 16
        assert (await ports.ask(ADMIN, GetBrokerConfig())).code == 0
