# SPDX-License-Identifier: Apache-2.0
"""The two times: one that only goes on, and the machine's, which operators and time servers set."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aerobee.clock import Alarm, ManualClock, SystemClock, tell, told

NOON = 1_700_000_000_000
HOUR = 3_600_000


class Machine:
    """Its two clocks, in nanoseconds as the system gives them."""

    def __init__(self) -> None:
        self.wall_ms, self.steady_ms = NOON, 5_000
        self.each_reading_ms = 0

    def wall_ns(self) -> int:
        self.pass_ms(self.each_reading_ms)
        return self.wall_ms * 1_000_000 + 999_999

    def steady_ns(self) -> int:
        return self.steady_ms * 1_000_000 + 1

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms

    def clock(self) -> SystemClock:
        return SystemClock(self.wall_ns, self.steady_ns)


def test_both_times_are_the_machines_while_nobody_sets_its_clock() -> None:
    machine = Machine()
    clock = machine.clock()
    for ms in (0, 1, 499, 10_000, HOUR):
        machine.pass_ms(ms)
        assert clock.now() == clock.wall() == machine.wall_ms
    assert clock.ahead == 0


@pytest.mark.parametrize("jump", [-2 * HOUR, 2 * HOUR, -24 * HOUR, 24 * HOUR, 1_000, -300])
def test_the_time_of_the_run_goes_on_evenly_while_the_wall_clock_is_set(jump: int) -> None:
    machine = Machine()
    jumps: list[int] = []
    clock = machine.clock()
    clock.on_jump.append(jumps.append)
    machine.pass_ms(1_000)
    machine.wall_ms += jump
    assert clock.now() == NOON + 1_000
    clock.look()
    assert (clock.now(), clock.wall(), clock.ahead) == (NOON + 1_000, NOON + 1_000 + jump, jump)
    machine.pass_ms(500)
    clock.look()
    assert (clock.now(), clock.wall()) == (NOON + 1_500, NOON + 1_500 + jump)
    assert jumps == [jump], "told once"


def test_where_nobody_looks_the_wall_clock_is_followed_all_the_same() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall_ms += HOUR
    assert clock.wall() == NOON, "not yet"
    machine.pass_ms(2_000)
    assert clock.wall() == NOON + HOUR + 2_000


def test_a_jump_is_logged_once_and_drift_never(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.clock()
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            machine.wall_ms += 1
            clock.look()
        assert caplog.records == []
        assert abs(clock.wall() - machine.wall_ms) <= 50
        machine.wall_ms -= 2 * HOUR
        for _ in range(3):
            machine.pass_ms(500)
            clock.look()
    (line,) = caplog.records
    assert "clock was set jump_ms=-7199951;" in line.getMessage()


def test_a_look_that_was_interrupted_says_nothing() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.each_reading_ms = 60  # between the two readings the process did not run
    machine.wall_ms += 70
    clock.look()
    assert clock.ahead == 0
    machine.each_reading_ms = 0
    clock.look()
    assert clock.ahead == 70


def test_a_test_sets_the_wall_clock_without_time_passing() -> None:
    fired: list[int] = []
    jumps: list[int] = []
    clock = ManualClock(NOON)
    clock.on_jump.append(jumps.append)
    clock.call_at(NOON + 1_000, lambda: fired.append(clock.now()))
    clock.set_wall(NOON + HOUR)
    assert (clock.now(), clock.wall(), fired, jumps) == (NOON, NOON + HOUR, [], [HOUR])
    clock.advance(1_000)
    assert fired == [NOON + 1_000]
    assert clock.wall() == NOON + HOUR + 1_000
    clock.set_wall(clock.now())
    assert (clock.ahead, jumps) == (0, [HOUR, -HOUR])


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_waiter_is_told_something_or_that_it_is_late() -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    soon, never = loop.create_future(), loop.create_future()
    waits = [loop.create_task(told(clock, clock.now() + 1_000, each, "late")) for each in (soon, never)]
    await settle()
    clock.advance(999)
    tell(soon, "news")
    tell(soon, "more news")
    await settle()
    assert [wait.done() for wait in waits] == [True, False]
    clock.advance(1)
    assert [await wait for wait in waits] == ["news", "late"]


async def test_a_waiter_that_leaves_takes_its_timer_along() -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    wait = loop.create_task(told(clock, clock.now() + 1_000, loop.create_future(), None))
    await settle()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert all(timer.cancelled for _, _, timer in clock._timers)


async def test_an_alarm_ends_a_wait_by_time_or_by_ringing() -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    alarm = Alarm(clock)
    waiting = loop.create_task(alarm.wait(1_000))
    await settle()
    clock.advance(1_000)
    assert await waiting is False
    waiting = loop.create_task(alarm.wait(1_000))
    await settle()
    alarm.ring()
    assert await waiting is True
    alarm.ring()
    assert await alarm.wait(1_000) is True, "rung before the wait began"


async def test_an_alarm_that_was_heard_does_not_end_the_next_wait() -> None:
    clock = ManualClock()
    alarm = Alarm(clock)
    alarm.ring()
    alarm.clear()
    waiting = asyncio.get_running_loop().create_task(alarm.wait(1_000))
    await settle()
    assert not waiting.done()
    clock.advance(1_000)
    assert await waiting is False
