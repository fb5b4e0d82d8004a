# SPDX-License-Identifier: Apache-2.0
"""Who is connected, held against a list of facts that is searched from the start each time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.state.clients import CONSUMER, PRODUCER, Clients, ConsumerGroup
from aerobee.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerData,
    SubscriptionData,
)

SILENT_MS = 120_000


class Link:
    send: Any
    start_call: Any
    call: Any
    close: Any

    def __init__(self, name: str) -> None:
        self.remote_text, self.is_open = name, True
        self.attributes: dict[str, Any] = {"language": name.upper(), "version": len(name)}


class Fact(NamedTuple):
    """That a client is in a group."""

    client: str
    role: tuple[str, str]


class Facts:
    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.links: dict[str, Link] = {}
        self.seen: dict[str, int] = {}
        self.topics: dict[str, dict[str, tuple[int, str]]] = {}
        self.told: list[str] = []

    def joins(self, client: str, link: Link, role: tuple[str, str], now: int) -> bool:
        fact = Fact(client, role)
        new = fact not in self.facts or self.links[client] is not link
        if fact not in self.facts:
            self.facts.append(fact)
        self.links[client], self.seen[client] = link, now
        return new

    def subscribes(self, group: str, said: dict[str, tuple[int, str]]) -> bool:
        known = self.topics.setdefault(group, {})
        changed = set(known) != set(said)
        for topic in set(known) - set(said):
            del known[topic]
        for topic, (version, text) in said.items():
            if topic not in known or version > known[topic][0]:
                known[topic] = (version, text)
        return changed

    def leaves(self, gone: list[Fact]) -> None:
        for fact in gone:
            self.facts.remove(fact)
            kind, group = fact.role
            if kind == CONSUMER and self.members(fact.role):
                self.told.append(group)
            elif kind == CONSUMER:
                self.topics.pop(group, None)

    def members(self, role: tuple[str, str]) -> list[str]:
        return [fact.client for fact in self.facts if fact.role == role]

    def of(self, client: str) -> list[Fact]:
        return [fact for fact in self.facts if fact.client == client]


groups, clients_, topics = st.sampled_from("gh"), st.sampled_from("abc"), st.sampled_from("tu")
subscriptions = st.dictionaries(topics, st.tuples(st.integers(1, 3), st.sampled_from("*A")), max_size=2)
steps = st.one_of(
    st.tuples(
        st.just("beat"), clients_, st.integers(0, 2), st.sets(groups), st.dictionaries(groups, subscriptions)
    ),
    st.tuples(st.just("close"), st.integers(0, 2)),
    st.tuples(st.just("unregister"), clients_, st.none() | groups, st.none() | groups),
    st.tuples(st.just("wait"), st.sampled_from([1, SILENT_MS, SILENT_MS + 1])),
)


def beat_of(client: str, producers: set[str], consumers: dict[str, Any]) -> Heartbeat:
    return Heartbeat(
        client_id=client,
        producer_data_set=[ProducerData(group_name=name) for name in sorted(producers)],
        consumer_data_set=[
            ConsumerData(
                group_name=name,
                subscription_data_set=[
                    SubscriptionData(topic=topic, sub_string=text, sub_version=version)
                    for topic, (version, text) in said.items()
                ],
            )
            for name, said in consumers.items()
        ],
    )


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(steps, max_size=25))
def test_whatever_comes_and_goes_everybody_is_where_the_heartbeats_say(
    history: list[tuple[Any, ...]],
) -> None:
    links = [Link(name) for name in ("one", "two", "three")]
    clients, facts, told, now = Clients(), Facts(), [], 0
    clients.on_change = lambda group: told.append(group.name)
    for what, *details in history:
        if what == "beat":
            client, link, producers, consumers = details
            changed = clients.heartbeat(links[link], beat_of(client, producers, consumers), now)
            expected = False
            moved = client in facts.links and facts.links[client] is not links[link]
            for name in sorted(producers):
                facts.joins(client, links[link], (PRODUCER, name), now)
            for name, said in consumers.items():
                joined = facts.joins(client, links[link], (CONSUMER, name), now) or (moved and not producers)
                if facts.subscribes(name, said) or joined:
                    facts.told.append(name)
                    expected = True
            if not (moved and (producers or len(consumers) > 1)):  # then who is new is a matter of order
                assert changed == expected
                assert sorted(told) == sorted(facts.told)
            facts.told[:] = told
        elif what == "close":
            for client in [name for name, link in facts.links.items() if link is links[details[0]]]:
                facts.leaves(facts.of(client))
            clients.closed(links[details[0]])
        elif what == "unregister":
            client, producer, consumer = details
            clients.unregister(client, producer, consumer)
            gone = {(PRODUCER, producer), (CONSUMER, consumer)}
            facts.leaves([fact for fact in facts.of(client) if fact.role in gone])
        else:
            now += details[0]
            silent = [name for name in facts.seen if facts.of(name) and now - facts.seen[name] > SILENT_MS]
            assert {id(link) for link in clients.expire(now)} == {id(facts.links[name]) for name in silent}
            for name in silent:
                facts.leaves(facts.of(name))
        assert sorted(told) == sorted(facts.told)
        check(clients, facts)


def check(clients: Clients, facts: Facts) -> None:
    for name in "gh":
        assert clients.consumer_ids(name) == facts.members((CONSUMER, name))
        assert [each.client_id for each in clients.producers(name)] == facts.members((PRODUCER, name))
        group = clients.group(name)
        assert (group is None) == (not facts.members((CONSUMER, name)))
        assert (name in clients.producer_groups()) == bool(facts.members((PRODUCER, name)))
        known = {} if group is None else group.subscriptions
        assert {t: (s.sub_version, s.sub_string) for t, s in known.items()} == facts.topics.get(name, {})
    for topic in "tu":
        assert clients.subscribers(topic) == {name for name in "gh" if topic in facts.topics.get(name, {})}
    for client in "abc":
        member = clients.find_client(client)
        assert (member is not None) == bool(facts.of(client))
        if member is not None:
            link = facts.links[client]
            assert (member.link, member.last_seen) == (link, facts.seen[client])
            assert (member.language, member.version) == (link.remote_text.upper(), len(link.remote_text))
            assert member.roles == {fact.role for fact in facts.of(client)}


def test_a_group_is_what_its_last_heartbeat_says_it_is() -> None:
    clients = Clients()
    for model, kind, where in (
        (MessageModel.BROADCASTING, ConsumeType.CONSUME_ACTIVELY, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        (MessageModel.CLUSTERING, ConsumeType.CONSUME_PASSIVELY, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
    ):
        data = ConsumerData(group_name="g", message_model=model, consume_type=kind, consume_from_where=where)
        clients.heartbeat(Link("one"), Heartbeat(client_id="a", consumer_data_set=[data]), 0)
        group = clients.group("g")
        assert group is not None
        assert (group.model, group.consume_type, group.from_where) == (model, kind, where)
        assert group.broadcasting == (model is MessageModel.BROADCASTING)
    assert clients.groups() == {"g": group}
    assert ConsumerGroup("new").consume_type is ConsumeType.CONSUME_PASSIVELY


def v2(fingerprint: int, *, without_sub: bool, client: str = "a") -> Heartbeat:
    data = ConsumerData(
        group_name="g", subscription_data_set=[] if without_sub else [SubscriptionData(topic="t")]
    )
    return Heartbeat(
        client_id=client,
        consumer_data_set=[data],
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
    )


@pytest.mark.parametrize(
    ("known", "fingerprint", "without_sub", "needed"),
    [
        # What the broker knows of the client; what the client says; whether it must say all of it.
        ("nothing", 9, True, True),
        ("nothing", 9, False, False),
        ("nothing", 0, True, False),  # an older form: it has no other
        ("the group", 9, True, True),
        ("the group", 9, False, False),
        ("the same", 9, True, False),
        ("the same", 9, False, False),
        ("another", 9, True, True),
        ("another", 9, False, True),
        ("another", 0, True, False),
    ],
)
def test_when_a_short_heartbeat_is_not_enough(
    known: str, fingerprint: int, without_sub: bool, needed: bool
) -> None:
    clients = Clients()
    before = {"the group": v2(0, without_sub=False), "the same": v2(9, without_sub=False)}
    before["another"] = v2(8, without_sub=False)
    if known in before:
        clients.heartbeat(Link("one"), before[known], 0)
        clients.remember_fingerprint(before[known])
    assert clients.needs_full_form(v2(fingerprint, without_sub=without_sub)) is needed


def test_only_a_full_heartbeat_is_remembered_and_it_goes_with_its_client() -> None:
    clients, link = Clients(), Link("one")
    clients.remember_fingerprint(v2(9, without_sub=False))  # of a group that nobody has joined
    clients.heartbeat(link, v2(9, without_sub=True), 0)
    clients.remember_fingerprint(v2(9, without_sub=True))
    group = clients.group("g")
    assert group is not None
    assert group.fingerprints == {}
    clients.remember_fingerprint(v2(9, without_sub=False))
    clients.heartbeat(Link("two"), v2(7, without_sub=False, client="b"), 0)
    clients.remember_fingerprint(v2(7, without_sub=False, client="b"))
    assert group.fingerprints == {"a": 9, "b": 7}
    clients.closed(link)
    assert group.fingerprints == {"b": 7}
    assert set(group.expressions) == {"b"}


def test_a_heartbeat_goes_before_what_a_pull_said() -> None:
    clients = Clients()
    clients.learn("g", "t", "SQL92", "a > 1", now=5)
    learned = clients.subscription("g", "t")
    assert learned == SubscriptionData(topic="t", sub_string="a > 1", expression_type="SQL92", sub_version=5)
    clients.heartbeat(Link("one"), v2(1, without_sub=False), 6)
    assert clients.subscription("g", "t") == SubscriptionData(topic="t")
    assert clients.subscription("g", "u") is None
    assert clients.readers("t") == {"g"}
    clients.learn("h", "t", None, "*", now=6)
    assert clients.readers("t") == {"g", "h"}
    clients.learn("h", "u", None, "*", now=600_007)
    clients.expire(now=600_007)
    assert (clients.readers("t"), clients.readers("u")) == ({"g"} & clients.subscribers("t"), {"h"})
