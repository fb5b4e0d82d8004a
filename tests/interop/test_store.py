# SPDX-License-Identifier: Apache-2.0
"""A store written by the one opens in the other: by offset, by key, by time, by message id."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import peers
import pytest
from servers import wait_until

if TYPE_CHECKING:
    from conftest import MakeServer, Running
    from servers import Server

TOPIC, GROUP = "exchange", "exchange-group"
# Due half a minute after they are sent, which on a slow machine is before the reader is asked.
DELAYED = {"level", "timed"}


def admin(session: peers.Session, command: str, *arguments: str) -> str:
    text: str = session.peer.call("admin", 60, args=[command, "-n", session.address, *arguments])
    return text


def fill(session: peers.Session) -> dict[str, Any]:
    """Keys, tags, a batch, delays, properties, a big body; ten consumed, the rest not."""
    made = admin(session, "updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4")
    assert "success" in made, made
    producer = session.producer("exchange-producer")
    first = producer.send(
        *({"topic": TOPIC, "body": f"read{i}", "tags": "A", "keys": f"key{i} all"} for i in range(10))
    )
    consumer = session.consumer(GROUP, TOPIC)
    consumer.wait(10)
    wait_until(
        lambda: "Consume Diff Total: 0" in admin(session, "consumerProgress", "-g", GROUP),
        30,
        "stored offsets",
    )
    consumer.close()
    middle = max(row["storeTimestamp"] for row in session.pull("exchange-look", TOPIC)["messages"]) + 1
    producer.send(*({"topic": TOPIC, "body": f"batch{i}", "keys": "b"} for i in range(5)), mode="batch")
    producer.send({"topic": TOPIC, "size": 300_000, "keys": "big"})
    producer.send({"topic": TOPIC, "body": "props", "properties": {"colour": "红", "n": "7"}, "tags": "P"})
    producer.send({"topic": TOPIC, "body": "level", "delayLevel": 4})
    producer.send({"topic": TOPIC, "body": "timed", "delayMs": 25_000})
    everything = session.pull("exchange-look", TOPIC)
    return {"first": first, "middle": middle, "everything": everything}


def essence(row: dict[str, Any]) -> tuple[Any, ...]:
    kept = {
        key: value
        for key, value in row["properties"].items()
        if key not in {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
    }
    place = (row["queueId"], row["offset"], row["storeTimestamp"], row["bornTimestamp"])
    return (*place, row.get("body"), row["size"], row["msgId"], tuple(sorted(kept.items())))


def without_delayed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row.get("body") not in DELAYED]


def bounds_without_delayed(found: dict[str, Any]) -> dict[str, list[int]]:
    delayed = [
        (str(row["queueId"]), row["offset"]) for row in found["messages"] if row.get("body") in DELAYED
    ]
    return {
        name: [low, high - sum(queue == name and offset < high for queue, offset in delayed)]
        for name, (low, high) in found["bounds"].items()
    }


def check(server: Server) -> None:
    """`aerobee store check` compares every message with its queue and keys, whoever wrote them."""
    settings = server.data.parent / f"{server.data.name}.conf"
    command = [sys.executable, "-m", "aerobee", "store", "check", "--json", str(server.data)]
    done = subprocess.run(
        [*command, *(["--config", str(settings)] if settings.exists() else [])],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def look(session: peers.Session, wrote: dict[str, Any]) -> None:
    """Everything the writer served, the reader serves."""
    wait_until(lambda: TOPIC in admin(session, "topicList"), 30, "the topic's route")
    found = session.pull("exchange-look", TOPIC)
    assert bounds_without_delayed(found) == wrote["everything"]["bounds"]
    at_once = without_delayed(found["messages"])
    assert sorted(map(essence, at_once)) == sorted(map(essence, wrote["everything"]["messages"]))

    later = session.pull("exchange-look", TOPIC, time=wrote["middle"])["messages"]
    assert Counter(row.get("body") for row in without_delayed(later)) == Counter(
        ["batch0", "batch1", "batch2", "batch3", "batch4", None, "props"]
    )

    assert (
        len(re.findall(r"^[0-9A-F]{32}", admin(session, "queryMsgByKey", "-t", TOPIC, "-k", "key3"), re.M))
        == 1
    )
    assert (
        len(re.findall(r"^[0-9A-F]{32}", admin(session, "queryMsgByKey", "-t", TOPIC, "-k", "all"), re.M))
        == 10
    )
    unique = wrote["first"][4]["msgId"]
    assert "[key4 all]" in admin(session, "queryMsgByUniqueKey", "-t", TOPIC, "-i", unique)

    rows = session.consumer(GROUP, TOPIC).wait(9, 90)  # from where the group stood; the delayed ones too
    assert Counter(row.get("body") for row in rows) == Counter(
        ["batch0", "batch1", "batch2", "batch3", "batch4", None, "props", "level", "timed"]
    )
    sent = session.producer("exchange-producer").send({"topic": TOPIC, "body": "written by the reader"})
    assert sent[0]["status"] == "SEND_OK"


@pytest.mark.parametrize(("writer", "reader"), [("rocketmq", "aerobee"), ("aerobee", "rocketmq")])
def test_store_exchange(writer: str, reader: str, running: Running, make_server: MakeServer) -> None:
    one: Server = make_server(writer)
    session = peers.Session(running.get("java"), one.namesrv)
    try:
        wrote = fill(session)
    finally:
        session.close_all()
    one.stop()
    check(one)
    other = make_server(reader)
    session = peers.Session(running.fresh("java"), other.namesrv)
    try:
        look(session, wrote)
    finally:
        session.close_all()


def test_there_and_back(running: Running, make_server: MakeServer) -> None:
    """Aerobee, then Java on its data, then Aerobee again: each adds, none loses."""
    bodies: list[str] = []
    for turn, kind in enumerate(["aerobee", "rocketmq", "aerobee"]):
        server: Server = make_server(kind)
        session = peers.Session(running.get("java"), server.namesrv)
        try:
            producer = session.producer()
            if turn == 0:
                admin(session, "updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "2", "-w", "2")
            new = [f"{turn}-{i}" for i in range(30)]
            producer.send(*({"topic": TOPIC, "body": body, "keys": body} for body in new))
            bodies += new
            found = session.pull("turn", TOPIC)["messages"]
            assert sorted(row["body"] for row in found) == sorted(bodies)
            assert "#Offset" in admin(session, "queryMsgByKey", "-t", TOPIC, "-k", "0-7")
        finally:
            session.close_all()
        server.stop()
        check(server)
