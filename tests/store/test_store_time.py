# SPDX-License-Identifier: Apache-2.0
"""Offsets by time: LOWER the first message at or after it, UPPER the last at or before it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.store.message_store import Boundary, MessageStore


@pytest.fixture
def start(kit: Any) -> int:
    return kit.clock.now()


@pytest.fixture
def store(kit: Any, start: int) -> MessageStore:
    """Stored at 0, 10, 10, 10, 20 ms."""
    store = kit.open()
    for wait in (0, 10, 0, 0, 10):
        kit.clock.advance(wait)
        store.append(kit.message())
    return store


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [(-5, 0, 0), (0, 0, 0), (5, 1, 0), (10, 1, 3), (15, 4, 3), (20, 4, 4), (25, 5, 4)],
)
def test_search_by_time(store, start, time, lower, upper):
    assert store.offset_by_time("orders", 0, start + time) == lower
    assert store.offset_by_time("orders", 0, start + time, Boundary.UPPER) == upper


def test_a_queue_that_does_not_exist_has_offset_zero(store, start):
    assert store.offset_by_time("none", 0, start) == 0
    assert store.offset_by_time("none", 0, start, Boundary.UPPER) == 0
    assert store.store_time("none", 0, 0) == -1


def test_the_answer_is_within_what_is_left(kit, start):
    store = kit.open()
    for _ in range(30):
        store.append(kit.message(body=bytes(8000)))
        kit.clock.advance(10)
    store._log.delete_first()
    low = store.min_offset("orders", 0)
    assert low > 0
    for boundary in Boundary:
        assert store.offset_by_time("orders", 0, start, boundary) == low


def test_a_damaged_record_does_not_mislead_the_search(kit, start):
    store = kit.open()
    for _ in range(5):
        store.append(kit.message())
        kit.clock.advance(10)
    at = store.unit("orders", 0, 2).physical_offset
    store._log.map[at : at + 100] = bytes(100)
    assert store.offset_by_time("orders", 0, start + 30) in (2, 3)  # a read from either gives message 3 first
    assert store.offset_by_time("orders", 0, start + 40) == 4


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(waits=st.lists(st.integers(0, 3), max_size=40), probe=st.integers(-2, 60))
def test_bisection_gives_what_a_walk_gives(kit, tmp_path_factory, waits, probe):
    store = kit.open(tmp_path_factory.mktemp("times"))
    start, times = kit.clock.now(), []
    for wait in waits:
        kit.clock.advance(wait)
        times.append(kit.clock.now())
        store.append(kit.message())
    lower = next((n for n, time in enumerate(times) if time >= start + probe), len(times))
    upper = max((n for n, time in enumerate(times) if time <= start + probe), default=0)
    assert store.offset_by_time("orders", 0, start + probe) == lower
    assert store.offset_by_time("orders", 0, start + probe, Boundary.UPPER) == upper
    store.close()
