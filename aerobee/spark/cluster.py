# SPDX-License-Identifier: Apache-2.0
"""The cluster as Spark's driver and workers see it: connections, name servers in turn, routes.

One object serves one thread; it may be pickled, its connections stay behind.
"""

from __future__ import annotations

import time
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aerobee.errors import AerobeeError, NetworkError
from aerobee.protocol import bodies
from aerobee.protocol.addresses import parse_addresses
from aerobee.protocol.headers.route import AllTopics, GetClusterInfo, GetRoute
from aerobee.protocol.routing import NameServers, TopicQueues, unfold
from aerobee.spark.blocking_connection import BlockingConnection, connection_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.protocol.command import Command, Header
    from aerobee.spark.options import Read, Write

T = TypeVar("T")
WINDOW = 32  # requests under way on a connection: enough to hide the way there and back


class Question(NamedTuple):
    address: str
    header: Header
    body: bytes = b""


class Cluster:
    """`tries`: how often a server that cannot be reached is asked before that is an error. Who plans a query asks
    often, for an exception there ends the query; who has tries of its own asks once."""

    def __init__(self, options: Read | Write, tries: int = 1) -> None:
        self._options = options
        self._tries = tries
        self._name_servers = NameServers(parse_addresses(options.namesrv))
        self._links: dict[str, BlockingConnection] = {}

    def link(self, address: str) -> BlockingConnection:
        """The connection, made when it is first used."""
        return self._links.setdefault(address, connection_to(address, self._options))

    def ask(self, address: str, question: Callable[[BlockingConnection], T]) -> T:
        for left in reversed(range(self._tries)):
            link = self.link(address)
            try:
                return question(link)
            except NetworkError:
                link.close()
                if not left:
                    raise
                time.sleep(self._options.retry_ms / 1000)
        raise AssertionError("unreachable")

    def ask_each(self, questions: Sequence[Question]) -> list[Command | AerobeeError]:
        """The answers, each in the place of its question, or the error it came to. Requests to one server follow each
        other on one connection and do not wait for answers; servers work side by side."""
        answers: dict[int, Command | AerobeeError] = {}
        lanes: dict[str, _Lane] = {}
        for place, question in enumerate(questions):
            address = question.address
            if address not in lanes:
                lanes[address] = _Lane(self.link(address))
            lanes[address].waiting.append(place)
        for left in reversed(range(self._tries)):
            if not _run(list(lanes.values()), questions, answers):
                break
            if left:
                time.sleep(self._options.retry_ms / 1000)
        return [answers[place] for place in range(len(questions))]

    def ask_name_server_each(self, headers: Sequence[Header]) -> list[Command | AerobeeError]:
        """The same for name servers: all by one of them that answers."""
        for address in self._name_servers:
            answers = self.ask_each([Question(address, header) for header in headers])
            if not any(isinstance(answer, NetworkError) for answer in answers):
                return answers
            self._name_servers.failed(address)
        unreached = self._unreached(next(one for one in answers if isinstance(one, NetworkError)))
        return [unreached if isinstance(answer, NetworkError) else answer for answer in answers]

    def ask_name_server(self, question: Callable[[BlockingConnection], T]) -> T:
        last: NetworkError | None = None
        for address in self._name_servers:
            try:
                return self.ask(address, question)
            except NetworkError as error:
                last = error
                self._name_servers.failed(address)
        raise self._unreached(last)

    def _unreached(self, last: NetworkError | None) -> NetworkError:
        return NetworkError(
            f"no name server answers ({self._options.namesrv}): {last}. Is one running there?"
        )

    def topics(self) -> list[str]:
        body = self.ask_name_server(lambda link: link.call(AllTopics()).body)
        return sorted(bodies.decode(body, bodies.TopicList).topic_list)

    def route(self, topic: str) -> TopicQueues:
        """TopicNotFound when no name server knows it."""
        return _unfolded(topic, self.ask_name_server(lambda link: link.call(GetRoute(topic=topic)).body))

    def masters(self) -> dict[str, str]:
        """broker name -> master's address, whatever topics there are."""
        body = self.ask_name_server(lambda link: link.call(GetClusterInfo()).body)
        table = bodies.decode(body, bodies.ClusterInfo).broker_addr_table
        return {name: data.master for name, data in table.items() if data.master}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_links": {}}


class _Lane:
    """One server's share of many questions, by their places."""

    def __init__(self, link: BlockingConnection) -> None:
        self.waiting: deque[int] = deque()
        self._link = link
        self._asked: deque[tuple[int, int]] = deque()

    def send_some(self, questions: Sequence[Question]) -> None:
        while self.waiting and len(self._asked) < WINDOW:
            _, header, body = questions[self.waiting[0]]
            opaque = self._link.send(header, body)
            self._asked.append((self.waiting.popleft(), opaque))

    def take_one(self, answers: dict[int, Command | AerobeeError]) -> None:
        if not self._asked:
            return
        place, opaque = self._asked[0]
        try:
            answers[place] = self._link.receive(opaque)
        except NetworkError:
            raise
        except AerobeeError as refusal:  # an answer, too
            answers[place] = refusal
        self._asked.popleft()

    @property
    def is_done(self) -> bool:
        return not self.waiting and not self._asked

    def fail(self, error: NetworkError, answers: dict[int, Command | AerobeeError]) -> None:
        """What was not answered waits again; the error is the answer until there is a better one."""
        self._link.close()
        self.waiting.extendleft(place for place, _ in reversed(self._asked))
        self._asked.clear()
        answers.update(dict.fromkeys(self.waiting, error))


def _run(
    lanes: list[_Lane], questions: Sequence[Question], answers: dict[int, Command | AerobeeError]
) -> list[_Lane]:
    """Ask what is waiting in the lanes; the lanes that failed."""
    failed: list[_Lane] = []

    def each(step: Callable[[_Lane], None]) -> None:
        for lane in lanes:
            try:
                if lane not in failed:
                    step(lane)
            except NetworkError as error:
                lane.fail(error, answers)
                failed.append(lane)

    while lanes := [lane for lane in lanes if not lane.is_done and lane not in failed]:
        each(lambda lane: lane.send_some(questions))
        each(lambda lane: lane.take_one(answers))
    return failed


@lru_cache(maxsize=1024)
def _unfolded(topic: str, body: bytes) -> TopicQueues:
    """A stream asks all the time and mostly gets the very bytes it got before, so the same answer is read once."""
    return unfold(topic, bodies.decode(body, bodies.TopicRoute))
