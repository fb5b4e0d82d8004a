# SPDX-License-Identifier: Apache-2.0
"""A program that is nothing but its clients: started, run until a signal, ended in good order."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

log = logging.getLogger("aerobee.client")

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Client(Protocol):
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@overload
def run(main: Coroutine[Any, Any, T], /) -> T: ...
@overload
def run(*clients: Client) -> None: ...


def run(*clients: Any) -> Any:
    """Start the clients, wait for SIGTERM or SIGINT (Ctrl-C), finish what is under way, commit, close.

    >>> aerobee.run(PushConsumer("127.0.0.1:9876", group="billing", topics={"orders": "*"}, handler=handle))

    Producers that handlers send with may be given too, in any place: they are started before the consumers, and
    stopped when these have ended. Consumers are stopped side by side. A second signal ends at once.

    Given a coroutine instead, run it to its end and return its result, as `asyncio.run` does:

    >>> aerobee.run(main())

    Either way on uvloop's event loop where it is installed, which takes half the CPU of Python's own.
    """
    if not clients:
        raise ValueError("run() was given no client: pass at least one consumer or producer")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        if len(clients) == 1 and inspect.iscoroutine(clients[0]):
            return runner.run(clients[0])
        return runner.run(_until_told(clients))


async def _until_told(clients: tuple[Client, ...]) -> None:
    told, task = asyncio.Event(), asyncio.current_task()

    def heard() -> None:
        if told.is_set() and task is not None:
            task.cancel()
        told.set()

    on_signals(SIGNALS, heard)
    producers, consumers = _by_role(clients)
    started: list[Client] = []
    try:
        for client in (*producers, *consumers):
            await client.start()
            started.append(client)
        await told.wait()
        log.info("told to stop, finishing clients=%d", len(started))
    finally:
        # One that fails to stop keeps no other from it, nor from the producers that its handlers send with.
        stopping = (client.stop() for client in consumers if client in started)
        ends = await asyncio.gather(*stopping, return_exceptions=True)
        for client in reversed(producers):
            if client in started:
                await client.stop()
        for failure in ends:
            if failure is not None:
                raise failure


def _by_role(clients: Iterable[Client]) -> tuple[list[Client], list[Client]]:
    """Those that handlers may send with, and the others."""
    from aerobee.client.produce.producer import Producer  # not for those who only want the signals

    producers: list[Client] = []
    consumers: list[Client] = []
    for client in clients:
        (producers if isinstance(client, Producer) else consumers).append(client)
    return producers, consumers


def on_signals(numbers: Iterable[signal.Signals], heard: Callable[[], object]) -> None:
    """Have `heard` called, on the running loop, for each of them."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        try:
            loop.add_signal_handler(number, heard)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(heard))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed (it comes with Aerobee, except on Windows): half the CPU of Python's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
