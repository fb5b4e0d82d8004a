# SPDX-License-Identifier: Apache-2.0
"""Java 5.3 push consumers in POP mode: the broker balances, leases and takes acks."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers import Session

INVISIBLE_MS = 5_000


def numbered(topic: str, count: int) -> list[dict[str, str]]:
    return [{"topic": topic, "body": f"m{i}", "tags": "A", "keys": f"k{i}"} for i in range(count)]


@pytest.fixture
def one_queue(fresh: Callable[[str], str], mqadmin: Callable[..., str]) -> str:
    name = fresh("one-queue")
    output = mqadmin("updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "1", "-w", "1")
    assert "success" in output, output
    return name


@pytest.fixture
def pop(mqadmin: Callable[..., str], group: str) -> Callable[[str], str]:
    """Turn the group to POP on a topic; the group."""

    def turn(topic: str) -> str:
        made = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", group)
        assert "success" in made, made
        output = mqadmin(
            *("setConsumeMode", "-c", "DefaultCluster", "-t", topic, "-g", group, "-m", "POP", "-q", "8"),
        )
        assert "set consume mode to" in output, output
        return group

    return turn


def test_popped_messages_are_acked_and_come_once(
    java: Session, topic: str, pop: Callable[[str], str]
) -> None:
    consumer = java.consumer(pop(topic), topic, kind="pop", invisibleMs=INVISIBLE_MS)
    sent = java.producer().send(*numbered(topic, 40))
    rows = consumer.wait(40)
    assert Counter(row["body"] for row in rows) == Counter(f"m{i}" for i in range(40))
    assert {row["msgId"] for row in rows} == {row["msgId"] for row in sent}
    assert all("POP_CK" in row["properties"] for row in rows)
    assert {row["attempt"] for row in rows} == {1}
    later = java.producer()
    later.send(
        {"topic": topic, "body": "marker", "delayMs": INVISIBLE_MS + 4_000}
    )  # past the lease of all above
    consumer.wait(41, 60)
    assert len(consumer.seen()) == 41


def test_a_failed_message_comes_back(java: Session, topic: str, pop: Callable[[str], str]) -> None:
    """The client asks for ten seconds after the first failure."""
    consumer = java.consumer(pop(topic), topic, kind="pop", failTimes=1)
    java.producer().send({"topic": topic, "body": "again", "keys": "k", "tags": "T"})
    rows = consumer.wait(2, 60)
    assert [row["attempt"] for row in rows] == [1, 2]
    assert {(row["body"], row["keys"], row["tags"], row["topic"]) for row in rows} == {
        ("again", "k", "T", topic)
    }
    assert rows[1]["at"] - rows[0]["at"] >= 9_000


def test_consumers_beyond_the_queues_share_one(
    java: Session, one_queue: str, pop: Callable[[str], str]
) -> None:
    group = pop(one_queue)
    consumers = [java.consumer(group, one_queue, kind="pop", invisibleMs=60_000) for _ in range(3)]
    producer = java.producer()
    sent = 0

    def all_have_some() -> bool:
        nonlocal sent
        producer.send(*({"topic": one_queue, "body": f"n{i}"} for i in range(sent, sent + 6)))
        sent += 6
        return all(consumer.seen() for consumer in consumers)

    wait_until(all_have_some, 60, "all three consumers of the one queue", pause=0.2)
    wait_until(lambda: sum(len(each.seen()) for each in consumers) >= sent, 40, "everything sent")
    bodies = Counter(body for consumer in consumers for body in consumer.bodies())
    assert bodies == Counter(f"n{i}" for i in range(sent))


def test_what_a_hung_consumer_holds_is_finished_by_another(
    java: Session, one_queue: str, pop: Callable[[str], str]
) -> None:
    group = pop(one_queue)
    hung = java.consumer(group, one_queue, kind="pop", hang=True, invisibleMs=INVISIBLE_MS)
    producer = java.producer()
    producer.send(*numbered(one_queue, 4))
    held = {row["body"] for row in hung.wait(1, 40)}
    healthy = java.consumer(group, one_queue, kind="pop", invisibleMs=60_000)
    producer.send(*({"topic": one_queue, "body": f"more{i}"} for i in range(4)))
    wanted = {f"m{i}" for i in range(4)} | {f"more{i}" for i in range(4)}
    healthy.wait_for(
        lambda rows: held <= {row["body"] for row in rows}, 90, f"{held} taken over from the hung consumer"
    )
    java.peer.call("pause", name=hung.name, on=False)
    wait_until(lambda: wanted <= set(healthy.bodies()) | set(hung.bodies()), 90, "everything")
    assert all(row["attempt"] >= 2 for row in healthy.seen() if row["body"] in held)


def test_mqadmin_shows_exactly_what_is_in_flight(
    java: Session, one_queue: str, pop: Callable[[str], str], mqadmin: Callable[..., str]
) -> None:
    group = pop(one_queue)
    hung = java.consumer(group, one_queue, kind="pop", hang=True, invisibleMs=60_000)
    java.producer().send(*numbered(one_queue, 5))

    def totals() -> list[str]:
        return [line for line in mqadmin("consumerProgress", "-g", group).splitlines() if "Total: " in line]

    in_flight = ["Consume Diff Total: 5", "Consume Inflight Total: 5"]
    wait_until(lambda: totals() == in_flight, 40, f"{in_flight} while nothing is acked")
    # The group's offset passes what is leased once that is in the revive log, 3 s after the pop.
    time.sleep(5)
    assert totals() == in_flight
    java.peer.call("pause", name=hung.name, on=False)
    done = ["Consume Diff Total: 0", "Consume Inflight Total: 0"]
    wait_until(lambda: totals() == done, 40, f"{done} when all are acked")


def test_tag_filter_in_pop(java: Session, topic: str, pop: Callable[[str], str]) -> None:
    consumer = java.consumer(pop(topic), topic, "A", kind="pop")
    producer = java.producer()
    for tag in "AB":
        producer.send(*({"topic": topic, "body": f"{tag}{i}", "tags": tag} for i in range(8)))
    assert sorted(row["body"] for row in consumer.wait(8)) == [f"A{i}" for i in range(8)]
