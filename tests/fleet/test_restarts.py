# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.fleet.keeper import names_of
from aerobee.fleet.restarts import FIRST_MS, LONGEST_MS, STEADY_MS, Restarts


def test_what_does_not_last_is_started_ever_later_and_what_lasts_at_once() -> None:
    restarts, waits, now = Restarts(0), [], 0
    for _ in range(10):
        waits.append(restarts.ended(now))
        now += waits[-1]
        restarts.started(now)
    assert waits[:4] == [FIRST_MS, 2 * FIRST_MS, 4 * FIRST_MS, 8 * FIRST_MS]
    assert waits[-1] == LONGEST_MS
    assert restarts.ended(now + STEADY_MS - 1) == LONGEST_MS
    restarts.started(now)
    assert restarts.ended(now + STEADY_MS) == FIRST_MS


def test_brokers_are_named_by_letters_after_the_first() -> None:
    assert names_of("broker-a", 3) == ["broker-a", "broker-b", "broker-c"]
    assert names_of("shop", 2) == ["shop-a", "shop-b"]
    for count in (0, 27):
        with pytest.raises(ValueError, match=f"--brokers {count}: 1 to 26"):
            names_of("broker-a", count)
