# SPDX-License-Identifier: Apache-2.0
"""What a wheel makes of seconds in doubt, clocks that are set, chains that end early, and files that were lost."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, StoreError
from aerobee.store import platform
from aerobee.store import timer_wheel as module
from aerobee.store.timer_log import DELETE, PLAIN, RECORD_BYTES
from aerobee.store.timer_wheel import TimerWheel
from tests.own_files import is_under

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000
SECOND = NOW // 1000
DAY_S = 24 * 3600
THREE = 3 * RECORD_BYTES + 16  # three records and the word that ends a file
COUNT = 10


class Wheels:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._opened: list[TimerWheel] = []

    def open(self, now: int = NOW, **named: Any) -> TimerWheel:
        wheel = TimerWheel.open(self.root, now, **named)
        self._opened.append(wheel)
        return wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheels:
    monkeypatch.setattr(platform, "sync_data", lambda fd: None)
    return Wheels(tmp_path)


def due(wheel: TimerWheel, now: int, limit: int = 512) -> list[tuple[int, bool]]:
    """Offsets that are due, and whether they were counted as delivered."""
    found = wheel.due(now, limit)
    while not found and not wheel.wait_ms(now):
        found = wheel.due(now, limit)
    return [(each.physical_offset, each.counted) for each in found]


def test_a_second_in_doubt_is_told_once_and_counted_anew(wheels: Wheels) -> None:
    wheel = wheels.open()
    for n in range(4):
        wheel.add(NOW, 100 + n, 10, 0, NOW)
    assert len(due(wheel, NOW + 1_000)) == 4
    wheel.done(3)
    wheel.flush()
    again = wheels.open()  # after a kill
    assert (again.pending, dict(again.slots())) == (1, {SECOND: 1})
    assert due(again, NOW + 1_000, 2) == [(100, True), (101, True)]
    assert again.pending == 4
    again.done(2)
    assert due(again, NOW + 1_000, 2) == [(102, True), (103, False)]
    again.done(2)
    assert (again.pending, again._slots.get(SECOND).delivered) == (0, 4)
    again.add(NOW + 3_000, 200, 10, 0, NOW + 2_000)
    assert again.due(NOW) == [], "the clock was set back"
    assert again.progress == NOW
    assert due(again, NOW + 1_000) == [], "what this run delivered is delivered"
    assert due(again, NOW + 4_000) == [(200, False)]


def test_deletions_come_first_each_in_order_of_arrival(wheels: Wheels) -> None:
    wheel = wheels.open()
    for n, kind in enumerate((PLAIN, PLAIN | DELETE, PLAIN, PLAIN | DELETE, PLAIN)):
        wheel.add(NOW, 100 + n, 10, 0, NOW, kind)
    assert wheel.pending == 1, "as RocketMQ counts"
    assert due(wheel, NOW + 1_000) == [(101, False), (103, False)]
    wheel.done(1)
    assert due(wheel, NOW + 1_000) == [(103, False)]
    wheel.done(1)
    assert due(wheel, NOW + 1_000) == [(100, False), (102, False), (104, False)]
    wheel.done(3)
    assert (wheel.pending, wheel._entries, wheel.progress) == (0, {}, NOW + 1_000)


def test_a_long_second_takes_more_than_one_call(wheels: Wheels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORK", 2 * module._RECORD_WORK + 1)
    wheel = wheels.open()
    for n in range(7):
        wheel.add(NOW, 100 + n, 10, 0, NOW)
    calls = 1
    while not wheel.due(NOW + 1_000):
        assert wheel.wait_ms(NOW + 1_000) == 0
        calls += 1
    assert 3 <= calls <= 5


def test_a_chain_that_leads_into_another_second_ends_there(wheels: Wheels) -> None:
    wheel = wheels.open()
    wheel.add(NOW + 5_000, 100, 10, 0, NOW)
    wheel.add(NOW, 101, 10, 0, NOW)
    slot = wheel._slots.get(SECOND)
    wheel._slots.put(SECOND, slot._replace(last=wheel._slots.get(SECOND + 5).last))
    assert due(wheel, NOW + 1_000) == []
    assert due(wheel, NOW + 6_000) == [(100, False)]


def test_a_message_of_a_clock_set_back_by_a_month_has_a_time_that_fits(wheels: Wheels) -> None:
    wheel = wheels.open()
    wheel.add(NOW, 100, 10, 0, NOW)
    assert due(wheel, NOW + 1_000) == [(100, False)]  # which holds the second
    wheel.add(NOW + 5_000, 101, 10, 0, NOW - 30 * DAY_S * 1000)
    wheel.done(1)
    assert due(wheel, NOW + 6_000) == [(101, False)]


def test_what_waits_for_two_days_is_in_the_log_for_as_long(wheels: Wheels) -> None:
    wheel = wheels.open(log_file_bytes=THREE)
    for n in range(10):
        wheel.add(NOW + (2 * DAY_S - 5) * 1000, 100 + n, 10, 0, NOW)
    for hours in (1, 24, 47):
        assert due(wheel, NOW + hours * 3_600_000) == []
        wheel._dirty = True
        wheel.flush()
    later = NOW + (2 * DAY_S - 4) * 1000
    assert [offset for offset, _ in due(wheel, later)] == list(range(100, 110))
    wheel.done(10)
    for n in range(2):
        wheel.add(later + 10_000, 200 + n, 10, 0, later)
    assert due(wheel, later + 9_000) == []
    wheel.flush()
    assert len(list((wheels.root / "timerlog").iterdir())) == 1, "and then it goes"


def test_every_file_of_the_log_since_the_last_flush_is_synced(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(fd: int) -> None:
        if is_under(wheels.root, fd):
            synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), wheels.root))

    monkeypatch.setattr(platform, "sync_data", sync)
    wheel = wheels.open(log_file_bytes=THREE)
    wheel.add(NOW + 60_000, 100, 10, 0, NOW)
    wheel.flush()
    synced.clear()
    for n in range(1, 8):
        wheel.add(NOW + 60_000, 100 + n, 10, 0, NOW)
    wheel.flush()
    files = [f"timerlog/{n * THREE:020d}" for n in range(3)]
    assert synced == [*files, "timerwheel", "config/timercheck"]
    synced.clear()
    wheel.lag = 5
    wheel.flush()
    assert synced == [files[2], "timerwheel", "config/timercheck"], "what was synced is"


@pytest.mark.parametrize(("log_max", "left"), [(800, 8), (799, 8), (700, 7), (100, 1), (1, 1), (0, 0)])
def test_the_queue_is_read_again_from_the_first_message_that_was_lost(
    wheels: Wheels, log_max: int, left: int
) -> None:
    wheel = wheels.open(log_file_bytes=THREE)
    for n in range(8):
        wheel.add(NOW + 60_000, 100 * n, 100, 0, NOW)
        wheel.queue_offset = n + 1
    wheel.flush()
    again = wheels.open(log_max=log_max, log_file_bytes=THREE)
    assert (again.queue_offset, again.pending) == (left, left)


def test_a_lag_of_ten_years_is_believed_and_no_longer_one(wheels: Wheels) -> None:
    for lag, found in ((0, 0), (1, 1), (module._MAX_LAG_MS, module._MAX_LAG_MS), (module._MAX_LAG_MS + 1, 0)):
        wheel = wheels.open()
        wheel.lag = lag
        wheel.add(NOW + 60_000, 1 << 40, 100, 0, NOW)
        wheel.close()
        assert wheels.open().lag == found


def test_messages_lost_with_the_log_are_read_again_from_their_offset(wheels: Wheels) -> None:
    wheel = wheels.open(log_file_bytes=THREE)
    for n in range(8):
        wheel.add(NOW + 60_000, 100 * n, 100, 0, NOW)
        wheel.queue_offset = n + 1
    wheel.flush()
    again = wheels.open(log_max=500, log_file_bytes=THREE)
    assert (again.queue_offset, again.pending) == (5, 5)
    again.add(NOW + 60_000, 400, 100, 0, NOW)
    assert again.pending == 5, "it is known"
    again.add(NOW + 60_000, 500, 100, 0, NOW)
    assert again.pending == 6
    assert [offset for offset, _ in due(again, NOW + 61_000)] == [0, 100, 200, 300, 400, 500]


def test_a_message_that_is_late_is_due_with_the_second_that_is_next(wheels: Wheels) -> None:
    wheel = wheels.open()
    wheel.add(NOW - 5_000, 100, 10, 0, NOW + 500)
    wheel.add(NOW, 101, 10, 0, NOW + 999)
    assert due(wheel, NOW + 1_000) == [(100, False), (101, False)]


def test_from_the_first_message_on_a_kill_finds_how_far_it_was(wheels: Wheels) -> None:
    wheel = wheels.open()
    wheel.queue_offset, wheel.lag = 7, 9
    wheel.add(NOW + 2_000, 100, 10, 0, NOW)
    again = wheels.open(NOW + 60_000)  # nothing was flushed
    assert (again.progress, again.queue_offset, again.lag, again.pending) == (NOW, 7, 9, 1)


@pytest.mark.parametrize(
    ("number", "refusal"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StoreError)]
)
def test_a_first_message_without_the_word_from_where_to_look_is_not_taken(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch, number: int, refusal: type[StoreError]
) -> None:
    """After a kill nobody would know that it waits."""

    def broken(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    wheel = wheels.open()
    with monkeypatch.context() as patched:
        patched.setattr(platform, "sync_data", broken)
        for _ in range(2):
            with pytest.raises(refusal, match="timercheck"):
                wheel.add(NOW + 2_000, 100, 10, 0, NOW)
    assert (wheel.pending, dict(wheel.slots())) == (0, {})
    assert not (wheels.root / "timerwheel").exists()
    wheel.add(NOW + 2_000, 100, 10, 0, NOW)
    assert due(wheel, NOW + 3_000) == [(100, False)]


def test_a_clock_that_is_set_back_is_followed_by_what_is_added_and_not_while_a_second_is_delivered(
    wheels: Wheels,
) -> None:
    wheel = wheels.open()
    wheel.add(NOW - 4_000, 100, 10, 0, NOW - 5_000)
    assert (wheel.progress, dict(wheel.slots())) == (NOW - 5_000, {SECOND - 4: 1})
    assert due(wheel, NOW) == [(100, False)]
    assert due(wheel, NOW - 60_000) == [(100, False)], "the same until it is done"
    assert wheel.wait_ms(NOW - 60_000) == 0
    wheel.done(1)
    assert (wheel.progress, wheel.pending) == (NOW - 3_000, 0)


def test_a_second_that_comes_again_gives_out_what_is_new_in_it(wheels: Wheels) -> None:
    wheel = wheels.open()
    for n, kind in enumerate((PLAIN, PLAIN, PLAIN | DELETE)):
        wheel.add(NOW, 100 + n, 10, 0, NOW, kind)
    for count in (1, 2):
        assert len(due(wheel, NOW + 1_000)) == count
        wheel.done(count)
    assert wheel.pending == 0
    assert wheel.due(NOW) == []
    wheel.add(NOW, 200, 10, 0, NOW)
    assert due(wheel, NOW + 1_000) == [(102, False)], "deletions once more: what they mean may still wait"
    wheel.done(1)
    assert wheel.pending == 1
    assert due(wheel, NOW + 1_000) == [(200, False)]
    wheel.done(1)
    assert wheel.pending == 0


def test_a_second_whose_messages_are_all_recalled_has_none_waiting(wheels: Wheels) -> None:
    wheel = wheels.open()
    wheel.add(NOW, 100, 10, 0, NOW)
    wheel.add(NOW, 101, 10, 0, NOW, PLAIN | DELETE)
    wheel.add(NOW + 1_000, 102, 10, 0, NOW)
    assert dict(wheel.slots()) == {SECOND + 1: 1}


def test_nothing_is_lost_when_nothing_was_done_of_a_second_half_looked_at(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORK", 2 * module._RECORD_WORK)
    wheel = wheels.open()
    for n in range(9):
        wheel.add(NOW, 100 + n, 10, 0, NOW)
    assert wheel.due(NOW + 1_000) == []
    wheel.done(0)
    assert [offset for offset, _ in due(wheel, NOW + 1_000)] == list(range(100, 109))
    with pytest.raises(ValueError, match="10 done, but 9 were due"):
        wheel.done(10)
    with pytest.raises(ValueError, match="-1 done"):
        wheel.done(-1)


def test_one_call_looks_at_so_many_seconds_and_no_more(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORK", 100)
    wheel = wheels.open()
    wheel.add(NOW + 5_000_000, 100, 10, 0, NOW)
    assert wheel.due(NOW + 6_000_000) == []
    assert NOW + 90_000 <= wheel.progress <= NOW + 110_000


def test_what_is_done_is_synced_by_the_next_flush(wheels: Wheels, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheels.open()
    wheel.add(NOW, 100, 10, 0, NOW)
    wheel.flush()
    assert len(due(wheel, NOW + 1_000)) == 1
    wheel.done(1)
    synced: list[int] = []
    monkeypatch.setattr(platform, "sync_data", lambda fd: is_under(wheels.root, fd) and synced.append(fd))
    wheel.flush()
    assert len(synced) == 3
    again = wheels.open(NOW)
    assert again.progress == NOW + 1_000


def test_what_came_while_a_flush_was_under_way_is_synced_by_the_next(
    wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(fd: int) -> None:
        if is_under(wheels.root, fd):
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(platform, "sync_data", sync)
    wheel = wheels.open(log_file_bytes=THREE)
    wheel.add(NOW + 60_000, 100, 10, 0, NOW)
    flushing = wheel.prepare_flush()
    for n in range(1, 5):  # two of them into a second file
        wheel.add(NOW + 60_000, 100 + n, 10, 0, NOW)
    flushing.run()
    synced.clear()
    wheel.flush()
    assert synced == [f"{0:020d}", f"{THREE:020d}", "timerwheel", "timercheck"]


def test_a_recall_told_again_after_the_clock_was_set_back_is_counted_once(wheels: Wheels) -> None:
    """Also when something else was delivered on the way to it."""
    wheel, later = wheels.open(), NOW + 10_000
    wheel.add(later, 100, 10, 0, NOW)
    wheel.add(later, 101, 10, 0, NOW, PLAIN | DELETE)
    assert due(wheel, later + 1_000) == [(101, False)]
    wheel.done(1)
    assert due(wheel, later + 1_000) == [(100, False)]
    wheel.done(1)
    assert wheel.pending == 0
    assert wheel.due(NOW) == [], "the clock was set back"
    wheel.add(NOW + 2_000, 102, 10, 0, NOW)
    assert due(wheel, NOW + 3_000) == [(102, False)]
    wheel.done(1)
    assert wheel.pending == 0
    assert due(wheel, later + 1_000) == [(101, False)]
    wheel.done(1)
    assert wheel.pending == 0
