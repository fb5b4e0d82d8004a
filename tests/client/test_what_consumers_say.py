# SPDX-License-Identifier: Apache-2.0
"""What the two kinds of consumer tell brokers of themselves, before anything is consumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.consume.membership import OwnedQueue
from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.consume.rebalance import AVG, BY_NAME, configured
from aerobee.client.consume.start_offset import StartPoint
from aerobee.client.consume.subscriptions import Sql
from aerobee.client.options import Options
from aerobee.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue
from aerobee.protocol.headers.consume import LitePullMessage, PullResult

QUEUE = MessageQueue("a", 2, "T")


def handle(message: object) -> None:
    raise AssertionError("nothing is consumed here")


def push(**more: Any) -> PushConsumer:
    return PushConsumer("127.0.0.1:1", group="g", topics={"T": "A || B"}, handler=handle, **more)


@pytest.mark.seed("S004-54")
@pytest.mark.parametrize(
    ("model", "topics"), [("clustering", {"T": "A || B", "%RETRY%g": "*"}), ("broadcasting", {"T": "A || B"})]
)
async def test_a_clustering_consumer_subscribes_its_retry_topic_and_a_broadcasting_one_does_not(
    model: str, topics: dict[str, str]
) -> None:
    told = push(model=model).heartbeat_data()
    assert {each.topic: each.sub_string for each in told.subscription_data_set} == topics
    assert told.message_model is MessageModel(model.upper())


@pytest.mark.seed("S003-31")
async def test_a_new_group_begins_at_the_end_unless_told_otherwise() -> None:
    for consumer in (push(), PullConsumer("127.0.0.1:1", group="g", topics={"T": "*"})):
        assert consumer.heartbeat_data().consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        assert consumer._member.start == StartPoint.of("last")


@pytest.mark.seed("S003-16", "S003-3")
async def test_queues_are_divided_by_average_unless_a_strategy_is_named_or_given() -> None:
    def pull(**more: Any) -> PullConsumer:
        return PullConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, **more)

    by_hand = configured([QUEUE])
    for make in (push, pull):
        assert make()._member.strategy is AVG
        for name, strategy in BY_NAME.items():
            assert make(options=Options(strategy=name))._member.strategy is strategy
        assert make(options=Options(strategy="AVG_BY_CIRCLE"), strategy=by_hand)._member.strategy is by_hand
        with pytest.raises(
            ValueError, match="strategy is 'BY_LOT'; by name there are AVG, AVG_BY_CIRCLE, CON"
        ):
            make(options=Options(strategy="BY_LOT"))


@pytest.mark.seed("S004-2")
async def test_a_subscription_carries_the_tags_asked_for_and_what_the_broker_compares() -> None:
    told = {each.topic: each for each in push().heartbeat_data().subscription_data_set}
    tags, every = told["T"], told["%RETRY%g"]
    assert (tags.sub_string, tags.tags_set, tags.expression_type) == ("A || B", ["A", "B"], "TAG")
    assert tags.code_set == [65, 66], "Java's hashes of them"
    assert tags.sub_version > 0
    assert (every.sub_string, every.tags_set, every.code_set) == ("*", [], [])
    sql = PushConsumer("127.0.0.1:1", group="g", topics={"T": Sql("a > 1")}, handler=handle)
    (chosen,) = [each for each in sql.heartbeat_data().subscription_data_set if each.topic == "T"]
    assert (chosen.sub_string, chosen.expression_type, chosen.tags_set) == ("a > 1", "SQL92", [])


@pytest.mark.seed("S002-1")
async def test_a_push_consumer_is_handed_its_messages_and_a_pull_consumer_fetches_them_itself() -> None:
    passive = push(start="first").heartbeat_data()
    assert passive.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert passive.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    active = PullConsumer("127.0.0.1:1", group="g", topics={"T": "*"}).heartbeat_data()
    assert active.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert [each.topic for each in active.subscription_data_set] == ["T"], "it has no retries to wait for"


async def test_waiting_for_a_consumer_ends_when_it_is_stopped(session: Any, settle: Any) -> None:
    consumer = push()
    consumer.session.consumers["g"] = consumer  # as if it had joined
    consumer.session.users = 2  # of a session that others use too
    waiting = asyncio.ensure_future(consumer.wait())
    await settle()
    assert not waiting.done()
    await consumer.stop()
    await settle()
    assert waiting.done()
    assert consumer.session.consumers == {}


@pytest.mark.parametrize(
    ("topics", "changed", "woken"),
    [({"T": "*"}, "T", True), ({"T": "*"}, "U", False), (None, "T", False), (None, "U", False)],
)
async def test_a_pull_consumer_that_shares_queues_looks_anew_when_their_route_changes(
    topics: dict[str, str] | None, changed: str, woken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = PullConsumer("127.0.0.1:1", group="g", topics=topics)
    if topics is None:
        consumer._member.subscriptions.add("T", "*", 0)  # assigned by hand
    wakes: list[str] = []
    monkeypatch.setattr(consumer._rebalancer, "wake", lambda: wakes.append("route"))
    consumer.route_changed(changed)
    assert wakes == (["route"] if woken else [])
    consumer.members_changed()
    assert len(wakes) == woken + (topics is not None)


@pytest.mark.seed("S002-6", "S002-30")
async def test_a_pull_consumer_lets_the_broker_hold_its_pull_for_20_s(session: Any) -> None:
    consumer = PullConsumer("127.0.0.1:1", group="g", topics={"T": "A"})
    consumer.session = consumer._member.session = session
    session.answers[LitePullMessage] = [
        (19, PullResult(next_begin_offset=6, min_offset=0, max_offset=6), b"")
    ]
    owned = OwnedQueue(QUEUE, 5, session.clock.now())
    assert await consumer._fetch_once(owned) == 0
    ((address, asked, timeout_ms),) = session.asked
    assert (address, asked.suspend_timeout_millis, asked.sys_flag) == ("a:1", 20_000, 2 | 4 | 16)
    assert timeout_ms == 30_000, "the answer may come late, and the network is slow"
    assert (asked.queue_id, asked.queue_offset, asked.subscription) == (2, 5, "A")
    assert owned.next_offset == 6


@pytest.mark.seed("S003-9")
async def test_a_push_consumer_whose_queues_changed_spreads_its_limits_and_tells_the_brokers(
    settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    consumer = push(options=Options(topic_messages=100), on_queues=lambda *told: heard.append(told))
    member, beats = consumer._member, []

    async def heartbeat() -> int:
        beats.append(member.subscriptions.versions()["T"])
        return 1

    monkeypatch.setattr(consumer.session, "heartbeat", heartbeat)
    queues = [MessageQueue("a", n, "T") for n in range(4)]
    before = member.subscriptions.versions()["T"]
    for count, share in ((4, 25), (1, 100)):
        member.pulled.clear()
        for queue in queues[:count]:
            member.pulled[queue] = OwnedQueue(queue, 0, 0)
        consumer._queues_changed("T", queues, queues[:count])
        assert member.limits("T").messages == share, "of each queue"
        await settle()
    assert len(beats) == 2
    assert before < beats[0] < beats[1], "a newer version each time, which the brokers take for the group's"
    assert heard == [("T", queues, queues), ("T", queues, queues[:1])]
