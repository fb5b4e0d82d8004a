# SPDX-License-Identifier: Apache-2.0
"""Delivers messages at the time their producers asked for.

The driver of `store/timer_wheel.py`: what arrives in the topic rmq_sys_wheel_timer goes into the wheel; what the
wheel says is due is appended to its real topic, dropped if it was recalled, or stored in the topic once more when
its time is still days away.

The wheel's time never goes back. While the machine's clock is as it was it is the wall clock's; when that is set back
the wheel goes on as before, `lag` ahead of it; set forward, the wheel follows. So nothing comes up too late. A message
is due when the time it was to wait is over by the time of this run, or when the time of day it asked for has come;
what came up before that, since the clock was set, is put back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.deliver import deliver, stamped, without_check
from aerobee.broker.delivery.destination import target_of
from aerobee.errors import MessageIllegal
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.store.results import ReadLimit
from aerobee.store.timer_log import DELETE, PLAIN, ROLL
from aerobee.store.timer_wheel import TICK_MS, TimerWheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.broker.state.stats import Stats
    from aerobee.clock import Clock
    from aerobee.protocol.message import Record
    from aerobee.store.message_store import MessageStore
    from aerobee.store.timer_wheel import Due

log = logging.getLogger("aerobee.timer")

LOOK_MS = 100
FLUSH_MS = 1_000
PER_TICK = 256  # messages added or delivered before others have their turn
QUEUE = 0
_EVER = 2**63 - 1
_COPIES = 8  # with one unique key: a few rolls, or a producer's retries
_BULK = ReadLimit(max_messages=PER_TICK, max_bytes=4 * 1024 * 1024, max_scan=PER_TICK)


class Timers:
    def __init__(self, store: MessageStore, stats: Stats, clock: Clock) -> None:
        self._store = store
        self._stats = stats
        self._clock = clock
        self._skipped = stats.skipped
        self._wheel = TimerWheel.open(store.root, clock.wall(), log_max=store.log_max)
        if not self._wheel.pending:
            self._wheel.lag = 0
        self._lead = clock.ahead + self._wheel.lag  # of the wheel's time before the time of this run
        self._lags = [(0, self._wheel.lag)]  # each from an offset of the timer topic on
        self._may_be_early = self._wheel.lag > 0
        # Past the end only when the disk kept the wheel and lost the log: what comes next must not be passed over.
        self._wheel.queue_offset = min(self._wheel.queue_offset, store.max_offset(names.TIMER_TOPIC, QUEUE))
        # Of those that came in since the start; what waited before is known by its number only.
        self._since = store.log_max
        self._waiting: Counter[str] = Counter()
        self._changed_at: dict[str, int] = {"": clock.wall()}  # the wall's time, of those that wait
        self._second = -1
        self._recalled: set[str] = set()  # of the second being delivered

    @property
    def pending(self) -> int:
        """Messages that wait for their time."""
        return self._wheel.pending

    @property
    def queue_offset(self) -> int:
        """How far the timer topic has been read."""
        return self._wheel.queue_offset

    @property
    def not_added(self) -> int:
        """Messages in the timer topic that are not in the wheel yet."""
        return max(0, self._store.max_offset(names.TIMER_TOPIC, QUEUE) - self._wheel.queue_offset)

    def by_topic(self) -> Counter[str]:
        """Messages that wait, by the topic they are for; those that waited at the start have an empty one."""
        known = Counter({topic: count for topic, count in self._waiting.items() if count > 0})
        known[""] = max(0, self.pending - known.total())
        return known

    def changed_at(self, topic: str) -> int:
        """When a topic's count in `by_topic` was last another one."""
        return self._changed_at.get(topic, self._changed_at[""])

    def within(self, now: int, bounds_s: Sequence[int]) -> Iterator[tuple[int, int]]:
        """For each slot of the wheel with messages, how many wait and within which bound from now on; 0 = none."""
        second = (now + self._lead) // 1000
        for due, waiting in self._wheel.slots():
            ahead = due - second
            yield next((bound for bound in bounds_s if ahead < bound), 0), waiting

    def late_ms(self, now: int) -> int:
        return max(0, now + self._lead - self._wheel.progress - TICK_MS)

    def late_seconds(self, now: int) -> int:
        """How far the delivery is behind the clock."""
        return max(0, now + self._lead - self._wheel.progress) // 1000

    def tick(self, now: int) -> int:
        """Add what arrived, deliver what is due; returns the ms until the next look."""
        now = self._wheel_time(now)
        busy = self._add(now)
        # Only once everything is in the wheel: a recall must be known before its message comes due.
        if not busy:
            busy = self._deliver(now)
        return 0 if busy else min(LOOK_MS, max(1, self._wheel.wait_ms(now)))

    def _wheel_time(self, now: int) -> int:
        lag = self._lead - self._clock.ahead
        if lag != self._wheel.lag:  # the clock was set
            self._may_be_early |= lag < 0
            # In whole seconds, as the wheel's slots are.
            self._wheel.lag = max(0, lag) // 1000 * 1000
            self._lead = self._clock.ahead + self._wheel.lag
            if self._lags[-1][1] != self._wheel.lag:
                self._lags.append((self._wheel.queue_offset, self._wheel.lag))
        return now + self._lead

    # -- into the wheel ------------------------------------------------------------------------------------

    def _add(self, now: int) -> bool:
        """True when there is more to add."""
        wheel, store = self._wheel, self._store
        end = store.max_offset(names.TIMER_TOPIC, QUEUE)
        if wheel.queue_offset >= end:
            return False
        wheel.queue_offset = max(wheel.queue_offset, store.min_offset(names.TIMER_TOPIC, QUEUE))
        found = store.read(names.TIMER_TOPIC, QUEUE, wheel.queue_offset, _BULK)
        for offset, raw in zip(found.offsets, found.messages, strict=True):
            with self._skipped.over("timers", queue_offset=offset):
                self._add_one(message.decode(raw), now)
            wheel.queue_offset = offset + 1
            self._stats.timed()
        wheel.queue_offset = max(wheel.queue_offset, found.next_offset)  # past what could not be read
        return wheel.queue_offset < end

    def _add_one(self, record: Record, now: int) -> None:
        text = record.properties_text
        target, due = target_of(text), props.whole_number(props.get(text, props.TIMER_OUT_MS))
        if target is None or due is None:
            raise MessageIllegal("it names no time, or no topic and queue that a message may go to")
        kind, due_ms = PLAIN, _second(self._run_time(record) + self._lead)
        if props.get(text, props.TIMER_DEL_UNIQKEY) is not None:
            kind |= DELETE
            due_ms = self._place_of_recalled(record) or due_ms
        self._wheel.add(due_ms, record.physical_offset, record.size, props.java_hash(target.topic), now, kind)
        self._stats.counted.timer_in[target.topic] += 1
        if not kind & DELETE:
            self._waiting[target.topic] += 1
            self._changed_at[target.topic] = self._clock.wall()

    def _run_time(self, record: Record) -> int:
        return self._store.run_time(_asked(record), record.physical_offset)

    def _place_of_recalled(self, recall: Record) -> int | None:
        """Where in the wheel the message is that is taken back; it may have come in before the clock was set."""
        if len(self._lags) == 1:
            return None
        found = self._store.find_by_key(names.TIMER_TOPIC, recall.unique_key or "", 64, 0, _EVER)
        for record in reversed([message.decode(raw) for raw in found]):
            if props.get(record.properties_text, props.TIMER_DEL_UNIQKEY) is None:
                lag = next(lag for begin, lag in reversed(self._lags) if begin <= record.queue_offset)
                return _asked(record) + lag
        return None

    # -- out of the wheel ----------------------------------------------------------------------------------

    def _deliver(self, now: int) -> bool:
        """True when more may be due."""
        batch = self._wheel.due(now, PER_TICK)
        done = 0
        try:
            for due in batch:
                with self._skipped.over("timers", physical_offset=due.physical_offset):
                    self._deliver_one(due, now)
                done += 1
        finally:
            self._wheel.done(done)  # also when the disk is full: the rest is tried again
        return bool(batch) or self._wheel.wait_ms(now) == 0

    def _deliver_one(self, due: Due, now: int) -> None:
        if due.due_ms != self._second:
            self._second = due.due_ms
            self._recalled.clear()
        if due.counted and self._has_copy(due):
            return
        if due.kind & DELETE:
            self._recall(due.physical_offset)
        elif due.kind & ROLL or (self._recalled and self._is_recalled(due.physical_offset)):
            self._no_longer_waits(due.physical_offset, self._topic_at(due.physical_offset))
            if due.kind & ROLL:
                self._roll(due.physical_offset)
        elif self._may_be_early and (early := self._early(due.physical_offset, now - self._lead)):
            self._no_longer_waits(due.physical_offset, self._topic_at(due.physical_offset))
            self._put_back(self._for_the_rest(early))
        else:
            copy = deliver(due.physical_offset, self._store, self._stats, now - self._wheel.lag)
            self._stats.timed_out()
            if copy is not None:
                self._stats.counted.timer_out[copy.topic] += 1
                self._no_longer_waits(due.physical_offset, copy.topic)

    def _topic_at(self, physical_offset: int) -> str:
        record = self._store.record_at(physical_offset)
        target = None if record is None else target_of(record.properties_text)
        return "" if target is None else target.topic

    def _no_longer_waits(self, physical_offset: int, topic: str) -> None:
        """Delivered, recalled or put back. Those from before the start were not counted."""
        is_counted = physical_offset >= self._since and topic in self._waiting
        self._changed_at[topic if is_counted else ""] = self._clock.wall()
        if is_counted:
            self._waiting[topic] -= 1
            if not self._waiting[topic]:
                del self._waiting[topic], self._changed_at[topic]

    def _early(self, physical_offset: int, now: int) -> Record | None:
        """The message if it is not due yet."""
        record = self._store.record_at(physical_offset)
        if record is None or now >= self._run_time(record) + TICK_MS:
            return None
        has_come = now + self._clock.ahead >= _asked(record) + TICK_MS
        return None if has_come and not _is_delay(record) else record

    def _for_the_rest(self, record: Record) -> Record:
        """A new copy in the timer topic; a delay is told by the clock as it is now."""
        properties = props.parse(without_check(record.properties_text))
        if _is_delay(record):
            properties[props.TIMER_OUT_MS] = str(_second(self._run_time(record) + self._clock.ahead))
        return msgspec.structs.replace(record, properties_text=props.render(properties))

    def _has_copy(self, due: Due) -> bool:
        """Whether the log has what a wheel from before a stop says was delivered. When in doubt it has not."""
        waiting = self._store.record_at(due.physical_offset)
        if waiting is None or not waiting.unique_key:
            return False
        real = props.get(waiting.properties_text, props.REAL_TOPIC) or names.TIMER_TOPIC
        for topic in (real, names.TIMER_TOPIC):  # the latter has it when it was put off
            for raw in self._store.find_by_key(topic, waiting.unique_key, _COPIES, 0, _EVER):
                if message.decode(raw).physical_offset > due.physical_offset:
                    return True
        return False

    def _roll(self, physical_offset: int) -> None:
        """Its time is far off: a new copy, so that retention of the log does not take it."""
        record = self._store.record_at(physical_offset)
        if record is None:
            log.warning("message at physical_offset=%d is gone or damaged: not rolled on", physical_offset)
            return
        properties = self._for_the_rest(record).properties
        times = props.whole_number(properties.pop(props.TIMER_ROLL_TIMES, None)) or 0
        text = stamped(props.render(properties), f"{props.TIMER_ROLL_TIMES}\x01{times + 1}\x02")
        self._put_back(msgspec.structs.replace(record, properties_text=text))

    def _put_back(self, copy: Record) -> None:
        self._store.append(copy)
        self._stats.moved(copy.topic, 1, copy.size)

    def _recall(self, physical_offset: int) -> None:
        record = self._store.record_at(physical_offset)
        key = props.get(record.properties_text, props.TIMER_DEL_UNIQKEY) if record else None
        if key is not None:
            self._recalled.add(key)

    def _is_recalled(self, physical_offset: int) -> bool:
        record = self._store.record_at(physical_offset)
        if record is None:
            return False
        key, topic = record.unique_key, props.get(record.properties_text, props.REAL_TOPIC)
        # Older brokers wrote the unique key alone, newer ones with the topic before it.
        recalled = key in self._recalled or f"{topic}+{key}" in self._recalled
        if recalled:
            log.info("recalled topic=%s unique_key=%s", topic, key)
        return recalled

    # -- files ---------------------------------------------------------------------------------------------

    async def flush(self, now: int) -> int:
        flushing = self._wheel.prepare_flush()
        try:
            # What was delivered is in the log: it must not be lost with the power when the wheel says it is done.
            await self._store.on_disk(self._store.log_max)
        except BaseException:
            flushing.drop()
            raise
        await asyncio.to_thread(flushing.run)
        return FLUSH_MS

    def close(self) -> None:
        self._wheel.close()


def _second(ms: int) -> int:
    """Where a message goes that is never to be early: the next whole second."""
    return -(-ms // 1000) * 1000


def _asked(record: Record) -> int:
    """When it is to come, by the wall clock of when it was stored."""
    return props.whole_number(props.get(record.properties_text, props.TIMER_OUT_MS)) or 0


def _is_delay(record: Record) -> bool:
    """Asked for as a time from then on, not as a time of day."""
    text = record.properties_text
    asked = (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS)
    return any(props.get(text, name) is not None for name in asked)
