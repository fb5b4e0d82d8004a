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

    async def test_a_giant_that_waits_may_pass_when_the_others_are_gone(
        self, settle: Any, tasks: Any
    ) -> None:
        gate = UnderWay(100, 10)
        assert gate.try_enter(5)
        giant = tasks.start(gate.enter(50), "giant")
        await settle()
        gate.leave(5)
        await settle()
        assert giant.done()
        assert (gate.count, gate.bytes) == (1, 50)

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

    def test_exactly_as_much_as_is_allowed_may_be_under_way(self) -> None:
        gate = UnderWay(3, 10)
        assert gate.try_enter(4)
        assert gate.try_enter(6), "ten bytes"
        assert not gate.try_enter(1)
        assert gate.try_enter(0), "three of them"
        assert not gate.try_enter(0)
        assert (gate.count, gate.bytes) == (3, 10)

    async def test_a_place_that_was_given_to_one_who_just_left_goes_to_the_next(
        self, settle: Any, tasks: Any
    ) -> None:
        gate = UnderWay(1, 10)
        assert gate.try_enter(1)
        first, second = tasks.start(gate.enter(2), "a"), tasks.start(gate.enter(3), "b")
        await settle()
        gate.leave(1)  # the first has its turn now,
        first.cancel()  # and does not take it
        await settle()
        assert first.cancelled()
        assert second.done()
        assert (gate.count, gate.bytes) == (1, 3)

    async def test_who_is_small_does_not_overtake_one_that_waits_for_room(
        self, settle: Any, tasks: Any
    ) -> None:
        gate, entered = UnderWay(10, 10), []

        async def one(size: int) -> None:
            await gate.enter(size)
            entered.append(size)

        assert gate.try_enter(8)
        for size in (5, 1, 4):
            tasks.start(one(size), "enter")
            await settle()
        assert not gate.try_enter(1)
        assert entered == []
        gate.leave(8)
        await settle()
        assert (entered, gate.bytes, gate.count) == ([5, 1, 4], 10, 3)

    async def test_empty_is_told_when_the_last_has_left_and_not_before(self, settle: Any, tasks: Any) -> None:
        gate = UnderWay(5, 10)
        gate.try_enter(1)
        gate.try_enter(1)
        waiting = tasks.start(gate.empty(60_000), "empty")
        await settle()
        gate.leave(1)
        await settle()
        assert not waiting.done()
        gate.leave(1)
        await settle()
        assert waiting.result() is True


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
            with pytest.raises(RequestTimeout, match=r"^no answer in time$"):
                late.result()
        assert calls[1].result() == "answer"
        deadlines.close()
