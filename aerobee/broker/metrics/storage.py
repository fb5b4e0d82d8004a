# SPDX-License-Identifier: Apache-2.0
"""The disk, and what waits on it for its time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aerobee.broker.metrics.family import Distribution, counter, gauge, histogram
from aerobee.broker.metrics.shown import OTHER
from aerobee.broker.metrics.traffic import by_topic
from aerobee.store.platform import disk_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Asked
    from aerobee.broker.metrics.family import Family, Labels, Value

SIZE = gauge("rocketmq_storage_size_bytes", "Bytes in use on the disk of the store.", "bytes")
FLUSH_BEHIND = gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log not synced.", "bytes")
DISPATCH_BEHIND = gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "Bytes of the log not in their queues: none, they are entered with the append.",
    "bytes",
)
RESERVE_TIME = gauge(
    "rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest message kept.", "milliseconds"
)
TIMER_IN_LAG = gauge("rocketmq_timer_enqueue_lag", "Timed messages not in the timer yet.")
TIMER_IN_TIME = gauge(
    "rocketmq_timer_enqueue_latency_milliseconds", "How long the first of them has waited.", "milliseconds"
)
TIMER_OUT_LAG = gauge("rocketmq_timer_dequeue_lag", "Timed messages that wait for their time.")
TIMER_OUT_TIME = gauge("rocketmq_timer_dequeue_latency_milliseconds", "How late delivery is.", "milliseconds")
TIMER_IN = counter("rocketmq_timer_enqueue_total", "Messages that went into the timer.")
TIMER_OUT = counter("rocketmq_timer_dequeue_total", "Messages whose time came.")
TIMING = gauge("rocketmq_timing_messages", "Messages in the timer, by the topic they are for.")
SNAPSHOT = gauge(
    "rocketmq_timer_message_snapshot", "Messages due within so many seconds, and not within fewer."
)
DELAY = histogram("rocketmq_delay_message_latency_seconds", "Delays that producers asked for.", "seconds")

USED_RATIO = gauge(
    "aerobee_disk_used_ratio", "Part of the store's disk in use, from 0 to 1: what disk_full_ratio limits."
)
FREE = gauge(
    "aerobee_disk_free_bytes", "Bytes that the store may still use: what min_free_bytes limits.", "bytes"
)
WRITABLE = gauge("aerobee_store_writable", "1 while the store takes messages, 0 while it refuses them.")

WHERE: Labels = (("storage_type", "local"), ("storage_medium", "disk"))
BOUNDS_S = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


def collect(broker: Broker, asked: Asked) -> Iterator[None]:
    store = broker.store

    def add(family: Family, value: Value, labels: Labels = ()) -> None:
        asked.scrape.add(family, value, WHERE + labels)

    disk = disk_of(store.root)
    add(SIZE, disk.used)
    asked.scrape.add(USED_RATIO, disk.ratio)
    asked.scrape.add(FREE, disk.free)
    asked.scrape.add(WRITABLE, int(store.writable))
    add(FLUSH_BEHIND, store.unsynced_bytes)
    add(DISPATCH_BEHIND, 0)
    oldest = store.record_at(store.log_min)
    if oldest is not None:
        add(RESERVE_TIME, max(0, broker.clock.wall() - oldest.store_timestamp))
    yield
    counted = broker.stats.counted
    for family, table in ((TIMER_IN, counted.timer_in), (TIMER_OUT, counted.timer_out)):
        for topic, count in by_topic(table, asked).items():
            add(family, count, (("topic", topic),))
            yield
    asked_for: dict[str, Distribution] = {}
    for topic, held in counted.delay_s:
        shown, more = asked.shown_topic(topic), Distribution.of(held)
        before = asked_for.get(shown)
        counts = (
            more.counts
            if before is None
            else [a + b for a, b in zip(before.counts, more.counts, strict=True)]
        )
        asked_for[shown] = Distribution(more.ends, counts, more.sum + (0 if before is None else before.sum))
        yield
    for topic, delays in asked_for.items():
        add(DELAY, delays, (("topic", topic),))
        yield
    yield from _waiting(broker, asked)


def _waiting(broker: Broker, asked: Asked) -> Iterator[None]:
    timers, now = broker.stats.counted.timers, broker.clock.now()
    if timers is None:
        return
    scrape = asked.scrape
    scrape.add(TIMER_IN_LAG, timers.not_added, WHERE)
    scrape.add(TIMER_IN_TIME, timers.late_ms(now) if timers.not_added else 0, WHERE)
    scrape.add(TIMER_OUT_LAG, timers.pending, WHERE)
    scrape.add(TIMER_OUT_TIME, timers.late_ms(now), WHERE)
    waiting = timers.by_topic()
    waiting[OTHER] += waiting.pop("", 0)
    for topic, count in by_topic({k: v for k, v in waiting.items() if v or k != OTHER}, asked).items():
        scrape.add(TIMING, count, (*WHERE, ("topic", topic)))
        yield
    within: Counter[int] = Counter()
    for bound, count in timers.within(now, BOUNDS_S):
        within[bound] += count
        yield
    for bound in BOUNDS_S:
        scrape.add(SNAPSHOT, within[bound], (*WHERE, ("timer_bound_s", str(bound))))
