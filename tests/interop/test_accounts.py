# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ with accounts (its authentication turned on): who signs is served, client and pipelines alike."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import peers
import pytest
from servers import RocketMQ

from aerobee import Admin, Message, Options, Producer, PushConsumer
from aerobee.errors import NoPermission
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
AUTH = "org.apache.rocketmq.auth.authentication.provider"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{AUTH}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{AUTH}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": NAME, "password": SECRET}),
        "innerClientAuthenticationCredentials": json.dumps(ACCOUNT),
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
