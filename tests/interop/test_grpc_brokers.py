# SPDX-License-Identifier: Apache-2.0
"""Official gRPC clients on Aerobee brokers with neighbours, or settings, of their own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from peers import Session, server_class_path
from servers import Aerobee, RocketMQ, cluster_info, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Running

BROKERS = ("broker-a", "broker-b", "broker-c")
ALL = ("java5", "go5", "node5", "python5")


class Cluster:
    def __init__(self, namesrv: str, brokers: list[Aerobee]) -> None:
        self.namesrv, self.brokers = namesrv, brokers


@pytest.fixture(params=["aerobee", "rocketmq"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers under one name server: the first one's, or Apache's."""
    brokers: list[Aerobee] = []
    apache = RocketMQ(tmp_path / "apache", server_class_path()) if request.param == "rocketmq" else None
    try:
        namesrv = ""
        if apache is not None:
            apache.start_namesrv()
            namesrv = apache.namesrv
        for name in BROKERS:
            broker = Aerobee(tmp_path / name, {"brokerName": name, "namesrvAddr": namesrv})
            brokers.append(broker)
            if namesrv:
                broker.ports["namesrv"] = "-1"
            broker.start()
            namesrv = namesrv or broker.namesrv
        wait_until(lambda: all(b.broker.encode() in cluster_info(namesrv) for b in brokers), 30, "three")
        yield Cluster(namesrv, brokers)
    finally:
        for server in (*brokers, *([apache] if apache else [])):
            server.discard()


@pytest.mark.parametrize("name", ALL)
def test_what_remoting_spreads_over_three_brokers_reaches_a_grpc_consumer_of_one(
    running: Running,
    cluster: Cluster,
    mqadmin: Callable[..., str],
    fresh: Callable[[str], str],
    name: str,
) -> None:
    topic, group = fresh("spread"), fresh("group")
    mqadmin(
        *("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "2", "-w", "2"), namesrv=cluster.namesrv
    )
    remoting = Session(running.get("java"), cluster.namesrv)
    clients = Session(running.get(name), cluster.brokers[1].grpc)
    try:
        consumer = clients.consumer(group, topic)
        rows = [{"topic": topic, "body": f"m{i}"} for i in range(30)]
        remoting.producer().send(*rows)
        status = mqadmin("topicStatus", "-t", topic, namesrv=cluster.namesrv)
        assert {line.split()[0] for line in status.splitlines() if _holds_messages(line)} == set(BROKERS)
        seen = consumer.wait(30, 90)
        assert Counter(row["body"] for row in seen) == Counter(row["body"] for row in rows)
        back = clients.producer(topics=[topic])
        back.send(*({"topic": topic, "body": f"g{i}"} for i in range(12)))
        assert {f"g{i}" for i in range(12)} <= {row["body"] for row in consumer.wait(42, 60)}
    finally:
        clients.close_all()
        remoting.close_all()


@pytest.mark.parametrize("name", ALL)
def test_a_producer_starts_with_an_unknown_topic_where_the_setting_creates_it(
    running: Running, tmp_path: Path, fresh: Callable[[str], str], name: str
) -> None:
    topic = fresh("new")
    server = Aerobee(tmp_path / "data", {"grpcAutoCreateOnRoute": "true"})
    server.start()
    clients = Session(running.get(name), server.grpc)
    try:
        sent = clients.producer(topics=[topic]).send({"topic": topic, "body": "first"})
        assert sent[0]["msgId"]
    finally:
        clients.close_all(wait=True)
        server.discard()


def _holds_messages(line: str) -> bool:
    """Of a table of broker, queue, least offset, greatest offset and a time."""
    columns = line.split()
    return len(columns) >= 4 and columns[3].isdigit() and int(columns[3]) > 0
