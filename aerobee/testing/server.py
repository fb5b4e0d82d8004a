# SPDX-License-Identifier: Apache-2.0
"""An embedded server on a thread of its own, so that plain and async tests alike can use it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from aerobee.clock import Clock, ManualClock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from aerobee.server import Server

_SETTLE_TURNS = 50


class TestClock:
    """The server's clock, moved from the test's thread. Each step lets what it woke run before it returns."""

    __test__ = False

    def __init__(self, clock: ManualClock, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._clock = clock
        self._run = run

    def now(self) -> int:
        return self._clock.now()

    def advance(self, ms: int = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        """Move time on: timers due on the way fire in order, and what they woke runs."""
        total = ms + round(seconds * 1000 + minutes * 60_000 + hours * 3_600_000)
        self._run(self._move(total))

    async def _move(self, ms: int) -> None:
        self._clock.advance(ms)
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)


class TestServer:
    """`with TestServer() as server:` gives `server.namesrv`, `server.broker_address`, `server.clock`."""

    __test__ = False

    def __init__(self, clock: Clock | None = None, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aerobee-test-server", daemon=True)
        self._base_clock = clock or SystemClock()
        self._settings = settings
        self._server: Server | None = None
        self.clock: Any = clock

    @classmethod
    def with_manual_clock(cls, **settings: Any) -> TestServer:
        server = cls(ManualClock(), **settings)
        return server

    def __enter__(self) -> TestServer:
        self._thread.start()
        self._server = self.run(self._start())
        if isinstance(self._base_clock, ManualClock):
            self.clock = TestClock(self._base_clock, self.run)
        return self

    async def _start(self) -> Server:
        from aerobee.server import Server

        server = Server(ephemeral=True, clock=self._base_clock, **self._settings)
        await server.__aenter__()
        return server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._server is not None:
                self.run(self._server.__aexit__(None, None, None))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the server's loop and wait for it."""
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(timeout=60)

    @property
    def server(self) -> Server:
        if self._server is None:
            raise RuntimeError("the server is not started: use it in a with block")
        return self._server

    @property
    def namesrv(self) -> str:
        return self.server.namesrv

    @property
    def broker_address(self) -> str:
        return self.server.broker_address

    def create_topic(self, topic: str, queues: int = 4) -> None:
        async def create() -> None:
            self.server.broker.topics.ensure(topic, queues=queues)

        self.run(create())
