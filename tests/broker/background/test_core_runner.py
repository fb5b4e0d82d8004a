# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background import runner
from aerobee.broker.background.flush_offsets import flush_every
from aerobee.broker.background.runner import AFTER_ERROR_MS, Job, every, run
from aerobee.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def driven(clock: ManualClock, *jobs: Job) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(run(jobs, clock))
    await turns()
    return task


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_job_is_called_again_after_the_time_it_asked_for() -> None:
    clock, seen = ManualClock(start=0), []

    def tick(now: int) -> int:
        seen.append(now)
        return 250

    task = await driven(clock, Job("job", tick))
    for _ in range(3):
        clock.advance(250)
        await turns()
    assert seen == [0, 250, 500, 750]
    await end(task)


async def test_busy_job_goes_on_while_the_clock_stands_still() -> None:
    clock, waits, seen = ManualClock(start=0), [0, 0, 0, 1000], []

    def tick(now: int) -> int:
        seen.append(now)
        return waits.pop(0)

    task = await driven(clock, Job("busy", tick))
    assert seen == [0, 0, 0, 0]
    await end(task)


async def test_job_that_fails_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, seen = ManualClock(start=0), []

    def tick(now: int) -> int:
        seen.append(now)
        raise RuntimeError("disk on fire")

    task = await driven(clock, Job("bad", tick), Job("good", every(10, seen.append)))
    clock.advance(AFTER_ERROR_MS)
    await turns()
    assert "job=bad" in caplog.text
    assert seen.count(AFTER_ERROR_MS) == 2
    await end(task)


@pytest.mark.seed("S002-21")
async def test_job_that_keeps_the_loop_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([0, 5_000_000_001] + [6_000_000_000] * 10)
    monkeypatch.setattr(runner, "perf_counter_ns", lambda: next(readings))
    task = await driven(ManualClock(start=0), Job("slow", every(100, lambda now: None)))
    assert "job=slow kept the loop for ms=5000" in caplog.text
    await end(task)


async def test_changed_table_is_written_in_a_thread_after_the_log() -> None:
    class Table:
        def __init__(self) -> None:
            self.texts: list[bytes | None] = [b"one", None]
            self.written: list[bytes] = []
            self.written_at_sync: list[list[bytes]] = []

        async def log_on_disk(self) -> None:
            self.written_at_sync.append(list(self.written))

        def unsaved(self) -> bytes | None:
            return self.texts.pop(0)

        def write(self, text: bytes) -> None:
            self.written.append(text)

    table = Table()
    tick: Callable[[int], Any] = flush_every(5_000, table, table.log_on_disk)
    assert await tick(0) == 5_000
    assert await tick(0) == 5_000
    assert table.written == [b"one"]
    assert table.written_at_sync == [[]]
