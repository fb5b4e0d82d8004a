# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests for what a consumer does in the background: as long as it takes, up to a limit."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aerobee.clock import SystemClock
from aerobee.testing.compared import told

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
    while not (last := condition()):
        if clock.now() > deadline:
            raise AssertionError(f"did not hold within {timeout_ms} ms: {told(condition, last)}")
        await asyncio.sleep(LOOK_MS / 1000)
    await asyncio.sleep(SETTLE_MS / 1000)
    for _ in range(SETTLE_TURNS):
        await asyncio.sleep(0)


def wait_until(condition: Callable[[], object], timeout_ms: int = 5_000) -> None:
    """The same in a plain test. On a running loop it would keep everything from happening that it waits for."""
    not_on_a_loop("wait_until", "await eventually(...)")
    clock = SystemClock()
    deadline = clock.now() + timeout_ms
    while not (last := condition()):
        if clock.now() > deadline:
            raise AssertionError(f"did not hold within {timeout_ms} ms: {told(condition, last)}")
        time.sleep(LOOK_MS / 1000)
    time.sleep(SETTLE_MS / 1000)


def not_on_a_loop(what: str, instead: str) -> None:
    """RuntimeError where there is a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"{what} blocks the running loop, and with it the clients on it; in an async test: {instead}"
    )
