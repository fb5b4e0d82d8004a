# SPDX-License-Identifier: Apache-2.0
"""Retries that wait in the delay levels: counted by group, each record read once."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.broker.state import delayed
from aerobee.broker.state.delayed import Delayed
from aerobee.broker.turns import at_once


def back(bench: Any, group: str, times: int = 1, level: int = 3) -> None:
    place = bench.send().physical_offset
    for _ in range(times):
        send_back(SendBackRequest(group, place, level), bench.broker)


def counted(bench: Any, table: Delayed, group: str) -> tuple[int, bool]:
    at_once(table.look(bench.broker.store, bench.clock.now()))
    return table.count(f"%RETRY%{group}")


@pytest.fixture
def reads(bench: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Offsets of the records that were read."""
    found: list[int] = []
    store = bench.broker.store
    real = store.record_of

    def record_of(topic: str, queue_id: int, offset: int) -> Any:
        found.append(offset)
        return real(topic, queue_id, offset)

    monkeypatch.setattr(store, "record_of", record_of)
    return found


def test_retries_are_counted_by_group_until_they_are_due(bench: Any) -> None:
    table = Delayed()
    back(bench, "billing", 3)
    back(bench, "billing", 1, level=4)
    back(bench, "audit", 2)
    bench.send(properties={"DELAY": "3"})  # a producer's own
    assert counted(bench, table, "billing") == (4, True)
    assert counted(bench, table, "audit") == (2, True)
    bench.clock.advance(11_000)
    assert counted(bench, table, "billing") == (1, True), "the fourth level is 30 s"
    assert counted(bench, table, "audit") == (0, True)
    bench.clock.advance(20_000)
    assert counted(bench, table, "billing") == (0, True)


def test_each_record_is_read_once_however_often_somebody_asks(bench: Any, reads: list[int]) -> None:
    table = Delayed()
    back(bench, "billing", 30)
    for _ in range(5):
        assert counted(bench, table, "billing") == (30, True)
    assert len(reads) == 30
    back(bench, "billing", 2)
    assert counted(bench, table, "billing") == (32, True)
    assert len(reads) == 32


def test_between_two_stops_few_records_are_read(bench: Any, reads: list[int]) -> None:
    back(bench, "billing", 500)
    most = before = 0
    for _ in Delayed().look(bench.broker.store, bench.clock.now()):
        most, before = max(most, len(reads) - before), len(reads)
    assert before == 500
    assert most <= delayed.STEP


def test_more_than_are_remembered_are_said_to_be(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "REMEMBERED", 60)
    monkeypatch.setattr(delayed, "STEP", 7)
    table = Delayed()
    back(bench, "billing", 100)
    count, is_exact = counted(bench, table, "billing")
    assert not is_exact
    assert 60 <= count < 67
    bench.clock.advance(11_000)
    assert counted(bench, table, "billing") == (0, True)


def test_two_looks_at_the_same_time_count_nothing_twice(bench: Any) -> None:
    table = Delayed()
    back(bench, "billing", 200)
    looks = [table.look(bench.broker.store, bench.clock.now()) for _ in range(2)]
    while looks:
        for look in list(looks):
            if next(look, "over") == "over":
                looks.remove(look)
    assert table.count("%RETRY%billing") == (200, True)
    bench.clock.advance(11_000)
    assert counted(bench, table, "billing") == (0, True)


@pytest.mark.parametrize("steps", range(1, 5))
def test_a_look_that_was_overtaken_by_another_reads_nothing_again(
    bench: Any, reads: list[int], steps: int
) -> None:
    table = Delayed()
    back(bench, "billing", 30)
    slow = table.look(bench.broker.store, bench.clock.now())
    for _ in range(steps):
        next(slow)
    back(bench, "billing", 2)
    assert counted(bench, table, "billing") == (32, True)
    at_once(slow)
    assert counted(bench, table, "billing") == (32, True)
    assert len(reads) == 32


def test_a_level_that_was_begun_anew_is_counted_anew(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is shorter than it was: the store's files were taken away."""
    table = Delayed()
    back(bench, "billing", 5)
    assert counted(bench, table, "billing") == (5, True)
    store, real = bench.broker.store, bench.broker.store.max_offset
    monkeypatch.setattr(store, "max_offset", lambda topic, queue: min(2, real(topic, queue)))
    assert counted(bench, table, "billing") == (2, True)


@pytest.mark.parametrize("late_ms", [0, 1])
def test_what_is_due_in_this_moment_waits_no_more(bench: Any, late_ms: int) -> None:
    table = Delayed()
    back(bench, "billing", 2)
    bench.clock.advance(9_999)
    assert counted(bench, table, "billing") == (2, True)
    bench.clock.advance(1 + late_ms)
    assert counted(bench, table, "billing") == (0, True)


def test_a_hole_in_a_level_hides_nothing_behind_it(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a unit that was never written: what is due is looked for on both sides of it."""
    table = Delayed()
    back(bench, "billing", 5)
    unit = bench.broker.store.unit
    monkeypatch.setattr(bench.broker.store, "unit", lambda *at: None if at[2] == 2 else unit(*at))
    assert counted(bench, table, "billing") == (5, True) or table.count("%RETRY%billing")[0] == 2
    bench.clock.advance(11_000)
    assert counted(bench, table, "billing") == (0, True)


def test_a_look_that_finds_more_waiting_than_the_last_one_counts_anew(bench: Any) -> None:
    """The machine's clock was set meanwhile."""
    table, store, began = Delayed(), bench.broker.store, bench.clock.now()
    back(bench, "billing", 3)
    bench.clock.advance(5_000)
    back(bench, "billing", 2)
    for at, count in ((12_000, 2), (1_000, 5), (16_000, 0), (2_000, 5)):
        at_once(table.look(store, began + at))
        assert table.count("%RETRY%billing") == (count, True)
        assert (len(table._counts), len(table._names)) == (count > 0, count > 0), (
            "nothing is kept of what is gone"
        )


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_a_clock_that_was_set_makes_no_retry_due_and_none_wait_longer(bench: Any, jump: int) -> None:
    table = Delayed()
    back(bench, "billing", 3)
    bench.clock.set_wall(bench.clock.wall() + jump)
    back(bench, "billing", 1)
    assert counted(bench, table, "billing") == (4, True)
    bench.clock.advance(10_001)
    assert counted(bench, table, "billing") == (0, True)


def test_what_still_waits_is_not_read_again_when_some_became_due(bench: Any, reads: list[int]) -> None:
    table = Delayed()
    back(bench, "billing", 3)
    bench.clock.advance(5_000)
    back(bench, "billing", 2)
    assert counted(bench, table, "billing") == (5, True)
    bench.clock.advance(6_000)
    assert counted(bench, table, "billing") == (2, True)
    assert len(reads) == 5
