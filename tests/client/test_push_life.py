# SPDX-License-Identifier: Apache-2.0
"""From start to stop: what a push consumer tells, in which order, and what is left of it when it has gone."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.consume.membership import PoppedQueue
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.consume.rebalance import Strategy
from aerobee.client.consume.subscriptions import Sql
from aerobee.client.options import Options
from aerobee.errors import NetworkError, SystemFailure
from aerobee.protocol import bodies
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.headers.consume import (
    CheckClientConfig,
    ConsumerList,
    PullResult,
    UnlockQueues,
)
from aerobee.protocol.headers.offsets import QueryConsumerOffset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

from tests.client.holding_broker import Q0, Q1, Broker, broker, names_of, started
from tests.turning import until

__all__ = ["broker"]  # a fixture


@pytest.fixture
def push(session: Any) -> Callable[..., PushConsumer]:
    async def handle(message: Any) -> None:
        """Good."""

    def make(**more: Any) -> PushConsumer:
        return PushConsumer(**{"group": "g", "topics": {"T": "*"}, "handler": handle, **more})

    return make


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_push_consumer_tells_the_group_all_it_needs_before_it_goes(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any, ordered: bool
) -> None:
    consumer = push(ordered=ordered)
    await started(consumer, session, settle)
    assert session.story[:2] == ["start", "heartbeat"]
    assert session.consumers == {"g": consumer}
    assert consumer.started_at == session.clock.now() - session.options.dispatch_ms
    assert consumer.queues == [Q0, Q1]
    assert broker.held() == [(0, 5), (1, 5)]
    broker.answer(1, encode_messages(5, 6), 7)
    await settle()
    assert broker.held() == [(0, 5), (1, 7)]
    session.story.clear()
    owned = list(consumer._member.pulled.values())
    await consumer.stop()
    unlocked = ["UnlockQueues"] if ordered else []
    said = [*unlocked, "leave {'consumer_group': 'g'}", "stop"]
    assert [each for each in session.story if each != "UpdateConsumerOffset"] == said
    assert session.story[0] == "UpdateConsumerOffset", "first how far it is: whoever is next asks for it"
    assert broker.reported()[-2:] == [(0, 5), (1, 7)]
    assert all(each.inbox.dropped for each in owned)
    assert not names_of(consumer._tasks)
    assert (session.consumers, session.users) == ({}, 0)
    await consumer.stop()
    assert session.users == 0, "a second stop does nothing"


async def test_one_whose_brokers_are_gone_leaves_all_the_same(
    broker: Broker, push: Any, session: Any, settle: Any, caplog: Any
) -> None:
    consumer = push(ordered=True)
    await started(consumer, session, settle)
    session.leaving_fails = NetworkError("gone")
    session.answers[UnlockQueues] = lambda *_: NetworkError("gone")
    await consumer.stop()
    assert (session.consumers, session.users) == ({}, 0)
    assert "group=g left without a word: gone" in caplog.text


@pytest.mark.seed("S004-26")
async def test_what_a_consumer_does_by_itself_goes_on_as_long_as_it_runs(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    for ordered, own in ((False, "overdue"), (True, "locks")):
        consumer = push(ordered=ordered)
        await started(consumer, session, settle)
        assert names_of(consumer._tasks) >= {"rebalance", "offsets", own}
        assert not names_of(consumer._tasks) & ({"overdue", "locks"} - {own})
        session.sent.clear()
        for _ in range(3):
            session.clock.advance(session.options.persist_offsets_ms)
            await settle()
        assert len(broker.reported()) == 3 * 2
        await consumer.stop()


async def test_a_start_that_fails_leaves_nothing_behind(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    session.answers[CheckClientConfig] = lambda *_: SystemFailure("the broker does not support SQL")
    consumer = push(topics={"T": Sql("a > 1")})
    with pytest.raises(SystemFailure, match="does not support SQL"):
        await consumer.start()
    assert (session.consumers, session.users, consumer._member.running) == ({}, 0, False)
    address, header, _ = session.asked[-1]
    assert (address, type(header)) == ("a:1", CheckClientConfig)
    asked = bodies.decode(session.bodies[-1], bodies.CheckClient)
    assert (asked.client_id, asked.group, asked.subscription_data.sub_string) == ("me", "g", "a > 1")
    with pytest.raises(RuntimeError, match="was started already; make a new one"):
        await consumer.start()


async def test_tags_need_no_check_and_unknown_topics_are_waited_for(
    broker: Broker, push: Any, session: Any, settle: Any, caplog: Any
) -> None:
    consumer = push(topics={"later": "A"})
    await consumer.start()
    await settle()
    assert not session.headers(CheckClientConfig)
    assert "topic=later of group=g is unknown to the name servers yet" in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1, "told once"
    assert "RETRY" not in caplog.text, "that one comes with the first failure"
    other = push(topics={"T": "*"})
    with pytest.raises(ValueError, match="group 'g' has a consumer in this session already"):
        await other.start()
    await consumer.stop()


async def test_a_pause_gives_held_pulls_up_and_a_resume_goes_on_where_it_was(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    consumer.pause()
    await settle()
    assert [held.cancelled() for _, held in broker.pulls] == [True, True]
    session.clock.advance(session.options.suspended_ms)
    await settle()
    assert broker.held() == []
    consumer.resume()
    session.clock.advance(session.options.suspended_ms)
    await settle()
    assert broker.held() == [(0, 5), (1, 5)]
    await consumer.stop()


async def test_a_reset_drops_what_is_in_work_and_begins_again_at_the_offsets_given(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any
) -> None:
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()

    consumer = push(handler=handle)
    await started(consumer, session, settle)
    broker.answer(0, encode_messages(5, 6), 7)
    await settle()
    before = dict(consumer._member.pulled)
    session.sent.clear()
    resetting = asyncio.ensure_future(consumer.reset_offsets("T", {Q0: 2, MessageQueue("z", 0, "T"): 1}))
    await settle()
    assert (before[Q0].inbox.dropped, before[Q1].inbox.dropped) == (True, False)
    assert resetting.done(), "what handlers of a dropped queue still end is not counted"
    assert before[Q0].inbox.count == 0
    gate.set()
    await settle()
    assert [offset for queue_id, offset in broker.reported() if queue_id == 0][-1] == 2
    broker.stands_at = 2
    for _ in range(3):
        session.clock.advance(session.options.rebalance_ms)
        await settle()
    assert consumer._member.pulled[Q0] is not before[Q0]
    assert consumer._member.pulled[Q1] is before[Q1]
    assert broker.held() == [(0, 2), (1, 5)]
    await consumer.stop()


async def test_a_reset_ends_no_pause_of_the_users(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    consumer.pause()
    await consumer.reset_offsets("T", {Q0: 2})
    broker.stands_at = 2
    for _ in range(3):
        session.clock.advance(session.options.rebalance_ms)
        await settle()
    assert broker.held() == []
    consumer.resume()
    for _ in range(3):
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
    assert broker.held() == [(0, 2), (1, 5)]
    await consumer.stop()


@pytest.mark.seed("S004-6")
async def test_topics_may_come_and_go_while_it_runs(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    session.know("U", queues=1)
    session.story.clear()
    await consumer.subscribe("U", "A")
    assert session.story[0] == "heartbeat", "before anything is pulled by it"
    for _ in range(2):
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
    assert [queue.topic for queue in consumer.queues] == ["T", "T", "U"]
    await consumer.subscribe("U", "B")
    told = consumer.heartbeat_data().subscription_data_set
    assert {each.topic: each.sub_string for each in told} == {"T": "*", "%RETRY%g": "*", "U": "B"}
    session.story.clear()
    await consumer.unsubscribe("T")
    assert session.story[:2] == ["unuse T", "heartbeat"]
    for _ in range(2):
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
    assert [queue.topic for queue in consumer.queues] == ["U"]
    await consumer.stop()


@pytest.mark.seed("S001-19", "S001-26")
@pytest.mark.parametrize(
    "options",
    [Options(), Options(rebalance_ms=600_000, rebalance_soon_ms=600_000)],
    ids=["", "a repair asks for a rebalance itself"],
)
async def test_an_offset_the_broker_has_not_is_repaired_once_and_taken_anew(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    session.sent.clear()
    moved = PullResult(next_begin_offset=8, min_offset=8, max_offset=9)
    next(held for header, held in broker.pulls if header.queue_id == 0).set_result((21, moved, b""))
    await settle()
    lost = consumer._member.pulled[Q0]
    assert (lost.inbox.dropped, lost.repairing) == (True, True)
    session.clock.advance(session.options.offset_repair_ms - 1)
    await settle()
    assert (0, 8) not in broker.reported()
    broker.stands_at = 8
    session.clock.advance(1)
    await settle()
    assert (0, 8) in broker.reported()
    for _ in range(3):
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
    assert consumer._member.pulled[Q0] is not lost
    assert broker.held() == [(0, 8), (1, 5)]
    await consumer.stop()


@pytest.mark.seed("S001-26")
@pytest.mark.parametrize("how", ["reset", "subscribed anew"])
async def test_a_repair_leaves_a_queue_alone_that_was_begun_anew_meanwhile(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any, how: str
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    moved = PullResult(next_begin_offset=8, min_offset=8, max_offset=9)
    next(held for header, held in broker.pulls if header.queue_id == 0).set_result((21, moved, b""))
    await settle()
    broker.stands_at = 3
    if how == "reset":
        await consumer.reset_offsets("T", {Q0: 3, Q1: 3})
    else:
        await consumer.unsubscribe("T")
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
        await consumer.subscribe("T")
    session.clock.advance(session.options.rebalance_min_ms)
    await settle()
    assert broker.held() == [(0, 3), (1, 3)]
    broker.answer(0, encode_messages(3), 4)
    await settle()
    again, memory = consumer._member.pulled[Q0], consumer._member.offsets.memory
    session.sent.clear()
    session.clock.advance(session.options.offset_repair_ms)
    await settle()
    assert consumer._member.pulled[Q0] is again
    assert (0, 8) not in broker.reported(), "where it stands is the other's business now"
    assert memory.get(Q0) == 4
    await consumer.stop()


@pytest.mark.seed("S001-27")
async def test_a_queue_whose_pull_was_lost_is_pulled_again_after_two_minutes(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    lost, kept = consumer._member.pulled[Q0], consumer._member.pulled[Q1]
    lost.fetching.cancel()
    await settle()
    assert broker.held() == [(1, 5)]
    for _ in range(120):
        session.clock.advance(1_000)
        kept.inbox.last_pull = session.clock.now()
        await settle()
    assert broker.held() == [(1, 5)]
    for _ in range(session.options.rebalance_ms // 1_000):
        session.clock.advance(1_000)
        kept.inbox.last_pull = session.clock.now()
        await settle()
    assert broker.held() == [(0, 5), (1, 5)]
    assert (consumer._member.pulled[Q0] is lost, consumer._member.pulled[Q1] is kept) == (False, True)
    await consumer.stop()


@pytest.mark.seed("S001-3", "S001-1")
@pytest.mark.parametrize("options", [Options(dispatch_ms=500)])
async def test_the_first_pull_of_a_queue_can_be_put_off_and_comes_no_more_after_the_stop(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await consumer.start()
    await settle()
    session.clock.advance(499)
    await settle()
    assert consumer.queues == [Q0, Q1]
    assert broker.pulls == []
    session.clock.advance(1)
    await settle()
    assert broker.held() == [(0, 5), (1, 5)]
    consumer.pause()
    await settle()
    await consumer.stop()
    session.clock.advance(60_000)
    await settle()
    assert (len(broker.pulls), broker.held()) == (2, [])


@pytest.mark.seed("S003-32", "S003-33", "S003-25", "S003-26")
async def test_a_broadcasting_consumer_keeps_its_progress_in_its_own_file_and_tells_no_broker(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any, tmp_path: Path
) -> None:
    session.options = Options(local_offsets=str(tmp_path))
    path = tmp_path / "me" / "g" / "offsets.json"

    def kept() -> dict[MessageQueue, int]:
        return dict(bodies.decode(path.read_bytes(), bodies.ResetOffsetBody).offset_table)

    path.parent.mkdir(parents=True)
    path.write_bytes(bodies.encode(bodies.ResetOffsetBody(offset_table={Q0: 3})))
    consumer = push(model="broadcasting", start="first")
    await started(consumer, session, settle)
    assert broker.held() == [(0, 3), (1, 0)]
    broker.answer(0, encode_messages(3, 4), 5)
    broker.answer(1, encode_messages(0), 1)
    await settle()
    session.know("T", queues=1)
    consumer.route_changed("T")
    session.clock.advance(session.options.rebalance_min_ms)
    await until(lambda: Q1 not in consumer._member.pulled)
    assert kept() == {Q0: 3, Q1: 1}, "written when it was given up"
    assert consumer.status("T").keys() == {Q0}
    await consumer.stop()
    assert kept() == {Q0: 5, Q1: 1}
    assert broker.reported() == []
    assert session.headers(QueryConsumerOffset) == []


@pytest.mark.seed("S001-26")
async def test_a_repair_waits_for_the_ordered_handler_in_work(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any
) -> None:
    """Else two of one queue would run side by side."""
    gate, ended = asyncio.Event(), []

    async def handle(message: Any) -> None:
        await gate.wait()
        ended.append(message.queue_offset)

    consumer = push(ordered=True, handler=handle)
    await started(consumer, session, settle)
    broker.answer(0, encode_messages(5), 6)
    await settle()
    moved = PullResult(next_begin_offset=8, min_offset=8, max_offset=9)
    next(held for header, held in broker.pulls if header.queue_id == 0 and not held.done()).set_result(
        (21, moved, b"")
    )
    await settle()
    lost = consumer._member.pulled[Q0]
    session.clock.advance(session.options.offset_repair_ms)
    await settle()
    assert consumer._member.pulled[Q0] is lost
    assert (0, 8) not in broker.reported()
    gate.set()
    await settle()
    assert ended == [5]
    assert (0, 8) in broker.reported()
    assert consumer._member.pulled.get(Q0) is not lost
    await consumer.stop()


@pytest.mark.seed("S001-26")
async def test_a_repair_that_cannot_be_told_to_the_broker_still_ends(
    broker: Broker, push: Any, session: Any, settle: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)

    async def refuse(*_: Any) -> None:
        raise SystemFailure("no")

    moved = PullResult(next_begin_offset=8, min_offset=8, max_offset=9)
    next(held for header, held in broker.pulls if header.queue_id == 0).set_result((21, moved, b""))
    await settle()
    lost = consumer._member.pulled[Q0]
    with monkeypatch.context() as patch:
        patch.setattr(session, "send", refuse)
        session.clock.advance(session.options.offset_repair_ms)
        await settle()
    assert "offset not reported" in caplog.text
    for _ in range(3):
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
    assert consumer._member.pulled[Q0] is not lost
    await consumer.stop()


@pytest.mark.seed("S003-9")
@pytest.mark.parametrize("options", [Options(topic_messages=1_000, topic_mebibytes=64)])
async def test_one_whose_queues_changed_spreads_its_limits_anew_and_tells_the_brokers(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    heard: list[Any] = []
    session.know("U", queues=8)
    consumer = push(topics={"T": "*", "U": "*"}, on_queues=lambda *told: heard.append(told))
    await started(consumer, session, settle)
    limits, others = consumer._member.limits("T"), consumer._member.limits("U")
    assert (limits.messages, limits.mebibytes) == (500, 32), "two queues"
    assert (others.messages, others.mebibytes) == (125, 8), "eight, each topic by itself"
    told = consumer._member.subscriptions.told_version("T")
    heartbeats = session.heartbeats
    session.clock.advance(1_000)
    session.know("T", queues=4)
    consumer.route_changed("T")
    for _ in range(3):
        session.clock.advance(session.options.rebalance_min_ms)
        await settle()
    limits = consumer._member.limits("T")
    assert (limits.messages, limits.mebibytes) == (250, 16), "four"
    assert session.heartbeats > heartbeats
    assert consumer._member.subscriptions.told_version("T") > told, "so that its expression wins"
    assert [len(own) for topic, _, own in heard if topic == "T"] == [2, 4]
    await consumer.stop()


@pytest.mark.seed("S004-40")
async def test_one_that_starts_asks_for_the_routes_of_all_its_topics_and_its_retry_topic(
    broker: Broker, push: Any, session: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = session.route

    async def route(topic: str) -> Any:
        asked.append(topic)
        return await real(topic)

    monkeypatch.setattr(session, "route", route)
    for model, topics in (("clustering", ["T", "U", "%RETRY%g"]), ("broadcasting", ["T", "U"])):
        session.options = Options(local_offsets="", instance="DEFAULT")
        consumer = push(topics={"T": "*", "U": "*"}, model=model)
        asked.clear()
        await consumer.start()
        assert asked == topics
        assert session.story[-1] == "heartbeat", "before the first rebalance"
        await consumer.stop()


@pytest.mark.seed("S004-35")
async def test_while_a_pull_is_held_no_other_is_sent_for_its_queue(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    for _ in range(10):
        session.clock.advance(session.options.rebalance_ms)
        await settle()
    assert len(broker.pulls) == 2
    assert broker.held() == [(0, 5), (1, 5)]
    await consumer.stop()


@pytest.mark.seed("S004-42")
async def test_queues_and_members_are_sorted_before_they_are_shared_out(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    """Else two members that were told of them in another order would take the same queues."""
    session.know("T", queues=12, brokers=("b", "a"))
    ids = ["me", "zoe", "ann", "me2"]
    session.answers[ConsumerList] = lambda *_: (
        0, None, bodies.encode(bodies.ConsumerIds(consumer_id_list=ids))
    )  # fmt: skip
    seen: list[Any] = []

    def divide(client_id: str, queues: Any, clients: Any) -> list[MessageQueue]:
        seen.append((client_id, list(queues), list(clients)))
        return []

    consumer = push(strategy=Strategy("OWN", divide))
    await consumer.start()
    await settle()
    every = [MessageQueue(name, queue_id, "T") for name in "ab" for queue_id in range(12)]
    assert seen == [("me", every, ["ann", "me", "me2", "zoe"])]
    await consumer.stop()


@pytest.mark.seed("S004-88", "S004-80")
@pytest.mark.parametrize("ordered", [False, True])
async def test_lost_queues_are_given_up_before_new_ones_are_taken_and_these_before_they_are_pulled(
    broker: Broker, push: Any, session: Any, settle: Any, ordered: bool
) -> None:
    own = [Q0]
    consumer = push(ordered=ordered, strategy=Strategy("OWN", lambda *_: list(own)))
    await started(consumer, session, settle)
    assert consumer.queues == [Q0]
    own[:] = [Q1]
    session.story.clear()
    consumer.members_changed()
    session.clock.advance(session.options.rebalance_min_ms)
    await settle()
    session.clock.advance(session.options.dispatch_ms)
    await settle()
    told = ["UpdateConsumerOffset", "UnlockQueues", "LockQueues", "QueryConsumerOffset", "PullMessage"]
    at = -1
    for each in told:
        if ordered or "Queues" not in each:
            at = session.story.index(each, at + 1)
    assert session.story.count("QueryConsumerOffset") == 1 + ordered, (
        "an ordered queue asks again once it is locked"
    )
    assert consumer.queues == [Q1]
    await consumer.stop()


@pytest.mark.seed("S004-90")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("options", [Options(concurrency=1)])
async def test_one_that_ends_begins_no_handler_more_and_lets_the_running_one_end(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any, ordered: bool
) -> None:
    begun: list[int] = []
    may_end = asyncio.Event()

    async def handle(message: Any) -> None:
        begun.append(message.queue_offset)
        await may_end.wait()

    consumer = push(ordered=ordered, handler=handle)
    await started(consumer, session, settle)
    broker.answer(0, encode_messages(5, 6, 7), 8)
    await settle()
    stopping = asyncio.ensure_future(consumer.stop())
    await settle()
    assert (begun, stopping.done()) == ([5], False)
    may_end.set()
    await stopping
    assert begun == [5]
    assert (0, 6) in broker.reported(), "what ended is told, the rest comes again"
    assert max(offset for queue_id, offset in broker.reported() if queue_id == 0) == 6


@pytest.mark.seed("S004-90")
async def test_what_is_behind_an_unfinished_message_comes_again_after_a_restart(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any
) -> None:
    begun: list[int] = []

    async def handle(message: Any) -> None:
        begun.append(message.queue_offset)
        if begun == [5, 6]:
            await asyncio.Event().wait()

    consumer = push(handler=handle)
    await started(consumer, session, settle)
    broker.answer(0, encode_messages(5, 6, 7), 8)
    await settle()
    stopping = asyncio.ensure_future(consumer.stop())
    await settle()
    session.clock.advance(session.options.stop_wait_ms)
    await stopping
    assert begun == [5, 6, 7]
    broker.stands_at = [offset for queue_id, offset in broker.reported() if queue_id == 0][-1]
    again = push(handler=handle)
    await started(again, session, settle)
    assert (0, 6) in broker.held(), "7 is handled a second time, 5 is not"
    await again.stop()


@pytest.mark.parametrize("options", [Options(concurrency=1)])
async def test_an_ordered_message_that_failed_is_not_begun_again_while_others_end(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any
) -> None:
    begun: list[int] = []
    may_end = asyncio.Event()

    async def handle(message: Any) -> None:
        begun.append(message.queue_offset)
        if message.queue_offset == 5:
            raise RuntimeError("no")
        await may_end.wait()

    consumer = push(ordered=True, handler=handle)
    await started(consumer, session, settle)
    broker.answer(0, encode_messages(5), 6)
    await settle()
    broker.answer(1, encode_messages(7), 8)
    await settle()
    stopping = asyncio.ensure_future(consumer.stop())
    await settle()
    session.clock.advance(session.options.suspend_queue_ms)
    await settle()
    may_end.set()
    await stopping
    assert begun == [5, 7]
    assert [offset for queue_id, offset in broker.reported() if queue_id == 0][-1] == 5


@pytest.mark.parametrize("options", [Options(concurrency=1)])
async def test_plain_handlers_that_were_handed_to_a_thread_together_begin_no_more_either(
    broker: Broker, push: Any, session: Any, settle: Any, encode_messages: Any
) -> None:
    begun: list[int] = []
    first, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def handle(message: Any) -> None:
        begun.append(message.queue_offset)
        loop.call_soon_threadsafe(first.set)
        may_end.wait(10)

    consumer = push(handler=handle)
    await started(consumer, session, settle)
    broker.answer(0, encode_messages(*range(5, 55)), 55)
    await first.wait()
    stopping = asyncio.ensure_future(consumer.stop())
    await settle()
    may_end.set()
    await stopping
    assert begun == [5]
    assert max(offset for queue_id, offset in broker.reported() if queue_id == 0) == 6


async def test_at_the_end_nothing_more_begins_and_everything_done_is_told_first(
    broker: Broker, push: Any, session: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    popped = PoppedQueue(MessageQueue("a", -1, "T"), session.clock.now())
    fetching = asyncio.ensure_future(asyncio.Event().wait())
    popped.fetching = fetching  # type: ignore[assignment]
    consumer._member.popped[popped.queue] = popped
    waiting = asyncio.ensure_future(consumer.wait())

    class Traces:
        async def close(self) -> None:
            session.story.append("traces")

    consumer._tracer = Traces()
    monkeypatch.setattr(consumer._consuming, "settle", lambda: session.story.append("settled"))
    session.story.clear()
    await consumer.stop()
    await settle()
    assert session.story[:3] == ["settled", "traces", "UpdateConsumerOffset"]
    for slots in (consumer._consuming.slots, consumer._popping.slots):
        slots.add("late")
        assert not slots.ready
    assert popped.dropped
    assert fetching.cancelled()
    assert waiting.done(), "and who waits for the end is told"


@pytest.mark.seed("S004-9")
async def test_a_consumer_is_there_from_where_it_is_entered_to_where_it_is_left(
    broker: Broker, push: Any, session: Any
) -> None:
    consumer = push()
    async with consumer as entered:
        assert entered is consumer
        assert session.consumers == {"g": consumer}
    assert (session.consumers, session.users) == ({}, 0)


async def test_what_changes_while_the_brokers_are_told_is_not_taken_for_told(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    """A pull that names a later version than its broker knows is refused."""
    consumer = push()
    await started(consumer, session, settle)
    subscriptions = consumer._member.subscriptions
    known = subscriptions.versions()["T"]

    async def heartbeat() -> int:
        subscriptions.renew("T", session.clock.now() + 5)
        return 1

    session.heartbeat = heartbeat
    await consumer._place.announce()
    assert subscriptions.told_version("T") == known
    await consumer._place.announce()
    assert subscriptions.told_version("T") == session.clock.now() + 5
    await consumer.stop()


async def test_no_lock_is_renewed_any_more_when_the_locks_are_given_back(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    """Else the next owner would be kept out by one that has gone."""
    consumer = push(ordered=True)
    await started(consumer, session, settle)
    running: list[set[str]] = []

    def unlock(*_: Any) -> Any:
        running.append(names_of(consumer._tasks))
        return 0, None, b""

    session.answers[UnlockQueues] = unlock
    await consumer.stop()
    assert running == [set()]


async def test_a_handler_that_ends_during_a_repair_moves_no_offset(
    broker: Broker, push: Any, session: Any, settle: Any
) -> None:
    consumer = push()
    await started(consumer, session, settle)
    memory, told, go_on = consumer._member.offsets.memory, session.send, asyncio.Event()

    async def slowly(*what: Any) -> None:
        await told(*what)
        await go_on.wait()

    moved = PullResult(next_begin_offset=8, min_offset=8, max_offset=9)
    next(held for header, held in broker.pulls if header.queue_id == 0).set_result((21, moved, b""))
    await settle()
    session.sent.clear()
    session.send = slowly
    session.clock.advance(session.options.offset_repair_ms)
    await settle()
    assert broker.reported()[-1:] == [(0, 8)]
    memory.raise_to(Q0, 50)
    memory.set(Q0, 50)
    session.send = told
    await consumer._member.offsets.persist([Q0])  # as its timer does
    assert [offset for queue_id, offset in broker.reported() if queue_id == 0][-1] == 8
    go_on.set()
    await settle()
    await consumer.stop()
