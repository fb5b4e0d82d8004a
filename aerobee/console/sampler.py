# SPDX-License-Identifier: Apache-2.0
"""Looks at the cluster every few seconds and writes it into the history; where a look takes long, more rarely."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.console.history import BrokerSeen, GoneSeen, History, Holder, Sample, group_seen
from aerobee.console.problems import STILL_MS
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import Clock
    from aerobee.console.cluster_view import ClusterView
    from aerobee.console.history import GroupSeen
    from aerobee.protocol.bodies import GoneBroker

log = logging.getLogger("aerobee.console.sampler")

EVERY_MS = 5_000
RARER = 30  # a look takes no more than this part of the time
RAREST_MS = 30_000  # unless curves would become meaningless
HOLDERS_ASKED = 3  # groups that stand still whose members are asked what they hold
CLIENTS_ASKED = 16
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
                    pause = pause_after(await self.look())
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
        sample.gone = gone_seen(await self._view.gone_brokers(), self._clock.wall())
        configs = await self._view.groups()
        sample.switched_off = frozenset(name for name, config in configs.items() if not config.consume_enable)
        read: set[str] = set()
        seen = await self._view.each(configs, lambda group: self._group(group, read))
        sample.groups = {name: each for name, each in seen.items() if not isinstance(each, AerobeeError)}
        sample.unread = await self._count_unread(read)
        sample.holders = await self._holders()
        sample.took_ms = self._clock.now() - began
        self.history.add(sample)
        return sample.took_ms

    async def _group(self, group: str, read: set[str]) -> GroupSeen:
        """What is kept of it is made at once, between two answers, and not of all groups in one go."""
        lag = await self._view.lag(group)
        read.update(queue.topic for queue in lag.queues)
        return group_seen(lag)

    async def _count_unread(self, read: set[str]) -> dict[str, int]:
        """A few at a time, so that ten thousand topics cost no more than twenty."""
        unread = [topic for topic in await self._view.topics() if topic not in read]
        start = self._next_unread if self._next_unread < len(unread) else 0
        self._next_unread = start + UNREAD_LOOKS
        looked = await self._view.each(unread[start : self._next_unread], self._view.topic_stats)
        for topic, stats in looked.items():
            if not isinstance(stats, AerobeeError):
                self._unread[topic] = sum(entry.max_offset - entry.min_offset for entry in stats.values())
        known = set(unread)
        self._unread = {topic: count for topic, count in self._unread.items() if topic in known and count}
        return dict(self._unread)

    async def _holders(self) -> dict[str, list[Holder]]:
        """Of groups that hold messages and finish none: who holds them, most first. As the last sample saw it."""
        latest = self.history.latest
        if latest is None:
            return {}
        still = [
            name
            for name, seen in latest.groups.items()
            if seen.online and seen.in_flight and self.history.still_ms(name) >= STILL_MS
        ]
        found = await self._view.each(still[:HOLDERS_ASKED], self._holders_of)
        return {group: holders for group, holders in found.items() if isinstance(holders, list)}

    async def _holders_of(self, group: str) -> list[Holder]:
        members = await self._view.members(group)
        clients = [each.client_id for each in members.connection_set] if members else []
        held = await self._view.each(clients[:CLIENTS_ASKED], lambda client: self._view.held(group, client))
        found = [Holder(client, count) for client, count in held.items() if isinstance(count, int) and count]
        return sorted(found, key=lambda holder: -holder.held)


def pause_after(took_ms: int) -> int:
    return max(EVERY_MS, min(RARER * took_ms, RAREST_MS))


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
        put=_whole(table.get("putMessageTimesTotal") or table.get("msgPutTotalTodayNow")),
        got=_whole(table.get("msgGetTotalTodayNow")),
        disk=float(table["commitLogDiskRatio"]) if "commitLogDiskRatio" in table else None,
        late_ms=None if late is None else _whole(late),
        started_at=_whole(table.get("bootTimestamp")),
        refuses=table.get("refusesMessages", ""),
    )


def gone_seen(gone: list[GoneBroker], wall: int) -> list[GoneSeen]:
    return [
        GoneSeen(
            f"{each.broker_name} (id {each.broker_id})" if each.broker_id else each.broker_name,
            each.broker_addr,
            each.since,
            max(0, wall - each.since),
            each.why,
        )
        for each in gone
    ]


def _whole(text: str | None) -> int:
    return int(float(text)) if text else 0
