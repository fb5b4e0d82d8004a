# SPDX-License-Identifier: Apache-2.0
"""Servers that do not answer, told without filling the log: a line when it begins, one a minute, one when it ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import NetworkError

if TYPE_CHECKING:
    from aerobee.clock import Clock

log = logging.getLogger("aerobee.client.session")

TOLD_EVERY_MS = 60_000


class _Outage(msgspec.Struct):
    began: int
    told: int
    failures: int = 1


class Outages:
    """By address. What the many parts of a client then fail with is worth no line of its own: see `level`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.open: dict[str, _Outage] = {}

    def failed(self, address: str, error: NetworkError) -> None:
        now, known = self._clock.now(), self.open.get(address)
        if known is None:
            self.open[address] = _Outage(now, now)
            log.warning("server=%s does not answer, trying on: %s", address, error)
            return
        known.failures += 1
        if now - known.told >= TOLD_EVERY_MS:
            known.told = now
            seconds = (now - known.began) // 1000
            log.warning(
                "server=%s has not answered for s=%d failures=%d: %s", address, seconds, known.failures, error
            )

    def answered(self, address: str) -> None:
        known = self.open.pop(address, None)
        if known is not None:
            seconds = (self._clock.now() - known.began) / 1000
            log.warning("server=%s answers again after s=%.1f failures=%d", address, seconds, known.failures)


def level(error: Exception) -> int:
    """Of the line that tells of an error met again and again: an outage has been told by `Outages`."""
    return logging.DEBUG if isinstance(error, NetworkError) else logging.WARNING
