# SPDX-License-Identifier: Apache-2.0
"""The background work of a client: started by name, ended together, failures never silent."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger("aerobee.client")


class Tasks:
    """Owns its tasks: none outlives `cancel`, none fails unnoticed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task=%s failed", task.get_name(), exc_info=error)

    async def finish(self, wait_ms: int) -> bool:
        """Wait, so long at most, until all have ended by themselves."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=wait_ms / 1000)
        return not self._tasks

    async def cancel(self) -> None:
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
