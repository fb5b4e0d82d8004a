# SPDX-License-Identifier: Apache-2.0
"""What every remoting client does, on each of them: Java 5.3, Spring Boot, Go v2, two of Node, the C++ library."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Connect
    from peers import Session
    from servers import Server

ALL = ("java", "spring", "go", "ons", "addon", "cpp")
TIMER_TICK_MS = 1_000  # RocketMQ rounds a delivery time down to whole seconds


def now_ms() -> float:
    return time.time() * 1000


@pytest.fixture
def peer(request: pytest.FixtureRequest, connect: Connect) -> Session:
    return connect(request.param)


def on(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("peer", names, indirect=True)


def numbered(topic: str, count: int, **more: str) -> list[dict[str, str]]:
    return [{"topic": topic, "body": f"m{i}", **more} for i in range(count)]


@on(*ALL)
def test_sync_sends_arrive_once_with_their_tags_keys_and_ids(peer: Session, topic: str, group: str) -> None:
    sent = peer.producer().send(*numbered(topic, 20, tags="A", keys="order-7"))
    rows = peer.consumer(group, topic).wait(20)
    assert [row["status"] for row in sent] == ["SEND_OK"] * 20
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(20))
    assert {row["tags"] for row in rows} == {"A"}
    assert {row["keys"] for row in rows} == {"order-7"}
    assert {row["topic"] for row in rows} == {topic}
    assert {row["attempt"] for row in rows} == {1}
    assert len({row["msgId"] for row in sent}) == 20
    if peer.peer.name != "ons":  # ali-ons shows the offset id to consumers and the unique id to producers
        assert {row["msgId"] for row in rows} == {row["msgId"] for row in sent}


@on("java", "spring", "go", "cpp")
@pytest.mark.parametrize("mode", ["async", "oneway"])
def test_other_ways_to_send(peer: Session, topic: str, group: str, mode: str) -> None:
    peer.producer().send(*numbered(topic, 10, tags="B", keys="k"), mode=mode)
    rows = peer.consumer(group, topic).wait(10)
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(10))
    assert {(row["tags"], row["keys"]) for row in rows} == {("B", "k")}


@on("java", "spring", "go")
def test_batch(peer: Session, topic: str, group: str) -> None:
    peer.producer().send(*numbered(topic, 10, tags="B", keys="k"), mode="batch")
    rows = peer.consumer(group, topic).wait(10)
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(10))
    assert {(row["tags"], row["keys"]) for row in rows} == {("B", "k")}
    assert len({row["queueId"] for row in rows}) == 1
    assert sorted(row["offset"] for row in rows) == list(range(10))


@on("cpp")
def test_batch_of_the_cpp_client_is_one_message(peer: Session, java: Session, topic: str) -> None:
    """It sends the batch encoding without saying so (batch flag absent); the Java broker stores it as it is."""
    peer.producer().send(*numbered(topic, 3), mode="batch")
    found = java.pull("cpp-batch", topic)
    assert len(found["messages"]) == 1
    assert all(f"m{i}" in found["messages"][0]["body"] for i in range(3))


@on("java", "spring", "go", "addon", "cpp")  # ali-ons never asks for the default topic's route
def test_a_topic_is_created_by_its_first_message(
    peer: Session, group: str, fresh: Callable[[str], str]
) -> None:
    topic = fresh("auto")
    peer.producer().send({"topic": topic, "body": "first"})
    assert peer.consumer(group, topic).wait(1)[0]["body"] == "first"


@on(*ALL)
def test_tag_filter(peer: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic, "A || C")
    producer = peer.producer()
    for tag in "ABCD":
        producer.send(*({"topic": topic, "body": f"{tag}{i}", "tags": tag} for i in range(5)))
    rows = consumer.wait(10)
    assert Counter(row["tags"] for row in rows) == {"A": 5, "C": 5}


@on("java", "spring", "go", "ons")
def test_sql_filter(peer: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic, "price > 10 AND colour IN ('red', 'blue')", type="SQL92")
    producer = peer.producer()
    for price in ("5", "15", "25"):
        for colour in ("red", "green"):
            properties = {"price": price, "colour": colour}
            producer.send({"topic": topic, "body": f"{colour}{price}", "properties": properties})
    assert sorted(row["body"] for row in consumer.wait(2)) == ["red15", "red25"]


@on("java", "spring", "go", "cpp")
def test_same_key_same_queue_in_order(peer: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic, kind="orderly")
    users = [f"user{i % 5}" for i in range(40)]
    peer.producer().send(
        *({"topic": topic, "body": f"{user}:{i}", "shardingKey": user} for i, user in enumerate(users))
    )
    by_user = defaultdict(list)
    for row in consumer.wait(40, 60):
        user, _, number = row["body"].partition(":")
        by_user[user].append((row["queueId"], int(number)))
    assert len(by_user) == 5
    for rows in by_user.values():
        assert len({queue for queue, _ in rows}) == 1
        assert [number for _, number in rows] == sorted(number for _, number in rows)


@on("java", "spring", "go", "ons", "cpp")
def test_a_delay_level_is_waited_for(peer: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic)
    producer = peer.producer()
    producer.send({"topic": topic, "body": "now"})
    consumer.wait(1)
    sent_at = now_ms()
    producer.send({"topic": topic, "body": "later", "delayLevel": 2}, {"topic": topic, "body": "now2"})
    rows = consumer.wait(3)
    assert [row["body"] for row in rows] == ["now", "now2", "later"]
    assert rows[2]["at"] - sent_at >= 5_000


@on("java", "spring", "go")
def test_delivery_at_a_time(peer: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic)
    producer = peer.producer()
    producer.send({"topic": topic, "body": "now"})
    consumer.wait(1)
    sent_at = now_ms()
    producer.send({"topic": topic, "body": "timed", "delayMs": 5000}, {"topic": topic, "body": "now2"})
    rows = consumer.wait(3)
    assert [row["body"] for row in rows] == ["now", "now2", "timed"]
    assert rows[2]["at"] - sent_at >= 5_000 - TIMER_TICK_MS


@on("java", "spring", "go", "ons", "addon")
def test_a_failed_message_comes_back_with_its_count(peer: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic, failTimes=1, delayLevel=1)
    peer.producer().send({"topic": topic, "body": "twice", "keys": "again", "tags": "T"})
    rows = consumer.wait(2, 60)
    assert [row["attempt"] for row in rows] == [1, 2]
    assert {row["body"] for row in rows} == {"twice"}
    assert {row["keys"] for row in rows} == {"again"}


@on("java", "spring", "go")
def test_past_its_retries_a_message_is_dead(peer: Session, java: Session, topic: str, group: str) -> None:
    consumer = peer.consumer(group, topic, failTimes=99, delayLevel=1, maxReconsume=2)
    peer.producer().send({"topic": topic, "body": "poison", "keys": "k-dead"})
    rows = consumer.wait(3, 60)
    dead = java.consumer(f"{group}-dead", f"%DLQ%{group}").wait(1, 30)
    assert [row["attempt"] for row in rows] == [1, 2, 3]
    assert dead[0]["body"] == "poison"
    assert dead[0]["keys"] == "k-dead"
    assert len(consumer.seen()) == 3


@on("java", "spring", "go", "ons", "cpp")
def test_broadcast_reaches_everyone(peer: Session, topic: str, group: str) -> None:
    consumers = [peer.consumer(group, topic, kind="broadcast") for _ in range(2)]
    peer.producer().send(*numbered(topic, 8))
    for consumer in consumers:
        assert sorted(row["body"] for row in consumer.wait(8)) == [f"m{i}" for i in range(8)]


@on("java", "go")
def test_pull_consumer(peer: Session, topic: str, group: str) -> None:
    peer.producer().send(*numbered(topic, 30))
    rows = peer.consumer(group, topic, kind="lite").wait(30, 60)
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(30))


@on("java", "spring", "go")
def test_transactions(peer: Session, topic: str, group: str, fresh: Callable[[str], str]) -> None:
    consumer = peer.consumer(group, topic)
    producer = peer.producer(fresh("tx"), check="commit")
    producer.send(
        {"topic": topic, "body": "kept", "local": "commit"},
        {"topic": topic, "body": "dropped", "local": "rollback"},
        {"topic": topic, "body": "checked", "local": "unknown"},
    )
    rows = consumer.wait(2, 60)
    assert [row["body"] for row in rows] == ["kept", "checked"]


@on(*ALL)
def test_signed_requests_are_served(peer: Session, topic: str, group: str) -> None:
    keys = {"accessKey": "some-key", "secretKey": "some-secret-1234"}
    consumer = peer.consumer(group, topic, **keys)
    peer.producer(**keys).send({"topic": topic, "body": "signed"})
    assert consumer.wait(1)[0]["body"] == "signed"


@on("go")
def test_go_admin(peer: Session, server: Server, group: str, fresh: Callable[[str], str]) -> None:
    topic = fresh("go-admin")

    def admin(op: str) -> Any:
        return peer.peer.call(op, namesrv=server.namesrv, broker=server.broker, topic=topic)

    admin("createTopic")
    wait_until(lambda: topic in admin("topics"), 20, "the topic in the name server's list")
    assert sorted(queue["queueId"] for queue in admin("queues")) == [0, 1, 2, 3]
    peer.producer().send({"topic": topic, "body": "x"})
    peer.consumer(group, topic).wait(1)
    assert group in admin("groups")
    admin("deleteTopic")
    wait_until(lambda: topic not in admin("topics"), 20, "the topic gone")
