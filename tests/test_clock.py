# SPDX-License-Identifier: Apache-2.0
"""The two times: one that only goes on, and the machine's, which operators and time servers set."""

from __future__ import annotations

import logging

import pytest

from aerobee.clock import ManualClock, SystemClock

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
    clock, jumps = machine.clock(), []
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
    clock, fired, jumps = ManualClock(NOON), [], []
    clock.on_jump.append(jumps.append)
    clock.call_at(NOON + 1_000, lambda: fired.append(clock.now()))
    clock.set_wall(NOON + HOUR)
    assert (clock.now(), clock.wall(), fired, jumps) == (NOON, NOON + HOUR, [], [HOUR])
    clock.advance(1_000)
    assert fired == [NOON + 1_000]
    assert clock.wall() == NOON + HOUR + 1_000
    clock.set_wall(clock.now())
    assert (clock.ahead, jumps) == (0, [HOUR, -HOUR])
