# SPDX-License-Identifier: Apache-2.0
"""A server that takes TLS only: what the options say of the connection holds for all a pipeline asks, retries too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee import BrokerConfig
from aerobee.spark.pipelines.consume import consume
from aerobee.spark.pipelines.replay import replay
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture
def server(certificate: tuple[Path, Path]) -> Iterator[TestServer]:
    cert, key = map(str, certificate)
    config = BrokerConfig(tls_cert=cert, tls_key=key, tls_required=True)
    with TestServer(config=config) as running:
        yield running


def test_rows_retries_and_replays_go_by_tls(
    spark: SparkSession, server: TestServer, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    tls = {"tls": "on", "tlsCa": str(certificate[0])}
    topic, group, brokers = "secured", "secured-group", {"namesrv": server.namesrv, **tls}
    server.create_topic(topic, queues=2)
    rows = spark.range(10).selectExpr("cast(id AS STRING) AS body")
    rows.write.format("rocketmq").options(**brokers).option("topic", topic).mode("append").save()

    def handler(row: Any) -> None:
        if bytes(row.body) == b"7":
            raise ValueError("poison")

    consume(
        spark, topic, group, handler, namesrv=server.namesrv, checkpoint=str(tmp_path / "checkpoint"), once=True,
        max_reconsume=0, options=tls,
    )  # fmt: skip
    offsets = server.server.broker.offsets.table(group, topic)
    assert sum(offsets.values()) == 10
    letters = spark.read.format("rocketmq").options(**brokers).option("subscribe", f"%DLQ%{group}")
    dead = letters.option("includeProperties", "true").load()
    assert [bytes(row.body) for row in dead.collect()] == [b"7"]
    sent = replay(dead, name="fix", namesrv=server.namesrv, audit=str(tmp_path / "audit"), options=tls)
    assert sent.sent == 1
    plain = spark.read.format("rocketmq").option("namesrv", server.namesrv).option("subscribe", topic)
    with pytest.raises(Exception, match="no name server answers"):
        plain.option("numRetries", "0").load().count()


def test_plans_show_no_secret(
    spark: SparkSession, server: TestServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark shows a stream's options; it knows by their names which of them to hide."""
    server.create_topic("hidden", queues=1)
    account = {"accessKey": "me", "secretKey": "text:never-shown", "securityToken": "never-shown-either"}
    reader = spark.readStream.format("rocketmq").options(namesrv=server.namesrv, subscribe="hidden", tls="on")
    reader.options(**account).load().explain(extended=True)
    told = capfd.readouterr().out
    assert "subscribe=hidden" in told and "never-shown" not in told
