# SPDX-License-Identifier: Apache-2.0
"""Which client of a group consumes a queue in order. A lock not renewed for its life may be taken by anyone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from aerobee.settings import BrokerConfig, InForce

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.locks")


class Lock(NamedTuple):
    client_id: str
    renewed_at: int


class QueueLocks:
    def __init__(self, settings: InForce[BrokerConfig] | None = None) -> None:
        self._settings = settings or InForce(BrokerConfig())
        self._locks: dict[str, dict[MessageQueue, Lock]] = {}  # group -> queue -> lock

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: int) -> set[MessageQueue]:
        """Lock or renew what can be had; returns only the queues the client now holds."""
        locks = self._locks.setdefault(group, {})
        held = set()
        new = 0
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.client_id == client_id or self._expired(lock, now):
                if lock is None or lock.client_id != client_id:
                    new += 1
                    log.debug("locked group=%s queue=%s client=%s", group, queue, client_id)
                locks[queue] = Lock(client_id, now)
                held.add(queue)
        if new:  # one line, however many: they come by the thousand
            log.info("locked group=%s queues=%d client=%s", group, new, client_id)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Only the owner's locks go."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
        if not locks:
            del self._locks[group]

    def holds_any(self, group: str, now: int) -> bool:
        """Whether some client of the group consumes in order at present."""
        locks = self._locks.get(group)
        return locks is not None and any(not self._expired(lock, now) for lock in locks.values())

    def owner(self, group: str, queue: MessageQueue, now: int) -> str | None:
        lock = self._locks.get(group, {}).get(queue)
        return None if lock is None or self._expired(lock, now) else lock.client_id

    def _expired(self, lock: Lock, now: int) -> bool:
        return now - lock.renewed_at > self._settings.value.lock_expiry_ms
