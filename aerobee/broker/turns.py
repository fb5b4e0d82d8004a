# SPDX-License-Identifier: Apache-2.0
"""Long work of one request, cut into turns of the loop: nobody else waits for it.

Such work is a generator that stops wherever it has done a little, and returns its result. Whoever runs it lets
everybody else have their turn between two stops, when its own has lasted long enough.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aerobee.clock import perf_counter_ns

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")

TURN_NS = 2_000_000


async def in_turns(steps: Generator[None, None, T]) -> T:
    began = perf_counter_ns()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if perf_counter_ns() - began > TURN_NS:
            await asyncio.sleep(0)
            began = perf_counter_ns()


def at_once(steps: Generator[None, None, T]) -> T:
    """All in this turn, for who has no other."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
