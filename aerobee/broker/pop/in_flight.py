# SPDX-License-Identifier: Apache-2.0
"""Popped and not yet acked. Told `now`; owns no clock, no task, no file.

Theory of operation. One checkpoint per (real topic, group, queue, pop), one bit per message.

    leased ----all bits acked----> gone, nothing was written              (the common case)
       |
       |-- open for `memory_ms`, or the table is at its cap --> journaled: the driver writes it to the revive log
       |-- due before that ---------------------------------> attended: its messages go to the retry topic

A lane is one (real topic, group, queue). A *young* checkpoint is an object in its lane's table and in the
lane's line (FIFO). The line's head settles when it is acked, journaled or redelivered; only then does the
group's committed offset pass it, so whatever is in memory only is read again after a crash.

A *journaled* checkpoint is one entry of a plain dict, packed key -> open bits: a million leases of one
message take about 120 bytes each. All else of it stays in the log; the due bucket remembers where. The
dicts are cut by blocks of offsets: none grows so large that its resize would be felt, and memory returns as
blocks empty.

A change of invisible time splits one message off a young checkpoint into a child; the parent stays in line
until its children have settled too.
"""

from __future__ import annotations

import heapq
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.pop.bits import bits_of, offsets_of, places_of
from aerobee.broker.pop.due_buckets import DueBuckets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aerobee.settings import BrokerConfig, InForce

TIME_BITS = 42  # milliseconds since 1970 until the year 2109
MAX_TIME = 1 << TIME_BITS
BLOCK_SHIFT = 16
MAX_BATCH = 32
FULL = [(1 << n) - 1 for n in range(MAX_BATCH + 1)]  # shared, so an untouched entry owns no int of its own

LaneKey = tuple[str, str, int]  # real topic, group, queue id


class Matched(Enum):
    """What an ack met."""

    YOUNG = "in memory only: nothing is to be written"
    JOURNALED = "in the revive log: the ack must be written there too"
    UNKNOWN = "acked before, redelivered already, or never popped"


class LeasedBatch(msgspec.Struct, gc=False, eq=False):
    lane: Lane
    start: int
    pop_time: int
    due: int
    revive_queue: int
    count: int
    open: int  # bits of messages not acked
    diffs: tuple[int, ...] | None = None  # offset - start of each message; None = contiguous
    next_offset: int = -1  # where the pop's read ended; -1 = a child, which is not in line
    parent: LeasedBatch | None = None
    children: int = 0
    journaled: bool = False
    ahead: int = 0  # of the wall clock, in which the pop time is, when it was leased
    failure: str = ""  # of a child: why its consumer hid it

    @property
    def leased_at(self) -> int:
        """Like `due` in time of this run; the pop time is one of the wall clock, and names the checkpoint."""
        return self.pop_time - self.ahead

    @property
    def key(self) -> int:
        return self.start << TIME_BITS | self.pop_time

    @property
    def settled(self) -> bool:
        return (self.open == 0 or self.journaled) and self.children == 0

    @property
    def offsets(self) -> list[int]:
        return offsets_of(self.start, self.count, self.diffs, FULL[self.count])

    @property
    def open_offsets(self) -> list[int]:
        return offsets_of(self.start, self.count, self.diffs, self.open)


class Sparse(msgspec.Struct, gc=False):
    """A journaled checkpoint whose messages are not contiguous."""

    open: int
    diffs: tuple[int, ...]


class Lane:
    __slots__ = ("cold", "group", "in_flight", "line", "queue_id", "skip", "topic", "young")

    def __init__(self, topic: str, group: str, queue_id: int) -> None:
        self.topic = topic  # the real one: maybe a retry topic
        self.group = group
        self.queue_id = queue_id
        self.young: dict[int, LeasedBatch] = {}
        self.line: deque[LeasedBatch] = deque()
        self.cold: dict[int, dict[int, int | Sparse]] = {}
        self.in_flight = 0  # messages
        self.skip: set[int] = set()  # restored from the log though the committed offset has not passed them

    @property
    def idle(self) -> bool:
        return not (self.young or self.line or self.cold or self.skip)

    def position(self, committed: int) -> int:
        """The next offset to read: what is in line has been read, though it is not committed."""
        return max(committed, self.line[-1].next_offset) if self.line else committed


class InFlight:
    def __init__(self, settings: InForce[BrokerConfig], commit: Callable[[Lane, int], None]) -> None:
        self._settings = settings
        # One for all: the order of `_by_age` relies on it.
        self._memory_ms = settings.value.pop_checkpoint_memory_ms
        self._commit = commit
        self.lanes: dict[LaneKey, Lane] = {}
        self.young = 0  # open checkpoints in memory only
        self.due = DueBuckets()
        self._by_age: deque[LeasedBatch] = deque()  # those that live past `memory_ms`: in order of pop time
        self._by_time: list[tuple[int, int, LeasedBatch]] = []  # the others: a heap by when to attend to them
        self._sequence = 0

    def lane(self, topic: str, group: str, queue_id: int) -> Lane:
        key = (topic, group, queue_id)
        found = self.lanes.get(key)
        if found is None:
            found = self.lanes[key] = Lane(topic, group, queue_id)
        return found

    # -- leasing -----------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self.young >= self._settings.value.pop_checkpoint_cap

    def lease(self, lane: Lane, checkpoint: LeasedBatch) -> bool:
        """Record a popped batch. False when it cannot be: then the messages must not be returned."""
        if self.full or self.known(lane, checkpoint.start, checkpoint.pop_time):
            return False
        lane.line.append(checkpoint)
        self._add(lane, checkpoint, checkpoint.leased_at)
        return True

    def split(self, parent: LeasedBatch, child: LeasedBatch) -> None:
        """Lease one message of a young checkpoint anew; the caller then acks it in the old one."""
        root = parent.parent or parent
        child.parent = root
        root.children += 1
        self._add(parent.lane, child, root.leased_at)

    def passed(self, lane: Lane, next_offset: int) -> None:
        """A range without a match was read: let progress move over it."""
        if lane.line:
            tail = lane.line[-1]
            tail.next_offset = max(tail.next_offset, next_offset)
        else:
            self._commit(lane, next_offset)

    def known(self, lane: Lane, start: int, pop_time: int) -> bool:
        key = start << TIME_BITS | pop_time
        return key in lane.young or key in lane.cold.get(start >> BLOCK_SHIFT, ())

    def _add(self, lane: Lane, checkpoint: LeasedBatch, born: int) -> None:
        lane.young[checkpoint.key] = checkpoint
        lane.in_flight += checkpoint.count
        self.young += 1
        attend_at = born + self._memory_ms
        if checkpoint.next_offset >= 0 and checkpoint.due >= attend_at:
            self._by_age.append(checkpoint)
        else:
            self.postpone(checkpoint, min(checkpoint.due, attend_at))

    def postpone(self, checkpoint: LeasedBatch, attend_at: int) -> None:
        self._sequence += 1
        heapq.heappush(self._by_time, (attend_at, self._sequence, checkpoint))

    # -- acking ------------------------------------------------------------------------------------------

    def ack(self, lane: Lane, start: int, pop_time: int, places: int) -> tuple[Matched, int]:
        """Ack messages of one checkpoint: bit i of `places` is the one i offsets after its start.

        Returns the places that were open till now.
        """
        if not (0 <= pop_time < MAX_TIME and start >= 0):
            return Matched.UNKNOWN, 0  # no pop of ours; its key would run into another's
        key = start << TIME_BITS | pop_time
        checkpoint = lane.young.get(key)
        if checkpoint is not None:
            diffs = checkpoint.diffs
            bits = places if diffs is None else bits_of(places, diffs)
            closed = self.close(checkpoint, bits)
            return Matched.YOUNG, closed if diffs is None else places_of(closed, diffs)
        block = lane.cold.get(start >> BLOCK_SHIFT)
        entry = None if block is None else block.get(key)
        if entry is None:
            return Matched.UNKNOWN, 0
        if isinstance(entry, Sparse):
            closed = self.close_cold(lane, start, pop_time, bits_of(places, entry.diffs))
            return Matched.JOURNALED, places_of(closed, entry.diffs)
        return Matched.JOURNALED, self.close_cold(lane, start, pop_time, places)

    def young_of(self, lane: Lane, start: int, pop_time: int) -> LeasedBatch | None:
        return lane.young.get(start << TIME_BITS | pop_time)

    def close(self, checkpoint: LeasedBatch, bits: int) -> int:
        """Take messages out of a young checkpoint: acked, or redelivered. Returns the bits that were open."""
        closed = checkpoint.open & bits
        if closed:
            checkpoint.open ^= closed
            checkpoint.lane.in_flight -= closed.bit_count()
            if not checkpoint.open:
                self._left_memory(checkpoint)
        return closed

    def _left_memory(self, checkpoint: LeasedBatch) -> None:
        lane = checkpoint.lane
        if lane.young.get(checkpoint.key) is checkpoint:
            del lane.young[checkpoint.key]
            self.young -= 1
        parent, checkpoint.parent = checkpoint.parent, None
        if parent is not None:
            parent.children -= 1
        self._advance(lane)

    def _advance(self, lane: Lane) -> None:
        line, reached = lane.line, -1
        while line and line[0].settled:
            reached = line.popleft().next_offset
        if reached >= 0:
            self._commit(lane, reached)

    # -- time --------------------------------------------------------------------------------------------

    def attend(self, now: int, limit: int) -> list[LeasedBatch]:
        """Open checkpoints whose time in memory is over: due ones are to be redelivered, others journaled."""
        found: list[LeasedBatch] = []
        by_time, by_age = self._by_time, self._by_age
        while by_time and by_time[0][0] <= now and len(found) < limit:
            checkpoint = heapq.heappop(by_time)[2]
            if checkpoint.open and not checkpoint.journaled:
                found.append(checkpoint)
        while by_age and len(found) < limit:
            checkpoint = by_age[0]
            if checkpoint.open and not checkpoint.journaled:
                if now - checkpoint.pop_time + checkpoint.ahead < self._memory_ms:
                    break
                found.append(checkpoint)
            by_age.popleft()
        if len(by_age) > 2 * self._settings.value.pop_checkpoint_cap:
            # Acked behind an open head: keep the open ones only.
            self._by_age = deque(c for c in by_age if c.open and not c.journaled)
        return found

    def oldest(self, count: int) -> list[LeasedBatch]:
        """The longest open ones, to make room."""
        found: list[LeasedBatch] = []
        while len(found) < count and (self._by_age or self._by_time):
            checkpoint = self._by_age.popleft() if self._by_age else heapq.heappop(self._by_time)[2]
            if checkpoint.open and not checkpoint.journaled:
                found.append(checkpoint)
        return found

    def next_attention(self) -> int | None:
        """When `attend` will have something to do."""
        times = [self._by_age[0].leased_at + self._memory_ms] if self._by_age else []
        if self._by_time:
            times.append(self._by_time[0][0])
        return min(times, default=None)

    # -- journaled ---------------------------------------------------------------------------------------

    def journaled(self, checkpoint: LeasedBatch, position: int) -> None:
        """It is in the revive log at `position`: forget all but its open bits."""
        checkpoint.journaled = True
        lane, diffs = checkpoint.lane, checkpoint.diffs
        entry = checkpoint.open if diffs is None else Sparse(checkpoint.open, diffs)
        self._add_cold(lane, checkpoint.start, checkpoint.pop_time, entry)
        self.due.add(checkpoint.due, position)
        self._left_memory(checkpoint)

    def restore(self, lane: Lane, checkpoint: LeasedBatch, position: int) -> None:
        """A checkpoint read from the revive log: after a restart, or written by another broker."""
        self.due.add(checkpoint.due, position)
        if checkpoint.open and not self.known(lane, checkpoint.start, checkpoint.pop_time):
            diffs = checkpoint.diffs
            entry = checkpoint.open if diffs is None else Sparse(checkpoint.open, diffs)
            self._add_cold(lane, checkpoint.start, checkpoint.pop_time, entry)
            lane.in_flight += checkpoint.open.bit_count()

    def _add_cold(self, lane: Lane, start: int, pop_time: int, entry: int | Sparse) -> None:
        block = lane.cold.get(start >> BLOCK_SHIFT)
        if block is None:
            block = lane.cold[start >> BLOCK_SHIFT] = {}
        if isinstance(entry, int):
            size = entry.bit_length()
            if entry == FULL[size]:
                entry = FULL[size]
        block[start << TIME_BITS | pop_time] = entry

    def open_cold(self, lane: Lane, start: int, pop_time: int) -> int:
        """The open bits of a journaled checkpoint; 0 when it has none or is not known."""
        block = lane.cold.get(start >> BLOCK_SHIFT)
        entry = None if block is None else block.get(start << TIME_BITS | pop_time)
        return 0 if entry is None else _bits(entry)

    def open_offsets(self, lane: Lane, start: int, pop_time: int) -> list[int]:
        """The un-acked messages of a journaled checkpoint."""
        block = lane.cold.get(start >> BLOCK_SHIFT)
        entry = None if block is None else block.get(start << TIME_BITS | pop_time)
        if entry is None:
            return []
        diffs = entry.diffs if isinstance(entry, Sparse) else None
        return offsets_of(start, MAX_BATCH, diffs, _bits(entry))

    def close_cold(self, lane: Lane, start: int, pop_time: int, bits: int) -> int:
        """Take messages out of a journaled checkpoint; returns the bits that were open."""
        number, key = start >> BLOCK_SHIFT, start << TIME_BITS | pop_time
        block = lane.cold.get(number, {})
        entry = block.get(key, 0)
        was_open = entry.open if isinstance(entry, Sparse) else entry
        closed = was_open & bits
        if not closed:
            return 0
        lane.in_flight -= closed.bit_count()
        left = was_open ^ closed
        if left:
            block[key] = Sparse(left, entry.diffs) if isinstance(entry, Sparse) else left
        else:
            del block[key]
            if not block:
                del lane.cold[number]
        return closed

    # -- dropping ----------------------------------------------------------------------------------------

    def drop_cold(self, lane: Lane, from_offset: int) -> None:
        """Forget the journaled leases of messages at or past an offset: they will be read again."""
        lane.skip.clear()
        for number, block in list(lane.cold.items()):
            if (number + 1 << BLOCK_SHIFT) + MAX_BATCH <= from_offset and not _has_sparse(block):
                continue
            for key, entry in list(block.items()):
                diffs = entry.diffs if isinstance(entry, Sparse) else range(MAX_BATCH)
                start, pop_time = key >> TIME_BITS, key & MAX_TIME - 1
                gone = sum(1 << i for i, place in enumerate(diffs) if start + place >= from_offset)
                self.close_cold(lane, start, pop_time, gone)

    def forget(self, lanes: Iterable[Lane]) -> None:
        """The topic or the group is gone, and with it all that was leased."""
        for lane in list(lanes):
            for checkpoint in lane.young.values():
                checkpoint.open, checkpoint.parent = 0, None
            self.young -= len(lane.young)
            for part in (lane.young, lane.line, lane.cold, lane.skip):
                part.clear()
            lane.in_flight = 0
            self.lanes.pop((lane.topic, lane.group, lane.queue_id), None)

    def sweep(self) -> None:
        """Forget lanes without any work in them; never one with some (apache/rocketmq#9318)."""
        for key in [key for key, lane in self.lanes.items() if lane.idle]:
            del self.lanes[key]

    # -- figures -----------------------------------------------------------------------------------------

    def lanes_of(self, group: str) -> Iterator[Lane]:
        return (lane for lane in self.lanes.values() if lane.group == group)

    @property
    def messages(self) -> int:
        return sum(lane.in_flight for lane in self.lanes.values())


def oldest_offset(lane: Lane) -> int | None:
    """The smallest offset that is leased and not acked."""
    starts = [checkpoint.open_offsets[0] for checkpoint in lane.young.values() if checkpoint.open]
    if lane.cold:
        key, entry = min(lane.cold[min(lane.cold)].items())
        diffs = entry.diffs if isinstance(entry, Sparse) else None
        starts.append(offsets_of(key >> TIME_BITS, MAX_BATCH, diffs, _bits(entry))[0])
    return min(starts, default=None)


def _bits(entry: int | Sparse) -> int:
    return entry.open if isinstance(entry, Sparse) else entry


def _has_sparse(block: dict[int, int | Sparse]) -> bool:
    return any(isinstance(entry, Sparse) for entry in block.values())
