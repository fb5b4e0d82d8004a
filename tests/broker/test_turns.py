# SPDX-License-Identifier: Apache-2.0
"""Long work of one request lets everybody else have their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee.broker import turns
from aerobee.broker.turns import at_once, in_turns

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.mark.parametrize(("turn_ns", "others"), [(-1, 3), (10**12, 0)])
async def test_others_have_theirs_whenever_its_own_has_lasted_long_enough(
    monkeypatch: pytest.MonkeyPatch, turn_ns: int, others: int
) -> None:
    monkeypatch.setattr(turns, "TURN_NS", turn_ns)
    seen = 0

    async def another() -> None:
        nonlocal seen
        while True:
            await asyncio.sleep(0)
            seen += 1

    def work() -> Generator[None, None, int]:
        for _ in range(3):
            yield
        return seen

    beside = asyncio.ensure_future(another())
    await asyncio.sleep(0)
    assert await in_turns(work()) == others
    beside.cancel()


def test_who_has_no_other_turn_gets_the_result_in_this_one() -> None:
    def work() -> Generator[None, None, str]:
        yield
        yield
        return "done"

    assert at_once(work()) == "done"
