# SPDX-License-Identifier: Apache-2.0
"""How a failed send is tried again: spread over its time, in order where order matters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.produce.sender import Sender
from aerobee.client.produce.tries import LEAST_LEFT_MS, LONGEST_PAUSE_MS, Lines, Tries
from aerobee.client.session.route_cache import RouteCache
from aerobee.clock import ManualClock
from aerobee.errors import (
    AerobeeError,
    ClientClosed,
    MessageIllegal,
    NetworkError,
    NoPermission,
    NoRoute,
    RequestTimeout,
    SystemBusy,
)
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.fast_frames import Sending

REFUSED = NetworkError("cannot connect to 127.0.0.1:10911: Connection refused")
QUEUE = MessageQueue("broker-a", 3, "orders")


def tries(refusals: int = 2, timeout_ms: int = 3_000, brokers: tuple[str, ...] = ("a",)) -> Tries:
    made = Tries(refusals, 0, timeout_ms, jitter=lambda: 1.0)
    made.at, made.brokers = brokers[0], set(brokers)
    return made


def test_pauses_before_the_same_broker_double_up_to_a_bound_and_fill_the_time() -> None:
    one, now, pauses = tries(), 0, []
    while (pause := one.again(REFUSED, now)) is not None:
        pauses.append(pause)
        now += pause
    assert pauses[:6] == [20, 40, 80, 160, LONGEST_PAUSE_MS, LONGEST_PAUSE_MS]
    assert max(pauses) == LONGEST_PAUSE_MS
    assert now == 3_000 - LEAST_LEFT_MS, "the last try comes just before the time is over"


def test_jitter_spreads_a_pause_over_its_second_half() -> None:
    for jitter, pause in ((0.0, 10), (0.5, 15), (1.0, 20)):
        one = Tries(2, 0, 3_000, jitter=lambda jitter=jitter: jitter)  # type: ignore[misc]
        one.at, one.brokers = "a", {"a"}
        assert one.again(REFUSED, 0) == pause


def test_another_broker_is_tried_at_once_and_a_pause_follows_when_all_have_failed() -> None:
    one = tries(brokers=("a", "b", "c"))
    assert one.again(REFUSED, 0) == 0
    one.at = "b"
    assert one.again(REFUSED, 0) == 0
    one.at = "c"
    assert one.again(REFUSED, 0) == 20
    one.at = "a"
    assert one.again(REFUSED, 20) == 0, "after the pause each has its chance again"


def test_refusals_are_counted_and_a_broker_that_is_away_is_not() -> None:
    one = tries(refusals=2, brokers=("a", "b"))
    assert one.again(SystemBusy("busy"), 0) is not None
    assert one.again(SystemBusy("busy"), 0) is not None
    assert one.again(SystemBusy("busy"), 0) is None
    away = tries(refusals=0)
    for now in range(0, 2_000, 100):
        assert away.again(REFUSED, now) is not None


@pytest.mark.parametrize("error", [MessageIllegal("no"), AerobeeError("no"), ClientClosed("stopped")])
def test_what_no_try_can_cure_is_not_tried_again(error: AerobeeError) -> None:
    assert tries().again(error, 0) is None


def test_a_broker_that_refuses_the_right_is_asked_once_and_another_may_allow_it() -> None:
    assert tries().again(NoPermission("no"), 0) is None
    one = tries(brokers=("a", "b"))
    assert one.again(NoPermission("broker 'a' may not be written at present"), 0) == 0
    one.at = "b"
    assert one.again(NoPermission("no"), 0) is None


def test_a_topic_that_will_not_come_is_not_waited_for() -> None:
    one = tries()
    assert one.again(NoRoute("unknown"), 0) is not None
    one.hopeless = True
    assert one.again(NoRoute("unknown"), 0) is None


def test_the_error_says_what_was_tried_for_how_long_and_what_to_do() -> None:
    one = tries()
    one.again(REFUSED, 0)
    told = one.told(REFUSED, "orders", 2_995)
    assert type(told) is NetworkError
    assert "'orders'" in str(told)
    assert "2 tries in 2995 ms" in str(told)
    assert "broker 'a'" in str(told)
    assert "Connection refused" in str(told)
    assert "send_timeout_ms" in str(told)
    one.at = None
    nowhere = str(one.told(NoRoute("unknown"), "orders", 2_995))
    assert "2 tries in 2995 ms: unknown; A longer send_timeout_ms" in nowhere, "no broker was tried"
    assert "broker" not in str(one.told(RequestTimeout("no answer"), "orders", 9)).partition(".")[0]
    one.at = "a"
    late = one.told(RequestTimeout("no answer in time"), "orders", 3_000)
    assert type(late) is RequestTimeout
    assert "it may have arrived" in str(late)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_of_one_queue_set_out_in_order_when_the_head_is_through() -> None:
    lines, order = Lines(ManualClock(0)), []

    async def send(number: int) -> None:
        await lines.join(QUEUE, 3_000)
        order.append(number)

    assert lines.lead(QUEUE)
    assert not lines.lead(QUEUE)
    tasks = [asyncio.create_task(send(number)) for number in range(5)]
    await turns()
    assert order == []
    lines.dissolve(QUEUE)
    assert QUEUE in lines, "who comes now must not overtake those just woken"
    await send(5)
    await turns()
    assert order == [0, 1, 2, 3, 4, 5]
    assert QUEUE not in lines
    await asyncio.gather(*tasks)


async def test_who_waits_in_line_waits_no_longer_than_its_own_time() -> None:
    clock = ManualClock(0)
    lines = Lines(clock)
    lines.lead(QUEUE)
    waiting = asyncio.create_task(lines.join(QUEUE, 50))
    await turns()
    clock.advance(49)
    await turns()
    assert not waiting.done()
    clock.advance(1)
    await turns()
    assert waiting.done()
    lines.dissolve(QUEUE)
    await turns()
    assert QUEUE not in lines


async def test_one_that_is_cancelled_leaves_the_line() -> None:
    lines = Lines(ManualClock(0))
    lines.lead(QUEUE)
    gone = asyncio.create_task(lines.join(QUEUE, 50))
    await turns()
    gone.cancel()
    await turns()
    lines.dissolve(QUEUE)
    await turns()
    assert QUEUE not in lines


@pytest.mark.parametrize(
    ("known", "gone", "hopeless"),
    [
        ([], [], False),  # the server is starting
        (["U"], [], True),
        (["U"], ["T"], False),  # its broker restarts
        ([], ["T"], False),
    ],
)
async def test_a_topic_that_was_known_comes_back_and_one_that_never_was_does_not(
    session: Any, known: list[str], gone: list[str], hopeless: bool
) -> None:
    session.routes = RouteCache()
    for topic in known + gone:
        session.know(topic)
    for topic in gone:
        session.routes.forget(topic)
    tries = Tries(2, 0, 3_000)
    with pytest.raises(NoRoute):
        await Sender(session, "p")._try(
            tries, Sending("T", b"x", "", "ID", 0), RequestCode.SEND_MESSAGE_V2, None
        )
    assert tries.hopeless is hopeless


async def test_a_queue_of_a_broker_that_is_away_is_waited_for_though_others_have_the_topic(
    session: Any,
) -> None:
    session.routes = RouteCache()
    session.know("T")
    tries = Tries(0, 0, 3_000)
    there = MessageQueue("broker-z", 0, "T")
    with pytest.raises(NoRoute) as refused:
        await Sender(session, "p")._try(
            tries, Sending("T", b"x", "", "ID", 0), RequestCode.SEND_MESSAGE_V2, there
        )
    assert tries.again(refused.value, 0), "else it is tried without end, and nothing else of the loop runs"


async def test_what_may_be_asked_twice_is_asked_until_the_broker_is_back(session: Any) -> None:
    asked = []

    async def ask() -> str:
        asked.append(session.clock.now())
        if len(asked) < 4:
            raise REFUSED
        return "done"

    answer = asyncio.create_task(Sender(session, "p").patiently("T", ask))
    while not answer.done():
        await asyncio.sleep(0)
        session.clock.advance(10)
    assert await answer == "done"
    assert len(asked) == 4
    assert asked[-1] > asked[0], "with pauses"


@pytest.mark.parametrize(("error", "tried"), [(REFUSED, "often"), (MessageIllegal("too late"), "once")])
async def test_asking_ends_with_the_time_of_a_send_or_with_a_refusal(
    session: Any, error: AerobeeError, tried: str
) -> None:
    asked: list[int] = []

    async def ask() -> None:
        asked.append(session.clock.now())
        raise error

    began = session.clock.now()
    asking = asyncio.create_task(Sender(session, "p").patiently("T", ask))
    while not asking.done():
        await asyncio.sleep(0)
        session.clock.advance(10)
    with pytest.raises(type(error)) as raised:
        await asking
    assert raised.value is error
    assert (len(asked) > 1) is (tried == "often")
    assert asked[-1] - began < session.options.send_timeout_ms
