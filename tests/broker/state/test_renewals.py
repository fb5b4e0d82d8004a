# SPDX-License-Identifier: Apache-2.0
"""Leases of push clients: renewed while they live, by the newest receipt, never for ever."""

from __future__ import annotations

import pytest

from aerobee.broker.pop import renewals as renewals_module
from aerobee.broker.pop.renewals import AHEAD_MS, LONGEST_MS, STEPS_MS, Renewals
from aerobee.protocol.receipt import Receipt

START = 1_000_000


def receipt(offset: int = 5, pop_time: int = START, invisible: int = 60_000) -> Receipt:
    return Receipt(offset, pop_time, invisible, 3, "0", "broker-a", 2, offset, 77)


def test_a_lease_is_due_ten_seconds_before_it_ends() -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "c", receipt())
    assert renewals.due(START + 60_000 - AHEAD_MS - 1) == []
    (lease,) = renewals.due(START + 60_000 - AHEAD_MS)
    assert renewals.due(START + 60_000) == []  # each comes once
    assert renewals.extension(lease, START) == STEPS_MS[0]


def test_each_renewal_lasts_longer_and_three_hours_are_enough() -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "c", receipt())
    now, steps = START + 50_000, []
    while leases := renewals.due(now):
        (lease,) = leases
        longer = renewals.extension(lease, now)
        if longer is None:
            break
        steps.append(longer)
        renewals.renewed(lease, receipt(pop_time=now, invisible=longer))
        now += longer - AHEAD_MS
    assert steps[: len(STEPS_MS) - 1] == list(STEPS_MS[:-1])
    assert sum(steps) <= LONGEST_MS + STEPS_MS[-1]
    assert longer is None


def test_the_clients_first_receipt_finds_the_newest() -> None:
    renewals = Renewals()
    first = receipt()
    renewals.hold("g", "t", "c", first)
    (lease,) = renewals.due(START + 55_000)
    newest = receipt(pop_time=START + 55_000)
    renewals.renewed(lease, newest)
    assert renewals.release("g", "t", first) == newest
    assert renewals.release("g", "t", first) == first  # released: nothing is known of it any more
    assert renewals.due(START + 10_000_000) == []


def test_leases_are_found_by_client() -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "one", receipt(1))
    renewals.hold("g", "t", "two", receipt(2))
    assert [lease.receipt.offset for lease in renewals.of_client("two")] == [2]


@pytest.mark.parametrize("jump", [-7_200_000, 7_200_000])
def test_a_clock_that_is_set_makes_no_lease_due_sooner_or_later(jump: int) -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "c", receipt())
    renewals.moved(jump)
    assert renewals.due(START + jump + 60_000 - AHEAD_MS - 1) == []
    (lease,) = renewals.due(START + jump + 60_000 - AHEAD_MS)
    end = START + jump + LONGEST_MS - AHEAD_MS
    assert renewals.extension(lease, end - 1) is not None
    assert renewals.extension(lease, end) is None


def test_beyond_the_bound_a_message_is_left_to_its_first_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals_module, "MAX_LEASES", 2)
    renewals = Renewals()
    for offset in range(3):
        renewals.hold("g", "t", "c", receipt(offset))
    assert len(renewals) == 2
    assert [lease.receipt.offset for lease in renewals.due(START + 60_000)] == [0, 1]


def test_what_is_dropped_or_known_no_more_is_not_due() -> None:
    renewals = Renewals()
    for offset in range(3):
        renewals.hold("g", "t", "c", receipt(offset))
    renewals.drop(renewals.of_client("c")[1])
    renewals.release("g", "t", receipt(2))
    assert [lease.receipt.offset for lease in renewals.due(START + 60_000)] == [0]
    assert len(renewals) == 1


def test_a_lease_is_extended_to_three_hours_after_the_first_delivery_and_no_further() -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "c", receipt())
    (lease,) = renewals.of_client("c")
    end = START + LONGEST_MS
    assert renewals.extension(lease, end - 30_000) == 30_000
    assert renewals.extension(lease, end - AHEAD_MS - 1) == AHEAD_MS + 1
    assert renewals.extension(lease, end - AHEAD_MS) is None
    lease.renewed = 99
    assert renewals.extension(lease, START) == STEPS_MS[-1]
    assert STEPS_MS == (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)


def test_a_lease_renewed_before_its_time_is_due_by_its_newest_end_only() -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "c", receipt())
    (lease,) = renewals.of_client("c")
    renewals.renewed(lease, receipt(pop_time=START + 30_000))
    assert renewals.due(START + 90_000 - AHEAD_MS - 1) == []
    assert renewals.due(START + 90_000 - AHEAD_MS) == [lease]
    assert renewals.due(START + 200_000) == []


def test_the_last_renewal_ends_three_hours_after_the_first_delivery() -> None:
    renewals = Renewals()
    renewals.hold("g", "t", "c", receipt())
    (lease,) = renewals.of_client("c")
    end = START + LONGEST_MS
    assert renewals.extension(lease, end - STEPS_MS[0]) == STEPS_MS[0]
    assert renewals.extension(lease, end - AHEAD_MS - 1) == AHEAD_MS + 1
    assert renewals.extension(lease, end - AHEAD_MS) is None
