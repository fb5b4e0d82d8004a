# SPDX-License-Identifier: Apache-2.0
"""A server on a thread of its own: for scripts, notebooks and tests, whose own thread may block while it serves."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from types import TracebackType
    from typing import Unpack

    from aerobee import server as _server

T = TypeVar("T")

_JOIN_S = 10


class LoopThread:
    """An event loop that runs on a thread of its own, from `start` to `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    @property
    def was_started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it."""
        if not self._thread.is_alive():  # it would be waited for for ever
            work.close()
            raise RuntimeError("the server's thread does not run: use it in a `with` block")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self) -> None:
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)
        self._loop.close()


async def _cancel_others() -> None:
    """What is still under way: a loop that is closed over it complains."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Server:
    """`aerobee.Server` with the same arguments, on a thread of its own.

    >>> with Server(ephemeral=True) as server:
    ...     server.namesrv

    `start` and `stop` do the same where there is no block, as in the cells of a notebook; it may be started again.
    """

    def __init__(self, data: str | Path | None = None, **settings: Unpack[_server.ServerSettings]) -> None:
        self._data, self._settings = data, settings
        self._thread: LoopThread | None = None
        self._server: _server.Server | None = None

    def start(self) -> None:
        from aerobee.server import Server as AsyncServer

        if self._thread is not None:
            raise RuntimeError("the server runs")
        server, thread = AsyncServer(self._data, **self._settings), LoopThread("aerobee-server")
        thread.start()
        try:
            thread.run(server.start())
        except BaseException:
            thread.end()
            raise
        self._thread, self._server = thread, server

    def stop(self) -> None:
        """Nothing, when it does not run."""
        thread, server = self._thread, self._server
        self._thread = self._server = None
        if thread is not None and server is not None:
            try:
                thread.run(server.stop())
            finally:
                thread.end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- what users ask ------------------------------------------------------------------------------------

    @property
    def _running(self) -> _server.Server:
        if self._server is None:
            raise AerobeeError("the server is not started")
        return self._server

    @property
    def namesrv(self) -> str:
        """The name server's `host:port`: what clients are given."""
        return self._running.namesrv

    @property
    def broker_address(self) -> str:
        return self._running.broker_address

    @property
    def grpc_address(self) -> str:
        return self._running.grpc_address

    @property
    def http_address(self) -> str:
        return self._running.http_address

    @property
    def ports(self) -> _server.Ports:
        """What it listens on, for a server that is to take its place; -1 what it has not."""
        return self._running.ports

    @property
    def data(self) -> Path | None:
        return self._running.data
