# SPDX-License-Identifier: Apache-2.0
"""What a consumer has fetched of one queue and not finished yet (RocketMQ's ProcessQueue). Told `now`; pure.

Theory of operation. Messages enter in ascending offset order (`put`) and leave in any order (`remove`). The offset
worth reporting is the smallest one still inside, or one past the highest ever put when nothing is left: so a slow
message holds the reported offset back, and a restart repeats what finished behind it (at least once). An ordered
consumer instead takes messages out in order (`take`) and finishes them by `commit`, or puts them back (`rollback`).

The first offset inside is found without sorting: `_order` lists the offsets as they came and forgets, lazily, those
that have left.

`full` says when no more of a queue must be fetched: too many messages, too many bytes, or too wide a span.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.options import QueueOptions

MIB = 1024 * 1024
WARN_EVERY = 1000


class Inbox:
    """One owned queue's unfinished messages, and what is known of its fetching and its lock."""

    def __init__(self, now: int) -> None:
        self._messages: dict[int, ReceivedMessage] = {}
        self._taken: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()
        self.size_bytes = 0
        self.highest = 0
        self.backlog = 0  # messages behind the last one fetched, as the broker said
        self.dropped = False
        self.locked = False
        self.busy = False  # an ordered worker is on it
        self.unlock_attempts = 0
        self.last_pull = now
        self.last_consume = now
        self.last_lock = now

    # -- figures -------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._messages) + len(self._taken)

    @property
    def span(self) -> int:
        """Distance between the first and the last offset inside."""
        first = self.first_offset()
        return 0 if first is None else self.highest - first

    @property
    def has_all(self) -> bool:
        """The queue had nothing behind what was fetched last."""
        return self.backlog <= 1

    def first_offset(self) -> int | None:
        order, messages = self._order, self._messages
        while order and order[0] not in messages:
            order.popleft()
        return order[0] if order else None

    def __contains__(self, message: ReceivedMessage) -> bool:
        offset = message.queue_offset
        return self._messages.get(offset) is message or self._taken.get(offset) is message

    def offsets(self) -> list[int]:
        return sorted(self._messages)

    def taken_offsets(self) -> list[int]:
        return sorted(self._taken)

    # -- concurrent consuming ------------------------------------------------------------------------------

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Take in what was fetched."""
        last = None
        for last in messages:
            offset = last.queue_offset
            if offset in self._messages:
                continue
            if self._order and offset < self._order[-1]:
                self._put_out_of_order(last)
                continue
            self._messages[offset] = last
            self._order.append(offset)
            self.size_bytes += len(last.body)
            self.highest = offset
        if last is not None:
            self.backlog = max(0, last.origin.max_offset - last.queue_offset)

    def _put_out_of_order(self, message: ReceivedMessage) -> None:
        # Never seen from a broker, which answers in ascending order; correctness must not hang on it.
        self._messages[message.queue_offset] = message
        self._order = deque(sorted(self._messages))
        self.size_bytes += len(message.body)

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Forget finished messages. The offset to report next, -1 when there was nothing inside."""
        inside = self._messages
        if not inside:
            return -1
        for message in messages:
            if inside.pop(message.queue_offset, None) is not None:
                self.size_bytes -= len(message.body)
        first = self.first_offset()
        return self.highest + 1 if first is None else first

    def overdue(self, now: int, limit_ms: int) -> ReceivedMessage | None:
        """The first message when its handler has run for longer than `limit_ms`."""
        first = self.first_offset()
        if first is None:
            return None
        message = self._messages[first]
        return message if message.consume_started and now - message.consume_started > limit_ms else None

    def is_first(self, message: ReceivedMessage) -> bool:
        return self.first_offset() == message.queue_offset

    # -- ordered consuming ---------------------------------------------------------------------------------

    def claim(self) -> bool:
        """True when an ordered worker should start: there is work and none is on it."""
        if self.busy or not self._messages:
            return False
        self.busy = True
        return True

    def take(self, limit: int) -> list[ReceivedMessage]:
        """The lowest messages, now in work; the worker is done when there are none."""
        taken: list[ReceivedMessage] = []
        while len(taken) < limit and (first := self.first_offset()) is not None:
            message = self._messages.pop(first)
            self._order.popleft()
            self._taken[first] = message
            taken.append(message)
        if not taken:
            self.busy = False
        return taken

    def commit(self) -> int:
        """What is in work is finished. The offset to report, -1 when nothing was in work."""
        if not self._taken:
            return -1
        self.size_bytes -= sum(len(message.body) for message in self._taken.values())
        offset = max(self._taken) + 1
        self._taken.clear()
        return offset

    def rollback(self) -> None:
        """What is in work goes back to the front."""
        self.put_back(list(self._taken.values()))

    def put_back(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self._messages[message.queue_offset] = message
        self._order = deque(sorted(self._messages))

    def clear(self) -> None:
        self._messages.clear()
        self._taken.clear()
        self._order.clear()
        self.size_bytes = 0
        self.highest = 0
        self.backlog = 0

    # -- ages ----------------------------------------------------------------------------------------------

    def lock_expired(self, now: int, life_ms: int) -> bool:
        return now - self.last_lock > life_ms

    def pull_expired(self, now: int, idle_ms: int) -> bool:
        return now - self.last_pull > idle_ms


# -- flow control ------------------------------------------------------------------------------------------


class Full(StrEnum):
    """Why fetching waits."""

    COUNT = "messages"
    SIZE = "MiB"
    SPAN = "span"


class FlowLimits(msgspec.Struct, frozen=True):
    messages: int
    mebibytes: int
    span: int | None  # None for ordered consumers, which never have gaps

    @classmethod
    def of(cls, options: QueueOptions, *, owned_queues: int = 1, span: int | None) -> FlowLimits:
        """The limits of one queue; a limit per topic is spread over the queues owned of it."""
        messages, mebibytes = options.queue_messages, options.queue_mebibytes
        if options.topic_messages > 0:
            messages = max(1, options.topic_messages // max(1, owned_queues))
        if options.topic_mebibytes > 0:
            mebibytes = max(1, options.topic_mebibytes // max(1, owned_queues))
        return cls(messages, mebibytes, span)


def full(inbox: Inbox, limits: FlowLimits) -> Full | None:
    if inbox.count > limits.messages:
        return Full.COUNT
    if inbox.size_bytes // MIB > limits.mebibytes:
        return Full.SIZE
    if limits.span is not None and inbox.span > limits.span:
        return Full.SPAN
    return None


class Warnings:
    """Every 1000th hit is worth a line, the first one too; count and size share a counter, span has its own."""

    def __init__(self) -> None:
        self._hits = {"amount": 0, "span": 0}

    def hit(self, reason: Full) -> bool:
        kind = "span" if reason is Full.SPAN else "amount"
        self._hits[kind] += 1
        return self._hits[kind] % WARN_EVERY == 1
