# SPDX-License-Identifier: Apache-2.0
"""Drives what happens without a request: each job is a `tick(now)` that says when it wants to be called again."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from aerobee.clock import perf_counter_ns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.background")

AFTER_ERROR_MS = 1_000
SLOW_MS = 1_000

# Returns the milliseconds until the next call; a coroutine where a disk must be waited for.
Tick = Callable[[int], int | Awaitable[int]]


class Job(NamedTuple):
    name: str
    tick: Tick


async def run(jobs: Iterable[Job], clock: Clock) -> None:
    """Until cancelled."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(_drive(job, clock), name=f"background {job.name}")


async def _drive(job: Job, clock: Clock) -> None:
    while True:
        began = perf_counter_ns()
        try:
            wait_ms = job.tick(clock.now())
            took_ms = (perf_counter_ns() - began) // 1_000_000
            if took_ms > SLOW_MS:
                log.warning("job=%s kept the loop for ms=%d", job.name, took_ms)
            if inspect.isawaitable(wait_ms):
                wait_ms = await wait_ms
        except OSError as error:  # a full disk, no descriptor left: nothing a traceback would explain
            log.error("job=%s: %s; again in ms=%d", job.name, error, AFTER_ERROR_MS)
            wait_ms = AFTER_ERROR_MS
        except Exception:  # one bad message must not end the job for good
            log.exception("job=%s failed, again in ms=%d", job.name, AFTER_ERROR_MS)
            wait_ms = AFTER_ERROR_MS
        if wait_ms > 0:
            await clock.sleep(wait_ms)
        else:
            await asyncio.sleep(0)  # busy: others' turn first, even while a test's clock stands still


# Milliseconds; a function where they may change meanwhile.
Interval = int | Callable[[], int]


def every(interval: Interval, do: Callable[[int], object]) -> Tick:
    """A tick that does the same again and again."""

    def tick(now: int) -> int:
        do(now)
        return milliseconds(interval)

    return tick


def milliseconds(interval: Interval) -> int:
    return interval if isinstance(interval, int) else interval()
