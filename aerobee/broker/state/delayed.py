# SPDX-License-Identifier: Apache-2.0
"""Messages sent back that wait in the delay levels, counted by the retry topic they go to.

A level's queue is delivered in its order, so what waits is a stretch of it that only moves on. Each record is read once,
when the stretch reaches it; what it goes to is remembered until it is delivered: what is due waits until then, however
late that is. Nothing is looked at before somebody asks.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from aerobee.protocol import names
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from aerobee.store.message_store import MessageStore

REMEMBERED = 20_000  # a level: those behind them are not counted, and that is said
STEP = 50  # records, some ten microseconds each


class _Level:
    """The stretch of one level: `goes_to` has the topic of each offset from `begin` on."""

    def __init__(self) -> None:
        self.begin = 0
        self.goes_to: deque[str] = deque()

    @property
    def end(self) -> int:
        return self.begin + len(self.goes_to)


class Delayed:
    def __init__(self) -> None:
        self._levels: dict[int, _Level] = {}
        self._counts: Counter[str] = Counter()
        self._names: dict[str, str] = {}  # one string for each topic, however many messages go to it
        self._is_exact = True
        self.delivered: Mapping[int, int] | None = None  # level -> next offset; of the job that delivers

    def first(self, store: MessageStore, number: int, end: int, now: int) -> int:
        """Of a level's queue, the first that waits. Where nobody delivers, that is the first that is not due."""
        if self.delivered is None:
            return first_waiting(store, number, end, now)
        return min(end, max(self.delivered[number + 1], store.min_offset(names.SCHEDULE_TOPIC, number)))

    def count(self, topic: str) -> tuple[int, bool]:
        """Those that go to the topic, as of the last look, and whether all were looked at."""
        return self._counts[topic], self._is_exact

    def look(self, store: MessageStore, now: int) -> Generator[None, None, None]:
        """Stops after every few records."""
        is_exact = True
        for number in range(len(store.delays)):
            level = self._levels.setdefault(number, _Level())
            yield
            # Without a stop before they are used: another look, run meanwhile, would have moved the stretch past them,
            # which reads like a queue that was begun anew.
            end = store.max_offset(names.SCHEDULE_TOPIC, number)
            first = self.first(store, number, end, now)
            yield from self._leave(level, first, end)
            while level.end < end and len(level.goes_to) < REMEMBERED:
                for offset in range(level.end, min(end, level.end + STEP)):
                    self._enter(level, self._goes_to(store, number, offset))
                yield
            is_exact &= level.end >= end
        self._is_exact = is_exact

    def _leave(self, level: _Level, first: int, end: int) -> Iterator[None]:
        """What is delivered, and everything where the queue was begun anew."""
        keep_from = first if level.begin <= first and level.end <= end else level.end
        while level.goes_to and level.begin < keep_from:
            for _ in range(min(STEP * 10, keep_from - level.begin, len(level.goes_to))):
                topic = level.goes_to.popleft()
                level.begin += 1
                self._counts[topic] -= 1
                if not self._counts[topic]:
                    del self._counts[topic]
                    self._names.pop(topic, None)
            yield
        if not level.goes_to:
            level.begin = first

    def _enter(self, level: _Level, topic: str) -> None:
        level.goes_to.append(self._names.setdefault(topic, topic))
        self._counts[topic] += 1

    def _goes_to(self, store: MessageStore, number: int, offset: int) -> str:
        record = store.record_of(names.SCHEDULE_TOPIC, number, offset)
        text = None if record is None else props.get(record.properties_text, props.REAL_TOPIC)
        # Only retries are asked for: all else is of one kind.
        return text if text is not None and names.is_retry(text) else ""


def first_waiting(store: MessageStore, queue_id: int, end: int, now: int) -> int:
    """A level's queue is in order of due time, its units' tag code: find the first that is not due."""
    low, high = store.min_offset(names.SCHEDULE_TOPIC, queue_id), end
    while low < high:
        middle = (low + high) // 2
        unit = store.unit(names.SCHEDULE_TOPIC, queue_id, middle)
        if unit is None or store.run_time(unit.tags_code, unit.physical_offset) <= now:
            low = middle + 1
        else:
            high = middle
    return low
