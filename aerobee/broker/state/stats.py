# SPDX-License-Identifier: Apache-2.0
"""What went through the broker: totals, and per topic and group figures of the last minute, hour and day.

Operations call `sent`, `got`, `missed`, `sent_back`, `acked` and `popped`: plain additions, no time.
`tick(now)` takes the samples the rates are computed from, a bounded number of meters a call, as RocketMQ
does: every 10 s for the minute (7 kept), every 10 min for the hour (7), every hour for the day (25). A rate
is the difference between the newest sample and the oldest one kept.

For other parts: `sent(topic, count, size_bytes)` after an append, `stored` where its topic may be one of the
broker's own, `waits` where a producer's message waits in one of those, `moved` for copies that the broker makes,
`got(group, topic, count, size_bytes)` when a pull or pop returns messages, `missed()` when it returns none,
`remove_topic` and `remove_group` when one is deleted. What only metrics show is in `counted`.
"""

from __future__ import annotations

from array import array
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aerobee import native
from aerobee.broker.state.counted import KIB, Counted
from aerobee.broker.state.delayed import Delayed
from aerobee.broker.state.skipped import Skipped
from aerobee.protocol import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SAMPLE_MS = 10_000
# Meters sampled in one call: 10,000 active topics must not stop the loop for 20 ms.
METERS_PER_TICK = 500

TOPIC_PUT = "TOPIC_PUT"
GROUP_GET = "GROUP_GET"
SENT_BACK = "SNDBCK_PUT"
GROUP_ACK = "GROUP_ACK"
GROUP_CK = "GROUP_CK"
TIMER = "TIMER"


class Span(NamedTuple):
    """A sum over a stretch of time, its rate per second, and the mean per call."""

    sum: int = 0
    per_second: float = 0.0
    per_call: float = 0.0


class Spans(NamedTuple):
    minute: Span
    hour: Span
    day: Span


class Day(NamedTuple):
    """Totals at the last two midnights (local time) and now, as mqadmin clusterList -m shows them."""

    yesterday: int
    today: int
    now: int


class _Samples:
    """The last `keep` samples (time, calls, count, bytes), flat in one array: 10,000 meters stay small."""

    __slots__ = ("_keep", "_values")

    def __init__(self, keep: int) -> None:
        self._keep = keep * 4
        self._values: array[int] = array("q")

    def add(self, now: int, meter: Meter) -> None:
        self._values.extend((now, meter.calls, meter.count, meter.size_bytes))
        if len(self._values) > self._keep:
            del self._values[:4]

    def newest(self) -> array[int]:
        return self._values[-4:]

    def span(self, field: int, newest: array[int]) -> Span:
        """From the oldest sample here to `newest`."""
        oldest = self._values
        took_ms, calls, total = newest[0] - oldest[0], newest[1] - oldest[1], newest[field] - oldest[field]
        return Span(total, total * 1000 / took_ms if took_ms > 0 else 0.0, total / calls if calls else 0.0)


if TYPE_CHECKING or not native.is_on:

    class Counts:
        """What is counted; the compiled lane has one of plain numbers."""

        __slots__ = ("calls", "count", "size_bytes")
        calls: int
        count: int
        size_bytes: int

else:
    from aerobee.native.state import Counts


class Meter(Counts):
    """Counts of one topic, or of one group on one topic."""

    __slots__ = ("_day", "_hour", "_minute")

    def __init__(self, at: int) -> None:
        self.calls = 0
        self.count = 0
        self.size_bytes = 0
        self._minute = _Samples(7)
        self._hour = _Samples(7)
        self._day = _Samples(25)
        self.sample(at, 0)  # nothing so far: what comes first counts too

    def add(self, count: int, size_bytes: int) -> None:
        self.calls += 1
        self.count += count
        self.size_bytes += size_bytes

    def sample(self, now: int, turn: int) -> None:
        self._minute.add(now, self)
        if turn % 60 == 0:
            self._hour.add(now, self)
        if turn % 360 == 0:
            self._day.add(now, self)

    def counts(self) -> Spans:
        return self._spans(2)

    def sizes(self) -> Spans:
        return self._spans(3)

    def _spans(self, field: int) -> Spans:
        newest = self._minute.newest()
        return Spans(*(samples.span(field, newest) for samples in (self._minute, self._hour, self._day)))


class _Second(NamedTuple):
    at: int
    put: int
    found: int
    missed: int
    got: int


class Run(Protocol):
    """What several requests sent, to any topics."""

    def count(
        self, meter_of: Callable[[str], Meter], large_run: Callable[[str, tuple[int, ...]], None]
    ) -> tuple[int, int, int]:
        """Add to the meter of each topic, and tell its messages of more than the smallest size, by size; how many
        requests, messages and bytes it was altogether."""
        ...


class Stats:
    def __init__(self, now: int) -> None:
        self.started_at = now
        self.put_calls = 0
        self.put_count = 0
        self.put_bytes = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_count = 0
        self.get_bytes = 0
        self._meters: dict[str, dict[str, Meter]] = {
            name: {} for name in (TOPIC_PUT, GROUP_GET, SENT_BACK, GROUP_ACK, GROUP_CK, TIMER)
        }
        # How far behind the log's end a group's last pull of a queue was: bytes, and age of its last message (ms).
        self._behind: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._topic_put = self._meters[TOPIC_PUT]
        self._group_get = self._meters[GROUP_GET]
        self._group_ack = self._meters[GROUP_ACK]
        self._wanted_at = now
        self.late_ms = 0  # so long the last call waited for its turn of the loop, as a request would have
        self._sampled_at = now
        self._broker_put = Meter(self._sampled_at)
        self._broker_get = Meter(self._sampled_at)
        self._seconds: deque[_Second] = deque(maxlen=601)
        self._turn = 0
        self._next_turn = now
        self._pending: Iterator[Meter] | None = None
        # Figures of parts that this broker's tools cannot reach otherwise, under RocketMQ's runtime keys:
        # `stats.gauges["timerCongestNum"] = lambda: timers.pending`.
        self.gauges: dict[str, Callable[[], int]] = {"recordsSteppedOver": lambda: self.skipped.count}
        self.skipped = Skipped()  # what background jobs could not handle
        self.counted = Counted()
        self.delayed = Delayed()
        self._day = self._day_of(now)
        self._waiting = 0
        self._mornings = [(0, 0), (0, 0)]  # (put, got) at yesterday's and today's midnight
        self.tick(now)

    # -- counting ----------------------------------------------------------------------------------------

    def sent(self, topic: str, count: int, size_bytes: int) -> None:
        """Written out: calls would cost more than the counting."""
        meter = self._topic_put.get(topic)
        if meter is None:
            meter = self._topic_put[topic] = Meter(self._sampled_at)
        meter.calls += 1
        meter.count += count
        meter.size_bytes += size_bytes
        self.put_calls += 1
        self.put_count += count
        self.put_bytes += size_bytes
        if size_bytes > KIB:
            self.counted.large(topic, count, size_bytes)

    def sent_run(self, run: Run) -> None:
        """As `sent`, for several requests at once."""
        calls, count, size_bytes = run.count(self._put_meter, self.counted.large_run)
        self.put_calls += calls
        self.put_count += count
        self.put_bytes += size_bytes

    def _put(self, calls: int, count: int, size_bytes: int) -> None:
        self.put_calls += calls
        self.put_count += count
        self.put_bytes += size_bytes

    def _put_meter(self, topic: str) -> Meter:
        """Whoever keeps it lets go of it when the topic is deleted."""
        return self._meter(TOPIC_PUT, topic)

    def stored(self, topic: str, count: int, size_bytes: int) -> None:
        """As `sent`, for any topic: what waits in one of the broker's own is counted among the day's when it has
        reached its real one."""
        self.sent(topic, count, size_bytes)
        if names.is_system_topic(topic):
            self._waiting += count

    def waits(self, topic: str, kept_in: str, size_bytes: int) -> None:
        """A producer's message for `topic` that waits in one of the broker's own: for its time, or for its producer's
        word."""
        self.moved(kept_in, 1, size_bytes)
        came = self.counted.came[topic]
        (came.transactional if kept_in == names.HALF_TOPIC else came.delayed).add(size_bytes)

    def moved(self, topic: str, count: int, size_bytes: int) -> None:
        """As `stored`, for what no producer sent there: the broker did."""
        self._put_meter(topic).add(count, size_bytes)
        self._put(1, count, size_bytes)
        if names.is_system_topic(topic):
            self._waiting += count
        came = self.counted.came[topic]
        came.moved_count += count
        came.moved_bytes += size_bytes

    def got(self, group: str, topic: str, count: int, size_bytes: int) -> None:
        key = f"{topic}@{group}"
        meter = self._group_get.get(key)
        if meter is None:
            meter = self._group_get[key] = Meter(self._sampled_at)
        meter.calls += 1
        meter.count += count
        meter.size_bytes += size_bytes
        self.get_found += 1
        self.get_count += count
        self.get_bytes += size_bytes

    def timed(self) -> None:
        """A message went into the timer."""
        self._meter(TIMER, "in").add(1, 0)

    def timed_out(self) -> None:
        """Its time came."""
        self._meter(TIMER, "out").add(1, 0)

    def missed(self) -> None:
        """A pull or pop that found nothing."""
        self.get_missed += 1

    def fell_behind(self, group: str, topic: str, queue_id: int, behind_bytes: int, behind_ms: int) -> None:
        self._behind[group, topic, queue_id] = (behind_bytes, behind_ms)

    def behind(self, group: str, topic: str, queue_id: int) -> tuple[int, int]:
        """RocketMQ's GROUP_GET_FALL_SIZE and GROUP_GET_FALL_TIME: bytes and milliseconds."""
        return self._behind.get((group, topic, queue_id), (0, 0))

    def sent_back(self, group: str, topic: str, count: int = 1) -> None:
        self._meter(SENT_BACK, f"{topic}@{group}").add(count, 0)

    def acked(self, group: str, topic: str, count: int = 1) -> None:
        """Written out, as `sent` is."""
        meter = self._group_ack.get(f"{topic}@{group}")
        if meter is None:
            meter = self._meter(GROUP_ACK, f"{topic}@{group}")
        meter.calls += 1
        meter.count += count

    def acked_one_by_one(self, group: str, topic: str, count: int) -> None:
        """As `acked`, for so many requests of one message each."""
        self.acked(group, topic, count)
        self._meter(GROUP_ACK, f"{topic}@{group}").calls += count - 1

    def popped(self, group: str, topic: str, count: int = 1) -> None:
        """Checkpoints written for popped batches."""
        self._meter(GROUP_CK, f"{topic}@{group}").add(count, 0)

    def _meter(self, name: str, key: str) -> Meter:
        meters = self._meters[name]
        meter = meters.get(key)
        if meter is None:
            meter = meters[key] = Meter(self._sampled_at)
        return meter

    def remove_topic(self, topic: str) -> None:
        self.counted.remove_topic(topic)
        self._topic_put.pop(topic, None)
        self._behind = {key: value for key, value in self._behind.items() if key[1] != topic}
        for name in (GROUP_GET, SENT_BACK, GROUP_ACK, GROUP_CK):
            self._drop(name, [key for key in self._meters[name] if key.partition("@")[0] == topic])

    def remove_group(self, group: str) -> None:
        self.counted.remove_group(group)
        self._behind = {key: value for key, value in self._behind.items() if key[0] != group}
        for name in (GROUP_GET, SENT_BACK, GROUP_ACK, GROUP_CK):
            self._drop(name, [key for key in self._meters[name] if key.partition("@")[2] == group])

    def _drop(self, name: str, keys: list[str]) -> None:
        for key in keys:
            del self._meters[name][key]

    # -- time --------------------------------------------------------------------------------------------

    def tick(self, now: int) -> int:
        """Take the samples that are due; returns the milliseconds until the next call is wanted."""
        self.late_ms, self._wanted_at = max(0, now - self._wanted_at), now
        self.counted.late_ms.add(self.late_ms)
        self._new_day(now)
        if not self._seconds or now - self._seconds[-1].at >= 1000:
            self._seconds.append(
                _Second(now, self.put_count, self.get_found, self.get_missed, self.get_count)
            )
        if self._pending is None and now >= self._next_turn:
            self._sync_broker_meters()
            self._pending = iter(
                [
                    self._broker_put,
                    self._broker_get,
                    *(m for table in self._meters.values() for m in table.values()),
                ]
            )
        if self._pending is not None:
            self._sample(now)
        if self._pending is not None:
            return 0
        self._wanted_at = now + 1000
        return 1000

    def _sample(self, now: int) -> None:
        assert self._pending is not None
        for _ in range(METERS_PER_TICK):
            meter = next(self._pending, None)
            if meter is None:
                self._pending = None
                self._turn += 1
                self._sampled_at, self._next_turn = now, now + SAMPLE_MS
                return
            meter.sample(now, self._turn)

    def _sync_broker_meters(self) -> None:
        put, got = self._broker_put, self._broker_get
        put.calls, put.count, put.size_bytes = self.put_calls, self.put_count, self.put_bytes
        got.calls, got.count, got.size_bytes = self.get_found, self.get_count, self.get_bytes

    @staticmethod
    def _day_of(now: int) -> int:
        return datetime.fromtimestamp(now / 1000).toordinal()

    def _new_day(self, now: int) -> None:
        if (day := self._day_of(now)) != self._day:
            self._day = day
            self._mornings = [self._mornings[1], (self.put_count - self._waiting, self.get_count)]

    # -- figures -----------------------------------------------------------------------------------------

    def meters(self, name: str) -> list[tuple[str, Meter]]:
        """All of a kind, by topic, or by `topic@group`."""
        return list(self._meters[name].items())

    def figures(self, name: str, key: str) -> Spans | None:
        """The figures of VIEW_BROKER_STATS_DATA; None when nothing of that name and key was counted."""
        if name.startswith("BROKER_PUT"):
            return self._broker_put.counts()
        if name.startswith("BROKER_GET"):
            return self._broker_get.counts()
        kind, _, unit = name.rpartition("_")
        meter = self._meters.get(kind, {}).get(key)
        if meter is None or unit not in ("NUMS", "SIZE"):
            return None
        return meter.counts() if unit == "NUMS" else meter.sizes()

    def consume_rate(self, group: str, topic: str) -> float:
        """Messages a second the group got from the topic in the last minute."""
        meter = self._group_get.get(f"{topic}@{group}")
        return meter.counts().minute.per_second if meter else 0.0

    def timer_rates(self) -> tuple[float, float]:
        """Messages a second that went into and out of the timer in the last minute."""
        into, out = (self._meter(TIMER, way).counts().minute.per_second for way in ("in", "out"))
        return into, out

    def send_rate(self, topic: str) -> float:
        meter = self._topic_put.get(topic)
        return meter.counts().minute.per_second if meter else 0.0

    def broker_rates(self, seconds: int) -> dict[str, float]:
        """Rates of the last `seconds` (10, 60, 600): put, found, missed (per call) and got (messages)."""
        samples = self._seconds
        last = samples[-1]
        first = next((s for s in samples if last.at - s.at <= seconds * 1000), last)
        took = (last.at - first.at) / 1000
        if took <= 0:
            return {"put": 0.0, "found": 0.0, "missed": 0.0, "got": 0.0}
        return {
            name: (getattr(last, name) - getattr(first, name)) / took
            for name in ("put", "found", "missed", "got")
        }

    def put_day(self) -> Day:
        return Day(self._mornings[0][0], self._mornings[1][0], self.put_count - self._waiting)

    def got_day(self) -> Day:
        return Day(self._mornings[0][1], self._mornings[1][1], self.get_count)
