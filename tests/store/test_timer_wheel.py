# SPDX-License-Identifier: Apache-2.0
"""Timed messages: never early, never lost, once each through kills; against a naive model."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.errors import DiskFull, StoreError
from aerobee.store import timer_wheel as module
from aerobee.store.timer_log import DELETE, PLAIN, ROLL, Entry, TimerLog
from aerobee.store.timer_slots import Slot, TimerSlots
from aerobee.store.timer_wheel import ROLL_SECONDS, Due, TimerWheel

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 1_700_000_000_000
SMALL = 16_384  # bytes of one timer-log file: some 300 records
DAY = 24 * 3600 * 1000


class Timed(NamedTuple):
    """A message of the timer topic, as a naive store keeps it."""

    key: int
    target: int  # when it was asked for
    out: int  # TIMER_OUT_MS
    kind: int = PLAIN


def timer_out(target: int) -> int:
    return target - 1000 if target % 1000 == 0 else target - target % 1000


class Driver:
    """What the broker does with the wheel, on a topic that is a list: offset n is message n, at byte 100 n."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = NOW
        self.topic: list[Timed] = []
        self.delivered: list[tuple[int, int]] = []  # (key, when)
        self.recalled: set[int] = set()
        self.cancelled: set[int] = set()
        self.wheel = self.open()

    def open(self) -> TimerWheel:
        return TimerWheel.open(self.root, self.now, log_max=100 * len(self.topic), log_file_bytes=SMALL)

    def send(self, key: int, target: int, kind: int = PLAIN) -> None:
        self.topic.append(Timed(key, target, timer_out(target), kind))

    def read_topic(self, most: int = 1 << 30) -> None:
        wheel = self.wheel
        for offset in range(wheel.queue_offset, min(len(self.topic), wheel.queue_offset + most)):
            timed = self.topic[offset]
            wheel.add(timed.out, 100 * offset, 100, 7, self.now, timed.kind)
            wheel.queue_offset = offset + 1

    def deliver(self, most: int = 1 << 30) -> None:
        while most > 0:
            batch = self.wheel.due(self.now, limit=min(most, 7))
            if not batch and self.wheel.wait_ms(self.now):
                return
            for due in batch:
                self._deliver(due)
            self.wheel.done(len(batch))
            most -= max(1, len(batch))

    def _deliver(self, due: Due) -> None:
        timed = self.topic[due.physical_offset // 100]
        assert due.size == 100
        assert self.now >= due.due_ms + 1000
        if due.counted and self._has_copy(due, timed):
            return
        if due.kind & ROLL:
            self.topic.append(timed)
        elif due.kind & DELETE:
            self.recalled.add(timed.key)
        elif timed.key in self.recalled:
            self.cancelled.add(timed.key)
        else:
            assert self.now >= timed.target, "early"
            self.delivered.append((timed.key, self.now))

    def _has_copy(self, due: Due, timed: Timed) -> bool:
        if due.kind & ROLL:
            return timed in self.topic[due.physical_offset // 100 + 1 :]
        return timed.key in self.keys()

    def tick(self, ms: int) -> None:
        self.now += ms
        self.read_topic()
        self.deliver()
        self.read_topic()  # what was rolled

    def kill(self) -> None:
        """The process ends; mapped pages are the kernel's."""
        self.wheel = self.open()

    def keys(self) -> list[int]:
        return [key for key, _ in self.delivered]


@pytest.fixture
def small_wheel() -> Iterator[None]:
    """An hour of slots instead of two weeks: less to copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TimerSlots", partial(TimerSlots, slots=3600))
        yield


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


# -- when ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [1, 200, 999, 1000, 1001, 5000, 59_999, 3_600_000])
def test_a_message_comes_at_its_time_or_within_a_second(driver: Driver, late: int) -> None:
    target = NOW + late
    driver.send(1, target)
    driver.tick(0)
    for at in (target - 1, target, target + 999):
        driver.now = at
        driver.deliver()
        if driver.delivered:
            break
    assert driver.keys() == [1]
    assert target <= driver.delivered[0][1] <= target + 999


def test_messages_of_one_second_come_in_order_of_arrival(driver: Driver) -> None:
    for key in range(1000):
        driver.send(key, NOW + 2_500)
    driver.tick(0)
    assert driver.wheel.pending == 1000
    driver.tick(3_000)
    assert driver.keys() == list(range(1000))
    assert driver.wheel.pending == 0


def test_what_arrives_late_comes_with_the_next_second(driver: Driver) -> None:
    driver.send(1, NOW + 1000)
    driver.now += 10_000  # its driver was busy
    driver.deliver()
    driver.read_topic()
    driver.tick(1000)
    assert driver.keys() == [1]


def test_a_second_under_delivery_takes_no_more_messages(driver: Driver) -> None:
    for key in range(20):
        driver.send(key, NOW + 500)
    driver.tick(0)
    driver.now += 1000
    assert len(driver.wheel.due(driver.now, limit=5)) == 5
    driver.send(99, NOW + 500)
    driver.read_topic()
    driver.deliver()
    assert driver.keys() == list(range(20))
    driver.tick(1000)
    assert driver.keys() == [*range(20), 99]


def test_due_gives_the_same_until_told_done(driver: Driver) -> None:
    for key in range(5):
        driver.send(key, NOW + 500)
    driver.tick(0)
    driver.now += 1000
    first = driver.wheel.due(driver.now, limit=2)
    assert driver.wheel.due(driver.now, limit=2) == first
    driver.wheel.done(1)
    assert driver.wheel.due(driver.now, limit=2)[0] == first[1]
    with pytest.raises(ValueError, match="5 done, but 4 were due"):
        driver.wheel.done(5)


def test_the_work_of_one_call_is_bounded(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORK", 100)
    monkeypatch.setattr(module, "_RECORD_WORK", 1)
    for key in range(350):
        driver.send(key, NOW + 500)
    driver.tick(0)
    driver.now += 1000
    calls = 0
    while not driver.wheel.due(driver.now):
        calls += 1
        assert driver.wheel.wait_ms(driver.now) == 0
    assert calls == 3
    driver.deliver()
    assert driver.keys() == list(range(350))


def test_wait_ms_says_when_the_next_second_is_over(driver: Driver) -> None:
    assert driver.wheel.due(NOW) == []
    assert driver.wheel.wait_ms(NOW) == 1000
    assert driver.wheel.wait_ms(NOW + 400) == 600


def test_a_clock_set_back_neither_repeats_nor_blocks(driver: Driver) -> None:
    driver.send(1, NOW + 5_000)
    driver.tick(0)
    driver.tick(10_000)
    assert driver.keys() == [1]
    driver.now = NOW
    driver.send(2, NOW + 3_000)
    for _ in range(20):
        driver.tick(1000)
    assert driver.keys() == [1, 2]
    assert driver.delivered[1][1] == NOW + 3_000
    assert driver.wheel.pending == 0


@pytest.mark.slow
def test_after_a_long_stop_everything_overdue_comes(driver: Driver) -> None:
    for day in range(2):
        driver.send(day, NOW + day * DAY + 1500)
    driver.tick(0)
    driver.wheel.close()
    driver.now += 30 * DAY
    driver.wheel = driver.open()
    driver.tick(0)
    assert driver.keys() == [0, 1]
    driver.send(3, driver.now + 2000)
    driver.tick(0)
    driver.tick(3000)
    assert driver.keys() == [0, 1, 3]


# -- far away --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("days", [2, 2.1, 3, 7, 15, 40])
def test_a_far_message_is_stored_again_on_the_way_and_comes_once(driver: Driver, days: float) -> None:
    target = NOW + int(days * DAY) + 1700
    driver.send(1, target)
    driver.tick(0)
    while driver.now < target - 3600_000:
        driver.tick(3600_000)
    rolls = len(driver.topic) - 1
    assert 1 <= rolls <= days / 2 + 2
    longest = ROLL_SECONDS * 1000
    assert longest < 72 * 3600_000, "a roll comes before retention takes the message"
    driver.now = target - 1
    driver.tick(0)
    assert driver.keys() == []
    driver.tick(1000)
    assert driver.keys() == [1]
    assert driver.wheel.pending == 0


@pytest.mark.slow
def test_old_files_of_the_timer_log_are_deleted(driver: Driver) -> None:
    files = driver.root / "timerlog"
    for step in range(60):
        for key in range(100):
            driver.send(step * 100 + key, driver.now + 60_000)
        driver.tick(3600_000)
        driver.wheel.flush()
    assert sorted(driver.keys()) == list(range(6000))
    used = len(list(files.iterdir()))
    assert used <= 100 * (ROLL_SECONDS // 3600 + 2) * 52 / SMALL + 2
    assert not (files / f"{0:020d}").exists()
    driver.wheel.close()
    driver.wheel = driver.open()
    driver.send(6000, driver.now + 5_000)
    driver.tick(0)
    driver.tick(6_000)
    assert driver.keys()[-1] == 6000


# -- recall ----------------------------------------------------------------------------------------------


def test_deletions_come_before_the_messages_of_their_second(driver: Driver) -> None:
    for key in range(10):
        driver.send(key, NOW + 5_000)
    driver.send(3, NOW + 5_000, PLAIN | DELETE)
    driver.tick(0)
    assert driver.wheel.pending == 9
    driver.tick(10_000)
    assert driver.keys() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert driver.cancelled == {3}
    assert driver.wheel.pending == 0


def test_deletions_are_seen_again_after_a_kill_in_the_middle_of_their_second(driver: Driver) -> None:
    for key in range(10):
        driver.send(key, NOW + 5_000)
    driver.send(8, NOW + 5_000, PLAIN | DELETE)
    driver.tick(0)
    driver.now += 6_000
    driver.deliver(most=4)  # the deletion and three messages
    driver.recalled.clear()  # that was the driver's memory
    driver.kill()
    driver.tick(0)
    assert driver.keys() == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    assert driver.wheel.pending == 0


# -- what survives ---------------------------------------------------------------------------------------


def test_nothing_is_on_disk_before_the_first_timed_message(driver: Driver) -> None:
    driver.tick(5000)
    driver.wheel.flush()
    driver.wheel.close()
    assert list(driver.root.rglob("*")) == []


def test_a_clean_stop_continues_where_it_was(driver: Driver) -> None:
    for key in range(100):
        driver.send(key, NOW + key * 100)
    driver.tick(0)
    driver.tick(5_000)
    seen = len(driver.keys())
    driver.wheel.close()
    driver.wheel = driver.open()
    assert driver.wheel.queue_offset == 100
    assert driver.wheel.pending == 100 - seen
    driver.tick(10_000)
    assert driver.keys() == list(range(100))


def test_a_full_disk_refuses_the_message_and_takes_it_later(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(310):  # one file, nearly
        driver.send(key, NOW + 5_000)
    driver.tick(0)
    real = os.posix_fallocate

    def full(fd: int, start: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    for key in range(310, 700):
        driver.send(key, NOW + 7_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        for _ in range(2):
            with pytest.raises(DiskFull):
                driver.read_topic()
        assert driver.wheel.pending == driver.wheel.queue_offset
    assert os.posix_fallocate is real
    driver.tick(0)
    driver.tick(8_000_000)
    assert driver.keys() == list(range(700))


def test_a_failed_sync_is_told_and_tried_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.send(1, NOW + 5_000)
    driver.tick(0)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(StoreError, match="Input/output error"):
            driver.wheel.flush()
    driver.wheel.flush()
    assert (driver.root / "config" / "timercheck").stat().st_size == 4096


def test_a_wheel_that_does_not_fit_its_log_is_built_anew(driver: Driver) -> None:
    for key in range(1000):
        driver.send(key, NOW + (key % 50) * 1000 + 500)
    driver.tick(0)
    driver.wheel.flush()
    (driver.root / "timerwheel").unlink()  # its pages never reached the disk
    driver.kill()
    assert driver.wheel.pending == 1000
    driver.tick(60_000)
    assert sorted(driver.keys()) == list(range(1000))


def test_records_of_messages_lost_with_the_power_are_dropped(driver: Driver) -> None:
    for key in range(10):
        driver.send(key, NOW + 5_000)
    driver.tick(0)
    driver.wheel.flush()
    del driver.topic[6:]  # the commit log was cut
    driver.kill()
    assert driver.wheel.queue_offset == 6
    for key in range(20, 25):  # new messages at the offsets of the lost ones
        driver.send(key, NOW + 5_000)
    driver.tick(0)
    driver.tick(10_000)
    assert driver.keys() == [0, 1, 2, 3, 4, 5, 20, 21, 22, 23, 24]


@pytest.mark.slow
@pytest.mark.usefixtures("small_wheel")
def test_the_timer_log_cut_at_every_byte_of_its_last_records_loses_nothing(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "a")
    for key in range(5):
        driver.send(key, NOW + 5_000)
    driver.read_topic(2)
    driver.wheel.flush()
    driver.read_topic()
    (file,) = (driver.root / "timerlog").iterdir()
    data = file.read_bytes()
    for cut in range(2 * 52, 5 * 52 + 1):
        copy = Driver(tmp_path / f"{cut}")
        shutil.copytree(driver.root, copy.root, dirs_exist_ok=True)
        (copy.root / "timerlog" / file.name).write_bytes(data[:cut].ljust(len(data), b"\0"))
        copy.topic = list(driver.topic)
        copy.kill()
        copy.tick(0)
        copy.tick(10_000)
        assert sorted(copy.keys()) == [0, 1, 2, 3, 4]
        copy.wheel.close()
        shutil.rmtree(copy.root)


# -- the files -------------------------------------------------------------------------------------------


def test_the_files_are_laid_out_as_rocketmqs(tmp_path: Path) -> None:
    wheel = TimerWheel.open(tmp_path, NOW)
    second = NOW // 1000 + 10
    wheel.add(second * 1000, 4711, 300, -5, NOW + 1)
    wheel.add(second * 1000, 5011, 200, 6, NOW + 2, PLAIN | DELETE)
    wheel.queue_offset = 2
    wheel.close()
    log_file = tmp_path / "timerlog" / f"{0:020d}"
    assert log_file.stat().st_size == 104_857_600
    with log_file.open("rb") as file:
        data = file.read(156)
    fields = struct.Struct(">iqiqiqiiq")
    assert fields.unpack_from(data, 0) == (52, -1, 1, NOW + 1, 9999, 4711, 300, -5, 0)
    assert fields.unpack_from(data, 52) == (52, 0, 5, NOW + 2, 9998, 5011, 200, 6, 0)
    assert data[104:] == bytes(52)
    slots = (tmp_path / "timerwheel").read_bytes()
    assert len(slots) == 38_707_200
    assert struct.unpack_from(">qqqii", slots, second % 1_209_600 * 32) == (second, 0, 52, 0, 0)
    check = (tmp_path / "config" / "timercheck").read_bytes()
    assert len(check) == 4096
    assert struct.unpack_from(">qqqq", check) == (NOW, 104, 2, 2)


def test_a_file_of_the_log_ends_with_a_blank_and_the_next_goes_on(tmp_path: Path) -> None:
    log = TimerLog(tmp_path, SMALL)
    places = [log.append(Entry(52, -1, PLAIN, NOW, 1, n, 1, 0)) for n in range(400)]
    per_file = next(n for n, place in enumerate(places) if place >= SMALL)
    assert places[per_file] == SMALL
    left = SMALL - per_file * 52
    assert 16 <= left < 52 + 16
    blank = struct.unpack_from(">iqI", (tmp_path / f"{0:020d}").read_bytes(), per_file * 52)
    assert blank == (left, 0, 0xCBD43194)
    again = TimerLog(tmp_path, SMALL)
    assert [entry.physical_offset for _, entry in again.scan(0)] == list(range(400))
    assert again.before(SMALL) == places[per_file - 1]


def test_a_slot_of_an_earlier_turn_of_the_wheel_is_empty(tmp_path: Path) -> None:
    slots = TimerSlots(tmp_path / "wheel")
    assert slots.get(5).last == -1
    slots.reserve(5)
    slots.put(5, Slot(1, 2, 3))
    assert slots.get(5) == (1, 2, 3, 0)
    assert slots.get(5 + 1_209_600).last == -1
    assert list(slots.since(5)) == [(5, (1, 2, 3, 0))]
    assert list(slots.since(6)) == []
    slots.close()


# -- against a model -------------------------------------------------------------------------------------

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 8_000)),
        st.tuples(st.just("recall"), st.integers(0, 30)),
        st.tuples(st.just("read"), st.integers(1, 10)),
        st.tuples(st.just("advance"), st.integers(1, 4_000)),
        st.tuples(st.just("deliver"), st.integers(1, 10)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.mark.slow
@pytest.mark.usefixtures("small_wheel")
@settings(max_examples=150, deadline=None, suppress_health_check=CALM)
@given(steps)
def test_any_mix_of_sends_recalls_kills_and_restarts_delivers_each_message_once(
    steps: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder))
        targets: list[int] = []
        recalled: set[int] = set()
        for action, value in steps:
            if action == "send":
                targets.append(driver.now + value)
                driver.send(len(targets) - 1, targets[-1])
            elif action == "recall" and value < len(targets) and driver.now < targets[value] - 2_000:
                recalled.add(value)
                driver.send(value, targets[value], PLAIN | DELETE)
                driver.read_topic()
            elif action == "read":
                driver.read_topic(value)
            elif action == "advance":
                driver.now += value
            elif action == "deliver":
                driver.deliver(value)
            elif action == "flush":
                driver.wheel.flush()
            elif action == "kill":
                driver.kill()
            elif action == "restart":
                driver.wheel.close()
                driver.wheel = driver.open()
        for _ in range(30):
            driver.tick(1000)
        assert sorted(driver.keys()) == [key for key in range(len(targets)) if key not in recalled]
        assert driver.wheel.pending == 0
        assert driver.wheel.queue_offset == len(driver.topic)
        driver.wheel.close()


@pytest.mark.slow
@pytest.mark.usefixtures("small_wheel")
@settings(max_examples=100, deadline=None, suppress_health_check=CALM)
@given(steps, st.integers(0, 3))
def test_power_loss_repeats_perhaps_but_never_loses(steps: list[tuple[str, int]], survivors: int) -> None:
    """At a power loss what was synced is there; of the files each may also be as it was later."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder) / "live")
        sent = 0
        synced = Path(folder) / "synced"
        for action, value in steps:
            if action == "send":
                driver.send(sent, driver.now + value)
                sent += 1
            elif action == "read":
                driver.read_topic(value)
            elif action == "advance":
                driver.now += value
            elif action == "deliver":
                driver.deliver(value)
            elif action == "flush":
                driver.wheel.flush()
                if driver.root.exists():
                    shutil.copytree(driver.root, synced, dirs_exist_ok=True)
        driver.wheel = None  # type: ignore[assignment]
        live, driver.root = driver.root, Path(folder) / "after"
        if synced.exists():
            shutil.copytree(synced, driver.root)
        if (live / "config").exists():  # synced whenever it is written
            shutil.copytree(live / "config", driver.root / "config", dirs_exist_ok=True)
        for bit, name in ((1, "timerlog"), (2, "timerwheel")):
            if survivors & bit and (live / name).exists():
                copy: Any = shutil.copytree if (live / name).is_dir() else shutil.copy
                driver.root.mkdir(exist_ok=True)
                copy(live / name, driver.root / name, **({"dirs_exist_ok": True} if bit == 1 else {}))
        driver.wheel = driver.open()
        for _ in range(30):
            driver.tick(1000)
        assert set(driver.keys()) == set(range(sent))
        driver.wheel.close()


def test_a_record_that_vanishes_while_its_second_is_delivered_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REMEMBERED", 1)
    wheel = TimerWheel.open(tmp_path, NOW)
    for key in (10, 20, 30):
        wheel.add(NOW + 1000, key, 100, 0, NOW)
    read = wheel._log.read
    reads = iter([True, True, True])  # the walk; what is read again afterwards is gone
    monkeypatch.setattr(wheel._log, "read", lambda position: read(position) if next(reads, False) else None)
    batch = wheel.due(NOW + 3000)
    assert [due.physical_offset for due in batch] == [-1, -1, 30]
    wheel.done(3)
    assert wheel.due(NOW + 3000) == []
    wheel.close()
