# SPDX-License-Identifier: Apache-2.0
"""The table of docs/access-control.md: what each pipeline needs, no more. The account is that of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from aerobee import Message, Producer, ProducerOptions
from aerobee.cli.main import run
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

SOURCE = {"Group:CID_RMQ_SYS_SPARK": "Sub"}
BOOK = {"Topic:*": "List,Sub", "Group:g": "Sub", "Cluster:DefaultCluster": "Get", **SOURCE}
HANDLER = """
def charge(message):
    if message.body == b"3":
        raise ValueError("poison")
"""
COMMANDS = [
    (
        ["consume", "t", "-g", "g", "--handler", "charging:charge", "--once", "--max-reconsume", "0",
         "--checkpoint", "{}/c"],
        {"Topic:t": "Sub", "Group:g": "Sub"},
    ),
    (["lake", "t", "{}/lake", "--once"], {"Topic:t": "Sub", **SOURCE}),
    (["ledger", "t", "-g", "g", "--key", "k3", "--json"], BOOK),
    (["report", "t", "{}/report.html", "-g", "g"], BOOK),
    (
        ["replay", "%DLQ%g", "--name", "fix", "--audit", "{}/audit"],
        {"Topic:%DLQ%g": "Sub", "Topic:t": "Pub,Sub", **SOURCE},
    ),
]  # fmt: skip


async def _send(server: TestServer) -> None:
    async with Producer(
        server.namesrv, group="p", options=ProducerOptions(**server.account, send_timeout_ms=60_000)
    ) as producer:
        for number in range(5):
            await producer.send(Message("t", str(number).encode(), keys=[f"k{number}"]))


@pytest.mark.timeout(600)  # five pipelines, one after the other
def test_a_pipeline_needs_what_the_page_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "charging.py").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)
    with TestServer.secured() as server:
        server.create_topic("t", queues=2)
        server.run(_send(server))
        monkeypatch.setenv("AEROBEE_NAMESRV", server.namesrv)
        monkeypatch.setenv("AEROBEE_SECRET_KEY", "secret-of-it")
        told = {}
        for command, rights in COMMANDS:
            server.add_user(command[0], "secret-of-it", rights)
            monkeypatch.setenv("AEROBEE_ACCESS_KEY", command[0])
            extra = ["--py-files", str(tmp_path / "charging.py")] if command[0] == "consume" else []
            code = run(["pipeline", *(part.format(tmp_path) for part in command), *extra])
            told[command[0]] = capfd.readouterr()
            assert code == 0, (command, told[command[0]].err)
    assert "1 dead (%DLQ%g)" in told["consume"].err
    assert f"5 messages into {tmp_path}/lake" in told["lake"].err
    assert "1 chosen, 0 sent before, sent 1" in told["replay"].err
