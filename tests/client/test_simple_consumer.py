# SPDX-License-Identifier: Apache-2.0
"""The simple consumer: one broker holds its request; several are asked in turn, and then say who has something."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.consume.simple_consumer import SimpleConsumer
from aerobee.errors import ConnectionLost, NetworkError
from aerobee.protocol.headers.consume import (
    AckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
    Notification,
    NotificationResult,
    PopMessage,
    PopResult,
)

NOTHING = (210, PopResult(), b"")


@pytest.fixture
def make(session: Any) -> Any:
    def make(**more: Any) -> SimpleConsumer:
        consumer = SimpleConsumer(
            "127.0.0.1:1", group="g", topics=more.pop("topics", {"T": "*"}), clock=session.clock, **more
        )
        consumer.session = consumer._place._session = session
        session.consumers["g"] = consumer
        return consumer

    return make


@pytest.fixture
def popped(session: Any, encode_messages: Any) -> Any:
    def answer(*offsets: int, **more: Any) -> Any:
        result = PopResult(
            pop_time=session.clock.now(), invisible_time=30_000, revive_qid=1, start_offset_info="0 0 0",
            msg_offset_info="0 0 " + ",".join(map(str, offsets)),
        )  # fmt: skip
        return 0, result, encode_messages(*offsets, **more)

    return answer


async def test_one_broker_holds_the_request_for_as_long_as_is_left(
    make: Any, session: Any, popped: Any
) -> None:
    consumer = make(start="first")

    def answer(*_: Any) -> Any:
        session.clock.advance(4_000)
        return NOTHING if len(session.asked) < 3 else popped(1, 2)

    session.answers[PopMessage] = answer
    messages = await consumer.receive(8, 20_000, 15_000)
    assert [m.queue_offset for m in messages] == [1, 2]
    asked = session.headers(PopMessage)
    assert [each.poll_time for each in asked] == [15_000, 11_000, 7_000]
    assert {(each.max_msg_nums, each.invisible_time, each.queue_id) for each in asked} == {(8, 20_000, -1)}
    assert {(each.init_mode, each.order, each.attempt_id) for each in asked} == {(0, False, None)}


async def test_nothing_in_time_is_an_empty_list(make: Any, session: Any) -> None:
    session.answers[PopMessage] = lambda *_: session.clock.advance(6_000) or NOTHING
    assert await make().receive(wait_ms=10_000) == []
    assert [each.poll_time for each in session.headers(PopMessage)] == [10_000, 4_000]
    session.asked.clear()
    session.answers[PopMessage] = lambda *_: NOTHING
    assert await make().receive(wait_ms=0) == []
    assert [each.poll_time for each in session.headers(PopMessage)] == [0]


async def test_a_broker_that_holds_too_many_is_asked_again_after_a_second(
    make: Any, session: Any, popped: Any, settle: Any
) -> None:
    answers = [(209, PopResult(), b""), popped(1)]
    session.answers[PopMessage] = lambda *_: answers.pop(0)
    receiving = asyncio.ensure_future(make().receive())
    await settle()
    assert len(session.asked) == 1
    session.clock.advance(999)
    await settle()
    assert len(session.asked) == 1
    session.clock.advance(1)
    assert [m.queue_offset for m in await receiving] == [1]


async def test_a_broker_that_holds_too_many_is_not_waited_for_longer_than_is_left(
    make: Any, session: Any, settle: Any
) -> None:
    session.answers[PopMessage] = lambda *_: (209, PopResult(), b"")
    receiving = asyncio.ensure_future(make().receive(wait_ms=300))
    await settle()
    session.clock.advance(299)
    await settle()
    assert not receiving.done()
    session.clock.advance(1)
    await settle()
    assert receiving.result() == []


async def test_several_brokers_are_asked_in_turn_each_time_from_another(
    make: Any, session: Any, popped: Any
) -> None:
    session.know("T", brokers=("a", "b", "c"))
    consumer = make()
    session.answers[PopMessage] = lambda address, *_: popped(1) if address == "c:1" else NOTHING
    for _ in range(3):
        assert len(await consumer.receive()) == 1
    asked = [address for address, *_ in session.asked]
    assert asked == ["b:1", "c:1", "c:1", "a:1", "b:1", "c:1"]
    assert {each.poll_time for each in session.headers(PopMessage)} == {0}


async def test_then_whoever_has_something_says_so(make: Any, session: Any, popped: Any, settle: Any) -> None:
    session.know("T", brokers=("a", "b"))
    loop = asyncio.get_running_loop()
    waiting = {"a:1": loop.create_future(), "b:1": loop.create_future()}
    session.answers[PopMessage] = lambda *_: NOTHING
    session.answers[Notification] = lambda address, *_: waiting[address]
    receiving = asyncio.ensure_future(make(ordered=True).receive(wait_ms=9_000))
    await settle()
    assert [each.poll_time for each in session.headers(Notification)] == [9_000, 9_000]
    assert {each.order for each in session.headers(Notification)} == {True}
    assert {timeout_ms for _, header, timeout_ms in session.asked if type(header) is Notification} == {19_000}
    session.answers[PopMessage] = lambda *_: popped(3)
    waiting["b:1"].set_result((0, NotificationResult(has_msg=True), b""))
    assert [m.queue_offset for m in await receiving] == [3]
    assert waiting["a:1"].cancelled(), "the other is not asked any more"
    attempts = {each.attempt_id for each in session.headers(PopMessage)}
    assert len(attempts) == 1 and None not in attempts, "one receive is one attempt, whoever answers"


async def test_a_broker_that_cannot_be_asked_is_waited_for(make: Any, session: Any, settle: Any) -> None:
    consumer = make()
    session.answers[Notification] = lambda *_: NetworkError("gone")
    asking = asyncio.ensure_future(consumer._ask(("T", "a"), 5_000))
    await settle()
    assert not asking.done()
    session.clock.advance(1_000)
    assert await asking is False


async def test_a_tag_of_the_same_hash_is_acked_away(make: Any, session: Any, popped: Any) -> None:
    session.answers[AckMessage] = lambda *_: (0, None, b"")
    answers = [popped(1, tags="BBBB"), popped(2, tags="AaAa")]
    session.answers[PopMessage] = lambda *_: answers.pop(0)
    assert [m.queue_offset for m in await make(topics={"T": "AaAa"}).receive()] == [2]
    assert [ack.offset for ack in session.headers(AckMessage)] == [1]


async def test_topics_that_nobody_knows_yet_are_waited_for_without_spinning(
    make: Any, session: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = make(topics={"x": "*", "y": "*"})
    receiving = asyncio.ensure_future(consumer.receive(wait_ms=2_500))
    for _ in range(2):
        await settle()
        assert not receiving.done()
        session.clock.advance(1_000)
    await settle()
    assert not receiving.done()
    session.clock.advance(500)
    assert await receiving == []
    assert await consumer.receive(wait_ms=0) == []
    (told,) = [each for each in caplog.messages if "none of the topics" in each]
    assert "none of the topics x, y is known to the name servers yet; the first send makes it" in told


async def test_a_topic_that_comes_while_it_is_waited_for_is_received_from(
    make: Any, session: Any, settle: Any, popped: Any
) -> None:
    session.answers[PopMessage] = lambda *_: popped(1)
    receiving = asyncio.ensure_future(make(topics={"new": "*"}).receive(wait_ms=5_000))
    await settle()
    session.know("new")
    session.clock.advance(1_000)
    assert len(await receiving) == 1


async def test_a_topic_that_is_known_is_enough(make: Any, session: Any, popped: Any) -> None:
    session.answers[PopMessage] = lambda *_: popped(1)
    assert len(await make(topics={"unknown": "*", "T": "*"}).receive()) == 1


async def test_wrong_arguments_are_refused_at_the_call(make: Any, session: Any) -> None:
    consumer = make()
    session.answers[PopMessage] = lambda *_: NOTHING
    for right in ((1, 1, 0), (32, 1, 0)):
        assert await consumer.receive(*right) == []
    for wrong, arguments in (
        ("max_messages is 0; a pop gives 1 to 32", (0, 1, 0)),
        ("max_messages is 33; a pop gives 1 to 32", (33, 1, 0)),
        ("invisible_ms is 0; it must be positive", (1, 0, 0)),
        ("wait_ms is -1; it cannot be negative", (1, 1, -1)),
    ):
        with pytest.raises(ValueError, match=wrong):
            await consumer.receive(*arguments)
    with pytest.raises(ValueError, match="topics is empty"):
        SimpleConsumer("127.0.0.1:1", group="g", topics={})
    del session.consumers["g"]
    with pytest.raises(RuntimeError, match="is not started, or stopped"):
        await consumer.receive()


# -- a connection that turns out to be lost -----------------------------------------------------------------


async def test_a_pop_whose_connection_was_lost_is_asked_once_more_for_what_is_left_of_its_wait(
    make: Any, session: Any, popped: Any
) -> None:
    def answer(*_: Any) -> Any:
        if len(session.asked) > 1:
            return popped(1)
        session.clock.advance(4_000)
        return ConnectionLost("gone")

    session.answers[PopMessage] = answer
    began = session.clock.wall()
    assert [m.queue_offset for m in await make().receive(wait_ms=15_000)] == [1]
    asked = session.headers(PopMessage)
    assert [(each.poll_time, each.born_time - began) for each in asked] == [(15_000, 0), (11_000, 4_000)]


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([ConnectionLost("gone"), NetworkError("cannot connect")], "cannot connect"),
        ([ConnectionLost("gone"), ConnectionLost("gone again")], "gone again"),
        ([NetworkError("cannot connect")], "cannot connect"),
    ],
)
async def test_and_no_more_than_once_nor_for_any_other_reason(
    make: Any, session: Any, errors: list[Exception], raised: str
) -> None:
    session.answers[PopMessage] = list(errors)
    with pytest.raises(NetworkError, match=raised):
        await make().receive()
    assert len(session.asked) == len(errors)


async def test_an_ack_and_a_nack_whose_connection_was_lost_are_asked_once_more(
    make: Any, session: Any, popped: Any
) -> None:
    session.answers[PopMessage] = [popped(1, 2)]
    session.answers[AckMessage] = [ConnectionLost("gone"), (0, None, b"")]
    session.answers[ChangeInvisible] = [ConnectionLost("gone"), (0, ChangeInvisibleResult(), b"")]
    done, failed = await make().receive()
    await done.ack()
    await failed.nack(60_000)
    for kind in (AckMessage, ChangeInvisible):
        first, again = session.headers(kind)
        assert first == again


async def test_when_the_time_is_over_all_are_looked_at_once_more(
    make: Any, session: Any, popped: Any
) -> None:
    """What came to a broker that was slow to say so."""
    session.know("T", brokers=("a", "b"))
    session.answers[Notification] = lambda *_: asyncio.get_running_loop().create_future()
    session.answers[PopMessage] = lambda *_: popped(7) if len(session.headers(PopMessage)) == 4 else NOTHING
    assert [m.queue_offset for m in await make().receive(wait_ms=1)] == [7]
    assert [each.poll_time for each in session.headers(PopMessage)] == [0, 0, 0, 0]
