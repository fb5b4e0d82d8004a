# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background import runner
from aerobee.broker.background.runner import AFTER_ERROR_MS, Job, every, run
from aerobee.broker.background.save_tables import save_every
from aerobee.clock import ManualClock
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


@pytest.mark.seed("S002-21")
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
    ours = threading.get_ident()  # another test's server may run its jobs in a thread of its own
    monkeypatch.setattr(
        runner, "perf_counter_ns", lambda: next(readings) if threading.get_ident() == ours else 0
    )
    task = await driven(ManualClock(start=0), Job("slow", every(100, lambda now: None)))
    assert "job=slow kept the loop for ms=5000" in caplog.text
    await end(task)


async def test_tables_are_saved_at_intervals_and_one_that_fails_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Table(SavedTable):
        def text(self) -> bytes:
            return b"{}"

    (tmp_path / "a file").write_bytes(b"")
    bad = Table(JsonFile(tmp_path / "a file" / "bad.json"))
    good = Table(JsonFile(tmp_path / "good.json"))
    bad.changed()
    good.changed()
    tick: Callable[[int], Any] = save_every(5_000, bad, good)
    assert await tick(0) == 5_000
    assert not good.unsaved
    assert bad.unsaved
    assert "not saved table=Table" in caplog.text


async def test_what_the_machine_refuses_is_told_in_a_line_and_what_is_a_bug_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, errors = ManualClock(start=0), [OSError("no space"), KeyError("bug"), None]

    def tick(now: int) -> int:
        error = errors.pop(0)
        if error is not None:
            raise error
        return 1_000

    task = await driven(clock, Job("job", tick))
    for _ in range(2):
        clock.advance(AFTER_ERROR_MS)
        await turns()
    assert not errors
    told = [(record.getMessage(), record.exc_info is not None) for record in caplog.records]
    assert told == [
        ("job=job: no space; again in ms=1000", False),
        ("job=job failed, again in ms=1000", True),
    ]
    await end(task)
