# SPDX-License-Identifier: Apache-2.0
"""Leases of push clients, kept alive while the client lives. Told the time; the receipts it makes go through the broker.

A push client asks for messages without saying how long it needs. Each of its messages is leased for a minute; while the
client is heard from, the lease is changed to a longer one before it ends, up to three hours after the first delivery.
The client keeps the receipt it was given, so the newest one is looked up here when it acks. A client that dies or
says goodbye gets nothing renewed: its messages come back within seconds. All of this is memory only: after a crash the
last lease simply runs out.

Its times are the wall clock's, as the receipts' are: `moved` tells it that the clock was set.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.protocol.receipt import Receipt

AHEAD_MS = 10_000
STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
LONGEST_MS = 3 * 3_600_000
MAX_LEASES = 1_000_000


class Key(NamedTuple):
    """What a lease is about, whichever receipt it has at the moment."""

    group: str
    topic: str  # the one the client knows
    retry: str
    queue_id: int
    offset: int
    first_pop: int


class RenewedLease:
    __slots__ = ("client_id", "due", "key", "receipt", "renewed", "until")

    def __init__(self, key: Key, client_id: str, receipt: Receipt) -> None:
        self.key = key
        self.client_id = client_id
        self.receipt = receipt
        self.renewed = 0
        self.due = receipt.visible_at
        self.until = key.first_pop + LONGEST_MS


class Renewals:
    def __init__(self) -> None:
        self._leases: dict[Key, RenewedLease] = {}
        self._by_due: list[tuple[int, int, RenewedLease]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._leases)

    def hold(self, group: str, topic: str, client_id: str, receipt: Receipt) -> None:
        """Renew this one from now on; beyond the bound messages are left to their first lease."""
        if len(self._leases) < MAX_LEASES:
            key = Key(group, topic, receipt.retry, receipt.queue_id, receipt.offset, receipt.pop_time)
            lease = self._leases[key] = RenewedLease(key, client_id, receipt)
            self._push(lease)

    def release(self, group: str, topic: str, receipt: Receipt) -> Receipt:
        """The receipt to use for what the client says about `receipt`; it is not renewed any more."""
        key = Key(group, topic, receipt.retry, receipt.queue_id, receipt.offset, receipt.pop_time)
        lease = self._leases.pop(key, None)
        return lease.receipt if lease is not None else receipt

    def due(self, now: int) -> list[RenewedLease]:
        """Leases that end within AHEAD_MS; each comes once and is renewed or dropped by the caller."""
        found = []
        while self._by_due and self._by_due[0][0] - AHEAD_MS <= now:
            due, _, lease = heapq.heappop(self._by_due)
            if self._leases.get(lease.key) is lease and lease.due == due:
                found.append(lease)
        return found

    def extension(self, lease: RenewedLease, now: int) -> int | None:
        """How long to extend; None when it has been kept long enough."""
        left = lease.until - now
        step = STEPS_MS[min(lease.renewed, len(STEPS_MS) - 1)]
        return min(step, left) if left > AHEAD_MS else None

    def renewed(self, lease: RenewedLease, receipt: Receipt) -> None:
        lease.receipt, lease.due = receipt, receipt.visible_at
        lease.renewed += 1
        self._push(lease)

    def moved(self, jump: int) -> None:
        """The wall clock was set: all ends as much later, by it."""
        for lease in self._leases.values():
            lease.due += jump
            lease.until += jump
        self._by_due = [(due + jump, count, lease) for due, count, lease in self._by_due]

    def drop(self, lease: RenewedLease) -> None:
        self._leases.pop(lease.key, None)

    def of_client(self, client_id: str) -> list[RenewedLease]:
        return [lease for lease in self._leases.values() if lease.client_id == client_id]

    def _push(self, lease: RenewedLease) -> None:
        self._count += 1
        heapq.heappush(self._by_due, (lease.due, self._count, lease))
