# SPDX-License-Identifier: Apache-2.0
"""Who gets which queue: as every member of a group and the broker must divide them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol.allocation import STRATEGIES, average, by_circle


@pytest.mark.parametrize(
    ("queues", "clients", "blocks"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (6, 3, [[0, 1], [2, 3], [4, 5]]),
        (2, 4, [[0], [1], [], []]),
        (0, 2, [[], []]),
        (5, 1, [[0, 1, 2, 3, 4]]),
    ],
)
def test_blocks_lie_side_by_side_and_the_first_hold_one_more(
    queues: int, clients: int, blocks: list[list[int]]
) -> None:
    names = [f"c{n}" for n in range(clients)]
    assert [average(name, range(queues), names) for name in names] == blocks


@pytest.mark.parametrize(
    ("queues", "clients", "hands"),
    [
        (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (2, 4, [[0], [1], [], []]),
        (3, 1, [[0, 1, 2]]),
    ],
)
def test_a_circle_deals_like_cards(queues: int, clients: int, hands: list[list[int]]) -> None:
    names = [f"c{n}" for n in range(clients)]
    assert [by_circle(name, range(queues), names) for name in names] == hands


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
def test_who_is_not_among_the_clients_gets_nothing(name: str) -> None:
    assert STRATEGIES[name]("nobody", range(8), ["a", "b"]) == []
    assert STRATEGIES[name]("nobody", range(8), []) == []


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.integers(0, 40),
    st.sets(st.text("abc", min_size=1), min_size=1, max_size=12),
)
def test_every_queue_has_one_owner_and_nobody_two_more_than_another(
    name: str, queues: int, clients: set[str]
) -> None:
    shares = [STRATEGIES[name](client, range(queues), sorted(clients)) for client in sorted(clients)]
    assert sorted(queue for share in shares for queue in share) == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
