# SPDX-License-Identifier: Apache-2.0
"""Metrics in the log, for those who have nothing else: `metricsExporterType=LOG`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.fronts.http import exposition

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Metrics
    from aerobee.broker.metrics.family import Labels
    from aerobee.clock import Clock

log = logging.getLogger("aerobee.metrics")


class MetricsLog:
    def __init__(self, broker: Broker, metrics: Metrics, labels: Labels, real_clock: Clock) -> None:
        self._broker = broker
        self._metrics = metrics
        self._labels = labels
        self._clock = real_clock
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._broker.config.metrics_log_ms)
            await self.write()

    async def write(self) -> None:
        found = await self._metrics.scrape()
        for piece in exposition.lines(found, self._labels, exposition.Form.PROMETHEUS):
            for line in piece.splitlines():
                if not line.startswith("#"):
                    log.info("%s", line)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            with suppress(asyncio.CancelledError):
                await self._writing
