# SPDX-License-Identifier: Apache-2.0
"""Messages by `async for`: fetched some at a time, handed out in order, given back when nobody wants the rest."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.client.consume.iteration import Messages
from aerobee.client.consume.membership import OwnedQueue
from aerobee.client.consume.poll_buffer import PollBuffer
from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.consume.raw_pull import PullStatus, pull
from aerobee.client.consume.simple_consumer import SimpleConsumer
from aerobee.errors import NoPermission, NoRoute, SystemFailure
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.filters.tags import TAG, subscribe
from aerobee.protocol.headers.consume import LitePullMessage, PopMessage, PopResult, PullResult, SendHeartbeat
from aerobee.protocol.reading import PullRequest
from tests.client.holding_broker import Broker, broker

__all__ = ["broker"]  # a fixture


class Fetched:
    """Brings batches, one each time it is asked, and then nothing; its consumer is in until it has none left."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = list(batches)
        self.asked = 0
        self.messages = Messages(self._fetch, lambda: bool(self.batches))

    async def _fetch(self) -> list[Any]:
        self.asked += 1
        return self.batches.pop(0)


class Lease:
    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.hidden: list[int] = []

    async def hide(self, invisible_ms: int, failure: str = "") -> None:
        self.hidden.append(invisible_ms)
        if self.fails:
            raise self.fails


async def test_messages_come_in_order_and_end_with_the_consumer(make_message: Any) -> None:
    batches = [[make_message(1), make_message(2)], [], [make_message(3)]]
    fetched = Fetched(*batches)
    assert fetched.messages.__aiter__() is fetched.messages
    seen = [message.queue_offset async for message in fetched.messages]
    assert (seen, fetched.asked) == ([1, 2, 3], 3)
    with pytest.raises(StopAsyncIteration):
        await fetched.messages.__anext__()
    assert fetched.asked == 3, "it is not asked when it has left"


async def test_nothing_is_fetched_before_all_that_is_there_was_handed_out(make_message: Any) -> None:
    fetched = Fetched([make_message(1), make_message(2)], [make_message(3)])
    assert (await anext(fetched.messages)).queue_offset == 1
    assert (await anext(fetched.messages)).queue_offset == 2
    assert fetched.asked == 1
    assert (await anext(fetched.messages)).queue_offset == 3


async def test_what_was_leased_and_not_handed_out_is_for_others_at_once(make_message: Any) -> None:
    messages = [make_message(n) for n in range(5)]
    leases = [Lease(), Lease(SystemFailure("no")), Lease(), Lease(), Lease()]
    for message, lease in zip(messages, leases, strict=True):
        message.lease = lease
    messages[3].lease = None
    fetched = Fetched(messages, [])
    async with fetched.messages as entered:
        assert entered is fetched.messages
        assert (await anext(entered)).queue_offset == 0
    assert [len(lease.hidden) for lease in leases] == [0, 1, 1, 0, 1], "one that fails is no reason to stop"
    await fetched.messages.aclose()
    assert [len(lease.hidden) for lease in leases] == [0, 1, 1, 0, 1], "and none is given back twice"


# -- of the two consumers -------------------------------------------------------------------------------------------


async def test_a_pull_consumer_is_an_iterator_of_its_polls(
    broker: Broker, session: Any, settle: Any, encode_messages: Any
) -> None:
    consumer = PullConsumer(group="g", topics={"T": "*"})
    with pytest.raises(RuntimeError, match="is not started"):
        consumer.messages()
    async with consumer:
        await settle()
        broker.answer(0, encode_messages(5, 6), 7)
        await settle()
        each = aiter(consumer)
        assert [(await anext(each)).queue_offset for _ in range(2)] == [5, 6]
        broker.answer(0, encode_messages(7, 8), 9)
        await settle()
        assert (await anext(consumer.messages(timeout_ms=0))).queue_offset == 7
        assert [each.queue_offset for each in await consumer.poll(timeout_ms=0)] == [8], "one at a time"


def simple(session: Any, **more: Any) -> SimpleConsumer:
    consumer = SimpleConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, clock=session.clock, **more)
    consumer.session = consumer._place._session = session
    return consumer


async def test_a_simple_consumer_is_an_iterator_of_its_receives(session: Any, encode_messages: Any) -> None:
    consumer = simple(session)
    with pytest.raises(RuntimeError, match="is not started"):
        consumer.messages()
    async with consumer as entered:
        assert entered is consumer
        result = PopResult(pop_time=1, invisible_time=9_000, revive_qid=1, start_offset_info="0 0 0",
                           msg_offset_info="0 0 1,2")  # fmt: skip
        session.answers[PopMessage] = lambda *_: (0, result, encode_messages(1, 2))
        seen = aiter(consumer)
        assert [(await anext(seen)).queue_offset for _ in range(2)] == [1, 2]
        asked = session.headers(PopMessage)[-1]
        assert (asked.max_msg_nums, asked.invisible_time, asked.poll_time) == (32, 30_000, 15_000)
        assert (await anext(consumer.messages(7, 5_000, 1_000))).queue_offset == 1
        asked = session.headers(PopMessage)[-1]
        assert (asked.max_msg_nums, asked.invisible_time, asked.poll_time) == (7, 5_000, 1_000)
        for wrong in ((0, 1, 1), (33, 1, 1), (1, 0, 1), (1, 1, -1)):
            with pytest.raises(ValueError, match=" is "):
                consumer.messages(*wrong)
    with pytest.raises(StopAsyncIteration):
        await anext(seen)


@pytest.mark.parametrize("kind", ["pull", "simple"])
async def test_one_that_a_broker_refuses_leaves_before_it_says_so(
    broker: Broker, session: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(session, "open_connection", lambda address: object())
    session.answers[SendHeartbeat] = lambda *_: NoPermission("not yours")
    consumer: Any = PullConsumer(group="g", topics={"T": "*"}) if kind == "pull" else simple(session)
    with pytest.raises(NoPermission, match="not yours"):
        await consumer.start()
    assert session.story[-2:] == ["leave {'consumer_group': 'g'}", "stop"]
    assert (session.consumers, session.users) == ({}, 0)
    await consumer.stop()
    assert session.users == 0, "to stop it again is no harm"


# -- between fetching and poll --------------------------------------------------------------------------------------


def owned(session: Any, number: int) -> OwnedQueue:
    return OwnedQueue(MessageQueue("a", number, "T"), 0, session.clock.now())


def taken(buffer: PollBuffer, limit: int) -> list[tuple[int, list[int]]]:
    return [(queue.queue.queue_id, [m.queue_offset for m in batch]) for queue, batch in buffer.take(limit)]


async def test_polls_take_as_much_as_they_ask_for_in_the_order_it_came(
    session: Any, make_message: Any
) -> None:
    buffer, one, two = PollBuffer(), owned(session, 1), owned(session, 2)
    buffer.put(one, [make_message(n) for n in (1, 2, 3)])
    buffer.put(two, [make_message(4)])
    buffer.put(one, [make_message(5)])
    assert buffer.count == 5
    assert taken(buffer, 2) == [(1, [1, 2])]
    assert await buffer.wait(0), "there is more"
    assert taken(buffer, 2) == [(1, [3]), (2, [4])]
    assert (buffer.count, await buffer.wait(0)) == (1, True)
    assert taken(buffer, 9) == [(1, [5])]
    assert (buffer.count, await buffer.wait(0)) == (0, False)
    assert taken(buffer, 9) == []


async def test_messages_of_queues_that_were_lost_are_left_out_and_do_not_count(
    session: Any, make_message: Any
) -> None:
    buffer, kept, lost = PollBuffer(), owned(session, 1), owned(session, 2)
    buffer.put(lost, [make_message(n) for n in (1, 2, 3)])
    buffer.put(kept, [make_message(n) for n in (4, 5)])
    lost.inbox.dropped = True
    assert taken(buffer, 2) == [(1, [4, 5])]
    assert (buffer.count, await buffer.wait(0)) == (0, False)


async def test_what_is_forgotten_is_gone_and_the_others_stay(session: Any, make_message: Any) -> None:
    buffer, one, two = PollBuffer(), owned(session, 1), owned(session, 2)
    buffer.put(one, [make_message(1)])
    buffer.put(two, [make_message(2), make_message(3)])
    buffer.put(one, [make_message(4)])
    buffer.forget(one)
    assert (buffer.count, taken(buffer, 9)) == (2, [(2, [2, 3])])
    buffer.put(two, [make_message(5)])
    buffer.forget(two)
    assert (buffer.count, await buffer.wait(0)) == (0, False)
    buffer.wake()
    assert await buffer.wait(0), "there is something to look at"


# -- one pull -------------------------------------------------------------------------------------------------------


def request(**more: Any) -> PullRequest:
    queue = MessageQueue("a", 1, "T")
    return PullRequest(group="g", queue=queue, offset=5, subscription=subscribe("T", "A", 0, TAG), **more)


async def test_a_pull_says_what_came_and_where_to_go_on(session: Any, encode_messages: Any) -> None:
    result = PullResult(next_begin_offset=8, min_offset=2, max_offset=9)
    session.answers[LitePullMessage] = [
        (0, result, encode_messages(5, 6, tags="A") + encode_messages(7, tags="B"))
    ]
    answer = await pull(session, request(max_messages=3, hold_ms=4_000))
    assert [message.queue_offset for message in answer.messages] == [5, 6], "the broker compares hashes only"
    assert (answer.status, answer.next_offset, answer.min_offset, answer.max_offset) == (
        PullStatus.FOUND,
        8,
        2,
        9,
    )
    ((address, asked, timeout_ms),) = session.asked
    assert (address, asked.queue_id, asked.queue_offset, asked.max_msg_nums) == ("a:1", 1, 5, 3)
    assert timeout_ms == 4_000 + 10_000


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (19, PullStatus.NO_NEW_MESSAGE),
        (20, PullStatus.NO_MATCHED_MESSAGE),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
async def test_a_pull_without_messages_says_why(
    session: Any, encode_messages: Any, code: int, status: PullStatus
) -> None:
    result = PullResult(next_begin_offset=8, min_offset=2, max_offset=9)
    session.answers[LitePullMessage] = [(code, result, encode_messages(5, tags="A"))]
    answer = await pull(session, request())
    assert (answer.status, answer.messages, answer.next_offset) == (status, [], 8)


async def test_a_broker_without_an_address_is_looked_for_once(session: Any) -> None:
    queue = MessageQueue("new", 0, "T")
    asked = PullRequest(group="g", queue=queue, offset=0, subscription=subscribe("T", "*", 0, TAG))
    with pytest.raises(NoRoute, match="broker 'new' has no address in the route of topic 'T'"):
        await pull(session, asked)
    assert session.refreshed == ["T"]
    refresh = session.refresh_route

    async def found(topic: str) -> Any:
        session.know(topic, brokers=("a", "new"))
        return await refresh(topic)

    session.refresh_route = found
    result = PullResult(next_begin_offset=0, min_offset=0, max_offset=0)
    session.answers[LitePullMessage] = [(19, result, b"")]
    await pull(session, asked)
    assert session.asked[0][0] == "new:1"
