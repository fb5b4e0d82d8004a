# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/mqadmin.md: each line on Aerobee and on Apache RocketMQ, in the same run.

Nearly every command waits up to three seconds for its own threads to end. So each server has a process for each of
the two tables, and all of them run at once.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import peers
import pytest
from conftest import make
from servers import REPO, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from servers import Server

TOPIC, GROUP, PRODUCER = "table-topic", "table-group", "table-producer"
CLIENT = r"\S+@\S+"
_ROW = re.compile(r"^\| `(?P<line>[^`]+)` \| (?P<apache>[^|]+) \| (?P<aerobee>[^|]+) \|", re.MULTILINE)
_MASKS = {
    r"127\.0\.0\.1:\d+": "ADDRESS",
    r"[/\\]\S+": "PATH",
    CLIENT: "CLIENT",
    r"\b[0-9A-F]{32,}\b": "ID",
    r", __CRC32#=\d+": "",  # Aerobee's records end with a check of their own
    r"-?\d+(\.\d+)?": "N",
    r"\s+": " ",
}


class Row(NamedTuple):
    line: str
    outcomes: dict[str, str]  # kind of server -> what comes of it


def tables() -> list[list[Row]]:
    page = (REPO / "docs/mqadmin.md").read_text()
    return [
        [
            Row(row["line"], {"rocketmq": row["apache"], "aerobee": row["aerobee"]})
            for row in _ROW.finditer(part)
        ]
        for part in page.split("\n## ")[1:3]
    ]


TABLES = tables()


def outcome(output: str) -> str:
    told = "\n".join(line for line in output.splitlines() if "MessageTrack" not in line)
    if refused := re.search(r"CODE: (\d+) ", told):
        return f"refused {refused[1]}"
    return "fails" if re.search(r"^\s+at \S+\(\S+\)", told, re.MULTILINE) else "done"


def shape(output: str) -> set[str]:
    """The first line and the heads of tables, without their values."""
    lines = [line for line in output.splitlines() if line.strip()]
    found = set()
    for text in [*lines[:1], *(line for line in lines if line.startswith("#"))]:
        for pattern, name in _MASKS.items():
            text = re.sub(pattern, name, text)
        found.add(text.strip())
    return found


class Bench:
    """One server with a topic, a producer and a consumer, and a process for each table."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder / kind
        self.folder.mkdir()
        self.server: Server = make(kind, self.folder / "data")
        self.peers: list[peers.Peer] = []

    def run(self) -> dict[str, str]:
        """Command line -> what it printed."""
        self.server.start()
        program = peers.java_program("Remoting", peers.server_class_path())
        self.peers = [peers.Peer(f"mqadmin-{self.server.kind}-{i}", program) for i in range(len(TABLES))]
        values = self._prepare(peers.Session(self.peers[0], self.server.namesrv))
        with ThreadPoolExecutor(len(TABLES)) as pool:
            printed = pool.map(lambda peer, rows: self._run(peer, rows, values), self.peers, TABLES)
            return {line: text for each in printed for line, text in each.items()}

    def _admin(self, peer: peers.Peer, *words: str) -> str:
        text: str = peer.call("admin", 60, args=[words[0], "-n", self.server.namesrv, *words[1:]])
        return text

    def _prepare(self, session: peers.Session) -> dict[str, str]:
        peer = session.peer
        self._admin(peer, "updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "2", "-w", "2")
        messages = [{"topic": TOPIC, "body": f"m{i}", "tags": "A", "keys": f"k{i}"} for i in range(10)]
        sent = session.producer(PRODUCER).send(*messages)
        session.consumer(GROUP, TOPIC).wait(10)
        online = wait_until(
            lambda: re.search(CLIENT, self._admin(peer, "consumerConnection", "-g", GROUP)),
            30,
            "the consumer",
        )
        (self.folder / "topics.json").write_text(
            json.dumps([{"topicName": name} for name in ("list-a", "list-b")])
        )
        (self.folder / "groups.json").write_text(
            json.dumps([{"groupName": name} for name in ("list-ga", "list-gb")])
        )
        return {
            "broker": self.server.broker,
            "namesrv": self.server.namesrv,
            "offset_id": sent[0]["offsetMsgId"],
            "unique_id": sent[0]["msgId"],
            "client": online.group(),
            "dir": str(self.folder),
            "out": str(self.folder / "exported"),
        }

    def _run(self, peer: peers.Peer, rows: list[Row], values: Mapping[str, str]) -> dict[str, str]:
        printed = {}
        for row in rows:
            words = [re.sub(r"\{(\w+)\}", lambda found: values[found[1]], word) for word in row.line.split()]
            printed[row.line] = self._admin(peer, *words)
        return printed

    def close(self) -> None:
        for peer in self.peers:
            peer.end()
        self.server.discard()


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Kind of server -> command line -> what it printed."""
    folder = tmp_path_factory.mktemp("mqadmin")
    benches = {kind: Bench(kind, folder) for kind in ("aerobee", "rocketmq")}
    try:
        with ThreadPoolExecutor(len(benches)) as pool:
            return dict(zip(benches, pool.map(Bench.run, benches.values()), strict=True))
    finally:
        for bench in benches.values():
            bench.close()


@pytest.mark.parametrize(
    "row", [row for rows in TABLES for row in rows], ids=lambda row: row.line.replace(" ", "_")
)
def test_the_outcome_is_as_the_table_says(row: Row, printed: dict[str, dict[str, str]]) -> None:
    outputs = {kind: printed[kind][row.line] for kind in row.outcomes}
    assert {kind: outcome(text) for kind, text in outputs.items()} == row.outcomes, outputs
    if set(row.outcomes.values()) == {"done"}:
        assert shape(outputs["aerobee"]) == shape(outputs["rocketmq"]), outputs


def test_every_sub_command_has_a_row_or_a_reason(printed: dict[str, dict[str, str]]) -> None:
    """What `mqadmin` without arguments lists."""
    assert printed
    page = (REPO / "docs/mqadmin.md").read_text()
    peer = peers.Peer("mqadmin-help", peers.java_program("Remoting", peers.server_class_path()))
    try:
        listed = re.findall(r"^   (\w+) ", peer.call("admin", args=[]), re.MULTILINE)
    finally:
        peer.end()
    assert len(listed) > 80
    assert [name for name in listed if f"`{name}" not in page] == []
