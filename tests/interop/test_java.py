# SPDX-License-Identifier: Apache-2.0
"""What only the Java clients can show: sharing and leaving, orderly retries, replies, limits, resets, old pulls."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from peers import PeerError
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers import Session

FOUR_MIB = 4 * 1024 * 1024
MESSAGE_ILLEGAL = 13


def numbered(topic: str, count: int, prefix: str = "m") -> list[dict[str, str]]:
    return [{"topic": topic, "body": f"{prefix}{i}"} for i in range(count)]


def test_two_consumers_share_and_the_one_left_takes_over(java: Session, topic: str, group: str) -> None:
    first, second = java.consumer(group, topic), java.consumer(group, topic)
    producer = java.producer()

    def both_have_some() -> bool:
        producer.send(*numbered(topic, 8, "try"))
        return bool(first.seen()) and bool(second.seen())

    wait_until(both_have_some, 40, "both consumers have queues", pause=0.5)
    producer.send(*numbered(topic, 40, "shared"))
    wait_until(
        lambda: sum(body.startswith("shared") for body in first.bodies() + second.bodies()) >= 40,
        30,
        "all shared messages",
    )
    shares = [sum(body.startswith("shared") for body in each.bodies()) for each in (first, second)]
    queues = [
        {row["queueId"] for row in each.seen() if row["body"].startswith("shared")}
        for each in (first, second)
    ]
    assert shares == [20, 20]
    assert queues[0] & queues[1] == set()

    second.close()
    producer.send(*numbered(topic, 40, "alone"))
    first.wait_for(
        lambda rows: len({row["body"] for row in rows if row["body"].startswith("alone")}) == 40,
        40,
        "the consumer left alone has everything",
    )


def test_orderly_retries_in_place_and_goes_on_in_order(java: Session, topic: str, group: str) -> None:
    consumer = java.consumer(group, topic, kind="orderly", failTimes=2)
    java.producer().send(*({**each, "shardingKey": "one"} for each in numbered(topic, 5)))
    rows = consumer.wait(15, 60)
    assert [row["body"] for row in rows] == [f"m{i}" for i in range(5) for _ in range(3)]
    assert len({row["queueId"] for row in rows}) == 1


def test_orderly_past_its_retries_is_dead_and_the_queue_goes_on(
    java: Session, topic: str, group: str
) -> None:
    consumer = java.consumer(group, topic, kind="orderly", failTimes=99, maxReconsume=1)
    java.producer().send(*({**each, "shardingKey": "one"} for each in numbered(topic, 2)))
    dead = java.consumer(f"{group}-dead", f"%DLQ%{group}").wait(2, 60)
    assert sorted(row["body"] for row in dead) == ["m0", "m1"]
    assert Counter(consumer.bodies()) == {"m0": 2, "m1": 2}


def test_request_and_reply(java: Session, topic: str, group: str, fresh: Callable[[str], str]) -> None:
    asker, answerer = java.producer(fresh("asker")), java.producer(fresh("answerer"))
    server = java.consumer(group, topic, reply=True, producer=answerer.name)
    asker.send({"topic": topic, "body": "no question"})
    server.wait(1)
    reply = java.peer.call(
        "request", producer=asker.name, message={"topic": topic, "body": "ping"}, timeoutMs=15_000
    )
    assert reply["body"] == "re: ping"


def test_four_mebibytes_are_the_limit(java: Session, topic: str, group: str) -> None:
    producer = java.producer(retries=0)
    sent = producer.send({"topic": topic, "size": FOUR_MIB})
    with pytest.raises(PeerError) as refused:
        producer.send({"topic": topic, "size": FOUR_MIB + 1})
    rows = java.consumer(group, topic).wait(1)
    assert sent[0]["status"] == "SEND_OK"
    assert refused.value.code == MESSAGE_ILLEGAL, refused.value
    assert rows[0]["size"] == FOUR_MIB


def test_compressed_bodies_arrive_whole(java: Session, topic: str, group: str) -> None:
    java.producer(compressOver=1000).send({"topic": topic, "size": 100_000})
    assert java.consumer(group, topic).wait(1)[0]["size"] == 100_000


def test_properties_survive(java: Session, topic: str, group: str) -> None:
    properties = {"colour": "rouge é 红", "number": "42"}
    java.producer().send({"topic": topic, "body": "x", "properties": properties, "keys": "a b", "tags": "T"})
    row = java.consumer(group, topic).wait(1)[0]
    assert {key: row["properties"][key] for key in properties} == properties
    assert row["properties"]["KEYS"] == "a b"
    assert row["properties"]["TAGS"] == "T"


def test_reset_by_time_reaches_a_running_consumer(
    java: Session, topic: str, group: str, mqadmin: Callable[..., str]
) -> None:
    producer = java.producer()
    consumer = java.consumer(group, topic)
    producer.send(*numbered(topic, 8, "old"))
    old = consumer.wait(8)
    middle = max(row["storeTimestamp"] for row in old) + 1
    wait_until(lambda: time.time() * 1000 > middle + 50, 5, "the clock past the old messages")
    producer.send(*numbered(topic, 8, "new"))
    consumer.wait(16)
    wait_until(
        lambda: "Consume Diff Total: 0" in mqadmin("consumerProgress", "-g", group), 30, "all offsets stored"
    )
    output = mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(middle))
    assert output.count("broker-a") == 4, output
    consumer.wait_for(
        lambda rows: all(Counter(row["body"] for row in rows)[f"new{i}"] >= 2 for i in range(8)),
        60,
        "the new messages again",
    )
    assert all(count == 1 for body, count in Counter(consumer.bodies()).items() if body.startswith("old"))


def test_offset_by_time(java: Session, topic: str) -> None:
    producer = java.producer()
    producer.send(*numbered(topic, 8, "old"))
    everything = java.pull("by-time", topic)["messages"]
    middle = max(row["storeTimestamp"] for row in everything) + 1
    wait_until(lambda: time.time() * 1000 > middle + 50, 5, "the clock past the old messages")
    producer.send(*numbered(topic, 8, "new"))
    later = java.pull("by-time", topic, time=middle)["messages"]
    assert sorted(row["body"] for row in later) == [f"new{i}" for i in range(8)]


def test_bad_sql_is_refused(java: Session, topic: str, group: str) -> None:
    with pytest.raises(PeerError) as refused:
        java.consumer(group, topic, "price >>> 'x' AND", type="SQL92")
    assert refused.value.code == 23, refused.value


def test_group_offset_survives_its_consumers(java: Session, topic: str, group: str) -> None:
    producer = java.producer()
    first = java.consumer(group, topic)
    producer.send(*numbered(topic, 10, "before"))
    first.wait(10)
    first.close()
    producer.send(*numbered(topic, 10, "after"))
    rows = java.consumer(group, topic).wait(10)
    assert sorted(row["body"] for row in rows) == sorted(f"after{i}" for i in range(10))


def test_transaction_rolled_back_by_its_check(
    java: Session, topic: str, group: str, fresh: Callable[[str], str]
) -> None:
    consumer = java.consumer(group, topic)
    java.producer(fresh("tx"), check="rollback").send({"topic": topic, "body": "unsure", "local": "unknown"})
    committing = java.producer(fresh("tx"), check="commit")
    committing.send({"topic": topic, "body": "sure", "local": "unknown"})
    assert [row["body"] for row in consumer.wait(1, 60)] == ["sure"]
