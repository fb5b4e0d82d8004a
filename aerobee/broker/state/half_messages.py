# SPDX-License-Identifier: Apache-2.0
"""Transactions that wait for their producer's word.

Theory of operation. Everything here is read from two topics and can be read from them again:
- the half topic holds the messages. Each check appends a message again, so one transaction has several
  *copies*; its *origin* is the half-queue offset of the first, which the others carry as a property;
- the op topic holds the half-queue offsets of ended transactions.

The half topic is read with a cursor by whoever needs it first (`operations/end_transaction.py`), so a half
message just sent, a restart, and a store written by a Java broker all take the same way in. `half_progress`
and `op_progress` say where a restart has to begin; as in RocketMQ they are offsets of CID_RMQ_SYS_TRANS.

Memory: `capacity` open transactions. More than that stay on disk until others end; of those only one bit each
is kept, when they end before they were read.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from enum import IntEnum

import msgspec

KNOWN_OUTCOMES = 10_000  # of ended transactions, for producers that ask twice
OPS_PER_MARK = 128


class Outcome(IntEnum):
    """The values END_TRANSACTION carries: the sysFlag bits of the result."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


class Half(msgspec.Struct):
    """One open transaction."""

    origin: int  # half-queue offset of its first copy
    offset: int  # ... of its newest copy
    physical_offset: int
    checks: int  # times its producers were asked
    due: int  # when to ask (again)
    copies: list[int]  # half-queue offsets of all that a restart might still meet
    topic: str = ""  # where it is to go


class _Ended:
    """Half-queue offsets at or past the cursor that have ended: one bit each."""

    def __init__(self) -> None:
        self._base = 0
        self._bits = bytearray()

    def __contains__(self, offset: int) -> bool:
        at = offset - self._base
        return 0 <= at >> 3 < len(self._bits) and bool(self._bits[at >> 3] & 1 << (at & 7))

    def add(self, offset: int) -> None:
        at = offset - self._base
        if at < 0:
            return
        if at >> 3 >= len(self._bits):
            self._bits.extend(bytes((at >> 3) - len(self._bits) + 1))
        self._bits[at >> 3] |= 1 << (at & 7)

    def forget_below(self, offset: int) -> None:
        passed = (offset - self._base) >> 3
        if passed >= len(self._bits):
            self._bits.clear()
            self._base = offset & ~7
        elif passed > 4096:
            del self._bits[:passed]
            self._base += passed << 3


class HalfMessages:
    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._open: dict[int, Half] = {}
        self.by_topic: Counter[str] = Counter()  # open ones
        self._due: list[tuple[int, int]] = []  # (due, origin); stale entries are skipped
        self._offsets: list[tuple[int, int]] = []  # (newest copy, origin); stale entries are skipped
        self._ended = _Ended()
        self._outcomes: OrderedDict[int, Outcome] = OrderedDict()
        self._marks: deque[list[int]] = deque()  # [op offset after, ops in it, largest half offset named]
        self.cursor = -1  # next half-queue offset to be read; -1 = nothing was read yet
        self._op_cursor = 0
        self._op_start = 0

    def __len__(self) -> int:
        """Open transactions in memory."""
        return len(self._open)

    @property
    def room(self) -> int:
        return self._capacity - len(self._open)

    # -- reading the two topics ---------------------------------------------------------------------------

    def start(self, half_offset: int, op_offset: int) -> None:
        """Begin at what an earlier run had reached. Ops come next (`replay_op`), then halves (`read`)."""
        self.cursor = half_offset
        self._ended.forget_below(half_offset)
        self._op_cursor = self._op_start = op_offset

    def replay_op(self, op_offset: int, offsets: list[int]) -> None:
        """An op record written by an earlier run."""
        self._op_cursor = op_offset
        for offset in offsets:
            self._ended.add(offset)
        self._op_written(offsets)

    def read(self, half: Half) -> None:
        """The half message at the cursor: `half` describes it as if it were the only copy."""
        self.cursor = half.offset + 1
        if half.offset in self._ended:
            return
        known = self._open.get(half.origin)
        if known is None:
            self._open[half.origin] = half
            self.by_topic[half.topic] += 1
        elif known.offset < half.offset:  # a copy that an earlier run appended
            half.copies = [*known.copies, half.offset]
            self._open[half.origin] = half
        else:
            return  # a copy that this run appended itself
        self._schedule(half)

    def skip(self, offset: int) -> None:
        """The cursor passes what cannot be read: deleted by retention, or nothing to wait for."""
        self.cursor = max(self.cursor, offset)

    def settled(self) -> None:
        """Everything readable was read: the bits below the cursor have served."""
        self._ended.forget_below(self.cursor)

    # -- what happens to them -----------------------------------------------------------------------------

    def find(self, origin: int) -> Half | None:
        return self._open.get(origin)

    def open(self) -> list[Half]:
        return list(self._open.values())

    def ended_unread(self, offset: int) -> bool:
        """Whether a transaction past the cursor has ended already."""
        return offset in self._ended

    def outcome(self, origin: int) -> Outcome | None:
        """How a transaction ended, as long as that is remembered."""
        return self._outcomes.get(origin)

    def end(self, origin: int, offset: int, outcome: Outcome) -> list[int]:
        """The transaction, met as the copy at `offset`, is over. Returns the offsets its op record must name:
        all copies that a restart from any earlier progress could meet."""
        half = self._take(origin)
        named = sorted({*half.copies, offset} if half else {origin, offset})
        for copy in named:
            if copy >= self.cursor:  # not read yet, or appended by this run and still to be passed
                self._ended.add(copy)
        self._outcomes[origin] = outcome
        if len(self._outcomes) > KNOWN_OUTCOMES:
            self._outcomes.popitem(last=False)
        self._op_written(named)
        return named

    def forget(self, origin: int) -> None:
        """The message is gone from the store; there is nothing to end."""
        self._take(origin)

    def _take(self, origin: int) -> Half | None:
        half = self._open.pop(origin, None)
        if half is not None:
            self.by_topic[half.topic] -= 1
            if not self.by_topic[half.topic]:
                del self.by_topic[half.topic]
        return half

    def due(self, now: int, limit: int) -> list[Half]:
        """Transactions to ask about now. Each comes once until `moved` or `postpone` gives it its next time."""
        found: list[Half] = []
        while self._due and self._due[0][0] <= now and len(found) < limit:
            due, origin = heapq.heappop(self._due)
            half = self._open.get(origin)
            if half is not None and half.due == due:
                found.append(half)
        return found

    def next_due(self) -> int | None:
        return self._due[0][0] if self._due else None

    def moved(self, half: Half, offset: int, physical_offset: int, due: int) -> None:
        """A new copy was appended."""
        half.offset, half.physical_offset, half.due = offset, physical_offset, due
        half.copies.append(offset)
        self._schedule(half)

    def postpone(self, half: Half, due: int) -> None:
        """Not asked this time."""
        half.due = due
        heapq.heappush(self._due, (due, half.origin))

    def _schedule(self, half: Half) -> None:
        heapq.heappush(self._due, (half.due, half.origin))
        heapq.heappush(self._offsets, (half.offset, half.origin))

    # -- where a restart begins ---------------------------------------------------------------------------

    @property
    def half_progress(self) -> int:
        """The lowest half-queue offset that is still needed."""
        while self._offsets:
            offset, origin = self._offsets[0]
            half = self._open.get(origin)
            if half is not None and half.offset == offset:
                return min(offset, self.cursor)
            heapq.heappop(self._offsets)
        return self.cursor

    @property
    def op_progress(self) -> int:
        """The lowest op-queue offset that names a half message still needed."""
        low = self.half_progress
        while self._marks and self._marks[0][2] < low:
            self._op_start = self._marks.popleft()[0]
        return self._op_start

    @property
    def ops_kept(self) -> int:
        """Op records a restart would have to read, about."""
        return sum(mark[1] for mark in self._marks)

    def head(self) -> Half | None:
        """The transaction that holds `half_progress` back."""
        low = self.half_progress
        return self._open.get(self._offsets[0][1]) if self._offsets and self._offsets[0][0] == low else None

    def _op_written(self, offsets: list[int]) -> None:
        self._op_cursor += 1
        if not self._marks or self._marks[-1][1] >= OPS_PER_MARK:
            self._marks.append([self._op_cursor, 0, -1])
        mark = self._marks[-1]
        mark[0] = self._op_cursor
        mark[1] += 1
        mark[2] = max(mark[2], *offsets) if offsets else mark[2]
