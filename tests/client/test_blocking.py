# SPDX-License-Identifier: Apache-2.0
"""The clients for callers who wait: what `run` hands back, messages one by one, one process only."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import aerobee.blocking as aerobee
from aerobee.client import blocking as typed_elsewhere
from aerobee.client.message import ReceivedMessage
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

blocking: Any = typed_elsewhere  # its stub has no private names
CLIENTS = (
    aerobee.Producer,
    aerobee.TransactionProducer,
    aerobee.PushConsumer,
    aerobee.PullConsumer,
    aerobee.SimpleConsumer,
    aerobee.ScheduledPull,
    aerobee.Admin,
)


@pytest.mark.parametrize("client", CLIENTS)
def test_help_speaks_to_who_waits(client: Any) -> None:
    assert inspect.signature(client) == inspect.signature(client._made_of)
    texts = [
        client.__doc__,
        *(member.__doc__ for _, member in inspect.getmembers(client, inspect.isfunction)),
    ]
    for text in filter(None, texts):
        assert "await " not in text and "async with" not in text and "async for" not in text


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise KeyError("no")


async def be_cancelled() -> None:
    raise asyncio.CancelledError


def test_a_call_gives_its_result_or_its_error() -> None:
    assert aerobee.run(double(21)) == 42
    with pytest.raises(KeyError, match="no"):
        aerobee.run(fail())
    with pytest.raises(CancelledError):
        aerobee.run(be_cancelled())


def test_all_calls_run_on_one_loop_in_the_background() -> None:
    async def where() -> tuple[Any, str]:
        return asyncio.get_running_loop(), threading.current_thread().name

    found = {aerobee.run(where()) for _ in range(3)}
    assert len(found) == 1
    assert found.pop()[1] == "aerobee-loop"


def test_one_who_is_interrupted_takes_his_call_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    class Interrupted:
        def acquire(self) -> None:
            begun.wait()
            raise KeyboardInterrupt

        def release(self) -> None:
            ended.append("over")

    original = blocking._Call.__init__

    def init(self: Any, work: Any) -> None:
        original(self, work)
        self.over = Interrupted()

    with monkeypatch.context() as patch:
        patch.setattr(blocking._Call, "__init__", init)
        with pytest.raises(KeyboardInterrupt):
            aerobee.run(wait())
    asyncio.run(until(lambda: ended == ["cancelled", "over"]))


@pytest.mark.parametrize("client", CLIENTS)
def test_each_has_all_methods_of_its_async_one_under_their_names(client: type) -> None:
    made_of: Any = client._made_of  # type: ignore[attr-defined]
    for name, member in inspect.getmembers(made_of, inspect.isfunction):
        if not name.startswith("_"):
            own = getattr(client, name)
            assert own.__name__ == name
            assert own.__doc__ == (member.__doc__ and member.__doc__.replace("async with", "with"))
            assert not inspect.iscoroutinefunction(own)
    assert client.__doc__


def some_messages(count: int) -> list[ReceivedMessage]:
    return [ReceivedMessage("T", b"x", queue_offset=n) for n in range(count)]


class Lease:
    receipt = "r"

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def ack(self) -> None:
        self.told.append("ack")

    async def hide(self, invisible_ms: int, failure: str = "") -> None:
        self.told.append((invisible_ms, failure) if failure else invisible_ms)


def test_leased_messages_are_answered_without_await_and_others_are_as_they_are() -> None:
    pulled, popped = some_messages(2)
    popped.lease = lease = Lease()  # type: ignore[assignment]
    assert blocking._plain(pulled) is pulled
    assert blocking._plain([pulled])[0] is pulled
    for plain in (7, "text", None, [], [1, 2]):
        assert blocking._plain(plain) == plain
    (message,) = blocking._plain([popped])
    assert (message.body, message.topic, message.queue_offset, message.receipt) == (b"x", "T", 1, "r")
    assert repr(message) == repr(popped)
    message.ack()
    message.nack()
    message.nack(30)
    message.extend(40)
    assert lease.told == ["ack", 0, 30, 40]
    assert type(blocking._plain(popped)) is blocking.BlockingMessage


class Source:
    """An async client of our own."""

    def __init__(self, count: int = 0, *, also: int = 0) -> None:
        self.count = count
        self.also = also
        self.told: list[str] = []

    async def start(self) -> None:
        self.told.append("start")

    async def stop(self) -> None:
        self.told.append("stop")

    async def poll(self, most: int = 2) -> list[ReceivedMessage]:
        return some_messages(most)

    def pause(self, *, reason: str) -> str:
        return f"paused: {reason}"

    def messages(self) -> AsyncIterator[int]:
        return self._each()

    async def _each(self) -> AsyncIterator[int]:
        try:
            for n in range(self.count):
                yield n
        finally:
            self.told.append("closed")


Client: Any = type("Client", (blocking._Blocking,), {"_made_of": Source})


def test_a_client_is_made_started_asked_and_stopped() -> None:
    client: Any = Client(3, also=4)
    assert (client.count, client.also) == (3, 4)
    with client as entered:
        assert entered is client
        assert len(client.poll()) == 2
        assert len(client.poll(most=1)) == 1
        assert client.pause(reason="none") == "paused: none"
        assert list(client.messages()) == [0, 1, 2]
        with client.messages() as some:
            assert next(some) == 0
        assert client.told == ["start", "closed", "closed"]
    assert client.told[-1] == "stop"
    with pytest.raises(AttributeError, match="_hidden"):
        _ = client._hidden
    with pytest.raises(AttributeError):
        _ = client.nothing


def test_a_client_made_before_a_fork_says_so_and_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Client(1)
    with client:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(RuntimeError, match="this Client was made before a fork; make one"):
                _ = client.count
            client.__exit__()
        assert client.told == ["start"], "the parent's client goes on"


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    loop = blocking._Loop()
    first = loop.get()
    assert loop.get() is first
    held = loop._starting
    with held:  # by a thread of the parent, of which the child has only the lock
        loop.forget()
        second = loop.get()
    assert second is not first
    for each in (first, second):
        each.call_soon_threadsafe(each.stop)


def test_the_background_loop_is_the_quick_one_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    assert isinstance(blocking._background.get(), uvloop.Loop)


@pytest.mark.parametrize("client", [aerobee.PullConsumer, aerobee.SimpleConsumer])
def test_consumers_give_their_messages_one_after_the_other(client: Any) -> None:
    async def two() -> Any:
        for message in some_messages(2):
            yield message

    made = client.__new__(client)
    made._pid, made._client = os.getpid(), SimpleNamespace(messages=two)
    assert [message.queue_offset for message in made] == [0, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_is_not_kept_waiting_by_a_lock_that_a_thread_of_its_parent_held() -> None:
    program = """
import os, signal, sys
from aerobee.client import blocking
blocking._background._starting.acquire()
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(0 if blocking.run(blocking._made(dict, (), {"a": 1})) == {"a": 1} else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
