# SPDX-License-Identifier: Apache-2.0
"""Servers that do not answer, told without filling the log: a line when it begins, one a minute, one when it ends.

A process tells of a server once, however many sessions it has: those that fail at it share one outage, which is over
when the first of them is answered. That is noticed within a second, also where nobody has anything to ask: see `Watch`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary, ref

from aerobee.errors import AerobeeError, NetworkError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.client.session.tasks import Tasks
    from aerobee.clock import Clock

log = logging.getLogger("aerobee.client.session")

TOLD_EVERY_MS = 60_000
LOOK_MS = 1_000


class _Outage:
    """Its times are by the clock of the session that met it first."""

    __slots__ = ("__weakref__", "_clock", "began", "failures", "last", "told")

    def __init__(self, clock: Clock, error: NetworkError) -> None:
        self._clock = clock
        self.began = self.told = clock.now()
        self.failures = 1
        self.last = ref(error)

    def now(self) -> int:
        return self._clock.now()


# Of all sessions of the process, by address; forgotten with the last session that keeps it open.
_SHARED: WeakValueDictionary[str, _Outage] = WeakValueDictionary()


class Outages:
    """By address. What the many parts of a client then fail with is worth no line of its own: see `level`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.open: dict[str, _Outage] = {}

    def failed(self, address: str, error: NetworkError) -> None:
        known = _SHARED.get(address)
        if known is None:
            self.open[address] = _SHARED[address] = _Outage(self._clock, error)
            log.warning("server=%s does not answer, trying on: %s", address, error)
            return
        self.open[address] = known
        if known.last() is error:  # many waited for one attempt
            return
        known.last = ref(error)
        known.failures += 1
        now = known.now()
        if now - known.told >= TOLD_EVERY_MS:
            known.told = now
            seconds = (now - known.began) // 1000
            log.warning(
                "server=%s has not answered for s=%d; failed attempts of this process's clients: %d, the last with: %s",
                address,
                seconds,
                known.failures,
                error,
            )

    def answered(self, address: str) -> None:
        known = self.open.pop(address, None)
        if known is not None and _SHARED.get(address) is known:  # else another session has told it
            del _SHARED[address]
            seconds = (known.now() - known.began) / 1000
            log.warning(
                "server=%s answers again after s=%.1f; failed attempts of this process's clients: %d",
                address,
                seconds,
                known.failures,
            )

    def forget(self, address: str) -> None:
        """We have nothing to ask there any more."""
        self.open.pop(address, None)


class Watch:
    """Asks servers that do not answer every second, so that the end of an outage is told when it comes: a producer that
    has nothing to send asks nobody, and name servers are asked twice a minute."""

    def __init__(
        self, outages: Outages, tasks: Tasks, clock: Clock, ask: Callable[[str], Awaitable[None]]
    ) -> None:
        self._outages = outages
        self._tasks = tasks
        self._clock = clock
        self._ask = ask
        self._runs = False

    def begin(self) -> None:
        """Until all have answered; once is enough."""
        if not self._runs:
            self._runs = True
            self._tasks.start(self._run(), "outages")

    async def _run(self) -> None:
        try:
            while self._outages.open:
                await self._clock.sleep(LOOK_MS)
                for address in list(self._outages.open):
                    try:
                        await self._ask(address)
                    except AerobeeError as error:
                        log.debug("server=%s is not back: %s", address, error)
        finally:
            self._runs = False


def level(error: Exception) -> int:
    """Of the line that tells of an error met again and again: an outage has been told by `Outages`."""
    return logging.DEBUG if isinstance(error, NetworkError) else logging.WARNING
