# SPDX-License-Identifier: Apache-2.0
"""Pulls that found nothing and wait for their queue.

Theory of operation: a held pull is a coroutine that awaits one future. The future is set by the first of
  - a message at or past the wanted offset that the pull's filter accepts (`arrived`, from the store, same turn),
  - somebody who knows better (`wake`: an offset reset, a lock given back),
  - the safety check every 5 s (`tick`): the queue has grown, though nothing matched, so the consumer can move on,
  - its deadline (one timer of the clock per waiter).
An arrival costs a dict look-up when nobody waits, else a comparison per waiter of that one queue. The woken pull
reads again and answers whatever it finds; it is not held twice.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aerobee.clock import held, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import Clock
    from aerobee.protocol.filters import Accept
    from aerobee.protocol.message import Record
    from aerobee.settings import BrokerConfig, InForce
    from aerobee.store.results import Awaited

log = logging.getLogger("aerobee.parked")

Key = tuple[str, int]  # topic, queue id


class Arrival:
    """A message just stored, as the filters of held pulls and held pops see it.

    Its properties are parsed at most once, however many filters look at them.
    """

    __slots__ = ("_properties", "_record", "_tags_code")

    def __init__(self, record: Record, tags_code: int) -> None:
        self._record = record
        self._tags_code = tags_code
        self._properties: dict[str, str] | None = None

    def passes(self, accept: Accept | None) -> bool:
        if accept is None:
            return True
        if accept.codes is not None and self._tags_code not in accept.codes:
            return False
        if accept.properties is None:
            return True
        if self._properties is None:
            self._properties = self._record.properties
        try:
            return accept.properties(self._properties)
        except Exception:  # a filter that fails on this message does not match it, and must not stop the send
            log.exception("filter failed")
            return False


class _Waiter:
    __slots__ = ("accept", "offset", "woken")

    def __init__(self, offset: int, accept: Accept | None, woken: asyncio.Future[bool]) -> None:
        self.offset = offset
        self.accept = accept
        self.woken = woken


class ParkedReads:
    def __init__(
        self, clock: Clock, max_offset: Callable[[str, int], int], settings: InForce[BrokerConfig]
    ) -> None:
        self._clock = clock
        self._max_offset = max_offset
        self._settings = settings
        self._waiting: dict[Key, dict[_Waiter, None]] = {}
        self.count = 0  # pulls held now
        self._stopped = False

    def counts(self) -> dict[Key, int]:
        return {key: len(waiters) for key, waiters in self._waiting.items()}

    async def until_past(
        self, topic: str, queue_id: int, offset: int, deadline: int, accept: Accept | None = None
    ) -> bool:
        """Wait for a message at or past `offset`. False when the deadline came first.

        When `max_held_pulls` are held already, or the broker stops, it does not wait.
        """
        full = self.count >= self._settings.value.max_held_pulls
        if self._stopped or full or self._clock.now() >= deadline:
            return False
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(offset, accept, woken)
        self._add((topic, queue_id), waiter)
        try:
            return await held(self._clock, deadline, woken, late=False)
        finally:
            # Also when the connection went away and this coroutine was cancelled.
            self._discard((topic, queue_id), waiter)

    def awaited(self) -> Awaited:
        return self._waiting

    def arrived(self, record: Record, tags_code: int) -> None:
        """A message was stored: wake whom it concerns."""
        waiters = self._waiting.get((record.topic, record.queue_id))
        if waiters is None or not self._settings.value.long_polling:
            return  # without long polling a pull looks again when its short time is over
        arrival = Arrival(record, tags_code)
        for waiter in waiters:
            if record.queue_offset < waiter.offset or waiter.woken.done():
                continue
            if arrival.passes(waiter.accept):
                waiter.woken.set_result(True)

    def wake(self, topic: str, queue_id: int) -> None:
        """Let every pull held on the queue read again."""
        for waiter in self._waiting.get((topic, queue_id), ()):
            tell(waiter.woken, True)

    def tick(self, now: int) -> None:
        """The safety check: a queue that grew past what a pull waits for lets it go, match or not."""
        for (topic, queue_id), waiters in list(self._waiting.items()):
            try:
                newest = self._max_offset(topic, queue_id)
            except Exception:
                log.exception("held pulls not checked topic=%s queue=%d", topic, queue_id)
                continue
            for waiter in waiters:
                if waiter.offset < newest:
                    tell(waiter.woken, True)

    def stop(self) -> None:
        """Let everybody go, and hold nobody from now on."""
        self._stopped = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                tell(waiter.woken, False)

    def _add(self, key: Key, waiter: _Waiter) -> None:
        self._waiting.setdefault(key, {})[waiter] = None
        self.count += 1

    def _discard(self, key: Key, waiter: _Waiter) -> None:
        waiters = self._waiting[key]
        del waiters[waiter]
        self.count -= 1
        if not waiters:
            del self._waiting[key]
