# SPDX-License-Identifier: Apache-2.0
"""The broker as a whole, for operators: what it is doing, and how it has fared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.operations.admin import topics
from aerobee.broker.operations.admin.figures import first_waiting
from aerobee.errors import SystemFailure
from aerobee.protocol import names
from aerobee.protocol.bodies import BrokerStatsData, DelayOffsets, StatsItem
from aerobee.protocol.codes import VERSION, VERSION_DESC, Perm
from aerobee.store.retention import disk_of

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.stats import Span

GIB = 1 << 30
# Pools of threads that RocketMQ's tools ask about. Here one loop serves all, so nothing ever waits in them.
_POOLS = "send pull reply query litePull ack clientManager heartbeat consumerManager"
_TIMED_POOLS = ("send", "pull", "query", "litePull", "ack", "reply")
QUEUE_CAPACITY = 100_000
# What an idle timer shows; a running one sets its gauges (`Stats.gauges`).
_TIMERS = {
    "timerReadBehind": 0,
    "timerOffsetBehind": 0,
    "timerCongestNum": 0,
    "timerEnqueueTps": 0.0,
    "timerDequeueTps": 0.0,
}


def runtime_info(broker: Broker) -> dict[str, str]:
    """RocketMQ's runtime table: every key its tools read, with this broker's own values."""
    values: dict[str, Any] = {
        **_identity(broker),
        **_sends(broker),
        **_reads(broker),
        **_disk(broker),
        **_pools(broker),
        **_TIMERS,
    }
    for level, offset in delay_offsets(broker).offset_table.items():
        end = broker.store.max_offset(names.SCHEDULE_TOPIC, level - 1)
        values[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    values.update({key: read() for key, read in broker.stats.gauges.items()})
    return {key: str(values[key]) for key in sorted(values)}


def _identity(broker: Broker) -> dict[str, Any]:
    started = broker.stats.started_at
    return {
        "brokerVersion": VERSION,
        "brokerVersionDesc": VERSION_DESC,
        "brokerActive": str(bool(broker.config.perm & Perm.READ)).lower(),
        "bootTimestamp": started,
        "startAcceptSendRequestTimeStamp": started,
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
    stats, day = broker.stats, broker.stats.put_day()
    return {
        "putTps": _rates(broker, "put"),
        "putMessageTimesTotal": stats.put_count,
        "putMessageFailedTimes": stats.put_failed,
        "putMessageSizeTotal": stats.put_bytes,
        "putMessageAverageSize": stats.put_bytes / stats.put_count if stats.put_count else 0.0,
        # An append takes microseconds and these are milliseconds; what is slow shows in the log.
        "putMessageEntireTimeMax": 0,
        "putMessageDistributeTime": f"[<=0ms]:{stats.put_calls} ",
        "putLatency99": 0,
        "putLatency999": 0,
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
        "getMessageEntireTimeMax": 0,
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
        "remainHowManyDataToFlush": "0 B",  # the flush of the last interval is under way
        "dispatchBehindBytes": 0,  # dispatched in the turn of the append
        "dispatchMaxBuffer": 0,
        "remainTransientStoreBufferNumbs": 0,
        "pageCacheLockTimeMills": 0,
    }


def _pools(broker: Broker) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pool in _POOLS.split():
        values[f"{pool}ThreadPoolQueueSize"] = 0
        values[f"{pool}ThreadPoolQueueCapacity"] = QUEUE_CAPACITY
    for pool in _TIMED_POOLS:
        values[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = 0
    values["EndTransactionQueueSize"] = len(broker.transactions)
    values["EndTransactionThreadPoolQueueCapacity"] = QUEUE_CAPACITY
    return values


def delay_offsets(broker: Broker) -> DelayOffsets:
    """How far each delay level is delivered."""
    store, now, table = broker.store, broker.clock.now(), {}
    for level in range(1, len(store.delays) + 1):
        end = store.max_offset(names.SCHEDULE_TOPIC, level - 1)
        table[level] = first_waiting(store, level - 1, end, now)
    return DelayOffsets(offset_table=table)


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


def clean_up(broker: Broker) -> None:
    """What retention would do by itself within a second, and topics that are gone."""
    broker.store.tick(broker.clock.now())
    topics.clean_unused_topics(broker)
