# SPDX-License-Identifier: Apache-2.0
"""Routes that are believed, doubted and asked for again, and heads of brokers that answer in odd ways. No Spark."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import AerobeeError, NetworkError, NoPermission, TopicNotFound
from aerobee.protocol import bodies
from aerobee.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicOffset, TopicRoute, TopicStats
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers.consume import HeadsRead
from aerobee.spark.reading.heads import BrokerHeads, Routes, TopicByTopic, together

if TYPE_CHECKING:
    from collections.abc import Callable


class Names:
    """A name server that counts questions; a route says how many queues each broker has, and who its master is."""

    def __init__(self) -> None:
        self.found: dict[str, TopicRoute | AerobeeError] = {}
        self.asked: list[list[str]] = []
        self.routes = Routes(self)  # type: ignore[arg-type]

    def put(self, topic: str, masters: bool = True, **queues: int) -> None:
        self.found[topic] = TopicRoute(
            broker_datas=[
                BrokerData(broker_name=name, broker_addrs={0 if masters else 1: f"{name}:1"})
                for name in queues
            ],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=count, write_queue_nums=count)
                for name, count in queues.items()
            ],
        )

    def ask_name_server_each(self, headers: list[Any]) -> list[Command | AerobeeError]:
        self.asked.append([each.topic for each in headers])
        found = [self.found.get(each.topic, TopicNotFound(each.topic)) for each in headers]
        return [
            each if isinstance(each, AerobeeError) else Command(0, body=bodies.encode(each)) for each in found
        ]

    def asked_for(self, *topics: str) -> list[str]:
        """What a look for these topics asks."""
        self.asked.clear()
        self.routes.look_up(topics)
        return [topic for asked in self.asked for topic in asked]


def test_brokers_of_a_topic_are_those_with_queues_and_an_address() -> None:
    names = Names()
    names.put("t", c=1, a=3)
    names.put("u", b=2)
    names.put("slaves", masters=False, d=2)
    names.asked_for("t", "u", "slaves")
    assert names.routes.brokers(["t"]) == {"a": "a:1", "c": "c:1"}
    assert list(names.routes.brokers(["u", "t", "slaves", "none"])) == ["a", "b", "c"]
    assert [names.routes.queues("t", broker) for broker in "abc"] == [3, 0, 1]


@pytest.mark.parametrize(
    ("count", "rounds"), [(99, [99, 99]), (100, [100, 100]), (101, [100, 1, 100]), (200, [100, 100, 100])]
)
def test_all_routes_have_their_turn_to_be_doubted(count: int, rounds: list[int]) -> None:
    names = Names()
    topics = [f"t{n:03}" for n in range(count)]
    for topic in topics:
        names.put(topic, b=1)
    names.asked_for(*topics)
    begin = 0
    for expected in rounds:
        names.routes.doubt_some()
        assert names.asked_for(*topics) == topics[begin : begin + expected]
        begin = (begin + expected) % count


def test_a_doubt_lasts_until_the_route_is_told_again() -> None:
    names = Names()
    names.put("t", b=1)
    names.asked_for("t")
    version = names.routes.version
    names.found["t"] = NetworkError("silent")
    names.routes.doubt_some()
    for _ in range(2):
        assert names.asked_for("t") == ["t"]
        assert isinstance(names.routes.failed["t"], NetworkError)
        assert names.routes.queues("t", "b") == 1, "what was known is good until better is known"
    names.put("t", b=1)
    assert names.asked_for("t") == ["t"]
    assert names.asked_for("t") == []
    assert (names.routes.failed, names.routes.version) == ({}, version), "it is the same as before"
    names.put("t", b=2)
    assert names.asked_for("t") == []
    names.routes.doubt_some()
    assert names.asked_for("t") == ["t"]
    assert names.routes.version == version + 1


def test_a_topic_that_was_never_there_is_asked_for_each_time_and_changes_nothing() -> None:
    names = Names()
    version = names.routes.version
    for _ in range(2):
        assert names.asked_for("none") == ["none"]
        assert names.routes.version == version
    names.put("none", b=1)
    assert names.asked_for("none") == ["none"]
    assert names.routes.version == version + 1
    del names.found["none"]
    names.routes.doubt("none", TopicNotFound("none"))
    assert names.asked_for("none") == ["none"]
    assert (names.routes.version, names.routes.brokers(["none"])) == (version + 2, {})
    names.put("none", b=1)
    assert names.asked_for("none") == ["none"]
    assert names.routes.version == version + 3, "the very same route again is new"


def test_one_topic_is_enough_to_learn_where_a_broker_is_now() -> None:
    names = Names()
    names.put("t", b=1)
    names.put("u", b=1)
    names.put("v", c=1)
    names.asked_for("t", "u", "v")
    names.asked.clear()
    assert names.routes.address_now("b") == "b:1"
    assert len(names.asked) == 1
    assert len(names.asked[0]) == 1
    names.asked.clear()
    assert names.routes.address_now("nobody") is None
    assert names.asked == []


# -- brokers that answer for many ---------------------------------------------------------------------------------


def told(since: str | None, **topics: Any) -> Command:
    body = bodies.encode(bodies.QueueHeads(topics=topics)) if topics else b""
    return Command(0, ext=header_fields(HeadsRead(stamp="9", since=since)), body=body)


def look(found: Any, answer: Callable[[Any], Any], *names: str, carried: frozenset[str] = frozenset()) -> Any:
    asked: list[Any] = []

    def ask_each(questions: Any) -> list[Any]:
        asked.extend(questions)
        return [answer(each) for each in questions]

    cluster: Any = SimpleNamespace(ask_each=ask_each)
    outcome = together(cluster, {"b": found.look(frozenset(names), carried)})["b"]
    return outcome, asked


def always(answer: Command, _: Any) -> Command:
    return answer


def test_a_first_answer_tells_everything_whatever_it_says_of_before() -> None:
    for since in (None, "", "7"):
        found = BrokerHeads("b:1")
        answer = told(since, t=[(10, 3, 8), (9, 0, 4)])
        outcome, asked = look(found, partial(always, answer), "t", "u")
        assert outcome == {"t"}
        assert found.topics == {"t": {"10": (3, 8), "9": (0, 4)}}
        assert [(each.address, each.header.since) for each in asked] == [("b:1", "")]
        assert bodies.decode(asked[0].body, list[str]) == ["t", "u"]
        assert (found.lacks("u"), found.lacks("t"), found.lacks("v")) == (True, False, False)


def test_other_names_are_asked_for_from_the_beginning_and_the_same_from_the_last_answer_on() -> None:
    found = BrokerHeads("b:1")
    everything = lambda _: told(None, t=[(0, 0, 1)], u=[(0, 0, 1)])  # noqa: E731
    look(found, everything, "t")
    for names, carried, since in (
        (("t",), frozenset(), "9"),
        (("t", "u"), frozenset(), ""),
        (("t", "u"), frozenset(), "9"),
        (("t",), frozenset({"u"}), "9"),  # it is the same to the broker
        (("t",), frozenset(), ""),
    ):
        _, asked = look(found, everything, *names, carried=carried)
        assert [each.header.since for each in asked] == [since]


def test_topics_that_did_not_move_are_as_they_were_and_those_that_went_are_told() -> None:
    found = BrokerHeads("b:1")
    look(found, lambda _: told(None, t=[(0, 0, 1)], u=[(0, 0, 2)]), "t", "u")
    assert look(found, lambda _: told("9"), "t", "u")[0] == set()
    assert found.topics == {"t": {"0": (0, 1)}, "u": {"0": (0, 2)}}
    assert look(found, lambda _: told(None, t=[(0, 0, 5)]), "t", "u")[0] == {"t", "u"}
    assert (found.topics, found.lacks("u")) == ({"t": {"0": (0, 5)}}, True)


def test_no_names_are_no_question_to_a_broker_with_nothing_to_tell() -> None:
    found = BrokerHeads("b:1")
    outcome, asked = look(found, lambda _: told(None))
    assert (outcome, asked, found.topics) == (set(), [], {})


def test_a_queue_that_moved_leaves_its_neighbours_where_they_were() -> None:
    found = BrokerHeads("b:1")
    found._few = 0
    look(found, lambda _: told(None, t=[(0, 0, 1), (1, 0, 2)], u=[(0, 0, 3)]), "t", "u")
    outcome, asked = look(found, lambda _: told("9", t=[(1, 1, 6)], other=[(0, 0, 9)]), "t", "u")
    assert (outcome, [each.body for each in asked]) == ({"t"}, [b""])
    assert found.topics == {"t": {"0": (0, 1), "1": (1, 6)}, "u": {"0": (0, 3)}}


def test_an_error_of_a_broker_is_its_outcome() -> None:
    outcome, _ = look(BrokerHeads("b:1"), lambda _: NetworkError("gone"), "t")
    assert isinstance(outcome, NetworkError)
    refusing = BrokerHeads("b:1")
    outcome, _ = look(refusing, lambda _: NoPermission("no"), "t")
    assert isinstance(outcome, NoPermission)


# -- brokers that answer topic by topic -----------------------------------------------------------------------------


def stats(topic: str, **queues: tuple[int, int]) -> Command:
    table = {
        MessageQueue("b", int(name[1:]), topic): TopicOffset(min_offset=low, max_offset=high)
        for name, (low, high) in queues.items()
    }
    return Command(0, body=bodies.encode(TopicStats(offset_table=table)))


def test_queues_are_in_the_order_of_their_numbers_and_no_offset_is_below_nothing() -> None:
    names = Names()
    names.put("t", b=11)
    names.asked_for("t")
    found = TopicByTopic("b:1", "b", names.routes)
    look(found, lambda _: stats("t", q10=(-1, -1), q9=(2, 4), q0=(0, 0), q11=(5, 6)), "t")
    assert list(found.topics["t"].items()) == [("0", (0, 0)), ("9", (2, 4)), ("10", (0, 0))]


def test_an_answer_is_read_again_when_more_of_its_queues_may_be_read() -> None:
    names = Names()
    names.put("t", b=1)
    names.asked_for("t")
    found = TopicByTopic("b:1", "b", names.routes)
    both = lambda _: stats("t", q0=(0, 1), q1=(0, 2))  # noqa: E731
    assert look(found, both, "t")[0] == {"t"}
    assert found.topics == {"t": {"0": (0, 1)}}
    assert look(found, both, "t")[0] == set()
    names.put("t", b=2)
    names.routes.doubt_some()
    names.asked_for("t")
    assert look(found, both, "t")[0] == {"t"}
    assert found.topics == {"t": {"0": (0, 1), "1": (0, 2)}}


def test_a_topic_that_was_refused_is_doubted_and_read_anew_when_it_is_back() -> None:
    names = Names()
    names.put("t", b=1)
    names.asked_for("t")
    found = TopicByTopic("b:1", "b", names.routes)
    one = lambda _: stats("t", q0=(0, 1))  # noqa: E731
    look(found, one, "t")
    assert look(found, lambda _: NoPermission("no"), "t")[0] == {"t"}
    assert (found.topics, found.lacks("t")) == ({}, False)
    assert isinstance(names.routes.failed["t"], NoPermission)
    assert names.asked_for("t") == ["t"]
    assert look(found, one, "t")[0] == {"t"}
    assert found.topics == {"t": {"0": (0, 1)}}


def test_carried_topics_are_asked_for_until_the_broker_says_that_it_has_them_no_more() -> None:
    names = Names()
    names.put("t", b=1)
    names.asked_for("t")
    found = TopicByTopic("b:1", "b", names.routes)
    answer = lambda each: TopicNotFound("x") if each.header.topic == "once" else stats("t", q0=(0, 1))  # noqa: E731
    _, asked = look(found, answer, "t", carried=frozenset({"once", "t"}))
    assert sorted(each.header.topic for each in asked) == ["once", "t"]
    assert (found.lacks("once"), found.lacks("t")) == (True, False)
    _, asked = look(found, answer, "t", carried=frozenset({"once", "t"}))
    assert [each.header.topic for each in asked] == ["t"]
    _, asked = look(
        found, lambda each: stats(each.header.topic, q0=(0, 1)), "t", carried=frozenset({"again"})
    )
    assert sorted(each.header.topic for each in asked) == ["again", "t"]
    assert found.topics["again"] == {}, "no queue of it is to be read"


@pytest.mark.parametrize(("count", "named"), [(32, True), (33, False)])
def test_more_than_thirty_two_topics_are_not_named_each_time(count: int, named: bool) -> None:
    found = BrokerHeads("b:1")
    topics = [f"t{n}" for n in range(count)]
    everything = {topic: [(0, 0, 1)] for topic in topics}
    look(found, lambda _: told(None, **everything), *topics)
    _, asked = look(found, lambda _: told("9"), *topics)
    assert [bool(each.body) for each in asked] == [named]
