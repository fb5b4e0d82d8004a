# SPDX-License-Identifier: Apache-2.0
"""The list of what a broker does by itself: what is in it, how often, and what is written down at the end."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

from aerobee.broker.background.jobs import Background
from aerobee.broker.background.save_tables import save_every
from aerobee.errors import DiskFull
from aerobee.store.saved_table import SavedTable

# What each job asks for when there is nothing to do, in milliseconds.
WAITS = {
    "clock": 500,
    "store": 500,
    "schedule": 100,
    "timers": 100,
    "timer files": 1_000,
    "topic retention": 10_000,
    "held pulls": 5_000,
    "clients": 10_000,
    "settings files": 500,
    "offset file": 5_000,
    "progress files": 10_000,
    "stats": 1_000,
    "revive": 200,
    "transactions": 1_000,
}


async def waits_of(background: Background, now: int) -> dict[str, int]:
    found = {}
    for job in background.jobs():
        wait = job.tick(now)
        found[job.name] = await wait if inspect.isawaitable(wait) else wait
    return found


async def test_every_job_is_there_and_comes_as_often_as_it_should(bench: Any) -> None:
    background = Background(bench.broker)
    waits = await waits_of(background, bench.clock.now())
    background.save()
    assert waits == WAITS


async def test_each_table_is_written_by_its_job(bench: Any) -> None:
    broker, background = bench.broker, Background(bench.broker)
    jobs = {job.name: job.tick for job in background.jobs()}
    for name, tables in {
        "settings files": [broker.topics, broker.groups, broker.pops.modes],
        "offset file": [broker.offsets],
        "progress files": [background._schedule, broker.pops.orders],
    }.items():
        for table in tables:
            table.changed()
        await jobs[name](bench.clock.now())  # type: ignore[misc]
        assert not any(table.unsaved for table in tables), name
    background.save()


class Written(SavedTable):
    """A table that says what happens to it, and in which thread its file is written."""

    def __init__(self, events: list[str]) -> None:
        self._events = events
        super().__init__(self, self._log)  # type: ignore[arg-type]

    def text(self) -> bytes:
        return b"what was done"

    async def _log(self) -> None:
        self._events.append("log")

    def save(self, data: bytes = b"") -> None:
        at = "loop" if threading.current_thread() is threading.main_thread() else "thread"
        self._events.append(f"{data.decode()} in the {at}")


async def test_what_was_done_is_written_behind_the_log_and_keeps_nobody_waiting() -> None:
    """Else power loss could leave the word without the deed."""
    events: list[str] = []
    table = Written(events)
    table.changed()
    assert await save_every(lambda: 7, table)(0) == 7
    assert events == ["log", "what was done in the thread"]


class Silent:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def parts_of(background: Background, broker: Any) -> dict[str, tuple[Any, str]]:
    """What is written down at the end, in order: the log before the tables that say what was done with its messages."""
    return {
        "revive": (background._revive, "close"),
        "log": (broker.store, "flush"),
        "timers": (background._timers, "close"),
        "schedule": (background._schedule, "save"),
        "orders": (broker.pops.orders, "save"),
        "offsets": (broker.offsets, "save"),
        "topics": (broker.topics, "save"),
        "groups": (broker.groups, "save"),
        "modes": (broker.pops.modes, "save"),
    }


PARTS = ("revive", "log", "timers", "schedule", "orders", "offsets", "topics", "groups", "modes")


@pytest.mark.parametrize("error", [OSError("no space"), DiskFull("95 % used")])
@pytest.mark.parametrize("bad", PARTS)
def test_what_cannot_be_written_at_the_end_is_named_and_keeps_nothing_else_from_it(
    bench: Any, bad: str, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    background = Background(bench.broker)
    saved: list[str] = []

    def watched(name: str) -> Any:
        def save() -> None:
            saved.append(name)
            if name == bad:
                raise error

        return save

    with monkeypatch.context() as patch:
        for name, (part, method) in parts_of(background, bench.broker).items():
            patch.setattr(part, method, watched(name))
        background.save()
    background.save()
    assert tuple(saved) == PARTS
    assert f"not saved part={bad}: {error}" in caplog.text
    assert caplog.text.count("not saved") == 1


async def test_a_client_that_fell_silent_is_dropped_with_its_connection(bench: Any) -> None:
    background = Background(bench.broker)
    jobs = {job.name: job.tick for job in background.jobs()}
    link = Silent()
    bench.broker.clients.expire = lambda now: [link]
    jobs["clients"](bench.clock.now())
    assert link.closed
    background.save()


async def test_what_waits_in_the_timer_is_shown_while_the_broker_runs(bench: Any) -> None:
    background = Background(bench.broker)
    gauges = bench.broker.stats.gauges
    jobs = {job.name: job.tick for job in background.jobs()}

    def shown() -> list[int]:
        return [gauges[f"timer{name}"]() for name in ("OffsetBehind", "CongestNum", "ReadBehind")]

    for _ in range(2):
        bench.send(properties={"TIMER_DELAY_SEC": "60"})
    assert shown() == [2, 0, 0]
    jobs["timers"](bench.clock.now())
    assert shown() == [0, 2, 0]
    bench.clock.advance(seconds=70)
    assert shown() == [0, 2, 70]
    background.save()


async def test_stopping_ends_every_job_and_may_come_before_the_start(bench: Any) -> None:
    background = Background(bench.broker)
    await background.stop()
    background.start()
    assert background._task is not None
    await background.stop()
    assert background._task.cancelled()
    background.save()


@pytest.mark.seed("S002-21")
async def test_without_long_polling_held_pulls_are_looked_at_more_often(make_bench: Any) -> None:
    bench = make_bench(long_polling=False, short_polling_ms=700)
    background = Background(bench.broker)
    assert (await waits_of(background, bench.clock.now()))["held pulls"] == 700
    background.save()
