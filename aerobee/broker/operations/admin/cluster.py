# SPDX-License-Identifier: Apache-2.0
"""The broker as a whole, for operators: what it is doing, and how it has fared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee import __version__, native
from aerobee.broker.operations.admin import topics
from aerobee.errors import SystemFailure
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    BrokerStatsData,
    DataVersion,
    DelayOffsets,
    StatsItem,
    TimerCount,
    TimerCounts,
)
from aerobee.protocol.codes import VERSION, VERSION_DESC, Perm
from aerobee.store.platform import disk_of

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.stats import Span

GIB = 1 << 30
INT_MAX = 2**31 - 1
# Pools of threads that RocketMQ's tools ask about. Here one loop serves all: nothing queues in them, and what a request
# waits is what the loop is late.
_POOLS = "send pull reply query litePull ack clientManager heartbeat consumerManager"
_TIMED_POOLS = ("send", "pull", "query", "litePull", "ack", "reply")
QUEUE_CAPACITY = 100_000
_OTHER_CAPACITY = {"send": 10_000, "query": 20_000}


def runtime_info(broker: Broker) -> dict[str, str]:
    """RocketMQ's runtime table: every key its tools read, with this broker's own values."""
    values: dict[str, Any] = {
        **_identity(broker),
        **_sends(broker),
        **_reads(broker),
        **_disk(broker),
        **_pools(broker),
        **_timers(broker),
    }
    for level, offset in delay_offsets(broker).offset_table.items():
        end = broker.store.max_offset(names.SCHEDULE_TOPIC, level - 1)
        values[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return {key: str(values[key]) for key in sorted(values)}


def _identity(broker: Broker) -> dict[str, Any]:
    started = broker.stats.started_at
    return {
        "brokerVersion": VERSION,
        "brokerVersionDesc": VERSION_DESC,
        "aerobeeVersion": __version__,
        "nativeLane": native.state,  # Aerobee's own
        "brokerActive": str(bool(broker.config.perm & Perm.READ)).lower(),
        "bootTimestamp": started,
        "startAcceptSendRequestTimeStamp": 0,  # from the start on
        "runtime": _uptime(broker.clock.now() - started),
    }


def _uptime(ms: int) -> str:
    seconds = max(0, ms) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def _rates(broker: Broker, name: str) -> str:
    """Per second over the last 10 seconds, minute and 10 minutes."""
    return " ".join(f"{broker.stats.broker_rates(seconds)[name]:.2f}" for seconds in (10, 60, 600))


def _sends(broker: Broker) -> dict[str, Any]:
    stats, day, times = broker.stats, broker.stats.put_day(), broker.store.put_times
    return {
        "putTps": _rates(broker, "put"),
        "putMessageTimesTotal": stats.put_count,
        "putMessageFailedTimes": broker.store.refused_puts,
        "putMessageSizeTotal": stats.put_bytes,
        "putMessageAverageSize": stats.put_bytes / stats.put_count if stats.put_count else 0.0,
        "putMessageEntireTimeMax": times.longest_ms,
        "putMessageDistributeTime": "".join(f"{name}:{n} " for name, n in times.distribution().items()),
        "putLatency99": f"{times.percentile_ms(0.99):.2f}",
        "putLatency999": f"{times.percentile_ms(0.999):.2f}",
        "msgPutTotalYesterdayMorning": day.yesterday,
        "msgPutTotalTodayMorning": day.today,
        "msgPutTotalTodayNow": day.now,
    }


def _reads(broker: Broker) -> dict[str, Any]:
    day = broker.stats.got_day()
    transferred = _rates(broker, "got")
    rates = [broker.stats.broker_rates(seconds) for seconds in (10, 60, 600)]
    return {
        "getFoundTps": _rates(broker, "found"),
        "getMissTps": _rates(broker, "missed"),
        "getTotalTps": " ".join(f"{rate['found'] + rate['missed']:.2f}" for rate in rates),
        "getTransferredTps": transferred,
        "getTransferedTps": transferred,  # the 4.x tools' spelling
        "getMessageEntireTimeMax": broker.store.longest_read_ms,
        "msgGetTotalYesterdayMorning": day.yesterday,
        "msgGetTotalTodayMorning": day.today,
        "msgGetTotalTodayNow": day.now,
    }


def _disk(broker: Broker) -> dict[str, Any]:
    store = broker.store
    disk, ratio, log_path = disk_of(store.root), store.disk_ratio(), store.root / "commitlog"
    oldest = store.record_at(store.log_min)
    return {
        "commitLogDiskRatio": f"{ratio:.4f}",
        f"commitLogDiskRatio_{log_path}": f"{ratio:.4f}",
        "consumeQueueDiskRatio": f"{ratio:.4f}",
        "commitLogMinOffset": store.log_min,
        "commitLogMaxOffset": store.log_max,
        "commitLogDirCapacity": f"Total : {(disk.used + disk.free) / GIB:.1f} GiB, Free : {disk.free / GIB:.1f} GiB.",
        "earliestMessageTimeStamp": oldest.store_timestamp if oldest else -1,
        "remainHowManyDataToFlush": _bytes(store.unsynced_bytes),
        "dispatchBehindBytes": 0,  # dispatched in the turn of the append
        "dispatchMaxBuffer": 0,
        "remainTransientStoreBufferNumbs": INT_MAX,  # as without the pool
        "pageCacheLockTimeMills": 0,
        **({"refusesMessages": refusal} if (refusal := store.refusal) is not None else {}),  # Aerobee's own
    }


def _bytes(count: int) -> str:
    """As RocketMQ writes sizes."""
    size, units = float(count), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = "B"
    while size >= 1024:
        size, unit = size / 1024, next(units)
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _timers(broker: Broker) -> dict[str, Any]:
    """What waits in the timer is told by the part that runs it (`Stats.gauges`)."""
    into, out = broker.stats.timer_rates()
    idle = {"timerReadBehind": 0, "timerOffsetBehind": 0, "timerCongestNum": 0}
    running = {key: read() for key, read in broker.stats.gauges.items()}
    return {**idle, **running, "timerEnqueueTps": round(into, 2), "timerDequeueTps": round(out, 2)}


def _pools(broker: Broker) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pool in _POOLS.split():
        values[f"{pool}ThreadPoolQueueSize"] = 0
        values[f"{pool}ThreadPoolQueueCapacity"] = _OTHER_CAPACITY.get(pool, QUEUE_CAPACITY)
    for pool in _TIMED_POOLS:
        values[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = broker.stats.late_ms
    values["EndTransactionQueueSize"] = 0
    values["EndTransactionThreadPoolQueueCapacity"] = QUEUE_CAPACITY
    return values


def delay_offsets(broker: Broker) -> DelayOffsets:
    """How far each delay level is delivered."""
    store, now, table = broker.store, broker.clock.now(), {}
    for level in range(1, len(store.delays) + 1):
        end = store.max_offset(names.SCHEDULE_TOPIC, level - 1)
        table[level] = broker.stats.delayed.first(store, level - 1, end, now)
    return DelayOffsets(offset_table=table)


def timer_counts(broker: Broker) -> TimerCounts:
    """Messages in the timer, by topic."""
    counted = broker.stats.counted
    if counted.timers is None:
        raise SystemFailure("The timer message store is null")
    timers, waiting = counted.timers, counted.timers.by_topic()
    table = {
        topic: TimerCount(count=count, timestamp=timers.changed_at(topic))
        for topic, count in waiting.items()
        if count
    }
    newest = max((each.timestamp for each in table.values()), default=0)
    changes = counted.timer_in.total() + counted.timer_out.total()
    return TimerCounts(data_version=DataVersion(counter=changes, timestamp=newest), timing_count=table)


def stats(name: str, key: str, broker: Broker) -> BrokerStatsData:
    """One figure of the last minute, hour and day."""
    spans = broker.stats.figures(name, key)
    if spans is None:
        raise SystemFailure(f"there are no figures '{name}' of '{key}'")
    return BrokerStatsData(
        stats_minute=_item(spans.minute), stats_hour=_item(spans.hour), stats_day=_item(spans.day)
    )


def _item(span: Span) -> StatsItem:
    return StatsItem(sum=span.sum, tps=round(span.per_second, 2), average=round(span.per_call, 2))


def high_availability(broker: Broker) -> dict[str, Any]:
    """There are no slaves."""
    return {
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": broker.config.broker_id == 0,
        "masterCommitLogMaxOffset": broker.store.log_max,
    }


def write_pop_records(broker: Broker) -> None:
    """Put every open lease into the revive log, where another broker that opens the store finds it."""
    broker.pops.leases.journal_all(None, broker.clock.now())


def clean_up(broker: Broker) -> None:
    """What retention would do by itself within a second, and topics that are gone."""
    broker.store.tick(broker.clock.now())
    topics.clean_unused_topics(broker)
