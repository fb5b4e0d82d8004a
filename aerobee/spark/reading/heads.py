# SPDX-License-Identifier: Apache-2.0
"""Where a broker's queues begin and end, kept up to date at the least cost.

Theory of operation. An Aerobee broker is told the topics once; from then on it is asked what moved since its last
answer, one small request for ten thousand queues. Another broker is asked topic by topic, and an answer that is the same
to the byte is not read again. Each of the two is a dialogue: it yields questions, is sent their answers, and returns the
topics whose bounds changed. `together` holds the dialogues of all brokers side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError, NetworkError, NoPermission, TopicNotFound
from aerobee.protocol import bodies
from aerobee.protocol.headers.consume import HeadsRead, ReadHeads
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.headers.topics import TopicStatsQuery
from aerobee.protocol.routing import unfold
from aerobee.spark.cluster import Cluster, Question

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aerobee.protocol.command import Command

Heads = dict[str, dict[str, tuple[int, int]]]  # topic -> queue -> (first, next offset)
Triples = list[tuple[int, int, int]]  # queue, first, next offset
Dialogue = Generator[list[Question], "list[Command | AerobeeError]", set[str]]

NAMED = 100  # topics in one question
ROUTES_AGAIN = 100
FEW = 32  # topics that are rather named each time: others may be busy on their broker


class BrokerHeads:
    """A broker that answers for many topics at once."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.topics: Heads = {}
        self._names: frozenset[str] = frozenset()
        self._stamp = ""  # of the last answer
        self._few = FEW

    def lacks(self, topic: str) -> bool:
        """The broker itself says that it has no such topic."""
        return topic in self._names and topic not in self.topics

    def look(self, names: frozenset[str], carried: frozenset[str]) -> Dialogue:
        """RequestCodeNotSupported from a broker that is not Aerobee's. `carried` are topics that it had once."""
        names |= carried
        since = self._stamp if names == self._names else ""
        if since and len(names) > self._few:
            (answer,) = yield [Question(self.address, ReadHeads(since=since))]
            if isinstance(answer, NoPermission):
                self._few = len(names)  # what moves in topics of others is not ours to know
            else:
                told, topics = _told(answer)
                if told.since == since:
                    self._stamp = told.stamp
                    return self._merged(topics)
                since = ""
        return (yield from self._named(names, since))

    def _named(self, names: frozenset[str], since: str) -> Dialogue:
        ordered = sorted(names)
        groups = [ordered[i : i + NAMED] for i in range(0, len(ordered), NAMED)]
        answers = yield [
            Question(self.address, ReadHeads(since=since), bodies.encode(group)) for group in groups
        ]
        heard = [_told(answer) for answer in answers]
        found: Heads = {}
        for group, (told, topics) in zip(groups, heard, strict=True):
            if since and told.since == since:
                found.update({topic: self.topics[topic] for topic in group if topic in self.topics})
            else:
                found.update({topic: _by_queue(topics[topic]) for topic in group if topic in topics})
        self._names = names
        self._stamp = heard[0][0].stamp if heard else ""  # what moved after the first answer is told again
        before, self.topics = self.topics, found
        return {topic for topic in before.keys() | found.keys() if before.get(topic) != found.get(topic)}

    def _merged(self, moved: Mapping[str, Triples]) -> set[str]:
        changed = moved.keys() & self._names
        for topic in changed:
            self.topics[topic] = {**self.topics.get(topic, {}), **_by_queue(moved[topic])}
        return changed


class TopicByTopic:
    """A broker that knows no other question than that for one topic, such as Apache's."""

    def __init__(self, address: str, broker: str, routes: Routes) -> None:
        self.address = address
        self.topics: Heads = {}
        self._broker = broker
        self._routes = routes
        self._bodies: dict[
            str, tuple[int, bytes]
        ] = {}  # the last answers, and how many queues were read of each
        self._lacking: set[str] = set()

    def lacks(self, topic: str) -> bool:
        return topic in self._lacking

    def look(self, names: frozenset[str], carried: frozenset[str]) -> Dialogue:
        routed = {name: count for name in sorted(names) if (count := self._routes.queues(name, self._broker))}
        asked = routed | dict.fromkeys(carried - routed.keys() - self._lacking, 0)
        answers = yield [Question(self.address, TopicStatsQuery(topic=name)) for name in asked]
        before, self.topics = self.topics, {}
        for (topic, readable), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, NetworkError):
                self.topics = before
                raise answer
            if isinstance(answer, AerobeeError):
                self._refused(topic, answer)
            else:
                self.topics[topic] = self._read(topic, answer.body, readable, before)
        return {t for t in before.keys() | self.topics.keys() if before.get(t) is not self.topics.get(t)}

    def _read(self, topic: str, body: bytes, readable: int, before: Heads) -> dict[str, tuple[int, int]]:
        known = before.get(topic)
        self._lacking.discard(topic)
        if known is not None and self._bodies.get(topic) == (readable, body):
            return known
        self._bodies[topic] = (readable, body)
        table = bodies.decode(body, bodies.TopicStats).offset_table
        found = {q.queue_id: (max(0, at.min_offset), max(0, at.max_offset)) for q, at in table.items()}
        return {str(queue): found[queue] for queue in sorted(found) if queue < readable}

    def _refused(self, topic: str, error: AerobeeError) -> None:
        if isinstance(error, TopicNotFound):
            self._lacking.add(topic)
        self._bodies.pop(topic, None)
        self._routes.doubt(topic, error)


class Routes:
    """Which brokers have a topic to be read, and how many queues of it. They are asked for once, again when there is
    reason to doubt them, and in turn."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, dict[str, int]] = {}
        self._bodies: dict[str, bytes] = {}
        self._doubted: set[str] = set()
        self._next = 0
        self._masters: dict[str, str] = {}  # broker -> address
        self.version = 0  # another one when a route is another
        # Why a topic has no route, or its broker does not tell of it.
        self.failed: dict[str, AerobeeError] = {}

    def queues(self, topic: str, broker: str) -> int:
        return self._known.get(topic, {}).get(broker, 0)

    def brokers(self, names: Iterable[str]) -> dict[str, str]:
        """Those that have any of the topics, with their addresses."""
        found = {broker for name in names for broker in self._known.get(name, ())}
        return {broker: self._masters[broker] for broker in sorted(found) if broker in self._masters}

    def doubt_some(self) -> None:
        """A hundred a time, so that thousands are all asked for again by and by."""
        names = sorted(self._known)
        some = names[self._next : self._next + ROUTES_AGAIN]
        self._doubted.update(some)
        self._next = self._next + ROUTES_AGAIN if self._next + ROUTES_AGAIN < len(names) else 0

    def doubt(self, topic: str, error: AerobeeError) -> None:
        self._doubted.add(topic)
        self.failed[topic] = error

    def address_now(self, broker: str) -> str | None:
        """As a route to it says that is asked for now."""
        for topic, counts in self._known.items():
            if broker in counts:
                self._doubted.add(topic)
                self.look_up([topic])
                break
        return self._masters.get(broker)

    def look_up(self, names: Iterable[str]) -> None:
        wanted = sorted(name for name in names if name in self._doubted or name not in self._known)
        if not wanted:
            return
        answers = self._cluster.ask_name_server_each([GetRoute(topic=name) for name in wanted])
        for topic, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, AerobeeError):
                self.failed[topic] = answer
                if isinstance(answer, TopicNotFound) and self._known.pop(topic, None) is not None:
                    del self._bodies[topic]
                    self.version += 1
                continue
            self.failed.pop(topic, None)
            self._doubted.discard(topic)
            if self._bodies.get(topic) != answer.body:
                self._bodies[topic] = answer.body
                found = unfold(topic, bodies.decode(answer.body, bodies.TopicRoute))
                self._known[topic] = dict(Counter(queue.broker_name for queue in found.readable))
                self._masters.update(found.masters)
                self.version += 1


def together(cluster: Cluster, dialogues: Mapping[str, Dialogue]) -> dict[str, set[str] | AerobeeError]:
    """What each dialogue comes to. The questions of one round leave together."""
    outcome: dict[str, set[str] | AerobeeError] = {}
    answers: dict[str, list[Command | AerobeeError] | None] = dict.fromkeys(dialogues)
    while answers:
        asking: dict[str, list[Question]] = {}
        for name, heard in answers.items():
            try:
                asking[name] = dialogues[name].send(heard)  # type: ignore[arg-type]
            except StopIteration as end:
                outcome[name] = end.value
            except AerobeeError as error:
                outcome[name] = error
        questions = [question for asked in asking.values() for question in asked]
        got = iter(cluster.ask_each(questions) if questions else ())
        answers = {name: [next(got) for _ in asked] for name, asked in asking.items()}
    return outcome


def _told(answer: Command | AerobeeError) -> tuple[HeadsRead, dict[str, Triples]]:
    if isinstance(answer, AerobeeError):
        raise answer
    topics = bodies.decode(answer.body, bodies.QueueHeads).topics if answer.body else {}
    return answer.fields(HeadsRead), topics


def _by_queue(triples: Triples) -> dict[str, tuple[int, int]]:
    return {str(queue): (low, high) for queue, low, high in triples}
