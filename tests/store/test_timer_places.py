# SPDX-License-Identifier: Apache-2.0
"""The timer wheel by numbers: where a message is put, what is due and done, what outlives a stop, when it is synced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.store import platform
from aerobee.store.timer_log import ROLL
from aerobee.store.timer_wheel import Due, TimerWheel
from tests.own_files import is_under

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 24 * 3600


def slots_of(wheel: TimerWheel) -> dict[int, int]:
    return dict(wheel.slots())


@pytest.mark.parametrize(
    ("ahead_s", "put_s"),
    [
        (-5, 0),  # late: with the next second
        (0, 0),
        (1, 1),
        (2 * DAY_S - 1, 2 * DAY_S - 1),
        (2 * DAY_S, DAY_S),  # just past what the wheel takes: half way, so that the rest is worth it
        (2 * DAY_S + 57_599, DAY_S),
        (2 * DAY_S + 57_600, 2 * DAY_S),
        (30 * DAY_S, 2 * DAY_S),
    ],
)
def test_a_message_too_far_ahead_is_put_where_it_will_be_stored_again(
    tmp_path: Path, ahead_s: int, put_s: int
) -> None:
    now = 1_700_000_000_000
    wheel = TimerWheel.open(tmp_path, now)
    wheel.add(now + ahead_s * 1000, 100, 10, 0, now)
    assert slots_of(wheel) == {now // 1000 + put_s: 1}
    due_at = now + (put_s + 1) * 1000
    found: list[Due] = []
    while not found:
        found = wheel.due(due_at)
    (due,) = found
    assert (due.physical_offset, due.size, due.due_ms) == (100, 10, now + put_s * 1000)
    assert bool(due.kind & ROLL) is (put_s != max(0, ahead_s))
    assert not due.counted
    wheel.close()


def test_what_waits_and_how_far_the_clock_lags_outlives_a_stop(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    wheel = TimerWheel.open(tmp_path, now)
    wheel.lag = 77
    wheel.queue_offset = 5
    for n in range(3):
        wheel.add(now + 9_000, 100 + n, 10, 0, now)
    wheel.add(now + 20_000, 200, 10, 0, now)
    assert (wheel.pending, wheel.progress, wheel.wait_ms(now)) == (4, now, 1_000)
    wheel.close()
    again = TimerWheel.open(tmp_path, now + 5_000)
    assert (again.pending, again.progress, again.lag, again.queue_offset) == (4, now, 77, 5)
    assert slots_of(again) == {now // 1000 + 9: 3, now // 1000 + 20: 1}
    again.add(now + 9_000, 200, 10, 0, now)
    assert again.pending == 4, "one that the log had already is read again after a crash"
    again.close()


def test_done_is_believed_for_what_was_due_and_no_more(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    wheel = TimerWheel.open(tmp_path, now)
    for n in range(3):
        wheel.add(now, 100 + n, 10, 0, now)
    due_at = now + 1_000
    while len(wheel.due(due_at, 2)) < 2:
        pass
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match=f"{wrong} done, but 3 were due"):
            wheel.done(wrong)
    wheel.done(2)
    assert (wheel.pending, wheel.wait_ms(due_at)) == (1, 0)
    assert slots_of(wheel) == {now // 1000: 1}
    assert [due.physical_offset for due in wheel.due(due_at)] == [102]
    wheel.done(1)
    assert (wheel.pending, wheel.progress, slots_of(wheel)) == (0, now + 1_000, {})
    assert wheel.due(due_at) == []
    wheel.close()


def test_a_wheel_that_stands_still_is_synced_seldom_and_one_that_moved_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000_000
    synced: list[int] = []
    monkeypatch.setattr(platform, "sync_data", lambda fd: is_under(tmp_path, fd) and synced.append(fd))
    wheel = TimerWheel.open(tmp_path, now)
    wheel.flush()
    assert not synced, "nothing was ever added"
    wheel.add(now + DAY_S * 1000, 100, 10, 0, now)
    wheel.flush()
    assert synced
    synced.clear()
    wheel.flush()
    assert not synced
    dropped = wheel.prepare_flush()
    dropped.drop()
    wheel.lag = wheel.lag
    wheel.flush()
    first = len(synced)
    wheel.lag = 5
    wheel.prepare_flush().drop()
    wheel.flush()
    assert len(synced) > first, "what was dropped is still to be done"
    synced.clear()
    for later_s, moved in ((59, False), (60, True), (61, False)):
        while wheel.progress < now + later_s * 1000:
            wheel.due(now + later_s * 1000)
        wheel.flush()
        assert bool(synced) is moved, later_s
        synced.clear()
    wheel.close()
