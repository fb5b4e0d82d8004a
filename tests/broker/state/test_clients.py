# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.state.clients import Clients, ConsumerGroup
from aerobee.errors import AccessDenied
from aerobee.protocol.bodies import (
    ConsumerData,
    Heartbeat,
    MessageModel,
    ProducerData,
    SubscriptionData,
    decode,
)

if TYPE_CHECKING:
    from aerobee.protocol.command import Command


class FakeLink:
    def __init__(self, name: str = "10.0.0.1:5000", language: str = "JAVA") -> None:
        self.remote_text = name
        self.attributes: dict[str, Any] = {"language": language, "version": 479}
        self.is_open = True
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def start_call(self, command: Command) -> Any:
        raise NotImplementedError

    async def call(self, command: Command, timeout_ms: int = 3000) -> Command:
        raise NotImplementedError

    def close(self) -> None:
        self.is_open = False


def subscribe(topic: str, expression: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version)


def beat(client: str, group: str = "g", *subscriptions: SubscriptionData, **more: Any) -> Heartbeat:
    data = ConsumerData(group_name=group, subscription_data_set=list(subscriptions))
    return Heartbeat(client_id=client, consumer_data_set=[data], **more)


class Changes:
    def __init__(self, clients: Clients) -> None:
        self.names: list[str] = []
        clients.on_change = self.note

    def note(self, group: ConsumerGroup) -> None:
        self.names.append(group.name)

    def take(self) -> list[str]:
        taken, self.names = self.names, []
        return taken


@pytest.mark.seed("S003-14", "S003-45", "S004-66")
def test_members_of_a_group_are_those_who_sent_heartbeats() -> None:
    clients = Clients()
    clients.heartbeat(FakeLink(), beat("one", "g", subscribe("t")), now=0)
    clients.heartbeat(FakeLink(), beat("two", "g", subscribe("t")), now=0)
    assert clients.consumer_ids("g") == ["one", "two"]
    assert clients.consumer_ids("unknown") == []
    assert clients.subscribers("t") == {"g"}
    group = clients.group("g")
    assert group is not None
    assert group.subscriptions["t"].sub_string == "*"


@pytest.mark.seed("S004-80")
def test_joining_leaving_and_a_changed_topic_are_told_and_nothing_else() -> None:
    clients = Clients()
    changes, link = Changes(clients), FakeLink()
    assert clients.heartbeat(link, beat("one", "g", subscribe("t")), now=0)
    assert not clients.heartbeat(link, beat("one", "g", subscribe("t", "A", version=2)), now=1)
    assert changes.take() == ["g"]  # a newer expression replaces the old one without notice
    assert clients.heartbeat(link, beat("one", "g", subscribe("t"), subscribe("u")), now=2)
    assert changes.take() == ["g"]
    other = FakeLink()
    clients.heartbeat(other, beat("two", "g", subscribe("t"), subscribe("u")), now=3)
    assert changes.take() == ["g"]
    clients.closed(other)
    assert changes.take() == ["g"]
    clients.closed(link)
    assert changes.take() == []  # nobody is left to be told
    assert clients.group("g") is None


def test_who_leaves_is_told_by_the_word_it_joined_by(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aerobee")
    clients, link = Clients(), FakeLink()
    both = beat("one", "g", subscribe("t"), producer_data_set=[ProducerData(group_name="p")])
    clients.heartbeat(link, both, now=0)
    clients.closed(link)
    told = {record.getMessage() for record in caplog.records if "client=one" in record.getMessage()}
    assert told == {
        "joined producer_group=p client=one peer=10.0.0.1:5000", "left producer_group=p client=one",
        "joined group=g client=one peer=10.0.0.1:5000", "left group=g client=one",
    }  # fmt: skip


def test_client_that_comes_back_on_a_new_connection_is_not_removed_with_the_old_one() -> None:
    clients = Clients()
    old, new = FakeLink("a"), FakeLink("b")
    clients.heartbeat(old, beat("one", "g", subscribe("t")), now=0)
    clients.heartbeat(new, beat("one", "g", subscribe("t")), now=1)
    clients.closed(old)
    assert clients.consumer_ids("g") == ["one"]
    member = clients.find_client("one")
    assert member is not None
    assert member.link is new
    clients.closed(new)
    assert clients.find_client("one") is None


def test_silent_clients_are_dropped_after_two_minutes() -> None:
    clients = Clients()
    silent, alive = FakeLink("silent"), FakeLink("alive")
    clients.heartbeat(silent, beat("one", "g", subscribe("t")), now=0)
    clients.heartbeat(alive, beat("two", "g", subscribe("t")), now=0)
    clients.heartbeat(alive, beat("two", "g", subscribe("t")), now=100_000)
    assert clients.expire(now=120_000) == []
    assert clients.expire(now=120_001) == [silent]
    assert clients.consumer_ids("g") == ["two"]
    clients.closed(silent)


def test_unregister_takes_only_the_roles_named() -> None:
    clients, link = Clients(), FakeLink()
    both = beat("one", "g", subscribe("t"), producer_data_set=[ProducerData(group_name="p")])
    clients.heartbeat(link, both, now=0)
    clients.unregister("one", None, "g")
    assert clients.group("g") is None
    assert [member.client_id for member in clients.producers("p")] == ["one"]
    clients.unregister("one", "p", None)
    assert clients.producers("p") == []
    assert clients.find_client("one") is None
    clients.unregister("one", "p", None)


@pytest.mark.seed("S004-64")
def test_highest_version_of_a_subscription_wins_and_missing_topics_go() -> None:
    clients = Clients()
    clients.heartbeat(FakeLink(), beat("one", "g", subscribe("t", "A", version=5), subscribe("u")), now=0)
    clients.heartbeat(FakeLink(), beat("two", "g", subscribe("t", "B", version=4)), now=0)
    group = clients.group("g")
    assert group is not None
    assert group.subscriptions["t"].sub_string == "A"
    assert "u" not in group.subscriptions
    clients.heartbeat(FakeLink(), beat("three", "g", subscribe("t", "B", version=6)), now=0)
    assert group.subscriptions["t"].sub_string == "B"


@pytest.mark.seed("S004-64")
def test_members_that_subscribe_differently_are_reported_once_per_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clients = Clients()
    one, two = FakeLink(), FakeLink()
    clients.heartbeat(one, beat("one", "g", subscribe("t", "A")), now=0)
    with caplog.at_level(logging.WARNING):
        for now in range(3):
            clients.heartbeat(two, beat("two", "g", subscribe("t", "B")), now=now)
            clients.heartbeat(one, beat("one", "g", subscribe("t", "A")), now=now)
    assert len([r for r in caplog.records if "subscribe differently" in r.message]) == 1
    group = clients.group("g")
    assert group is not None
    assert group.conflicts == {"t": {"A": ["one"], "B": ["two"]}}
    clients.closed(two)
    assert group.conflicts == {}


def test_heartbeat_of_the_go_client_is_understood() -> None:
    body = (
        b'{"clientID":"go","producerDataSet":[],"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"Clustering","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":'
        b'[{"classFilterMode":false,"topic":"t","subString":"*","tagsSet":[],"codeSet":[],"subVersion":7,'
        b'"expressionType":"TAG"}],"unitMode":false}]}'
    )
    clients = Clients()
    clients.heartbeat(FakeLink(language="GO"), decode(body, Heartbeat), now=0)
    group = clients.group("g")
    assert group is not None
    assert group.model is MessageModel.CLUSTERING
    assert not group.broadcasting


def test_v2_heartbeat_without_subscription_keeps_the_known_one() -> None:
    clients, link = Clients(), FakeLink()
    full = beat("one", "g", subscribe("t"), heartbeat_fingerprint=9)
    assert not clients.needs_full_form(full)
    clients.heartbeat(link, full, now=0)
    clients.remember_fingerprint(full)
    short = beat("one", "g", heartbeat_fingerprint=9, without_sub=True)
    assert not clients.needs_full_form(short)
    clients.heartbeat(link, short, now=1)
    group = clients.group("g")
    assert group is not None
    assert list(group.subscriptions) == ["t"]
    assert clients.needs_full_form(beat("one", "g", heartbeat_fingerprint=10, without_sub=True))


def test_v2_heartbeat_without_subscription_is_asked_for_the_full_form_after_a_restart() -> None:
    assert Clients().needs_full_form(beat("one", "g", heartbeat_fingerprint=9, without_sub=True))


def test_subscription_of_a_pull_without_heartbeat_is_remembered_for_ten_minutes() -> None:
    clients = Clients()
    clients.learn("g", "t", None, "A || B", now=0)
    found = clients.subscription("g", "t")
    assert found is not None
    assert (found.expression_type, found.sub_string) == ("TAG", "A || B")
    assert clients.readers("t") == {"g"}
    assert clients.subscribers("t") == set()
    clients.expire(now=600_000)
    assert clients.subscription("g", "t") is not None
    clients.expire(now=600_001)
    assert clients.subscription("g", "t") is None


def test_a_client_that_comes_back_another_way_joins_anew_and_is_told_as_it_is_now() -> None:
    clients = Clients()
    changes = Changes(clients)
    old, new = FakeLink("10.0.0.1:5000"), FakeLink("10.0.0.1:5001", "GO")
    new.attributes["version"] = 500
    assert clients.heartbeat(old, beat("one"), now=0)
    changes.take()
    assert clients.heartbeat(new, beat("one"), now=5), "its locks and queues may be others' by now"
    assert changes.take() == ["g"]
    member = clients.find_client("one")
    assert member is not None
    assert (member.link, member.language, member.version, member.last_seen) == (new, "GO", 500, 5)
    clients.closed(old)
    assert clients.consumer_ids("g") == ["one"]


@pytest.mark.parametrize(("silent_ms", "gone"), [(120_000, False), (120_001, True)])
def test_a_client_is_silent_for_too_long_after_two_minutes_and_not_before(silent_ms: int, gone: bool) -> None:
    clients, link = Clients(), FakeLink()
    clients.heartbeat(link, beat("one"), now=0)
    assert clients.expire(silent_ms) == ([link] if gone else [])
    assert (clients.find_client("one") is None) is gone


@pytest.mark.parametrize(("age_ms", "known"), [(600_000, True), (600_001, False)])
def test_what_a_reader_brought_is_known_for_ten_minutes_and_no_longer(age_ms: int, known: bool) -> None:
    clients = Clients()
    clients.learn("g", "t", None, "a", now=7)
    clients.expire(7 + age_ms)
    found = clients.subscription("g", "t")
    assert (found is not None) is known
    assert clients.readers("t") == ({"g"} if known else set())
    if found is not None:
        assert (found.sub_string, found.expression_type, found.sub_version) == ("a", "TAG", 7)


def test_who_leaves_takes_what_it_said_along() -> None:
    clients = Clients()
    clients.heartbeat(FakeLink(), beat("one", "g", subscribe("t", "a")), now=0)
    clients.heartbeat(FakeLink(), beat("two", "g", subscribe("t", "b")), now=0)
    group = clients.group("g")
    assert group is not None
    assert group.conflicts
    group.fingerprints["two"] = 7
    clients.unregister("two", None, "g")
    assert (group.expressions.keys(), group.fingerprints, group.conflicts) == ({"one"}, {}, {})


def test_the_full_form_is_asked_for_when_any_group_of_a_heartbeat_needs_it() -> None:
    clients = Clients()
    known = beat("one", "g", subscribe("t"), heartbeat_fingerprint=9)
    clients.heartbeat(FakeLink(), known, now=0)
    clients.remember_fingerprint(known)
    other = beat("one", "new", subscribe("t"), heartbeat_fingerprint=10)
    changed = beat("one", "g", subscribe("t"), heartbeat_fingerprint=10)
    changed.consumer_data_set = [*changed.consumer_data_set, *other.consumer_data_set]
    assert clients.needs_full_form(changed)
    assert not clients.needs_full_form(other)


def test_one_more_who_subscribes_like_another_is_no_new_conflict(caplog: pytest.LogCaptureFixture) -> None:
    clients = Clients()
    for client, tag in (("one", "A"), ("two", "B"), ("three", "B")):
        clients.heartbeat(FakeLink(), beat(client, "g", subscribe("t", tag)), now=0)
    assert caplog.text.count("subscribe differently") == 1
    clients.heartbeat(FakeLink(), beat("four", "g", subscribe("t", "C")), now=0)
    assert caplog.text.count("subscribe differently") == 2


def test_what_a_reader_brought_takes_no_memory_when_it_is_forgotten() -> None:
    clients = Clients()
    clients.learn("g", "t", None, "*", now=0)
    clients.learn("g", "u", None, "*", now=1)
    clients.expire(600_001)
    assert clients.readers("t") == set()
    assert clients.readers("u") == {"g"}
    clients.expire(600_002)
    assert clients._learned == {}


def test_a_heartbeat_says_that_something_changed_when_any_of_its_groups_did() -> None:
    clients, link = Clients(), FakeLink()
    both = beat("one", "g", subscribe("t"))
    both.consumer_data_set = [*both.consumer_data_set, *beat("one", "h", subscribe("t")).consumer_data_set]
    clients.heartbeat(link, beat("one", "h", subscribe("t")), now=0)
    assert clients.heartbeat(link, both, now=1)
    assert not clients.heartbeat(link, both, now=2)


def test_a_topic_that_a_group_gave_up_is_told_to_its_members() -> None:
    clients, link = Clients(), FakeLink()
    clients.heartbeat(link, beat("one", "g", subscribe("t"), subscribe("u")), now=0)
    changes = Changes(clients)
    assert clients.heartbeat(link, beat("one", "g", subscribe("t")), now=1)
    assert changes.take() == ["g"]
    assert (clients.subscribers("u"), clients.subscribers("t")) == (set(), {"g"})


def test_a_connection_that_went_leaves_nothing_behind() -> None:
    clients, link = Clients(), FakeLink()
    clients.heartbeat(link, beat("one", "g", subscribe("t")), now=0)
    clients.register_producer(link, "two", "p", 0)
    clients.closed(link)
    assert (clients._by_link, clients._members, clients.groups(), clients.producer_groups()) == (
        {},
        {},
        {},
        {},
    )


@pytest.mark.parametrize("other", ["bob", "", None])
def test_a_client_id_is_its_users_as_long_as_it_lives(other: str | None) -> None:
    clients, link = Clients(), FakeLink()
    link.attributes["user"] = "alice"
    clients.check_owner("one", other)
    clients.heartbeat(link, beat("one", "g", subscribe("t")), now=0)
    clients.check_owner("one", "alice")
    with pytest.raises(AccessDenied, match="in use by another user"):
        clients.check_owner("one", other)
    clients.closed(link)
    clients.check_owner("one", other)
