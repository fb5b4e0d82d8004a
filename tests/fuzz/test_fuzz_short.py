# SPDX-License-Identifier: Apache-2.0
"""The fuzzer's short form; `make fuzz` runs it for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz.run import KINDS, fuzz

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_odd_input_of_every_kind_meets_no_exception_but_the_three_families(seed: int) -> None:
    said: list[str] = []
    say: Callable[[str], None] = said.append
    totals = await fuzz(2_500, seed, say)
    assert sum(totals.values()) == 2_500
    assert min(totals[kind] for kind in KINDS) > 100
