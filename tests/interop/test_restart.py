# SPDX-License-Identifier: Apache-2.0
"""The broker goes away under live clients and comes back on the same data and ports."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import peers
import pytest
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import MakeServer, Running
    from servers import Server


@pytest.fixture
def alone(make_server: MakeServer) -> Server:
    return make_server()


@pytest.fixture
def session(request: pytest.FixtureRequest, running: Running, alone: Server) -> Iterator[peers.Session]:
    opened = peers.Session(running.get(request.param), alone.namesrv)
    yield opened
    opened.close_all()


class Stream:
    """Sends numbered messages until told to stop; remembers which were acknowledged."""

    def __init__(self, producer: peers.Producer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.acknowledged: list[str] = []
        self.refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            body = f"n{number}"
            number += 1
            try:
                self.producer.send({"topic": self.topic, "body": body}, timeout=60)
            except peers.PeerError:
                self.refused += 1
                self._stop.wait(0.1)
            else:
                self.acknowledged.append(body)
                self._stop.wait(0.01)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(70)


@pytest.mark.parametrize("session", ["java", "go"], indirect=True)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_nothing_acknowledged_is_lost_over_a_restart(session: peers.Session, alone: Server, how: str) -> None:
    topic, group = f"restart-{how}", f"restart-{how}-group"
    producer = session.producer()
    producer.send({"topic": topic, "body": "first"})
    consumer = session.consumer(group, topic)
    consumer.wait(1)
    stream = Stream(producer, topic)
    wait_until(lambda: len(stream.acknowledged) >= 50, 30, "some sends before")
    if how == "kill":
        alone.kill()
        alone.start_broker()
    else:
        alone.restart()
    before = len(stream.acknowledged)
    wait_until(lambda: len(stream.acknowledged) >= before + 50, 90, "sends after the restart")
    stream.stop()
    consumer.wait_for(
        lambda rows: set(stream.acknowledged) <= {row["body"] for row in rows},
        90,
        "all acknowledged messages",
    )
    assert len(stream.acknowledged) >= 100


@pytest.mark.parametrize("session", ["java"], indirect=True)
def test_topics_offsets_and_delayed_messages_survive(session: peers.Session, alone: Server) -> None:
    topic, group = "survive", "survive-group"
    producer = session.producer()
    producer.send(*({"topic": topic, "body": f"m{i}"} for i in range(20)))
    consumer = session.consumer(group, topic)
    consumer.wait(20)
    consumer.close()
    producer.send({"topic": topic, "body": "level", "delayLevel": 3})
    producer.send({"topic": topic, "body": "timed", "delayMs": 8000})
    producer.send({"topic": topic, "body": "unread"})
    producer.close()
    alone.restart()
    rows = session.consumer(group, topic).wait(3, 60)
    assert sorted(row["body"] for row in rows) == ["level", "timed", "unread"]
