# SPDX-License-Identifier: Apache-2.0
"""Pulling on a schedule: a function is called again and again for every queue the group gives this consumer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Self

from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.session.tasks import Tasks

if TYPE_CHECKING:
    import asyncio

    from aerobee.client.consume.membership import OwnedQueue
    from aerobee.client.options import PullOptions
    from aerobee.client.session.session import Session
    from aerobee.clock import Clock
    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.client.consumer")

NEXT_MS = 200
AFTER_ERROR_MS = 1_000


class _ByTurns(PullConsumer):
    """What it would fetch ahead is not wanted: the schedule pulls by hand."""

    def _begin(self, owned: OwnedQueue) -> None:
        self.pause([owned.queue])  # before the others are asked for, each of which takes a while
        super()._begin(owned)


class Turn:
    """One call of a callback: the consumer to pull with, and when to be called next."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        self.next_delay_ms = NEXT_MS


Callback = Callable[["MessageQueue", Turn], "Awaitable[None] | None"]


class ScheduledPull:
    """`callbacks` by topic, each called for every queue owned: `async def callback(queue, turn)`."""

    def __init__(
        self,
        namesrv: str | Session | None = None,
        *,
        group: str,
        callbacks: Mapping[str, Callback],
        options: PullOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._callbacks = dict(callbacks)
        self.consumer: PullConsumer = _ByTurns(
            namesrv,
            group=group,
            topics=dict.fromkeys(callbacks, "*"),
            options=options,
            clock=clock,
            on_queues=self.queues_changed,
        )
        self._tasks = Tasks()
        self._turns: dict[MessageQueue, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self.consumer.start()

    async def stop(self) -> None:
        await self._tasks.cancel()
        await self.consumer.stop()

    def queues_changed(
        self, topic: str, every: Collection[MessageQueue], own: Collection[MessageQueue]
    ) -> None:
        """Queues lost: their turns end. Queues gained: their turns begin at once."""
        for queue in [queue for queue in self._turns if queue.topic == topic and queue not in own]:
            self._turns.pop(queue).cancel()
        self.consumer.pause(own)
        for queue in own:
            if queue not in self._turns and topic in self._callbacks:
                self._turns[queue] = self._tasks.start(self._take_turns(queue), f"turn {queue}")

    async def _take_turns(self, queue: MessageQueue) -> None:
        clock = self.consumer.session.clock
        while True:
            turn = Turn(self.consumer)
            try:
                result = self._callbacks[queue.topic](queue, turn)
                if inspect.isawaitable(result):
                    await result
                wait_ms = turn.next_delay_ms
            except Exception:
                log.exception("scheduled pull failed queue=%s", queue)
                wait_ms = AFTER_ERROR_MS
            await clock.sleep(wait_ms)
