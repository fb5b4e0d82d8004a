# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.broker.state.queue_locks import QueueLocks
from aerobee.protocol.bodies import MessageQueue

Q0, Q1 = MessageQueue("broker-a", 0, "t"), MessageQueue("broker-a", 1, "t")


@pytest.mark.seed("S004-11")
def test_queue_is_locked_by_one_client_of_the_group() -> None:
    locks = QueueLocks()
    assert locks.lock("g", "one", [Q0, Q1], now=0) == {Q0, Q1}
    assert locks.lock("g", "two", [Q0, Q1], now=10) == set()
    assert locks.lock("other", "two", [Q0], now=10) == {Q0}


def test_lock_that_is_not_renewed_may_be_taken_after_a_minute() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [Q0], now=0)
    assert locks.lock("g", "two", [Q0], now=60_000) == set()
    assert locks.lock("g", "two", [Q0], now=60_001) == {Q0}
    assert locks.owner("g", Q0, now=60_002) == "two"


def test_owner_renews_its_lock() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [Q0], now=0)
    assert locks.lock("g", "one", [Q0], now=50_000) == {Q0}
    assert locks.lock("g", "two", [Q0], now=100_000) == set()


@pytest.mark.seed("S003-27")
def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [Q0], now=0)
    locks.unlock("g", "two", [Q0])
    locks.unlock("nobody", "two", [Q0])
    assert locks.owner("g", Q0, now=1) == "one"
    locks.unlock("g", "one", [Q0, Q1])
    assert locks.lock("g", "two", [Q0], now=1) == {Q0}


def test_group_consumes_in_order_while_some_lock_lives() -> None:
    locks = QueueLocks()
    assert not locks.holds_any("g", now=0)
    locks.lock("g", "one", [Q0], now=0)
    assert locks.holds_any("g", now=60_000)
    assert not locks.holds_any("g", now=60_001)


def test_what_is_new_is_told_in_one_line_and_renewals_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="aerobee.locks")
    locks = QueueLocks()
    for client, queues, now in (
        ("one", [Q0, Q1], 0),
        ("one", [Q0, Q1], 1),
        ("two", [Q0], 2),
        ("two", [Q0], 70_000),
    ):
        locks.lock("g", client, queues, now)
    assert [record.getMessage() for record in caplog.records] == [
        "locked group=g queues=2 client=one",
        "locked group=g queues=1 client=two",
    ]


def test_a_lock_is_known_by_group_and_queue_while_it_lives() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [Q0], now=0)
    assert [
        locks.owner(*asked) for asked in (("g", Q0, 60_000), ("g", Q0, 60_001), ("g", Q1, 0), ("h", Q0, 0))
    ] == [
        "one",
        None,
        None,
        None,
    ]
    locks.lock("g", "two", [Q1], now=60_000)
    assert locks.holds_any("g", now=100_000), "one of them lives"
    locks.unlock("g", "one", [Q0, Q1])
    assert locks.owner("g", Q1, now=100_000) == "two"


def test_a_group_without_locks_takes_no_memory() -> None:
    locks = QueueLocks()
    locks.lock("g", "one", [Q0, Q1], now=0)
    locks.unlock("g", "one", [Q0])
    assert locks.owner("g", Q1, now=0) == "one"
    locks.unlock("g", "one", [Q1])
    assert locks._locks == {}
