# SPDX-License-Identifier: Apache-2.0
"""All that a broker does without being asked, in one list, and its life cycle."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.broker.access import plain_acl
from aerobee.broker.background.retention import keep_store
from aerobee.broker.background.revive import Revive
from aerobee.broker.background.runner import Job, every, run
from aerobee.broker.background.save_tables import save_every
from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.background.topic_retention import LOOK_MS as RETENTION_LOOK_MS
from aerobee.broker.background.topic_retention import TopicRetention
from aerobee.broker.background.transaction_check import TransactionCheck
from aerobee.clock import LOOK_MS
from aerobee.errors import StoreError

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

log = logging.getLogger("aerobee.background")

CLIENT_SCAN_MS = 10_000
PROGRESS_SAVE_MS = 10_000  # of delays and ordered pops: what is done twice after a crash
SETTINGS_SAVE_MS = 500  # made on use: operators' changes are saved before they are answered


class Background:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._schedule = Schedule(broker.store, broker.stats)
        self._timers = Timers(broker.store, broker.stats, broker.clock)
        self._revive = Revive(broker)
        self._topic_retention = TopicRetention(broker.topics, broker.store, broker.clock)
        self._show_timers()
        self._task: asyncio.Task[None] | None = None

    def jobs(self) -> list[Job]:
        broker = self._broker
        plain = broker.access.plain
        return [
            *([] if plain is None else [Job("accounts", every(plain_acl.POLL_MS, plain.tick))]),
            Job("clock", every(LOOK_MS, lambda _: broker.clock.look())),
            Job("store", keep_store(broker.store)),
            Job("topic retention", every(RETENTION_LOOK_MS, self._topic_retention.tick)),
            Job("schedule", self._schedule.tick),
            Job("timers", self._timers.tick),
            Job("timer files", self._timers.flush),
            Job("held pulls", every(self._hold_check_ms, broker.parked.tick)),
            Job("clients", every(CLIENT_SCAN_MS, self._drop_silent)),
            Job(
                "settings files",
                save_every(SETTINGS_SAVE_MS, broker.topics, broker.groups, broker.pops.modes),
            ),
            Job("offset file", save_every(self._offset_flush_ms, broker.offsets)),
            Job("progress files", save_every(PROGRESS_SAVE_MS, self._schedule, broker.pops.orders)),
            Job("stats", broker.stats.tick),
            Job("revive", self._revive.tick),
            Job("transactions", TransactionCheck(broker).tick),
        ]

    def _hold_check_ms(self) -> int:
        config = self._broker.config
        return config.hold_check_ms if config.long_polling else config.short_polling_ms

    def _offset_flush_ms(self) -> int:
        return self._broker.config.offset_flush_ms

    def _show_timers(self) -> None:
        """Under the names of RocketMQ's runtime table."""
        timers, clock = self._timers, self._broker.clock
        self._broker.stats.counted.timers = timers
        self._broker.stats.gauges.update(
            {
                "timerReadBehind": lambda: timers.late_seconds(clock.now()),
                "timerOffsetBehind": lambda: timers.not_added,
                "timerCongestNum": lambda: timers.pending,
            }
        )

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(run(self.jobs(), self._broker.clock))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def save(self) -> None:
        """Write down what the parts remember; one that fails does not keep the others from it. The log goes before the
        tables that say what was done with its messages."""
        broker = self._broker
        for name, save in (
            ("revive", self._revive.close),
            ("log", broker.store.flush),
            ("timers", self._timers.close),
            ("schedule", self._schedule.save),
            ("orders", broker.pops.orders.save),
            ("offsets", broker.offsets.save),
            ("topics", broker.topics.save),
            ("groups", broker.groups.save),
            ("modes", broker.pops.modes.save),
        ):
            try:
                save()
            except (OSError, StoreError) as error:
                log.error("not saved part=%s: %s", name, error)

    def _drop_silent(self, now: int) -> None:
        for link in self._broker.clients.expire(now):
            link.close()
