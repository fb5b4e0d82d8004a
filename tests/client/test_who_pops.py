# SPDX-License-Identifier: Apache-2.0
"""Consumers of every kind at a broker that says POP to whoever asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.options import Options
from aerobee.protocol import bodies
from aerobee.protocol.bodies import AssignedQueue, Assignment, MessageQueue, Mode
from aerobee.protocol.headers.consume import (
    AckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
    PopMessage,
    PopResult,
    QueryAssignment,
)
from tests.client.holding_broker import Q0, Q1, Broker, broker

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["broker"]  # a fixture

ALL = MessageQueue("a", -1, "T")


@pytest.fixture
def popping(broker: Broker, session: Any, encode_messages: Any) -> Broker:
    """It says POP, has two messages and then holds."""
    entry = AssignedQueue(message_queue=ALL, mode=Mode.POP)
    assignment = bodies.encode(Assignment(message_queue_assignments=[entry]))
    found = PopResult(
        pop_time=session.clock.now(), invisible_time=60_000, revive_qid=3,
        start_offset_info="0 0 0", msg_offset_info="0 0 0,1",
    )  # fmt: skip
    answers: list[Any] = [(0, found, encode_messages(0, 1))]
    session.answers[QueryAssignment] = lambda *_: (0, None, assignment)
    session.answers[PopMessage] = lambda *_: (
        answers.pop() if answers else asyncio.get_running_loop().create_future()
    )
    session.answers[AckMessage] = lambda *_: (0, None, b"")
    session.answers[ChangeInvisible] = lambda *_: (0, ChangeInvisibleResult(), b"")
    return broker


async def fail_with_the_second(message: Any) -> None:
    if message.queue_offset:
        raise RuntimeError("no")


def push(**more: Any) -> PushConsumer:
    return PushConsumer(group="g", topics={"T": "*"}, handler=fail_with_the_second, **more)


@pytest.mark.seed("S000-1", "S000-8", "S000-9", "S000-14")
async def test_a_push_consumer_asks_pops_acks_and_hides_and_that_is_all(
    popping: Broker, session: Any, settle: Any
) -> None:
    """For a minute and more: it keeps no offsets, renews no locks, asks for no members and sends nothing back."""
    async with push() as consumer:
        for _ in range(11):
            await settle()
            session.clock.advance(10_000)
        assert consumer.queues == [ALL]
        told = Counter(session.story)
    rounds = told.pop("QueryAssignment")
    assert rounds >= 10
    assert told.keys() - {"start", "heartbeat"} == {"PopMessage", "AckMessage", "ChangeInvisible"}
    assert (told["PopMessage"], told["AckMessage"], told["ChangeInvisible"]) == (2, 1, 1)
    assert session.sent == [], "nor does it report any offset when it goes"


@pytest.mark.seed("S000-2")
@pytest.mark.parametrize(
    "make",
    [
        lambda: PullConsumer(group="g", topics={"T": "*"}),
        lambda: push(ordered=True),
        lambda: push(model="broadcasting"),
        push,
    ],
    ids=["pull", "ordered", "broadcasting", "left to the client"],
)
async def test_all_others_pull_and_do_not_even_ask(
    popping: Broker, session: Any, settle: Any, make: Callable[[], Any], request: Any, tmp_path: Any
) -> None:
    by_client = request.node.callspec.id == "left to the client"
    session.options = Options(rebalance="client" if by_client else "auto", local_offsets=str(tmp_path))
    async with make() as consumer:
        await settle()
        session.clock.advance(session.options.dispatch_ms)
        await settle()
        owned = consumer.assignment if isinstance(consumer, PullConsumer) else consumer.queues
        assert owned == [Q0, Q1]
        assert popping.held()
    assert not {"QueryAssignment", "PopMessage"} & set(session.story)
