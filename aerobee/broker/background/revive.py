# SPDX-License-Identifier: Apache-2.0
"""What time does to leases: written to the revive log after a few seconds, redelivered when they are due.

The only loop in a message's journey, and it goes through the log: an expired message is appended to the
retry topic and popped from there. One tick does a bounded amount and asks to be called again at once when
there is more.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

from aerobee.broker.delivery.redelivery import Expired, redeliver
from aerobee.broker.pop.revive_log import unpack
from aerobee.clock import MS_NS, perf_counter_ns
from aerobee.errors import StoreError

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.pop.in_flight import LeasedBatch

log = logging.getLogger("aerobee.revive")

ATTENDED_PER_TICK = 64  # checkpoints before other work has its turn
REDELIVERED_PER_TICK = 16  # of up to 32 messages each: some milliseconds
READ_PER_TICK = 1_000
AFTER_ERROR_MS = 10_000
KEPT_MS = 1_000
COMMIT_MS = 1_000
SWEEP_MS = 60_000


class Revive:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._leases = broker.pops.leases
        self._skipped = broker.stats.skipped
        self._redelivered: Counter[tuple[str, str]] = Counter()
        self._given_back: Counter[tuple[str, str]] = Counter()  # with a reason
        self._last: dict[str, int] = {}

    def tick(self, now: int) -> int:
        """Returns the ms until the next look."""
        began = perf_counter_ns()
        busy = self._attend(now) + self._expire(now)
        self._broker.stats.counted.scan_ms.add((perf_counter_ns() - began) / MS_NS)
        busy += self._leases.absorb(READ_PER_TICK) == READ_PER_TICK
        self._report()
        if self._is_time("commit", COMMIT_MS, now):
            self._leases.log.commit()
            self._wake_reset()
        if self._is_time("sweep", SWEEP_MS, now):
            self._leases.in_flight.sweep()
            self._broker.pops.orders.drop_idle(self._broker.clock.wall())
        return 0 if busy else self._broker.config.revive_interval_ms

    def close(self) -> None:
        """Nothing leased is left in memory only."""
        self._leases.journal_all(None, self._broker.clock.now())
        self._leases.log.commit()

    # -- young: in memory only ---------------------------------------------------------------------------

    def _attend(self, now: int) -> bool:
        found = self._leases.in_flight.attend(now, ATTENDED_PER_TICK)
        left = deque(found)
        try:
            while left:
                self._attend_one(left[0], now)
                left.popleft()
        finally:  # a failure that is not of one checkpoint: all that is left is tried again
            for checkpoint in left:
                self._leases.in_flight.postpone(checkpoint, now + AFTER_ERROR_MS)
        return len(found) == ATTENDED_PER_TICK

    def _attend_one(self, checkpoint: LeasedBatch, now: int) -> None:
        if checkpoint.journaled or not checkpoint.open:
            return  # with its parent, a moment ago
        lane, offsets = checkpoint.lane, checkpoint.open_offsets
        with self._skipped.over(
            "revive", group=lane.group, topic=lane.topic, queue=lane.queue_id, offsets=offsets
        ):
            if checkpoint.due <= now:
                self._redeliver_young(checkpoint, now)
            else:
                self._leases.journal(checkpoint, now)
            return
        self._leases.in_flight.close(checkpoint, checkpoint.open)

    def _redeliver_young(self, checkpoint: LeasedBatch, now: int) -> None:
        if not self._leases.journal_children(checkpoint, now):
            self._leases.in_flight.postpone(checkpoint, now + AFTER_ERROR_MS)
            return
        lane, offsets = checkpoint.lane, checkpoint.open_offsets
        expired = Expired(
            lane.topic,
            lane.group,
            lane.queue_id,
            checkpoint.pop_time,
            offsets,
            failure=checkpoint.failure,
        )
        try:
            self._redeliver(expired)
        except StoreError as error:
            log.warning("redelivery refused, again in ms=%d: %s", AFTER_ERROR_MS, error)
            self._leases.in_flight.postpone(checkpoint, now + AFTER_ERROR_MS)
            return
        self._leases.redelivered_young(checkpoint, now)

    def _redeliver(self, expired: Expired) -> None:
        # A time that was changed tells nothing: whoever works on asks for it, too. A reason has only who gave up.
        counted = self._given_back if expired.failure else self._redelivered
        counted[expired.group, expired.topic] += redeliver(expired, self._broker)

    # -- in the revive log -------------------------------------------------------------------------------

    def _expire(self, now: int) -> bool:
        positions = self._leases.in_flight.due.take(now, REDELIVERED_PER_TICK)
        left = deque(positions)
        try:
            while left:
                with self._skipped.over("revive", queue_and_offset=unpack(left[0])):
                    self._expire_one(left[0], now)
                    left.popleft()
                    continue
                self._leases.log.done(left.popleft())
        finally:
            for position in left:
                self._leases.in_flight.due.add(now + AFTER_ERROR_MS, position)
        return len(positions) == REDELIVERED_PER_TICK

    def _expire_one(self, position: int, now: int) -> None:
        """Whatever is still open of one logged checkpoint goes to the retry topic; then its log entry is done."""
        leases, broker = self._leases, self._broker
        found = leases.log.checkpoint_at(position)
        if found is None:
            log.error("revive log position=%s is gone: its messages are not redelivered", unpack(position))
            leases.log.done(position)
            return
        logged, logged_at = found
        broker.stats.counted.revived[logged.group, logged.topic, unpack(position)[0]] += 1
        lane = leases.in_flight.lanes.get((logged.topic, logged.group, logged.queue_id))
        bits = 0
        if lane is not None:
            bits = leases.open_bits(lane, logged, logged_at)
        if lane is not None and bits:
            offsets = [offset for i, offset in enumerate(logged.offsets) if bits >> i & 1]
            expired = Expired(
                lane.topic,
                lane.group,
                lane.queue_id,
                logged.pop_time,
                offsets,
                logged_at,
                logged.failure or "",
            )
            try:
                self._redeliver(expired)
            except StoreError as error:
                log.warning("redelivery refused, again in ms=%d: %s", AFTER_ERROR_MS, error)
                leases.in_flight.due.add(now + AFTER_ERROR_MS, position)
                return
            leases.redelivered(lane, logged, bits, unpack(position)[0], now)
        if leases.keeps(lane, logged):
            leases.in_flight.due.add(now + KEPT_MS, position)
        else:
            leases.log.done(position)

    # -- now and then ------------------------------------------------------------------------------------

    def _is_time(self, what: str, interval_ms: int, now: int) -> bool:
        """A clock set back starts the interval anew."""
        last = self._last.setdefault(what, now)
        if 0 <= now - last < interval_ms:
            return False
        self._last[what] = now
        return True

    def _wake_reset(self) -> None:
        """An operator moved a group: its held requests read on from there."""
        offsets, pops = self._broker.offsets, self._broker.pops
        for topic, group, queue_id in pops.parked.places():
            config = self._broker.topics.get(topic)
            queues = range(config.read_queue_nums if config else 0) if queue_id < 0 else (queue_id,)
            if any(offsets.has_reset(group, topic, q) for q in queues):
                pops.parked.wake(topic, group, queue_id)

    def _report(self) -> None:
        for (group, topic), count in self._redelivered.items():
            if count:
                log.warning(
                    "group=%s topic=%s messages=%d: not acked in time, redelivering", group, topic, count
                )
        self._redelivered.clear()
        for (group, topic), count in self._given_back.items():
            if count:
                log.info(
                    "group=%s topic=%s messages=%d: given back by its consumer, redelivering",
                    group,
                    topic,
                    count,
                )
        self._given_back.clear()
