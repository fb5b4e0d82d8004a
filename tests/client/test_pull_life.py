# SPDX-License-Identifier: Apache-2.0
"""From start to stop: a pull consumer that shares its queues, or is given them by hand."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.consume.rebalance import configured
from aerobee.client.consume.scheduled_pull import ScheduledPull
from aerobee.client.options import Options
from aerobee.errors import NetworkError, NoRoute, SystemFailure
from aerobee.protocol import bodies
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.headers.consume import ConsumerList, QueryAssignment, UnlockQueues
from aerobee.protocol.headers.offsets import (
    OffsetResult,
    QueryConsumerOffset,
    SearchOffset,
)
from tests.client.holding_broker import Q0, Q1, Broker, broker, names_of

__all__ = ["broker"]  # a fixture


@pytest.mark.seed("S003-41")
async def test_a_pull_consumer_reports_what_was_polled_in_between_and_at_the_end(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    consumer = PullConsumer(group="g", topics={"T": "*"})
    async with consumer as entered:
        assert entered is consumer
        await settle()
        assert session.story[:2] == ["start", "heartbeat"]
        assert consumer.started_at == session.clock.now()
        assert consumer.assignment == [Q0, Q1]
        broker.answer(0, encode_messages(5, 6), 7)
        await settle()
        assert len(await consumer.poll(1, timeout_ms=0)) == 1
        session.clock.advance(session.options.persist_offsets_ms)
        await settle()
        assert broker.reported() == [(0, 5), (1, 5)], "polled counts at the next poll"
        session.story.clear()
    assert broker.reported()[-2:] == [(0, 6), (1, 5)]
    assert session.story[-2:] == ["leave {'consumer_group': 'g'}", "stop"]
    assert session.story[0] == "UpdateConsumerOffset"
    assert not names_of(consumer._tasks)
    assert (session.consumers, session.users) == ({}, 0)
    with pytest.raises(RuntimeError, match="is not started, or stopped"):
        await consumer.poll()


async def test_an_exception_takes_back_what_the_last_poll_handed_out_and_no_more(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    with suppress(ZeroDivisionError):
        async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
            await settle()
            broker.answer(0, encode_messages(5, 6, 7, 8), 9)
            await settle()
            assert len(await consumer.poll(2, timeout_ms=0)) == 2
            assert len(await consumer.poll(1, timeout_ms=0)) == 1
            raise ZeroDivisionError
    assert broker.reported()[-2:] == [(0, 7), (1, 5)]


@pytest.mark.parametrize("offsets", [None, {Q0: 6}])
async def test_what_was_committed_before_an_exception_stays(
    offsets: Any, broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    with suppress(ZeroDivisionError):
        async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
            await settle()
            broker.answer(0, encode_messages(5, 6), 7)
            await settle()
            await consumer.poll(2, timeout_ms=0)
            await consumer.commit(offsets)
            raise ZeroDivisionError
    assert broker.reported()[-2:] == [(0, 6 if offsets else 7), (1, 5)]


async def test_a_first_poll_that_an_exception_takes_back_leaves_the_group_where_it_was(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    with suppress(ZeroDivisionError):
        async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
            await settle()
            broker.answer(0, encode_messages(5, 6), 7)
            await settle()
            assert len(await consumer.poll(3, timeout_ms=0)) == 2
            raise ZeroDivisionError
    assert broker.reported()[-2:] == [(0, 5), (1, 5)]


async def test_without_automatic_commits_the_end_reports_nothing(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    session.options = Options(auto_commit_ms=0)
    async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
        await settle()
        broker.answer(0, encode_messages(5), 6)
        await settle()
        await consumer.poll(timeout_ms=0)
    assert broker.reported() == []


async def test_queues_may_be_assigned_by_hand_and_exchanged(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    async with PullConsumer(group="g") as consumer:
        await settle()
        assert "rebalance" not in names_of(consumer._tasks)
        heartbeats = session.heartbeats
        await consumer.assign([Q0], "A")
        assert session.heartbeats == heartbeats + 1, "brokers filter by what they were told"
        await settle()
        assert broker.held() == [(0, 5)]
        assert consumer._member.subscriptions.get("T").expression == "A"  # type: ignore[union-attr]
        broker.answer(0, encode_messages(5), 6)
        await settle()
        await consumer.assign([Q1])
        await settle()
        assert consumer.assignment == [Q1]
        assert await consumer.poll(timeout_ms=0) == [], "of a queue that was given up"
        assert broker.held() == [(1, 5)]
        session.answers[QueryConsumerOffset] = lambda *_: NetworkError("gone")
        with pytest.raises(SystemFailure, match="could not be taken: its broker does not answer"):
            await consumer.assign([Q0, Q1])
        with pytest.raises(NoRoute):
            await consumer.assign([MessageQueue("a", 0, "nowhere")])


async def test_a_poll_waits_as_long_as_it_is_told(
    broker: Broker, session: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
        waited: list[int] = []

        async def wait(ms: int) -> bool:
            waited.append(ms)
            session.clock.advance(30)
            return len(waited) < 3  # something came, and was gone again

        monkeypatch.setattr(consumer._buffer, "wait", wait)
        assert await consumer.poll(timeout_ms=70) == []
        assert waited == [70, 40, 10]
        assert await consumer.poll() == []
        assert waited[3:] == [session.options.poll_timeout_ms]


async def test_seeking_by_place_or_time_goes_on_there(
    broker: Broker, session: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.answers[SearchOffset] = lambda *_: (0, OffsetResult(offset=4), b"")
    async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
        await settle()
        assert await consumer.offset_range(Q0) == (2, 9)
        assert await consumer.queues("T") == [Q0, Q1]
        for seek, offset in (
            (consumer.seek_to_begin(Q0), 2),
            (consumer.seek_to_end(Q0), 9),
            (consumer.seek_to_time(Q0, 1_700_000_000_000), 4),
        ):
            await seek
            await settle()
            assert broker.held() == [(0, offset), (1, 5)]
            assert await consumer.committed(Q0) == offset
        assert session.headers(SearchOffset)[0].timestamp == 1_700_000_000_000
        await consumer.reset_offsets("T", {Q1: 3})
        await settle()
        assert broker.held() == [(0, 4), (1, 3)]
        await consumer.commit({Q1: 0})
        assert broker.reported()[-1] == (1, 0)
        await consumer.commit()
        assert broker.reported()[-1] == (1, 0), "what was said by hand counts from then on"
        assert consumer.status("T") == {Q0: 4, Q1: 0}
        assert consumer.status("") == consumer.status("T")
        assert consumer.status("U") == {}


@pytest.mark.seed("S003-10", "S003-29", "S003-41")
@pytest.mark.parametrize("listens", [True, False])
async def test_queues_that_go_to_somebody_else_are_read_no_more_and_those_that_come_back_are(
    broker: Broker, session: Any, settle: Any, encode_messages: Any, listens: bool, caplog: Any
) -> None:
    heard: list[list[MessageQueue]] = []
    listener = (lambda topic, every, own: heard.append(sorted(own))) if listens else None
    members = ["me"]
    session.answers[ConsumerList] = lambda *_: (
        0, None, bodies.encode(bodies.ConsumerIds(consumer_id_list=list(members)))
    )  # fmt: skip

    async def changed() -> None:
        consumer.members_changed()
        for _ in range(3):
            session.clock.advance(session.options.rebalance_min_ms)
            await settle()

    async with PullConsumer(group="g", topics={"T": "*"}, on_queues=listener) as consumer:
        await settle()
        assert broker.held() == [(0, 5), (1, 5)]
        broker.answer(1, encode_messages(5, 6), 7)
        await settle()
        await consumer.poll(2, timeout_ms=0)
        await consumer.commit()
        session.sent.clear()
        members.append("you")  # who comes behind us
        await changed()
        assert consumer.assignment == [Q0]
        assert [pull for pull in broker.held() if pull[0] == 0] == [(0, 5)]
        assert broker.reported()[0] == (1, 7), "how far it was: the next one asks for it"
        assert consumer.status("T").keys() == {Q0}, "and it is forgotten here"
        assert not session.headers(UnlockQueues)
        broker.answer(1, encode_messages(7), 8)
        await settle()
        assert await consumer.poll(timeout_ms=0) == []
        broker.stands_at = 8
        members.remove("you")
        await changed()
        assert consumer.assignment == [Q0, Q1]
        assert (1, 8) in broker.held()
    assert heard == ([[Q0, Q1], [Q0], [Q0, Q1]] if listens else [])
    assert "rebalance failed" not in caplog.text
    assert session.headers(QueryAssignment) == [], "never as the broker says, which may be POP"


@pytest.mark.seed("S003-44")
async def test_a_queue_that_the_application_leaves_alone_stays_and_is_read_on(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    async with PullConsumer(group="g", topics={"T": "*"}) as consumer:
        await settle()
        before = dict(consumer._member.pulled)
        consumer.pause([Q0])
        broker.answer(0, encode_messages(5), 6)
        for _ in range(30):
            session.clock.advance(session.options.rebalance_ms)
            await settle()
        assert dict(consumer._member.pulled) == before
        assert not any(owned.inbox.dropped for owned in before.values())
        assert broker.held() == [(1, 5)]
        consumer.resume([Q0])
        session.clock.advance(1_000)
        await settle()
        assert broker.held() == [(0, 6), (1, 5)]


@pytest.mark.seed("S003-30", "S003-36", "S003-37")
@pytest.mark.parametrize(("start", "begins"), [("first", 0), ("last", 9), (1_700_000_000_000, 4)])
async def test_a_pull_consumer_of_a_new_group_reads_from_where_it_is_told(
    broker: Broker, session: Any, settle: Any, start: Any, begins: int
) -> None:
    session.answers[QueryConsumerOffset] = lambda *_: (22, None, b"")
    session.answers[SearchOffset] = lambda *_: (0, OffsetResult(offset=4), b"")
    async with PullConsumer(group="g", topics={"T": "*"}, start=start) as consumer:
        await settle()
        assert broker.held() == [(0, begins), (1, begins)]
        assert consumer.assignment == [Q0, Q1]


async def test_a_queue_that_comes_back_is_never_reported_where_we_left_it(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    """Whoever had it meanwhile has read on: the group would be given all of that again."""
    async with PullConsumer(group="g") as consumer:
        await consumer.assign([Q1])
        await settle()
        broker.answer(1, encode_messages(5, 6), 7)
        await settle()
        await consumer.poll(2, timeout_ms=0)
        await consumer.commit()
        await consumer.assign([Q0])
        broker.stands_at = 500
        await consumer.assign([Q1])
        await settle()
        assert (1, 500) in broker.held()
        session.sent.clear()
        session.clock.advance(session.options.auto_commit_ms)
        await consumer.poll(timeout_ms=0)
        assert consumer.status("T")[Q1] == 500
        await consumer.commit()
    assert {offset for _, offset in broker.reported()} == {500}


async def test_a_schedule_joins_when_it_is_entered_and_leaves_when_it_is_left(
    broker: Broker, session: Any, settle: Any
) -> None:
    turns: list[Any] = []

    async def stored() -> Any:
        await asyncio.sleep(0)  # over a network each queue is asked for in a turn of its own
        return 0, OffsetResult(offset=5), b""

    session.answers[QueryConsumerOffset] = lambda *_: stored()
    scheduled = ScheduledPull(group="g", callbacks={"T": lambda queue, turn: turns.append(queue)})
    async with scheduled as entered:
        assert entered is scheduled
        await settle()
        assert (session.users, sorted(turns)) == (1, [Q0, Q1])
        assert broker.pulls == [], "nothing is fetched ahead of the turns"
    assert (session.users, session.consumers) == (0, {})
    await settle()
    session.clock.advance(10_000)
    await settle()
    assert len(turns) == 2, "no more turns"


async def test_queues_are_divided_by_the_strategy_that_a_pull_consumer_is_given(
    broker: Broker, session: Any, settle: Any
) -> None:
    async with PullConsumer(group="g", topics={"T": "*"}, strategy=configured([Q1])) as consumer:
        await settle()
        assert consumer.assignment == [Q1]


async def test_what_was_fetched_of_a_queue_that_is_assigned_no_more_is_forgotten(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    async with PullConsumer(group="g") as consumer:
        await consumer.assign([Q0])
        await settle()
        broker.answer(0, encode_messages(5, 6), 7)
        await settle()
        assert consumer._buffer.count == 2
        await consumer.assign([Q1])
        assert (consumer._buffer.count, consumer.assignment) == (0, [Q1])
        assert await consumer.poll(timeout_ms=0) == []
