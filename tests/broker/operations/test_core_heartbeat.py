# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations import heartbeat as op
from aerobee.errors import AccessDenied, InvalidParameter, SubscriptionParseFailed, SystemFailure
from aerobee.protocol.bodies import (
    ConsumerData,
    GroupConfig,
    Heartbeat,
    MessageModel,
    ProducerData,
    SubscriptionData,
)

if TYPE_CHECKING:
    from aerobee.protocol.command import Command


class Link:
    remote_text = "10.0.0.1:1"
    call: Any = None  # not used here
    start_call: Any = None
    close: Any = None

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {"language": "JAVA", "version": 479}
        self.is_open = True
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)

    @property
    def notices(self) -> list[str]:
        taken, self.sent = [c.ext_dict()["consumerGroup"] for c in self.sent if c.code == 40], []
        return taken


def beat(client: str, **data: Any) -> Heartbeat:
    data.setdefault("subscription_data_set", [SubscriptionData(topic="orders", sub_version=1)])
    return Heartbeat(
        client_id=client,
        consumer_data_set=[ConsumerData(group_name="billing", **data)],
        producer_data_set=[ProducerData(group_name="shop")],
    )


@pytest.mark.seed("S004-52", "S004-53", "S004-66")
def test_heartbeat_creates_the_group_and_its_retry_topic(bench: Any) -> None:
    assert op.heartbeat(Link(), beat("one"), bench.broker) is False
    assert bench.broker.groups.get("billing") is not None
    retry = bench.broker.topics.get("%RETRY%billing")
    assert (retry.read_queue_nums, retry.perm) == (1, 6)
    assert [member.client_id for member in bench.broker.clients.producers("shop")] == ["one"]


@pytest.mark.seed("S003-14", "S003-45", "S004-66")
def test_consumer_list_is_of_the_connected(bench: Any) -> None:
    with pytest.raises(SystemFailure, match="billing"):
        op.consumer_ids("billing", bench.broker)
    link = Link()
    op.heartbeat(link, beat("one"), bench.broker)
    op.heartbeat(Link(), beat("two"), bench.broker)
    assert op.consumer_ids("billing", bench.broker) == ["one", "two"]
    bench.broker.clients.closed(link)
    assert op.consumer_ids("billing", bench.broker) == ["two"]


@pytest.mark.seed("S004-80")
def test_members_are_told_when_one_joins_or_leaves(bench: Any) -> None:
    one, two = Link(), Link()
    op.heartbeat(one, beat("one"), bench.broker)
    assert one.notices == ["billing"]
    op.heartbeat(two, beat("two"), bench.broker)
    assert (one.notices, two.notices) == (["billing"], ["billing"])
    op.heartbeat(two, beat("two"), bench.broker)
    assert (one.notices, two.notices) == ([], [])
    bench.broker.clients.unregister("two", None, "billing")
    assert one.notices == ["billing"]


def test_nobody_is_told_in_broadcasting_or_when_the_group_says_so(bench: Any) -> None:
    link = Link()
    op.heartbeat(link, beat("one", message_model=MessageModel.BROADCASTING), bench.broker)
    assert link.notices == []
    bench.broker.groups.put(GroupConfig(group_name="billing", notify_consumer_ids_changed_enable=False))
    op.heartbeat(link, beat("one"), bench.broker)
    op.heartbeat(Link(), beat("two"), bench.broker)
    assert link.notices == []


def test_consumer_of_a_group_that_may_not_be_created_is_left_out(make_bench: Any) -> None:
    bench = make_bench(auto_create_groups=False)
    op.heartbeat(Link(), beat("one"), bench.broker)
    assert bench.broker.clients.group("billing") is None
    assert len(bench.broker.clients.producers("shop")) == 1


def test_bad_expression_is_refused_when_the_consumer_starts(bench: Any) -> None:
    good = SubscriptionData(topic="orders", expression_type="SQL92", sub_string="a > 1")
    op.check_subscription(good, bench.broker)
    bad = SubscriptionData(topic="orders", expression_type="SQL92", sub_string="a >")
    with pytest.raises(SubscriptionParseFailed):
        op.check_subscription(bad, bench.broker)


def test_a_consumer_left_out_keeps_no_other_of_its_heartbeat_out(make_bench: Any) -> None:
    bench = make_bench(auto_create_groups=False)
    bench.broker.groups.put(GroupConfig(group_name="billing", retry_queue_nums=3))
    both = [ConsumerData(group_name="unknown"), ConsumerData(group_name="billing")]
    op.heartbeat(Link(), Heartbeat(client_id="one", consumer_data_set=both), bench.broker)
    assert op.consumer_ids("billing", bench.broker) == ["one"]
    assert bench.broker.topics.get("%RETRY%unknown") is None
    retry = bench.broker.topics.get("%RETRY%billing")
    assert (retry.read_queue_nums, retry.write_queue_nums) == (3, 3), "as many as the group says"


def test_a_member_whose_connection_is_closed_is_told_nothing(bench: Any) -> None:
    one = Link()
    op.heartbeat(one, beat("one"), bench.broker)
    one.sent.clear()
    one.is_open = False
    op.heartbeat(Link(), beat("two"), bench.broker)
    assert one.sent == []


def test_a_short_heartbeat_is_enough_as_long_as_its_subscription_is_the_one_that_is_known(bench: Any) -> None:
    def fingerprint(number: int, *, short: bool) -> bool:
        full = beat("one")
        full.heartbeat_fingerprint, full.without_sub = number, short
        return op.heartbeat(link, full, bench.broker)

    link = Link()
    assert fingerprint(7, short=True), "nothing is known yet"
    assert not fingerprint(7, short=False)
    assert not fingerprint(7, short=True)
    assert fingerprint(8, short=True), "another subscription"
    assert fingerprint(8, short=False)
    assert not fingerprint(8, short=True)


def test_a_client_id_in_use_is_refused_to_another_user_and_nothing_of_it_registered(bench: Any) -> None:
    owner, thief = Link(), Link()
    owner.attributes["user"], thief.attributes["user"] = "anna", "bob"
    op.heartbeat(owner, beat("one"), bench.broker)
    with pytest.raises(AccessDenied, match="in use by another user"):
        op.heartbeat(thief, beat("one"), bench.broker)
    assert bench.broker.clients.find_client("one").link is owner


@pytest.mark.parametrize("what", ["producer groups", "consumer groups", "subscriptions"])
def test_a_heartbeat_names_so_many_and_no_more(
    bench: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    for limit in ("MAX_PRODUCERS", "MAX_CONSUMERS", "MAX_SUBSCRIPTIONS"):
        monkeypatch.setattr(op, limit, 2)

    def named(count: int) -> Heartbeat:
        topics = [SubscriptionData(topic=f"t{n}") for n in range(count)]
        made: dict[str, Any] = {
            "producer groups": {
                "producer_data_set": [ProducerData(group_name=f"g{n}") for n in range(count)]
            },
            "consumer groups": {
                "consumer_data_set": [ConsumerData(group_name=f"g{n}") for n in range(count)]
            },
            "subscriptions": {
                "consumer_data_set": [
                    ConsumerData(group_name="a", subscription_data_set=topics[:1]),
                    ConsumerData(group_name="b", subscription_data_set=topics[1:]),
                ]
            },
        }
        return Heartbeat(client_id="one", **made[what])

    op.heartbeat(Link(), named(2), bench.broker)
    with pytest.raises(InvalidParameter, match=f"3 {what} in one request, limit 2"):
        op.heartbeat(Link(), named(3), bench.broker)
