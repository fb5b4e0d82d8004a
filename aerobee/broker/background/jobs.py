# SPDX-License-Identifier: Apache-2.0
"""All that a broker does without being asked, in one list, and its life cycle."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.broker.background.flush_offsets import flush_every
from aerobee.broker.background.retention import keep_store
from aerobee.broker.background.revive import Revive
from aerobee.broker.background.runner import Job, every, run
from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.background.transaction_check import TransactionCheck
from aerobee.clock import LOOK_MS
from aerobee.errors import StoreError

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

log = logging.getLogger("aerobee.background")

CLIENT_SCAN_MS = 10_000
DELAY_FLUSH_MS = 10_000
TABLE_CHECK_MS = 500


class Background:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._schedule = Schedule(broker.store, broker.stats.skipped)
        self._timers = Timers(broker.store, broker.clock, broker.stats.skipped)
        self._revive = Revive(broker)
        self._task: asyncio.Task[None] | None = None

    def jobs(self) -> list[Job]:
        broker = self._broker
        return [
            Job("clock", every(LOOK_MS, lambda _: broker.clock.look())),
            Job("store", keep_store(broker.store)),
            Job("schedule", self._schedule.tick),
            Job("schedule offsets", flush_every(DELAY_FLUSH_MS, self._schedule, self._log_on_disk)),
            Job("timers", self._timers.tick),
            Job("timer files", self._timers.flush),
            Job("held pulls", every(self._hold_check_ms, broker.parked.tick)),
            Job("clients", every(CLIENT_SCAN_MS, self._drop_silent)),
            Job("offsets", flush_every(self._offset_flush_ms, broker.offsets, self._log_on_disk)),
            Job("topics", every(TABLE_CHECK_MS, broker.topics.tick)),
            Job("groups", every(TABLE_CHECK_MS, broker.groups.tick)),
            Job("stats", broker.stats.tick),
            Job("revive", self._revive.tick),
            Job("transactions", TransactionCheck(broker).tick),
        ]

    def _hold_check_ms(self) -> int:
        config = self._broker.config
        return config.hold_check_ms if config.long_polling else config.short_polling_ms

    def _offset_flush_ms(self) -> int:
        return self._broker.config.offset_flush_ms

    async def _log_on_disk(self) -> None:
        await self._broker.store.on_disk(self._broker.store.log_max)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(run(self.jobs(), self._broker.clock))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def save(self) -> None:
        """Write down what the parts remember; one that fails does not keep the others from it."""
        broker = self._broker
        for name, save in (
            ("schedule", self._schedule.save),
            ("revive", self._revive.close),
            ("timers", self._timers.close),
            ("offsets", broker.offsets.save),
            ("topics", broker.topics.save),
            ("groups", broker.groups.save),
        ):
            try:
                save()
            except StoreError as error:
                log.error("not saved part=%s: %s", name, error)

    def _drop_silent(self, now: int) -> None:
        for link in self._broker.clients.expire(now):
            link.close()
