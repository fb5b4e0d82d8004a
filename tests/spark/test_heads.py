# SPDX-License-Identifier: Apache-2.0
"""Where queues begin and end, asked in few questions: always what the broker has, whatever moved meanwhile. No Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import AerobeeError, NetworkError, NoPermission, RequestCodeNotSupported, TopicNotFound
from aerobee.protocol import bodies
from aerobee.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicRoute
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers.consume import HeadsRead
from aerobee.spark.reading import heads
from aerobee.spark.reading.heads import BrokerHeads, Routes, TopicByTopic, together
from aerobee.spark.reading.quiet import Quiet, is_past

if TYPE_CHECKING:
    from aerobee.protocol.headers.route import GetRoute

NAMES = [f"t{n}" for n in range(6)]


class Broker:
    """Tells heads as Aerobee's does: of named topics all, or nothing where none has moved; else what moved since."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, tuple[int, int]]] = {}
        self.moved: dict[tuple[str, int], int] = {}
        self.stamp = 1
        self.remembers_from = 1
        self.refuses: AerobeeError | None = None
        self.asked: list[tuple[str, list[str] | None]] = []

    def put(self, topic: str, queue: int, low: int, high: int) -> None:
        self.stamp += 1
        self.topics.setdefault(topic, {})[queue] = (low, high)
        self.moved[topic, queue] = self.stamp

    def delete(self, topic: str) -> None:
        self.stamp += 1
        self.topics.pop(topic, None)
        self.remembers_from = self.stamp  # what moved before is not told any more

    def truth(self, names: Any) -> dict[str, dict[str, tuple[int, int]]]:
        return {
            name: {str(queue): at for queue, at in self.topics[name].items()}
            for name in names
            if name in self.topics
        }

    def answer(self, question: Any) -> Command | AerobeeError:
        since = question.header.since
        names = bodies.decode(question.body, list[str]) if question.body else None
        self.asked.append((since, names))
        if names is None and self.refuses is not None:
            return self.refuses
        known = since and int(since) >= self.remembers_from
        if names is None:
            told = {
                topic: [(queue, *at) for queue, at in queues.items() if self.moved[topic, queue] > int(since)]
                for topic, queues in self.topics.items()
            }
            topics = {topic: queues for topic, queues in told.items() if queues} if known else {}
            return self._reply(topics, since if known else None)
        if known and int(since) == self.stamp:
            return self._reply({}, since)
        return self._reply(
            {
                name: [(queue, *at) for queue, at in self.topics[name].items()]
                for name in names
                if name in self.topics
            },
            None,
        )

    def _reply(self, topics: Any, since: str | None) -> Command:
        body = bodies.encode(bodies.QueueHeads(topics=topics)) if topics else b""
        return Command(0, ext=header_fields(HeadsRead(stamp=str(self.stamp), since=since)), body=body)


def looked(found: Any, broker: Broker, names: Any, carried: Any = ()) -> set[str]:
    cluster: Any = SimpleNamespace(ask_each=lambda questions: [broker.answer(each) for each in questions])
    outcome = together(cluster, {"b": found.look(frozenset(names), frozenset(carried))})["b"]
    if isinstance(outcome, AerobeeError):
        raise outcome
    return outcome


moves = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("look"), st.sets(st.sampled_from(NAMES), min_size=1)),
        st.tuples(st.just("same")),
        st.tuples(st.just("forgets")),
    ),
    max_size=40,
)


@pytest.mark.parametrize(("few", "named"), [(32, 100), (2, 100), (0, 2)])
@settings(max_examples=80, deadline=None)
@given(moves=moves)
def test_what_is_known_after_a_look_is_what_the_broker_has(few: int, named: int, moves: list[Any]) -> None:
    before, heads.NAMED = heads.NAMED, named
    try:
        broker, found = Broker(), BrokerHeads("b:1")
        found._few = few
        names: set[str] = set(NAMES[:3])
        number = 0
        for step, *of in [*moves, ("same",)]:
            if step == "put":
                number += 1
                broker.put(of[0], of[1], of[2], of[2] + number)
            elif step == "delete":
                broker.delete(of[0])
            elif step == "forgets":
                broker.remembers_from = broker.stamp + 1
            else:
                names = of[0] if step == "look" else names
                known = dict(found.topics)
                changed = looked(found, broker, names)
                assert found.topics == broker.truth(names)
                differ = {t for t in known.keys() | found.topics if known.get(t) != found.topics.get(t)}
                assert changed >= differ
                assert all(found.lacks(name) is (name not in broker.topics) for name in names)
                assert not found.lacks("never asked for")
    finally:
        heads.NAMED = before


def test_many_topics_are_asked_for_once_and_then_only_for_what_moved() -> None:
    broker, found = Broker(), BrokerHeads("b:1")
    names = [f"t{n:03}" for n in range(250)]
    for name in names:
        broker.put(name, 0, 0, 5)
    assert looked(found, broker, names) == set(names)
    assert [len(asked or ()) for _, asked in broker.asked] == [100, 100, 50]
    broker.asked.clear()
    assert looked(found, broker, names) == set()
    broker.put("t007", 0, 0, 6)
    assert looked(found, broker, names) == {"t007"}
    assert [asked for _, asked in broker.asked] == [None, None]
    broker.asked.clear()
    broker.put("new", 0, 0, 1)
    assert looked(found, broker, names) == set(), "nobody asked for it"
    assert looked(found, broker, names, carried={"new"}) == {"new"}
    assert found.topics["new"] == {"0": (0, 1)}


def test_few_topics_are_named_each_time() -> None:
    broker, found = Broker(), BrokerHeads("b:1")
    names = [f"t{n:02}" for n in range(32)]
    for name in names:
        broker.put(name, 0, 0, 5)
    for _ in range(3):
        looked(found, broker, names)
    assert [len(asked or ()) for _, asked in broker.asked] == [32] * 3
    assert [since for since, _ in broker.asked] == ["", str(broker.stamp), str(broker.stamp)]


def test_one_who_may_not_know_of_others_names_his_own_from_then_on() -> None:
    broker, found = Broker(), BrokerHeads("b:1")
    names = [f"t{n:02}" for n in range(40)]
    for name in names:
        broker.put(name, 0, 0, 5)
    looked(found, broker, names)
    broker.refuses = NoPermission("not yours")
    broker.put("t07", 0, 0, 9)
    broker.asked.clear()
    assert looked(found, broker, names) == {"t07"}
    assert [asked is None for _, asked in broker.asked] == [True, False]
    broker.asked.clear()
    looked(found, broker, names)
    assert [asked is None for _, asked in broker.asked] == [False]
    broker.refuses = RequestCodeNotSupported("what?")
    with pytest.raises(RequestCodeNotSupported):
        looked(BrokerHeads("b:1"), other(broker), names)


def other(broker: Broker) -> Any:
    return SimpleNamespace(answer=lambda question: broker.refuses)


def test_questions_of_one_round_leave_together_and_one_failure_is_its_own() -> None:
    rounds: list[int] = []

    def dialogue(count: int) -> Any:
        for _ in range(count):
            answers = yield ["question"] * count
            assert answers == ["answer"] * count
        return {str(count)}

    def failing() -> Any:
        yield ["question"]
        raise NetworkError("gone")

    def ask_each(questions: Any) -> Any:
        rounds.append(len(questions))
        return ["answer"] * len(questions)

    cluster: Any = SimpleNamespace(ask_each=ask_each)
    outcome = together(cluster, {"one": dialogue(1), "three": dialogue(3), "bad": failing()})
    assert rounds == [5, 3, 3]
    assert (outcome["one"], outcome["three"]) == ({"1"}, {"3"})
    assert isinstance(outcome["bad"], NetworkError)


# -- routes, and brokers that know no other question -------------------------------------------------------------


class NameServer:
    """And the broker `b`, which is asked topic by topic."""

    def __init__(self) -> None:
        self.routes: dict[str, Any] = {}
        self.stats: dict[str, Any] = {}
        self.asked: list[str] = []

    def route(self, topic: str, address: str = "b:1", queues: int = 2, perm: int = 6) -> None:
        self.routes[topic] = TopicRoute(
            broker_datas=[BrokerData(broker_name="b", broker_addrs={0: address})],
            queue_datas=[
                QueueData(broker_name="b", perm=perm, read_queue_nums=queues, write_queue_nums=queues)
            ],
        )

    def ask_name_server_each(self, headers: list[GetRoute]) -> list[Command | AerobeeError]:
        self.asked += [header.topic for header in headers]
        found = [self.routes.get(header.topic, TopicNotFound(header.topic)) for header in headers]
        return [
            each if isinstance(each, AerobeeError) else Command(0, body=bodies.encode(each)) for each in found
        ]

    def ask_each(self, questions: list[Any]) -> list[Command | AerobeeError]:
        return [self.stats[question.header.topic] for question in questions]

    def tell(self, topic: str, *bounds: tuple[int, int]) -> None:
        table = {
            MessageQueue("b", queue, topic): bodies.TopicOffset(min_offset=low, max_offset=high)
            for queue, (low, high) in enumerate(bounds)
        }
        self.stats[topic] = Command(0, body=bodies.encode(bodies.TopicStats(offset_table=table)))


def test_routes_are_asked_for_once_and_again_when_in_doubt() -> None:
    names = NameServer()
    routes = Routes(names)  # type: ignore[arg-type]
    names.route("t")
    routes.look_up(["t", "gone"])
    assert names.asked == ["gone", "t"]
    assert (routes.queues("t", "b"), routes.queues("t", "c"), routes.queues("gone", "b")) == (2, 0, 0)
    assert routes.brokers(["t", "gone"]) == {"b": "b:1"}
    assert isinstance(routes.failed["gone"], TopicNotFound)
    version = routes.version
    names.asked.clear()
    routes.look_up(["t"])
    assert names.asked == []
    routes.doubt("t", NetworkError("odd"))
    assert isinstance(routes.failed["t"], NetworkError)
    routes.look_up(["t"])
    assert (names.asked, routes.version, "t" in routes.failed) == (["t"], version, False)
    names.route("t", "moved:1", 3)
    assert routes.address_now("b") == "moved:1"
    assert (routes.queues("t", "b"), routes.version) == (3, version + 1)
    assert routes.address_now("nobody") is None
    del names.routes["t"]
    routes.doubt_some()
    routes.look_up(["t"])
    assert (routes.queues("t", "b"), routes.version) == (0, version + 2)
    names.routes["t"] = NetworkError("away")
    routes.look_up(["t"])
    assert isinstance(routes.failed["t"], NetworkError)
    assert routes.version == version + 2


def test_a_hundred_routes_are_doubted_at_a_time_until_all_were() -> None:
    names = NameServer()
    routes = Routes(names)  # type: ignore[arg-type]
    topics = [f"t{n:03}" for n in range(250)]
    for topic in topics:
        names.route(topic)
    routes.look_up(topics)
    for part in (topics[:100], topics[100:200], topics[200:], topics[:100]):
        names.asked.clear()
        routes.doubt_some()
        routes.look_up(topics)
        assert names.asked == part


def test_topic_by_topic_a_broker_tells_the_queues_that_may_be_read() -> None:
    names = NameServer()
    routes = Routes(names)  # type: ignore[arg-type]
    names.route("t", queues=2)
    names.route("u", queues=1)
    names.route("write-only", perm=2)
    routes.look_up(["t", "u", "write-only"])
    found = TopicByTopic("b:1", "b", routes)

    def look(carried: frozenset[str] = frozenset()) -> set[str]:
        outcome = together(names, {"b": found.look(frozenset({"t", "u", "write-only"}), carried)})["b"]  # type: ignore[arg-type]
        if isinstance(outcome, AerobeeError):
            raise outcome
        return outcome

    names.tell("t", (0, 5), (-1, 3), (7, 9))
    names.tell("u", (2, 4))
    assert look() == {"t", "u"}
    assert found.topics == {"t": {"0": (0, 5), "1": (0, 3)}, "u": {"0": (2, 4)}}
    assert look() == set(), "the same answer is not read again"
    names.tell("u", (2, 5))
    assert look() == {"u"}
    names.stats["u"] = NetworkError("gone")
    with pytest.raises(NetworkError):
        look()
    assert found.topics["u"] == {"0": (2, 5)}, "what was known stays known"
    names.stats["u"] = TopicNotFound("deleted")
    assert look() == {"u"}
    assert (found.lacks("u"), found.lacks("t"), "u" in found.topics) == (True, False, False)
    assert isinstance(routes.failed["u"], TopicNotFound)
    names.tell("u", (0, 1))
    assert look() == {"u"}
    assert not found.lacks("u")
    names.stats["once"] = TopicNotFound("deleted")
    look(frozenset({"once"}))
    assert found.lacks("once")
    del names.stats["once"]
    look(frozenset({"once"}))  # is not asked for again


# -- a stream without anything new -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took_ms", "idle_ms", "pause_ms"),
    [
        ([0], 999, 0),
        ([0], 1_000, 25),
        ([2, 9], 1_000, 38),
        ([10, 10], 5_000, 190),
        ([100], 5_000, 1_000),
        ([0], -1, 25),  # a clock that was set back
    ],
)
def test_looks_wait_the_longer_the_more_they_cost(took_ms: list[int], idle_ms: int, pause_ms: int) -> None:
    quiet, bounds = Quiet(), {"t": {"b": {"0": (0, 1)}}}
    assert quiet.pause_ms(5_000) == 0
    quiet.looks_ms.clear()
    quiet.looks_ms.extend(took_ms)
    quiet.note({"o": 1}, bounds, 10_000)
    quiet.note({"o": 1}, bounds, 10_900)
    assert quiet.pause_ms(10_000 + idle_ms) == pause_ms, "since the first time"
    assert quiet.is_so({"o": 1}, bounds)
    assert not quiet.is_so({"o": 2}, bounds)
    assert not quiet.is_so({"o": 1}, dict(bounds)), "the very same bounds: nothing has moved"
    quiet.end()
    assert not quiet.is_so({"o": 1}, bounds)
    assert quiet.pause_ms(99_000) == 0


def test_an_interval_is_past_at_its_end_and_when_the_clock_was_set_back() -> None:
    assert [is_past(100, 50, now) for now in (99, 100, 149, 150)] == [True, False, False, True]
