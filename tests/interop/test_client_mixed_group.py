# SPDX-License-Identifier: Apache-2.0
"""Our push consumer and the Java one in one group: they share the queues of a topic without gap or overlap, while
either joins and leaves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import aerobee.blocking as aerobee

if TYPE_CHECKING:
    from peers import Session
    from servers import Server

OPTIONS = aerobee.Options(rebalance_ms=1_000, rebalance_min_ms=200, persist_offsets_ms=500)


class Ours:
    """Our push consumer, and what it has seen."""

    def __init__(self, server: Server, group: str, topic: str) -> None:
        self.seen = Counter[str]()
        self._counting = threading.Lock()
        self.topic = topic
        self.consumer = aerobee.PushConsumer(
            server.namesrv,
            group=group,
            topics={topic: "*"},
            handler=self._handle,
            start="first",
            options=OPTIONS,
        )

    def _handle(self, message: Any) -> None:
        with self._counting:
            self.seen[message.body.decode()] += 1

    @property
    def queues(self) -> int:
        return sum(queue.topic == self.topic for queue in self.consumer.queues)


def until(check: Any, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not check():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def test_our_and_the_java_consumer_share_the_queues(
    server: Server, java: Session, topic: str, group: str
) -> None:
    theirs = java.consumer(group, topic)
    producer = java.producer()
    sent: set[str] = set()

    def send(count: int) -> None:
        bodies = [f"{len(sent) + n}" for n in range(count)]
        producer.send(*[{"topic": topic, "body": body} for body in bodies])
        sent.update(bodies)

    ours = Ours(server, group, topic)
    with ours.consumer:
        until(lambda: ours.queues == 2)
        time.sleep(2)  # the Java consumer may still pull what it no longer owns
        send(80)
        until(lambda: len(ours.seen) + len(set(theirs.bodies())) >= 80)
        assert len(ours.seen) == 40, "two of the four queues each"
        assert set(ours.seen) | set(theirs.bodies()) == sent
        assert not set(ours.seen) & set(theirs.bodies())
    send(40)
    until(lambda: set(ours.seen) | set(theirs.bodies()) == sent)
    assert len(ours.seen) == 40, "what came after we left is theirs"

    again = Ours(server, group, topic)
    with again.consumer:
        until(lambda: again.queues == 2)
        theirs.close()
        until(lambda: again.queues == 4)
        send_ours = {f"late-{n}" for n in range(20)}
        with aerobee.Producer(server.namesrv, group="ours") as mine:
            for body in send_ours:
                mine.send(aerobee.Message(topic, body.encode()))
        until(lambda: send_ours <= set(again.seen))
    assert sum(again.seen.values()) - len(again.seen) <= 40, "at most what was in flight came twice"


def test_messages_of_our_producer_arrive_at_the_java_consumer(
    server: Server, java: Session, topic: str, group: str
) -> None:
    theirs = java.consumer(group, topic, "paid")
    with aerobee.Producer(server.namesrv, group="ours", options=OPTIONS) as producer:
        producer.send(
            aerobee.Message(topic, b"one", tags="paid", keys=["k1", "k2"], properties={"colour": "red"})
        )
        producer.send_batch([aerobee.Message(topic, b"batch %d" % n, tags="paid") for n in range(3)])
        producer.send(aerobee.Message(topic, b"not this", tags="void"))
        producer.send(aerobee.Message(topic, b"z" * 10_000, tags="paid"))
        producer.send(aerobee.Message(topic, b"later", tags="paid", delay_level=1))
    rows = theirs.wait(6)
    bodies = sorted(row.get("body", "big") for row in rows)
    assert bodies == ["batch 0", "batch 1", "batch 2", "big", "later", "one"]
    (one,) = [row for row in rows if row.get("body") == "one"]
    assert one["tags"] == "paid"
    assert one["keys"] == "k1 k2"
