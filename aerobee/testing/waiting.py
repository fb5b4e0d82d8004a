# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests for what a consumer does in the background: as long as it takes, up to a limit."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING

from aerobee.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_MS = 2
# When the condition holds, the client that made it true may still have an answer of the broker to read; only then
# may a test move the clock, or the client would find that it took hours.
SETTLE_MS = 10
SETTLE_TURNS = 20


async def eventually(condition: Callable[[], object], timeout_ms: int = 5_000) -> None:
    """In an async test: `await eventually(lambda: handled == [1, 2])`. AssertionError when it never holds."""
    clock = SystemClock()
    deadline = clock.now() + timeout_ms
    while not condition():
        if clock.now() > deadline:
            raise AssertionError(_told(condition, timeout_ms))
        await asyncio.sleep(LOOK_MS / 1000)
    await asyncio.sleep(SETTLE_MS / 1000)
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


def wait_until(condition: Callable[[], object], timeout_ms: int = 5_000) -> None:
    """The same in a plain test."""
    clock = SystemClock()
    deadline = clock.now() + timeout_ms
    while not condition():
        if clock.now() > deadline:
            raise AssertionError(_told(condition, timeout_ms))
        time.sleep(LOOK_MS / 1000)
    time.sleep(SETTLE_MS / 1000)


def _told(condition: Callable[[], object], timeout_ms: int) -> str:
    """With the test's own words, where Python knows them."""
    try:
        words = inspect.getsource(condition).strip()
    except (OSError, TypeError):
        words = repr(condition)
    return f"did not hold within {timeout_ms} ms: {words}"
