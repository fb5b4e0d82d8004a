# SPDX-License-Identifier: Apache-2.0
"""Looks at the cluster every few seconds and writes it into the history; where a look takes long, more rarely."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.console.history import BrokerSeen, History, Sample
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.admin import GroupLag
    from aerobee.clock import Clock
    from aerobee.console.cluster_view import ClusterView

log = logging.getLogger("aerobee.console.sampler")

EVERY_MS = 5_000
RARER = 30  # a look takes no more than this part of the time
UNREAD_LOOKS = 20  # topics without a reader that are counted in one look


class Sampler:
    """`wanted` says whether anybody is there to see it."""

    def __init__(self, view: ClusterView, clock: Clock, wanted: Callable[[], bool] = lambda: True) -> None:
        self.history = History()
        self._view = view
        self._clock = clock
        self._wanted = wanted
        self._unread: dict[str, int] = {}
        self._next_unread = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="console samples")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            pause = EVERY_MS
            if self._wanted():
                try:
                    pause = max(pause, RARER * await self.look())
                except (AerobeeError, OSError) as error:
                    log.debug("no sample: %s", error)
            await self._clock.sleep(pause)

    async def look(self) -> int:
        """How long it took."""
        began = self._clock.now()
        sample = Sample(at=began)
        masters = await self._view.masters()
        tables = await self._view.each(masters.values(), self._view.runtime)
        sample.brokers = [_seen(name, address, tables[address]) for name, address in masters.items()]
        configs = await self._view.groups()
        sample.switched_off = {name for name, config in configs.items() if not config.consume_enable}
        lags = await self._view.each(configs, self._view.lag)
        sample.groups = {name: lag for name, lag in lags.items() if not isinstance(lag, AerobeeError)}
        sample.unread = await self._count_unread(sample.groups)
        sample.took_ms = self._clock.now() - began
        self.history.add(sample)
        return sample.took_ms

    async def _count_unread(self, groups: dict[str, GroupLag]) -> dict[str, int]:
        """A few at a time, so that ten thousand topics cost no more than twenty."""
        read = {queue.topic for lag in groups.values() for queue in lag.queues}
        unread = [topic for topic in await self._view.topics() if topic not in read]
        start = self._next_unread if self._next_unread < len(unread) else 0
        self._next_unread = start + UNREAD_LOOKS
        for topic, stats in (
            await self._view.each(unread[start : self._next_unread], self._view.topic_stats)
        ).items():
            if not isinstance(stats, AerobeeError):
                self._unread[topic] = sum(entry.max_offset - entry.min_offset for entry in stats.values())
        known = set(unread)
        self._unread = {topic: count for topic, count in self._unread.items() if topic in known and count}
        return dict(self._unread)


def _seen(name: str, address: str, answer: dict[str, str] | AerobeeError) -> BrokerSeen:
    if isinstance(answer, AerobeeError):
        return BrokerSeen(name, address, answers=False)
    return broker_seen(name, address, answer)


def broker_seen(name: str, address: str, table: dict[str, str]) -> BrokerSeen:
    """Of the runtime table, whose names are RocketMQ's."""
    own = table.get("aerobeeVersion")
    late = table.get("sendThreadPoolQueueHeadWaitTimeMills")
    return BrokerSeen(
        name=name,
        address=address,
        version=f"Aerobee {own}" if own else f"RocketMQ {table.get('brokerVersionDesc', '')}".strip(),
        put=_whole(table.get("msgPutTotalTodayNow")),
        got=_whole(table.get("msgGetTotalTodayNow")),
        disk=float(table["commitLogDiskRatio"]) if "commitLogDiskRatio" in table else None,
        late_ms=None if late is None else _whole(late),
        started_at=_whole(table.get("bootTimestamp")),
    )


def _whole(text: str | None) -> int:
    return int(float(text)) if text else 0
