# SPDX-License-Identifier: Apache-2.0
"""rocketmq-streams: its word count shuffles through a static topic and keeps its state in topics of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import peers
import pytest
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peers import Session
    from servers import Server


@pytest.fixture
def streams() -> Iterator[peers.Peer]:
    class_path = peers.java_class_path(peers.HERE / "java/streams", "streams")
    peer = peers.Peer("streams", peers.java_program("Streams", class_path))
    yield peer
    peer.end()


def test_words_are_counted(
    java: Session, streams: peers.Peer, server: Server, topic: str, fresh: Callable[[str], str]
) -> None:
    sink = fresh("counts")
    java.peer.call("admin", args=["updateTopic", "-n", server.namesrv, "-c", "DefaultCluster", "-t", sink])
    counts, producer = java.consumer(fresh("reader"), sink), java.producer()
    streams.call("countWords", job=fresh("job"), source=topic, sink=sink, namesrv=server.namesrv)

    def is_running() -> bool:
        """It begins at the end of its topic: what came before its first look is not counted."""
        producer.send({"topic": topic, "body": "ready"})
        return bool(counts.seen())

    wait_until(is_running, 60, "the first count", pause=0.5)
    lines = ("to be or not to be", "to see or not to see")
    producer.send(*({"topic": topic, "body": line} for line in lines))

    def is_complete(rows: list[peers.Row]) -> bool:
        last: dict[str, int] = {}
        for row in rows:
            for word, count in json.loads(row["body"]).items():
                last[word] = max(count, last.get(word, 0))
        last.pop("ready", None)
        return last == {"to": 4, "be": 2, "or": 2, "not": 2, "see": 2}

    counts.wait_for(is_complete, 60, "the counts of all words")
