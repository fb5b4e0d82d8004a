# SPDX-License-Identifier: Apache-2.0
"""What strangers do wrong, told without letting them fill the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.clock import Clock

_EVERY_MS = 60_000


class Complaints:
    """One line each at DEBUG. At INFO the first, then one a minute that counts those left out."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._told_at: int | None = None
        self._left_out = 0

    def add(self, complaint: str) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug("%s", complaint)
            return
        now = self._clock.now()
        if self._told_at is not None and 0 <= now - self._told_at < _EVERY_MS:
            self._left_out += 1
            return
        more = f" (and {self._left_out} like it since)" if self._left_out else ""
        self._log.info("%s%s", complaint, more)
        self._told_at, self._left_out = now, 0
