# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.client.consume.backoff import GiveUp, Hide, effective_max, pop_failure, retry_level, suspend_ms

HOUR = 3_600_000


@pytest.mark.seed("S000-19", "S000-21")
@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [
        *((0, 10), (1, 30), (2, 60)),
        *((attempts, 60 * (attempts - 1)) for attempts in range(3, 12)),
        *((12, 1200), (13, 1800), (14, 3600), (15, 7200)),
    ],
)
def test_a_popped_message_waits_longer_with_every_failure(attempts: int, seconds: int) -> None:
    assert pop_failure(attempts, 0, 0, 16) == Hide(seconds * 1000)


def test_a_delay_level_chosen_by_the_handler_wins() -> None:
    assert pop_failure(0, 5, 0, 16) == Hide(240_000)
    assert pop_failure(0, 99, 0, 16) == Hide(7_200_000), "past the end is the last"


def test_past_the_limit_age_decides() -> None:
    assert pop_failure(16, 0, 2 * 7200 * 1000 + 1, 16) == GiveUp()
    assert pop_failure(16, 0, 2 * 7200 * 1000, 16) == Hide(7_200_000)
    assert pop_failure(16, 0, HOUR, 16) == Hide(7_200_000), "the next longer one"
    assert pop_failure(16, 0, 35_000, 16) == Hide(60_000)
    assert pop_failure(16, 0, 5_000, 16) == Hide(10_000), "Java fails here"


@pytest.mark.seed("S004-32")
def test_the_first_retry_by_hand_has_level_3() -> None:
    assert [retry_level(n) for n in (0, 1, 15)] == [3, 4, 18]


def test_minus_one_means_sixteen() -> None:
    assert [effective_max(n) for n in (-1, 0, 3)] == [16, 0, 3]


@pytest.mark.parametrize(("asked", "rest"), [(-1, 1000), (0, 10), (5, 10), (500, 500), (99_999, 30_000)])
def test_the_rest_of_an_ordered_queue_is_kept_within_bounds(asked: int, rest: int) -> None:
    assert suspend_ms(asked, 1000) == rest
