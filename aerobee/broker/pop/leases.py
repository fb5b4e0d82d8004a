# SPDX-License-Identifier: Apache-2.0
"""What is popped and not acked, in memory (`InFlight`) and in the revive log, kept in step.

The order of writes is what makes a crash harmless: a new checkpoint before the ack of the one it replaces, a
redelivered copy before the ack of its original, the log before the group's offset passes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.pop.bits import bit_of, bits_of, diffs_of, offsets_at
from aerobee.broker.pop.in_flight import FULL, MAX_BATCH, InFlight, Lane, LeasedBatch, Matched
from aerobee.broker.pop.revive_log import Drop, Entry, ReviveLog
from aerobee.errors import StoreError
from aerobee.protocol.receipt import MAX_BITS, AckRecord, CheckpointRecord, Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.pop.in_flight import LaneKey
    from aerobee.broker.state.offsets import Offsets
    from aerobee.broker.state.skipped import Skipped
    from aerobee.clock import Clock
    from aerobee.settings import BrokerConfig, InForce

log = logging.getLogger("aerobee.pop")

# RocketMQ's timer delivers an ack up to this much after the checkpoint's time.
FOREIGN_ACK_MS = 3_000
EARLY_ACKS = 10_000
REFUSED_MS = 1_000
SAME_TIME_MS = 1_000  # a pop time further ahead is one of before the clock was set back
VOIDS_PER_LANE, VOID_LANES = 8, 10_000  # only drops of the last milliseconds matter
_SIGNED = 1 << 31  # RocketMQ's bit map is a signed 32-bit integer

EarlyKey = tuple[str, str, int, int, int]  # lane, start offset, pop time


class Leases:
    def __init__(
        self,
        settings: InForce[BrokerConfig],
        revive_log: ReviveLog,
        offsets: Offsets,
        clock: Clock,
        skipped: Skipped,
    ) -> None:
        self.in_flight = InFlight(settings, self._commit)
        self.log = revive_log
        self._offsets = offsets
        self._clock = clock
        self._skipped = skipped
        self._started = clock.wall()
        self._refused_until = 0  # by the disk
        # Acks of checkpoints that RocketMQ's timer has not delivered yet; the oldest go when there are too many.
        self._early: dict[EarlyKey, int] = {}
        # Drops: what was logged before `place in the commit log` is void from `offset` on. A key may be leased anew
        # in the millisecond of the drop, and then only this tells the old entry of the log from the new one.
        self._voids: dict[LaneKey, list[tuple[int, int]]] = {}

    def _commit(self, lane: Lane, offset: int) -> None:
        group, topic, queue_id = lane.group, lane.topic, lane.queue_id
        if offset <= self._offsets.get(group, topic, queue_id) or self._offsets.has_reset(
            group, topic, queue_id
        ):
            return  # an operator moved the group meanwhile
        self._offsets.set(group, topic, queue_id, offset)
        if lane.skip:
            lane.skip = {place for place in lane.skip if place >= offset}

    # -- leasing -----------------------------------------------------------------------------------------

    def position(self, lane: Lane) -> int:
        """The next offset a pop will read; -1 when the group has none yet."""
        return lane.position(self._offsets.get(lane.group, lane.topic, lane.queue_id))

    def lease(self, lane: Lane, offsets: Sequence[int], next_offset: int, receipt: Receipt) -> bool:
        """Record a popped batch. False: it could not be, and the messages must not be returned."""
        start, ahead = receipt.start_offset, self._clock.ahead
        checkpoint = LeasedBatch(
            lane,
            start,
            receipt.pop_time,
            receipt.visible_at - ahead,
            receipt.revive_qid,
            len(offsets),
            FULL[len(offsets)],
            diffs_of(start, offsets),
            next_offset,
            ahead=ahead,
        )
        if self.in_flight.full:
            self.make_room(self._clock.now())
        return self.in_flight.lease(lane, checkpoint)

    def make_room(self, now: int) -> None:
        """The table is at its cap: write the oldest to the log, some at a time."""
        if now >= self._refused_until:
            for checkpoint in self.in_flight.oldest(256):
                self.journal(checkpoint, now)

    def journal(self, checkpoint: LeasedBatch, now: int) -> bool:
        """Write a young checkpoint to the revive log. False, and tried again later, when the disk refuses."""
        if checkpoint.journaled:  # with its parent, a moment ago
            return True
        if not self.journal_children(checkpoint, now):
            self.in_flight.postpone(checkpoint, now + REFUSED_MS)
            return False
        try:
            position = self._write(checkpoint.revive_queue, as_logged(checkpoint), now)
        except StoreError as error:
            if now >= self._refused_until:
                log.warning("checkpoints stay in memory, the revive log refuses them: %s", error)
                self._refused_until = now + REFUSED_MS
            self.in_flight.postpone(checkpoint, now + REFUSED_MS)
            return False
        self.log.pending(position)
        self.in_flight.journaled(checkpoint, position)
        return True

    def _write(self, revive_queue: int, logged: CheckpointRecord, now: int) -> int:
        return self.log.write_checkpoint(revive_queue, logged, now + self._clock.ahead)

    def journal_children(self, checkpoint: LeasedBatch, now: int) -> bool:
        """Before a checkpoint is written, those split off it: it says of their messages that it has no more to do
        with them, so after a crash only their own entries keep them from being lost."""
        if not checkpoint.children:
            return True
        young = list(checkpoint.lane.young.values())
        return all(self.journal(child, now) for child in young if child.parent is checkpoint)

    def journal_all(self, lane: Lane | None, now: int) -> None:
        """Write every young checkpoint (of a lane): a stop, or an offset reset."""
        lanes = list(self.in_flight.lanes.values()) if lane is None else [lane]
        for one in lanes:
            for checkpoint in list(one.young.values()):
                self.journal(checkpoint, now)

    # -- acking ------------------------------------------------------------------------------------------

    def ack(self, place: LaneKey, receipt: Receipt, places: int, now: int) -> int:
        """AckRecord messages of one checkpoint: bit i of `places` is the one i offsets after the receipt's start.

        Unknown ones are ignored. Returns how many were known.
        """
        lane = self.in_flight.lanes.get(place)
        matched, closed = Matched.UNKNOWN, 0
        if lane is not None:
            matched, closed = self.in_flight.ack(lane, receipt.start_offset, receipt.pop_time, places)
        if matched is Matched.UNKNOWN:
            if receipt.pop_time < self._started and not receipt.expired(now + self._clock.ahead):
                self._keep_early(place, receipt.start_offset, receipt.pop_time, places)
        elif closed and matched is Matched.JOURNALED:
            self._write_ack(place, receipt, offsets_at(receipt.start_offset, closed), now)
        return closed.bit_count()

    def _write_ack(self, place: LaneKey, receipt: Receipt, offsets: list[int], now: int) -> None:
        topic, group, queue_id = place
        ack = AckRecord(topic=topic, group=group, queue_id=queue_id)
        ack.start_offset, ack.pop_time = receipt.start_offset, receipt.pop_time
        if len(offsets) == 1:
            ack.offset = offsets[0]
        else:
            ack.offsets = offsets
        try:
            self.log.write_ack(receipt.revive_qid, ack, now + self._clock.ahead, receipt.visible_at)
        except StoreError as error:  # acked in memory all the same; only a restart would deliver again
            log.warning("ack not written group=%s topic=%s queue=%d: %s", group, topic, queue_id, error)

    def _keep_early(self, place: LaneKey, start: int, pop_time: int, places: int) -> None:
        """The checkpoint, popped before this process started, may still be in RocketMQ's timer."""
        key = (*place, start, pop_time)
        self._early[key] = self._early.get(key, 0) | places
        if len(self._early) > EARLY_ACKS:
            del self._early[next(iter(self._early))]

    # -- changing the invisible time ---------------------------------------------------------------------

    def change(
        self, place: LaneKey, receipt: Receipt, offset: int, invisible_ms: int, now: int, failure: str = ""
    ) -> int:
        """Lease one message anew. Returns the pop time of its new receipt, which starts at its own offset.

        A receipt that is not known any more changes nothing: the message is acked or on its way back already.
        Raises StoreError when the new lease cannot be recorded; the old one then stands.
        """
        lane, ahead = self.in_flight.lanes.get(place), self._clock.ahead
        wall = now + ahead
        if lane is None:
            return wall
        # Popped or changed in this very millisecond: the new receipt must differ from every older one (10276).
        pop_time = receipt.pop_time + 1 if wall <= receipt.pop_time < wall + SAME_TIME_MS else wall
        while self.in_flight.known(lane, offset, pop_time):
            pop_time += 1
        due = pop_time - ahead + invisible_ms
        child = LeasedBatch(
            lane, offset, pop_time, due, receipt.revive_qid, 1, 1, ahead=ahead, failure=failure
        )
        start = receipt.start_offset
        young = self.in_flight.young_of(lane, start, receipt.pop_time)
        if young is not None:
            bit = bit_of(offset - start, young.count, young.diffs)
            if young.open & bit:
                self.in_flight.split(young, child)
                self.in_flight.close(young, bit)
        elif self._is_open(lane, receipt, offset):
            self._lease_journaled(lane, child, now)
            self.ack(place, receipt, 1 << offset - receipt.start_offset, now)
        return pop_time

    def _is_open(self, lane: Lane, receipt: Receipt, offset: int) -> bool:
        return offset in self.in_flight.open_offsets(lane, receipt.start_offset, receipt.pop_time)

    def _lease_journaled(self, lane: Lane, checkpoint: LeasedBatch, now: int) -> None:
        """The committed offset has passed the message: its new lease must be on disk before the old one ends."""
        position = self._write(checkpoint.revive_queue, as_logged(checkpoint), now)
        self.log.pending(position)
        self.in_flight.restore(lane, checkpoint, position)

    # -- redelivered -------------------------------------------------------------------------------------

    def redelivered_young(self, checkpoint: LeasedBatch, now: int) -> None:
        """Its messages are in the retry topic. Logged, so that a restart does not read the originals again."""
        checkpoint_as_done = as_logged(checkpoint)
        checkpoint_as_done.bitmap = _signed(FULL[checkpoint.count])
        try:
            position = self._write(checkpoint.revive_queue, checkpoint_as_done, now)
            self.log.pending(position)
            self.in_flight.due.add(checkpoint.due, position)
        except StoreError as error:
            log.warning("redelivery not logged: %s", error)
        self.in_flight.close(checkpoint, checkpoint.open)

    def redelivered(
        self, lane: Lane, logged: CheckpointRecord, bits: int, revive_queue: int, now: int
    ) -> None:
        closed = self.in_flight.close_cold(lane, logged.start_offset, logged.pop_time, bits)
        offsets = [offset for i, offset in enumerate(logged.offsets[:MAX_BATCH]) if closed >> i & 1]
        receipt = receipt_of(logged, revive_queue)
        if offsets:
            self._write_ack((lane.topic, lane.group, lane.queue_id), receipt, offsets, now)

    def keeps(self, lane: Lane | None, logged: CheckpointRecord) -> bool:
        """Whether a finished checkpoint must stay readable in the log: the group's offset has not passed it.

        Otherwise a crash right now would deliver again what was acked or redelivered.
        """
        if lane is None or not (lane.line or lane.skip):
            return False
        committed = self._offsets.get(lane.group, lane.topic, lane.queue_id)
        return any(offset >= committed for offset in logged.offsets)

    # -- the log's side ----------------------------------------------------------------------------------

    def absorb(self, limit: int) -> int:
        """Read on in the revive log: all of it after a start, and later what RocketMQ's timer delivers."""
        count = 0
        for entry in self.log.unread(limit):
            count += 1
            if entry is None:
                continue
            with self._skipped.over("revive", physical_offset=entry.physical_offset):
                if isinstance(entry.value, CheckpointRecord):
                    self._absorb_checkpoint(entry, entry.value)
                elif isinstance(entry.value, AckRecord):
                    self._absorb_ack(entry.value)
                else:
                    self._absorb_drop(entry.value, entry.physical_offset)
        return count

    def pass_restored(self) -> None:
        """After a start: let groups' offsets pass what the log speaks for, as far as that goes without a gap."""
        for lane in self.in_flight.lanes.values():
            offset = self._offsets.get(lane.group, lane.topic, lane.queue_id)
            while offset in lane.skip:
                offset += 1
            self._commit(lane, offset)

    def _absorb_checkpoint(self, entry: Entry, logged: CheckpointRecord) -> None:
        offsets = logged.offsets[:MAX_BATCH]
        # The last message decides: the first ones of a batch may have been cleaned away.
        if not self.log.speaks_for(entry, logged.topic, logged.queue_id, offsets[-1]):
            self.log.pending(entry.position)
            self.in_flight.due.add(logged.revive_time - self._clock.ahead, entry.position)
            return
        lane = self.in_flight.lane(logged.topic, logged.group, logged.queue_id)
        key = (logged.topic, logged.group, logged.queue_id, logged.start_offset, logged.pop_time)
        acked = self._early.pop(key, 0)
        open_bits = FULL[len(offsets)] & ~logged.bitmap
        if acked:
            open_bits &= ~bits_of(acked, [offset - logged.start_offset for offset in offsets])
        due = logged.revive_time - self._clock.ahead + (FOREIGN_ACK_MS if entry.foreign else 0)
        diffs = diffs_of(logged.start_offset, offsets)
        checkpoint = LeasedBatch(
            lane, logged.start_offset, logged.pop_time, due, 0, len(offsets), open_bits, diffs
        )
        self.log.pending(entry.position)
        self.in_flight.restore(lane, checkpoint, entry.position)
        position = self.position(lane)
        lane.skip.update(offset for offset in offsets if offset >= position)

    def _absorb_ack(self, ack: AckRecord) -> None:
        start = ack.start_offset
        places = 0
        for offset in ack.acked:
            if 0 <= offset - start < MAX_BITS:
                places |= 1 << offset - start
        place = (ack.topic, ack.group, ack.queue_id)
        lane = self.in_flight.lanes.get(place)
        matched = Matched.UNKNOWN
        if lane is not None:
            matched, _ = self.in_flight.ack(lane, start, ack.pop_time, places)
        if matched is Matched.UNKNOWN:
            self._keep_early(place, start, ack.pop_time, places)

    def _absorb_drop(self, drop: Drop, dropped_at: int) -> None:
        for lane in self._lanes(drop.topic, drop.group, drop.queue_id):
            self.in_flight.drop_cold(lane, drop.from_offset)
            self._void(lane, dropped_at, drop.from_offset)

    def open_bits(self, lane: Lane, logged: CheckpointRecord, logged_at: int) -> int:
        """The messages of a logged checkpoint that are still leased by it."""
        bits = self.in_flight.open_cold(lane, logged.start_offset, logged.pop_time)
        for dropped_at, from_offset in self._voids.get((lane.topic, lane.group, lane.queue_id), ()):
            if logged_at < dropped_at:
                kept = [offset < from_offset for offset in logged.offsets[:MAX_BATCH]]
                bits &= sum(1 << i for i, is_kept in enumerate(kept) if is_kept)
        return bits

    # -- dropping ----------------------------------------------------------------------------------------

    def reset(self, lane: Lane, offset: int, now: int) -> None:
        """The group goes on at `offset`: leases from there on are void, earlier ones stand and are in the log."""
        self.journal_all(lane, now)
        lane.line.clear()
        self.in_flight.drop_cold(lane, offset)
        drop = Drop(topic=lane.topic, group=lane.group, queue_id=lane.queue_id, from_offset=offset)
        self._drop(drop, [lane], now)
        self._offsets.set(lane.group, lane.topic, lane.queue_id, offset)

    def forget(self, topic: str | None, group: str | None, now: int) -> None:
        """A topic or a group was deleted: what is leased of it does not come back, restart or not."""
        lanes = self._lanes(topic, group, None)
        if lanes:
            self.in_flight.forget(lanes)
            self._drop(Drop(topic=topic, group=group), lanes, now)

    def _drop(self, drop: Drop, lanes: list[Lane], now: int) -> None:
        try:
            dropped_at = self.log.write_drop(drop, now + self._clock.ahead)
        except StoreError as error:
            log.warning("drop of leases topic=%s group=%s not logged: %s", drop.topic, drop.group, error)
            return
        for lane in lanes:
            self._void(lane, dropped_at, drop.from_offset)

    def _void(self, lane: Lane, dropped_at: int, from_offset: int) -> None:
        drops = self._voids.setdefault((lane.topic, lane.group, lane.queue_id), [])
        drops[:-VOIDS_PER_LANE] = []
        drops.append((dropped_at, from_offset))
        if len(self._voids) > VOID_LANES:
            del self._voids[next(iter(self._voids))]

    def _lanes(self, topic: str | None, group: str | None, queue_id: int | None) -> list[Lane]:
        return [
            lane
            for lane in self.in_flight.lanes.values()
            if topic in (None, lane.topic)
            and group in (None, lane.group)
            and queue_id in (None, lane.queue_id)
        ]


def as_logged(checkpoint: LeasedBatch) -> CheckpointRecord:
    lane = checkpoint.lane
    return CheckpointRecord(
        bitmap=_signed(FULL[checkpoint.count] ^ checkpoint.open),
        group=lane.group,
        diffs=list(range(checkpoint.count)) if checkpoint.diffs is None else list(checkpoint.diffs),
        invisible_time=checkpoint.due - checkpoint.leased_at,
        count=checkpoint.count,
        pop_time=checkpoint.pop_time,
        queue_id=lane.queue_id,
        start_offset=checkpoint.start,
        topic=lane.topic,
        failure=checkpoint.failure or msgspec.UNSET,
    )


def receipt_of(logged: CheckpointRecord, revive_queue: int) -> Receipt:
    """A receipt that stands for the whole checkpoint."""
    start, queue_id = logged.start_offset, logged.queue_id
    return Receipt(start, logged.pop_time, logged.invisible_time, revive_queue, "0", "", queue_id, start)


def _signed(bits: int) -> int:
    return bits - 2 * _SIGNED if bits & _SIGNED else bits
