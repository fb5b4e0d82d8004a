# SPDX-License-Identifier: Apache-2.0
"""Pops (and notifications) that found nothing and wait.

Theory of operation. A held request is a coroutine that awaits one future, under the key (topic, group,
queue id), queue id -1 meaning any queue. Unlike a pull, which everybody on the queue may read, a message
popped is gone: so one arrival wakes one waiter per key, the one that expires first. Waiters of one key with
the same filter stand in one line, so an arrival costs one test per different filter, however many wait.

Woken by: an arrival its filter accepts (every `FORCED`th regardless, so that a filter without matches still
moves the group's progress); an arrival in one of the group's two retry topics; `wake`, for messages left
over, an order released, an offset reset; its deadline; the broker's stop. A wake-up taken by a request
whose connection has gone is handed on to the next.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from enum import Enum
from typing import TYPE_CHECKING

from aerobee.broker.state.parked_reads import Arrival
from aerobee.clock import held, tell
from aerobee.protocol import names
from aerobee.store.results import EVERY_QUEUE

if TYPE_CHECKING:
    from aerobee.clock import Clock
    from aerobee.protocol.filters import Accept
    from aerobee.protocol.message import Record
    from aerobee.settings import BrokerConfig, InForce
    from aerobee.store.results import Awaited

FORCED = 800
EARLY_MS = 50  # a request is given up this much before its deadline: the answer has a way to go
ANY_QUEUE = -1

GroupQueue = tuple[str, int]  # group, queue id
Place = tuple[str, str, int]  # topic, group, queue id


class Parked(Enum):
    """How a wait ended."""

    WOKEN = "look again"
    EXPIRED = "the deadline, or the broker stops"
    FULL = "too many wait already"


class Reads(Enum):
    """Which arrivals can be of use to a waiter."""

    WITH_RETRIES = "the topic and the group's retry topics"
    TOPIC_ONLY = "the topic: ordered pops have no retries"


class _Line:
    """Waiters of one key and one filter, by deadline."""

    __slots__ = ("accept", "heap", "reads")

    def __init__(self, accept: Accept | None, reads: Reads) -> None:
        self.accept = accept
        self.reads = reads
        self.heap: list[tuple[int, int, asyncio.Future[Parked]]] = []

    def wake_first(self) -> bool:
        """Wake the one that expires first; those that ended in another way are dropped on the way."""
        while self.heap:
            woken = heapq.heappop(self.heap)[2]
            if not woken.done():
                woken.set_result(Parked.WOKEN)
                return True
        return False


Lines = dict[tuple[Reads, int], _Line]  # by what they read and the identity of their filter


class ParkedPops:
    def __init__(self, clock: Clock, settings: InForce[BrokerConfig]) -> None:
        self._clock = clock
        self._settings = settings
        self._waiting: dict[str, dict[GroupQueue, Lines]] = {}
        self._counts: dict[Place, int] = {}
        self._owners: dict[str, dict[tuple[str, str], int]] = {}  # retry topic -> (topic, group) -> waiters
        self._sequence = itertools.count()
        self.count = 0
        self._stopped = False

    # -- waiting -----------------------------------------------------------------------------------------

    async def wait(self, place: Place, deadline: int, accept: Accept | None, reads: Reads) -> Parked:
        """Wait for a reason to look again. There must be no await between the look and this call."""
        if self._stopped or self._clock.now() > deadline - EARLY_MS:
            return Parked.EXPIRED
        if self.full(place):
            return Parked.FULL
        woken: asyncio.Future[Parked] = asyncio.get_running_loop().create_future()
        self._add(place, deadline, _line_key(accept, reads), woken, accept)
        try:
            return await held(self._clock, deadline - EARLY_MS, woken, Parked.EXPIRED)
        except asyncio.CancelledError:
            # The connection went away. What it was woken for is somebody else's now.
            if woken.done() and not woken.cancelled() and woken.result() is Parked.WOKEN:
                self._hand_on(place)
            raise
        finally:
            self._discard(place)

    def full(self, place: Place) -> bool:
        limits = self._settings.value
        return (
            self.count >= limits.pop_polling_total or self._counts.get(place, 0) > limits.pop_polling_per_key
        )

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait under exactly this key."""
        return self._counts.get((topic, group, max(queue_id, ANY_QUEUE)), 0)

    # -- waking ------------------------------------------------------------------------------------------

    def awaited(self) -> Awaited:
        """Whoever waits: a message in any queue may be a retry of what is waited for."""
        return EVERY_QUEUE if self.count else ()

    def arrived(self, record: Record, tags_code: int) -> None:
        """A message was stored."""
        keys = self._waiting.get(record.topic)
        if keys is not None:
            forced = (record.queue_offset + 1) % FORCED == 0
            arrival = None if forced else Arrival(record, tags_code)
            for key, lines in list(keys.items()):
                if key[1] in (ANY_QUEUE, record.queue_id):
                    _wake_one(lines, arrival)
        owners = self._owners.get(record.topic)
        if owners is not None:
            for topic, group in list(owners):
                self._retry_arrived(topic, group)

    def _retry_arrived(self, topic: str, group: str) -> None:
        """Whichever queue a request names, it may return retries: one request is enough."""
        keys = self._waiting.get(topic, {})
        for key in [(group, ANY_QUEUE), *(k for k in keys if k[0] == group and k[1] != ANY_QUEUE)]:
            lines = keys.get(key)
            if lines and _wake_retry_reader(lines):
                return

    def wake(self, topic: str, group: str, queue_id: int) -> bool:
        """Let one request of exactly this key look again. Those of all queues (-1) and of one never wake each other."""
        lines = self._waiting.get(topic, {}).get((group, queue_id))
        return lines is not None and _wake_one(lines, None)

    def _hand_on(self, place: Place) -> None:
        """It may have been for a retry, which requests of other queues read too."""
        topic, group, _ = place
        if not self.wake(*place):
            self._retry_arrived(topic, group)

    def wake_queue(self, topic: str, group: str, queue_id: int) -> None:
        """A queue can be read again: one that waits for any queue, and one that waits for this."""
        self.wake(topic, group, ANY_QUEUE)
        self.wake(topic, group, queue_id)

    def wake_topic(self, topic: str) -> None:
        """Let all that wait for the topic look again."""
        for lines in self._waiting.get(topic, {}).values():
            while _wake_one(lines, None):
                pass

    def places(self) -> list[Place]:
        return list(self._counts)

    def stop(self) -> None:
        """Let everybody go, and hold nobody from now on."""
        self._stopped = True
        waits = [woken for keys in self._waiting.values() for woken in _waits(keys)]
        for woken in waits:
            tell(woken, Parked.EXPIRED)

    # -- inside ------------------------------------------------------------------------------------------

    def _add(
        self,
        place: Place,
        deadline: int,
        key: tuple[Reads, int],
        woken: asyncio.Future[Parked],
        accept: Accept | None,
    ) -> None:
        topic, group, queue_id = place
        lines = self._waiting.setdefault(topic, {}).setdefault((group, queue_id), {})
        line = lines.get(key)
        if line is None:
            line = lines[key] = _Line(accept, key[0])
        heapq.heappush(line.heap, (deadline, next(self._sequence), woken))
        self._counts[place] = self._counts.get(place, 0) + 1
        self.count += 1
        for retry in (names.pop_retry_topic(topic, group), names.pop_retry_topic_v2(topic, group)):
            owners = self._owners.setdefault(retry, {})
            owners[topic, group] = owners.get((topic, group), 0) + 1

    def _discard(self, place: Place) -> None:
        topic, group, queue_id = place
        self.count -= 1
        left = self._counts[place] = self._counts[place] - 1
        for retry in (names.pop_retry_topic(topic, group), names.pop_retry_topic_v2(topic, group)):
            owners = self._owners[retry]
            owners[topic, group] -= 1
            if not owners[topic, group]:
                del owners[topic, group]
                if not owners:
                    del self._owners[retry]
        keys = self._waiting[topic]
        if not left:  # futures of ended waits go with their line
            del self._counts[place], keys[group, queue_id]
            if not keys:
                del self._waiting[topic]
            return
        for key, line in list(keys[group, queue_id].items()):
            if len(line.heap) > 2 * left + 16:
                line.heap = [entry for entry in line.heap if not entry[2].done()]
                heapq.heapify(line.heap)
            if not line.heap:
                del keys[group, queue_id][key]


def _wake_one(lines: Lines, arrival: Arrival | None) -> bool:
    """One waiter of the key: of its lines that the arrival passes, the one with the earliest deadline."""
    able = [line for line in lines.values() if line.heap and (arrival is None or arrival.passes(line.accept))]
    able.sort(key=lambda line: line.heap[0][:2])
    return any(line.wake_first() for line in able)


def _waits(keys: dict[GroupQueue, Lines]) -> list[asyncio.Future[Parked]]:
    return [entry[2] for lines in keys.values() for line in lines.values() for entry in line.heap]


def _wake_retry_reader(lines: Lines) -> bool:
    return any(line.wake_first() for line in lines.values() if line.reads is Reads.WITH_RETRIES)


def _line_key(accept: Accept | None, reads: Reads) -> tuple[Reads, int]:
    return reads, id(accept)  # the filter is alive as long as its line is
