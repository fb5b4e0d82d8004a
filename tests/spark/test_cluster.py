# SPDX-License-Identifier: Apache-2.0
"""Many questions at once: pipelined on one connection, servers side by side, an answer in the place of its question."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from aerobee.errors import NetworkError, TopicNotFound
from aerobee.protocol import command as wire
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.headers.topics import TopicStatsQuery
from aerobee.spark import cluster as clusters
from aerobee.spark import options
from aerobee.spark.cluster import Cluster, Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.protocol.command import Command


class Peer:
    """Answers each request with its topic, but says no word before it has `window` requests and so has the peer `after`.
    `closes_after` so many answers it closes the connection, once."""

    def __init__(self) -> None:
        self.window, self.closes_after = 1, -1
        self.after: Peer = self
        self.has_window = threading.Event()
        self.asked: list[str] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(ConnectionError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        data, waiting = b"", []
        while chunk := connection.recv(65536):
            data += chunk
            while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
                waiting.append(wire.decode(data[4 : 4 + size]))
                data = data[4 + size :]
            if len(waiting) >= self.window:
                self.has_window.set()
                assert self.after.has_window.wait(10)
            while waiting and self.has_window.is_set():
                if self.closes_after == 0:
                    self.closes_after = -1
                    return
                self.closes_after -= 1
                connection.sendall(self._answer(waiting.pop(0)))

    def _answer(self, command: Command) -> bytes:
        topic = command.ext_dict()["topic"]
        self.asked.append(topic)
        if topic == "none":
            return wire.encode(
                wire.Command(TopicNotFound.code, command.opaque, flag=1, remark="no such topic")
            )
        return wire.encode(wire.Command(0, command.opaque, flag=1, body=topic.encode()))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


@pytest.fixture
def peers() -> Iterator[tuple[Peer, Peer]]:
    made = Peer(), Peer()
    yield made
    for peer in made:
        peer.close()


def asking(namesrv: str, tries: int = 1) -> Cluster:
    return Cluster(options.for_batch({"namesrv": namesrv, "subscribe": "t", "retryIntervalMs": "1"}), tries)


def told(answers: Sequence[Command | Exception]) -> list[str | type]:
    return [type(one) if isinstance(one, Exception) else one.body.decode() for one in answers]


def questions(peer: Peer, *topics: str) -> list[Question]:
    return [Question(peer.address, TopicStatsQuery(topic=topic)) for topic in topics]


def test_answers_are_in_the_places_of_their_questions_and_a_refusal_is_one(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    cluster = asking(one.address)
    mixed = [*questions(one, "a", "none"), *questions(other, "b"), *questions(one, "c")]
    assert told(cluster.ask_each(mixed)) == ["a", TopicNotFound, "b", "c"]
    assert cluster.ask_each([]) == []
    assert (one.connections, other.connections) == (1, 1)
    cluster.close()


def test_a_window_of_questions_is_under_way_before_the_first_answer(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    one.window = other.window = clusters.WINDOW
    one.after = other
    names = [str(n) for n in range(clusters.WINDOW)]
    cluster = asking(one.address)
    assert told(cluster.ask_each([*questions(one, *names), *questions(other, *names)])) == names * 2
    cluster.close()


def test_what_a_lost_connection_left_unanswered_is_asked_again(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    one.closes_after = 3
    names = [str(n) for n in range(8)]
    cluster = asking(one.address, tries=2)
    assert told(cluster.ask_each([*questions(one, *names), *questions(other, "b")])) == [*names, "b"]
    assert one.connections == 2
    assert set(one.asked) == set(names)  # a reset may take answers with it that were under way
    cluster.close()


def test_a_server_that_cannot_be_reached_fails_its_own_questions_only(peers: tuple[Peer, Peer]) -> None:
    one, other = peers
    one.closes_after = 1
    cluster = asking(one.address)
    mixed = [*questions(one, "a"), *questions(other, "b"), *questions(one, "c", "d"), *questions(other, "e")]
    assert told(cluster.ask_each(mixed)) == ["a", "b", NetworkError, NetworkError, "e"]
    cluster.close()


def test_name_servers_are_asked_in_turn_until_one_answers_all(peers: tuple[Peer, Peer]) -> None:
    other, _ = peers
    cluster = asking(f"127.0.0.1:1;{other.address}")
    headers = [GetRoute(topic="a"), GetRoute(topic="none"), GetRoute(topic="b")]
    assert told(cluster.ask_name_server_each(headers)) == ["a", TopicNotFound, "b"]
    cluster.close()
    nowhere = asking("127.0.0.1:1")
    (error,) = nowhere.ask_name_server_each(headers[:1])
    assert isinstance(error, NetworkError)
    assert str(error).startswith("no name server answers (127.0.0.1:1): cannot reach 127.0.0.1:1")
