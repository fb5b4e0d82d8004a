# SPDX-License-Identifier: Apache-2.0
"""A program that is its clients: started in order, stopped side by side, by one signal or two."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client import running

if TYPE_CHECKING:
    from collections.abc import Callable


class Client:
    def __init__(self, name: str, story: list[str], fails: Exception | None = None) -> None:
        self.name, self.story, self.fails = name, story, fails

    async def start(self) -> None:
        if self.fails:
            raise self.fails
        self.story.append(f"start {self.name}")

    async def stop(self) -> None:
        self.story.append(f"stop {self.name}")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What is to be called at a signal."""
    found: list[Callable[[], object]] = []

    def note(numbers: Any, call: Callable[[], object]) -> None:
        assert set(numbers) == {signal.SIGINT, signal.SIGTERM}
        found.append(call)

    monkeypatch.setattr(running, "on_signals", note)
    return found


async def test_clients_are_started_in_order_and_all_stopped(heard: Any, settle: Any) -> None:
    story: list[str] = []
    program = asyncio.ensure_future(running._until_told((Client("a", story), Client("b", story))))
    await settle()
    assert (story, program.done()) == (["start a", "start b"], False)
    heard[0]()
    await program
    assert story == ["start a", "start b", "stop a", "stop b"]


async def test_one_that_cannot_stop_keeps_no_other_from_it(heard: Any, settle: Any) -> None:
    story: list[str] = []

    class Stuck(Client):
        async def stop(self) -> None:
            raise OSError("stuck")

    program = asyncio.ensure_future(running._until_told((Stuck("a", story), Client("b", story))))
    await settle()
    heard[0]()
    with pytest.raises(OSError, match="stuck"):
        await program
    assert story == ["start a", "start b", "stop b"]


async def test_one_that_cannot_start_stops_those_before_it(heard: Any) -> None:
    story: list[str] = []
    clients = (Client("a", story), Client("b", story, ValueError("no")), Client("c", story))
    with pytest.raises(ValueError, match="no"):
        await running._until_told(clients)
    assert story == ["start a", "stop a"]


async def test_a_second_signal_ends_what_takes_too_long(heard: Any, settle: Any) -> None:
    class Slow(Client):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    program = asyncio.ensure_future(running._until_told((Slow("a", []),)))
    await settle()
    heard[0]()
    await settle()
    assert not program.done()
    heard[0]()
    with pytest.raises(asyncio.CancelledError):
        await program


async def test_a_signal_is_heard_on_the_loop() -> None:
    told = asyncio.Event()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        running.on_signals((signal.SIGUSR1,), told.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(told.wait(), 5)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, before)


async def test_where_a_loop_hears_no_signals_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    told, set_up = asyncio.Event(), []

    def cannot(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", cannot, raising=False)
    monkeypatch.setattr(signal, "signal", lambda number, call: set_up.append((number, call)))
    running.on_signals((signal.SIGUSR1, signal.SIGUSR2), told.set)
    assert [number for number, _ in set_up] == [signal.SIGUSR1, signal.SIGUSR2]
    set_up[1][1](signal.SIGUSR2, None)
    await asyncio.wait_for(told.wait(), 5)


def test_a_coroutine_is_run_to_its_end_and_its_result_returned() -> None:
    async def main() -> int:
        return 42

    assert running.run(main()) == 42
    with pytest.raises(ValueError, match="was given no client"):
        running.run()


def test_the_quicker_loop_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    uvloop = pytest.importorskip("uvloop")
    assert running.loop_factory() is uvloop.new_event_loop
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert running.loop_factory() is None
