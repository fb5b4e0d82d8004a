# SPDX-License-Identifier: Apache-2.0
"""Work that many wait for at once and that is done once: dialling an address, asking for a route."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from aerobee.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")


class Shared(Generic[T]):
    """`work(key)` runs at most once at a time for a key; all who asked meanwhile get its result or its error, and
    go on in the order they came."""

    def __init__(self, work: Callable[[str], Coroutine[Any, Any, T]], doing: str) -> None:
        self._work = work
        self._doing = doing  # for the error of those who wait when it is closed: "not <doing> <key>: ..."
        self._running: dict[str, asyncio.Task[T]] = {}
        self._closed = False

    async def get(self, key: str) -> T:
        if self._closed:
            raise self._refusal(key)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().create_task(self._work(key))
            task.add_done_callback(lambda done: self._ended(key, done))
        try:
            return await asyncio.shield(task)  # one caller's cancellation is not the others'
        except asyncio.CancelledError:
            if task.cancelled():  # by close(), not our caller
                raise self._refusal(key) from None
            raise

    def _refusal(self, key: str) -> ClientClosed:
        return ClientClosed(f"not {self._doing} {key}: this client is closed")

    def _ended(self, key: str, task: asyncio.Task[T]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # everyone who waited may have been cancelled: no "never retrieved" warning then

    async def close(self) -> None:
        """Work under way is cancelled; who waits for it, or asks later, gets a ClientClosed."""
        self._closed = True
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
