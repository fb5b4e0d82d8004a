# SPDX-License-Identifier: Apache-2.0
"""RocketMQ 5 clients over gRPC: Java, Go, Node, Python and Rust, each the official one."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from peers import PeerError
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Connect
    from peers import Consumer, Row, Session

    MakeTopic = Callable[[str], str]

ALL = ("java5", "go5", "node5", "python5", "rust5")
TIMER_TICK_MS = 1_000  # RocketMQ rounds a delivery time down to whole seconds
FOUR_MIB = 4 * 1024 * 1024


def on(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("peer", names, indirect=True)


@pytest.fixture
def peer(request: pytest.FixtureRequest, connect: Connect) -> Session:
    return connect(request.param)


@pytest.fixture
def typed(fresh: Callable[[str], str], mqadmin: Callable[..., str]) -> MakeTopic:
    """A topic that takes one type of message: NORMAL, FIFO, DELAY or TRANSACTION."""

    def make(kind: str) -> str:
        name = fresh(kind.lower())
        output = mqadmin(
            *("updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "4", "-w", "4"),
            *("-a", f"+message.type={kind}"),
        )
        assert "success" in output, output
        return name

    return make


@pytest.fixture
def group(fresh: Callable[[str], str], mqadmin: Callable[..., str]) -> str:
    name = fresh("group5")
    output = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", name, "-r", "2")
    assert "success" in output, output
    return name


@pytest.fixture
def ordered_group(fresh: Callable[[str], str], mqadmin: Callable[..., str]) -> str:
    name = fresh("fifo5")
    output = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", name, "-o", "true", "-r", "3")
    assert "success" in output, output
    return name


class Simple:
    """Receive, ack and change by hand."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.peer = consumer.session.peer

    def receive(self, invisible_ms: int = 10_000, count: int = 16) -> list[Row]:
        rows: list[Row] = self.peer.call(
            "receive", name=self.consumer.name, max=count, invisibleMs=invisible_ms
        )
        return rows

    def until(self, count: int, timeout: float, invisible_ms: int = 10_000) -> list[Row]:
        rows: list[Row] = []

        def enough() -> bool:
            rows.extend(self.receive(invisible_ms))
            return len(rows) >= count

        wait_until(enough, timeout, f"{count} messages")
        return rows

    def ack(self, row: Row) -> None:
        self.peer.call("ack", name=self.consumer.name, handle=row["handle"])

    def change(self, row: Row, invisible_ms: int) -> None:
        self.peer.call("change", name=self.consumer.name, handle=row["handle"], invisibleMs=invisible_ms)


def simple(peer: Session, group: str, topic: str, expression: str = "*", **more: str) -> Simple:
    return Simple(peer.consumer(group, topic, expression, kind="simple", **more))


def keys(row: Row) -> list[str]:
    """The Python client keeps keys in a set: their order is nobody's."""
    return sorted(row["keys"].split())


def numbered(topic: str, count: int, **more: str) -> list[Row]:
    return [{"topic": topic, "body": f"m{i}", **more} for i in range(count)]


@on(*ALL)
def test_send_and_push(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    producer = peer.producer(topics=[topic])
    consumer = peer.consumer(group, topic)
    sent = producer.send(*numbered(topic, 20, tags="A", keys="k1 k2"))
    rows = consumer.wait(20, 60)
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(20))
    assert {row["msgId"] for row in rows} == {row["msgId"] for row in sent}
    assert {(row["tags"], row["attempt"], row["topic"]) for row in rows} == {("A", 1, topic)}
    assert all(keys(row) == ["k1", "k2"] for row in rows)


@on("rust5")  # the only client that sends several messages in one request
def test_batch(peer: Session, typed: MakeTopic, group: str, server_kind: str) -> None:
    topic = typed("NORMAL")
    sent = peer.producer(topics=[topic]).send(*numbered(topic, 5, tags="A", keys="k1 k2"), mode="batch")
    rows = peer.consumer(group, topic).wait(5, 60)
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(5))
    assert all((row["tags"], keys(row)) == ("A", ["k1", "k2"]) for row in rows)
    if server_kind != "rocketmq":  # which gives all of them the first one's id
        assert {row["msgId"] for row in rows} == {row["msgId"] for row in sent}


@on(*ALL)
def test_simple_consumer_acks_and_what_it_leaves_comes_back(
    peer: Session, typed: MakeTopic, group: str
) -> None:
    topic = typed("NORMAL")
    consumer = simple(peer, group, topic)
    peer.producer(topics=[topic]).send(*numbered(topic, 2))
    rows = consumer.until(2, 40)
    started = time.monotonic()
    kept = next(row for row in rows if row["body"] == "m0")
    consumer.ack(kept)
    again = consumer.until(1, 60)
    assert [(row["body"], row["attempt"]) for row in again] == [("m1", 2)]
    assert time.monotonic() - started > 5
    consumer.ack(again[0])


@on("java5", "go5", "node5", "python5")  # the Rust client cannot
def test_change_invisible_duration(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    consumer = simple(peer, group, topic)
    peer.producer(topics=[topic]).send({"topic": topic, "body": "later"})
    row = consumer.until(1, 40, invisible_ms=60_000)[0]
    started = time.monotonic()
    consumer.change(row, 10_000)
    again = consumer.until(1, 40)[0]
    waited = time.monotonic() - started
    assert (again["body"], again["attempt"]) == ("later", 2)
    assert waited >= 8
    consumer.ack(again)


@on("java5", "node5", "python5", "go5")
def test_past_its_attempts_a_message_is_dead(
    peer: Session, java: Session, typed: MakeTopic, group: str
) -> None:
    """The group allows two retries; the server tells the back-off (RocketMQ: one second, then five)."""
    topic = typed("NORMAL")
    consumer = peer.consumer(group, topic, failTimes=99)
    peer.producer(topics=[topic]).send({"topic": topic, "body": "poison", "keys": "dead"})
    consumer.wait(3, 120)
    dead = java.consumer(f"{group}-dead", f"%DLQ%{group}").wait(1, 60)
    assert (dead[0]["body"], dead[0]["keys"]) == ("poison", "dead")
    assert [row["attempt"] for row in consumer.seen()] == [1, 2, 3]


@on(*ALL)
def test_filters(peer: Session, typed: MakeTopic, fresh: Callable[[str], str]) -> None:
    topic = typed("NORMAL")
    by_tag = peer.consumer(fresh("by-tag"), topic, "A||C")
    by_sql = peer.consumer(fresh("by-sql"), topic, "price > 10 AND colour = 'red'", type="SQL92")
    producer = peer.producer(topics=[topic])
    for tag in "ABC":
        for price in ("5", "15"):
            properties = {"price": price, "colour": "red" if tag == "A" else "blue"}
            producer.send({"topic": topic, "body": f"{tag}{price}", "tags": tag, "properties": properties})
    assert sorted(row["body"] for row in by_tag.wait(4, 60)) == ["A15", "A5", "C15", "C5"]
    assert [row["body"] for row in by_sql.wait(1, 60)] == ["A15"]


@on(*ALL)
def test_fifo_keeps_each_group_in_order(peer: Session, typed: MakeTopic, ordered_group: str) -> None:
    topic = typed("FIFO")
    consumer = peer.consumer(ordered_group, topic)
    users = [f"user{i % 3}" for i in range(24)]
    peer.producer(topics=[topic]).send(
        *({"topic": topic, "body": f"{user}:{i}", "shardingKey": user} for i, user in enumerate(users))
    )
    by_user = defaultdict(list)
    for row in consumer.wait(24, 90):
        user, _, number = row["body"].partition(":")
        assert row["messageGroup"] == user
        by_user[user].append(int(number))
    assert set(by_user) == {"user0", "user1", "user2"}
    assert all(numbers == sorted(numbers) for numbers in by_user.values())


@on(*ALL)
def test_delay(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("DELAY")
    consumer = peer.consumer(group, topic)
    sent_at = time.time() * 1000
    peer.producer(topics=[topic]).send({"topic": topic, "body": "later", "delayMs": 4000})
    row = consumer.wait(1, 60)[0]
    assert row["body"] == "later"
    assert row["at"] - sent_at >= 4_000 - TIMER_TICK_MS


@on("java5", "node5", "python5")  # the Go client has no recall
def test_recall(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("DELAY")
    consumer = peer.consumer(group, topic)
    producer = peer.producer(topics=[topic])
    sent = producer.send(
        {"topic": topic, "body": "recalled", "delayMs": 8000},
        {"topic": topic, "body": "stays", "delayMs": 12_000},
    )
    assert sent[0]["recall"]
    answer = peer.peer.call("recall", producer=producer.name, topic=topic, recall=sent[0]["recall"])
    assert sent[0]["msgId"] in answer
    assert [row["body"] for row in consumer.wait(1, 60)] == ["stays"]


@on(*ALL)
def test_transactions(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("TRANSACTION")
    consumer = peer.consumer(group, topic)
    producer = peer.producer(topics=[topic], check="commit")
    producer.send(
        {"topic": topic, "body": "kept", "local": "commit"},
        {"topic": topic, "body": "dropped", "local": "rollback"},
        {"topic": topic, "body": "checked", "local": "unknown"},
    )
    assert sorted(row["body"] for row in consumer.wait(2, 90)) == ["checked", "kept"]


@on("java5")
def test_four_consumers_share_then_two(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    consumers = [peer.consumer(group, topic) for _ in range(4)]
    producer = peer.producer(topics=[topic])

    def all_busy() -> bool:
        producer.send(*numbered(topic, 8, keys="warm"))
        return all(consumer.seen() for consumer in consumers)

    wait_until(all_busy, 90, "every consumer has some", pause=0.5)
    for gone in consumers[2:]:
        gone.close()
    bodies = [f"after{i}" for i in range(40)]
    producer.send(*({"topic": topic, "body": body} for body in bodies))
    wait_until(
        lambda: set(bodies) <= {body for consumer in consumers[:2] for body in consumer.bodies()},
        90,
        "the two left have everything",
    )


@on(*ALL)
def test_grpc_to_remoting(peer: Session, java: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    sent = peer.producer(topics=[topic]).send(
        {"topic": topic, "body": "across", "tags": "T", "keys": "a b", "properties": {"colour": "红"}}
    )
    row = java.consumer(group, topic).wait(1)[0]
    assert (row["body"], row["tags"], keys(row)) == ("across", "T", ["a", "b"])
    assert row["properties"]["colour"] == "红"
    assert row["msgId"] == sent[0]["msgId"]


@on(*ALL)
def test_remoting_to_grpc(peer: Session, java: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    sent = java.producer().send(
        {"topic": topic, "body": "across", "tags": "T", "keys": "a b", "properties": {"colour": "红"}}
    )
    row = peer.consumer(group, topic).wait(1, 60)[0]
    assert (row["body"], row["tags"], keys(row)) == ("across", "T", ["a", "b"])
    assert row["properties"]["colour"] == "红"
    assert row["msgId"] == sent[0]["msgId"]


@on("java5")
def test_four_mebibytes(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    producer = peer.producer(topics=[topic])
    producer.send({"topic": topic, "size": FOUR_MIB})
    with pytest.raises(PeerError):
        producer.send({"topic": topic, "size": FOUR_MIB + 1})
    assert peer.consumer(group, topic).wait(1, 60)[0]["size"] == FOUR_MIB


@on("java5", "python5", "rust5")
def test_ack_after_expiry_is_an_invalid_handle(peer: Session, typed: MakeTopic, group: str) -> None:
    topic = typed("NORMAL")
    consumer = simple(peer, group, topic)
    peer.producer(topics=[topic]).send({"topic": topic, "body": "slow"})
    row = consumer.until(1, 40)[0]
    again = consumer.until(1, 60)[0]
    assert again["attempt"] == 2
    with pytest.raises(PeerError, match=r"(?i)40013|receipt[ _]?handle"):
        consumer.ack(row)
    consumer.ack(again)


@on("java5")
@pytest.mark.parametrize("invisible_ms", [1_000, 13 * 3600 * 1000])
def test_invisible_duration_has_bounds(
    peer: Session, typed: MakeTopic, group: str, invisible_ms: int
) -> None:
    topic = typed("NORMAL")
    consumer = simple(peer, group, topic)
    with pytest.raises(PeerError, match=r"(?i)invisible"):
        consumer.receive(invisible_ms)


@on("java5", "go5", "node5")
def test_a_producer_does_not_start_with_a_topic_nobody_created(
    peer: Session, fresh: Callable[[str], str]
) -> None:
    with pytest.raises(PeerError):
        peer.producer(topics=[fresh("unknown")])


@on("python5")
def test_a_python_producer_starts_all_the_same_and_fails_to_send(
    peer: Session, fresh: Callable[[str], str]
) -> None:
    topic = fresh("unknown")
    producer = peer.producer(topics=[topic])
    with pytest.raises(PeerError):
        producer.send({"topic": topic, "body": "nowhere"})
