# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.produce.producer import UnderWay
from aerobee.client.session.deadlines import Deadlines
from aerobee.clock import ManualClock
from aerobee.errors import RequestTimeout


class TestGate:
    async def test_past_the_count_others_wait_in_order(self, settle: Any, tasks: Any) -> None:
        gate, entered = UnderWay(2, 1_000), []

        async def one(n: int) -> None:
            await gate.enter(1)
            entered.append(n)

        for n in range(5):
            tasks.start(one(n), "enter")
        await settle()
        assert entered == [0, 1]
        gate.leave(1)
        await settle()
        assert entered == [0, 1, 2]
        for _ in range(4):
            gate.leave(1)
            await settle()
        assert entered == [0, 1, 2, 3, 4]

    async def test_bytes_are_bounded_but_a_giant_alone_may_pass(self, settle: Any, tasks: Any) -> None:
        gate = UnderWay(100, 10)
        assert gate.try_enter(50)
        assert not gate.try_enter(1)
        gate.leave(50)
        assert gate.try_enter(6)
        assert not gate.try_enter(6)

    async def test_one_who_gives_up_waiting_takes_no_place(self, settle: Any, tasks: Any) -> None:
        gate = UnderWay(1, 10)
        assert gate.try_enter(1)
        first, second = tasks.start(gate.enter(1), "a"), tasks.start(gate.enter(1), "b")
        await settle()
        first.cancel()
        await settle()
        gate.leave(1)
        await settle()
        assert second.done()
        gate.leave(1)
        assert (gate.count, gate.bytes) == (0, 0)

    async def test_empty_is_waited_for(self, settle: Any, tasks: Any) -> None:
        gate = UnderWay(5, 10)
        assert await gate.empty(1)
        gate.try_enter(1)
        waiting = tasks.start(gate.empty(10_000), "empty")
        await settle()
        gate.leave(1)
        assert await waiting
        gate.try_enter(1)
        assert not await gate.empty(1)


class TestDeadlines:
    async def test_late_answers_time_out_and_answered_ones_are_forgotten(self) -> None:
        clock, loop = ManualClock(), asyncio.get_running_loop()
        deadlines = Deadlines(clock)
        calls = [loop.create_future() for _ in range(3)]
        for call in calls:
            deadlines.watch(call, clock.now() + 3_000)
        calls[1].set_result("answer")
        clock.advance(2_999)
        assert not calls[0].done()
        clock.advance(101)
        for late in (calls[0], calls[2]):
            with pytest.raises(RequestTimeout):
                late.result()
        assert calls[1].result() == "answer"
        deadlines.close()
