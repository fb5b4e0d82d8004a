# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ with its authentication and authorization turned on: who signs and may is served, client, commands and
pipelines alike; who does not, or may not, is told in its words."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import peers
import pytest
from servers import REPO, RocketMQ

from aerobee import Admin, Message, Options, Producer, PushConsumer
from aerobee.client.admin.access import acl_of
from aerobee.errors import NoPermission
from aerobee.protocol.bodies import UserInfo
from aerobee.spark.pipelines.consume import consume
from aerobee.spark.pipelines.lake import lake
from aerobee.spark.pipelines.ledger import ledger, summary
from aerobee.spark.pipelines.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from servers import Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

NAME, SECRET = "aerobee", "12345678"
ACCOUNT = {"accessKey": NAME, "secretKey": SECRET}
SIGNED = Options(access_key=NAME, secret_key=SECRET)
SHOP = {"accessKey": "shop", "secretKey": "shop-secret"}
AS_SHOP = Options(access_key="shop", secret_key="shop-secret")
SPARK = "Group:CID_RMQ_SYS_SPARK"  # that Spark's readers pull as
OPEN, SHUT = "accounts-open", "accounts-shut"
AUTH = "org.apache.rocketmq.auth.authentication.provider"
RIGHTS = "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider"
AEROBEE = REPO / ".venv/bin/aerobee"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{AUTH}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{AUTH}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": NAME, "password": SECRET}),
        "innerClientAuthenticationCredentials": json.dumps(ACCOUNT),
        "authorizationEnabled": "true",
        "authorizationMetadataProvider": RIGHTS,
    }
    server = RocketMQ(tmp_path_factory.mktemp("accounts") / "data", peers.server_class_path(), settings)
    server.start()
    yield server
    server.discard()


async def test_a_client_with_an_account_is_served_and_one_without_is_told(broker: Server) -> None:
    async with Admin(broker.namesrv, options=SIGNED) as admin:
        await admin.create_topic("accounts", queues=4)
    seen: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def handle(message: Any) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.reconsume_times:
            done.set()
        else:
            raise ValueError("once more")

    async with Producer(broker.namesrv, group="p", options=SIGNED) as producer:
        await producer.send(Message("accounts", b"x"))
    consumer = PushConsumer(
        broker.namesrv, group="g", topics={"accounts": "*"}, handler=handle, start="first", options=SIGNED
    )
    async with consumer, asyncio.timeout(60):
        await done.wait()
    assert seen == [(b"x", 0), (b"x", 1)]
    for options in (Options(), Options(access_key=NAME, secret_key="87654321")):
        async with Producer(broker.namesrv, group="p", options=options) as producer:
            with pytest.raises(NoPermission):
                await producer.send(Message("accounts", b"not mine"))


@pytest.fixture(scope="module")
def shop(broker: Server) -> Server:
    """A user of our admin's making, who may use one topic and its groups."""

    async def make() -> None:
        async with Admin(broker.namesrv, options=SIGNED) as admin:
            for topic in (OPEN, SHUT):
                await admin.create_topic(topic, queues=2)
            for address in (await admin.masters()).values():
                await admin.create_user(address, UserInfo(username="shop", password="shop-secret"))
                rights = acl_of("shop", [f"Topic:{OPEN}", "Group:shop*", SPARK], ["Pub", "Sub", "Get"])
                await admin.create_acl(address, rights)

    asyncio.run(make())
    return broker


async def test_a_client_may_what_its_policy_says_and_no_more(shop: Server) -> None:
    got: list[bytes] = []
    done = asyncio.Event()

    async def handle(message: Any) -> None:
        got.append(message.body)
        done.set()

    async with Producer(shop.namesrv, group="p", options=AS_SHOP) as producer:
        await producer.send(Message(OPEN, b"mine"))
        with pytest.raises(NoPermission, match=f"User:shop has no permission to access Topic:{SHUT}"):
            await producer.send(Message(SHUT, b"not mine"))
    consumer = PushConsumer(
        shop.namesrv, group="shop-g", topics={OPEN: "*"}, handler=handle, start="first", options=AS_SHOP
    )
    async with consumer, asyncio.timeout(60):
        await done.wait()
    assert got == [b"mine"]
    guessed = Options(access_key="shop", secret_key="guessed-one")
    async with Producer(shop.namesrv, group="p", options=guessed) as producer:
        with pytest.raises(NoPermission, match="check signature failed"):
            await producer.send(Message(OPEN, b"x"))


async def test_the_admin_may_what_its_policy_says_and_no_more(shop: Server) -> None:
    async with Admin(shop.namesrv, options=AS_SHOP) as admin:
        (address,) = (await admin.masters()).values()
        with pytest.raises(
            NoPermission, match="User:shop has no permission to access Cluster:DefaultCluster"
        ):
            await admin.users(address)
        with pytest.raises(NoPermission, match="Topic:accounts-new"):
            await admin.create_topic("accounts-new", queues=1)
    async with Admin(shop.namesrv, options=SIGNED) as admin:
        listed = {user.username: user.user_type for user in await admin.users(address)}
        assert listed == {NAME: "Super", "shop": "Normal"}
        acl = await admin.acl(address, "shop")
        assert acl is not None
        assert {entry.resource for entry in acl.policies[0].entries} == {
            f"Topic:{OPEN}",
            "Group:shop*",
            SPARK,
        }


def test_commands_sign_as_their_environment_says(shop: Server) -> None:
    def run(who: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        keys = {"AEROBEE_ACCESS_KEY": who["accessKey"], "AEROBEE_SECRET_KEY": who["secretKey"]}
        return subprocess.run(
            [str(AEROBEE), *arguments, "--namesrv", shop.namesrv],
            capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **keys},
        )  # fmt: skip

    assert run(SHOP, "send", OPEN, "by a command").returncode == 0
    refused = run(SHOP, "send", SHUT, "by a command")
    assert refused.returncode != 0
    assert f"User:shop has no permission to access Topic:{SHUT}" in refused.stdout + refused.stderr
    guessed = run({**SHOP, "secretKey": "guessed-one"}, "send", OPEN, "x")
    assert "check signature failed" in guessed.stdout + guessed.stderr
    said = run(ACCOUNT, "access", "can", "shop", "Pub", f"Topic:{SHUT}")
    assert (said.returncode, "no rule of shop" in said.stdout) == (1, True)
    said = run(ACCOUNT, "access", "can", "shop", "Pub", f"Topic:{OPEN}")
    assert (said.returncode, f"Allow Pub,Sub,Get on Topic:{OPEN}" in said.stdout) == (0, True), said.stdout


def test_spark_reads_and_writes_what_its_user_may(spark: SparkSession, shop: Server) -> None:
    at = {"namesrv": shop.namesrv, **SHOP}
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("rocketmq").options(**at).option("topic", OPEN).mode("append").save()
    read = spark.read.format("rocketmq").options(**at).option("subscribe", OPEN).load()
    assert {b"0", b"1", b"2"} <= {bytes(row.body) for row in read.collect()}
    with pytest.raises(Exception, match=f"User:shop has no permission to access Topic:{SHUT}"):
        rows.write.format("rocketmq").options(**at).option("topic", SHUT).mode("append").save()
    guessed = {**at, "secretKey": "guessed-one"}
    with pytest.raises(Exception, match="check signature failed"):
        spark.read.format("rocketmq").options(**guessed).option("subscribe", OPEN).load().count()


def test_pipelines_sign_whatever_they_ask(spark: SparkSession, broker: Server, tmp_path: Path) -> None:
    topic, group, brokers = "accounts-spark", "accounts-spark-group", {"namesrv": broker.namesrv, **ACCOUNT}

    async def create() -> None:
        async with Admin(broker.namesrv, options=SIGNED) as admin:
            await admin.create_topic(topic, queues=4)

    asyncio.run(create())
    rows = spark.range(20).selectExpr("format_string('%02d', id) AS body")
    rows.write.format("rocketmq").options(**brokers).option("topic", topic).mode("append").save()

    def handler(row: Any) -> None:
        if bytes(row.body) == b"07":
            raise ValueError("poison")

    consume(
        spark, topic, group, handler, namesrv=broker.namesrv, checkpoint=str(tmp_path / "checkpoint"), once=True,
        max_reconsume=0, options=ACCOUNT,
    )  # fmt: skip
    letters = spark.read.format("rocketmq").options(**brokers).option("subscribe", f"%DLQ%{group}")
    dead = letters.option("includeProperties", "true").load()
    assert [bytes(row.body) for row in dead.collect()] == [b"07"]
    for expected in ((1, 0, 1), (1, 1, 0)):
        outcome = replay(
            dead, name="fix", namesrv=broker.namesrv, audit=str(tmp_path / "audit"), options=ACCOUNT
        )
        assert (outcome.chosen, outcome.already, outcome.sent) == expected
    (figures,) = summary(ledger(spark, [topic], [group], **brokers)).collect()
    assert (figures.sent, figures.acked, figures.dead, figures.waiting, figures.lost) == (21, 19, 1, 1, 0)
    lake(spark, topic, str(tmp_path / "lake"), once=True, options=brokers).awaitTermination()
    assert spark.read.parquet(str(tmp_path / "lake")).count() == 21
    with pytest.raises(Exception, match="NoPermission"):
        spark.read.format("rocketmq").option("namesrv", broker.namesrv).option(
            "subscribe", topic
        ).load().count()
