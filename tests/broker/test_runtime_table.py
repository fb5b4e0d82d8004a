# SPDX-License-Identifier: Apache-2.0
"""The runtime table whole, key by key, of a broker whose every figure is another; and what waits in the timer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aerobee import __version__, native
from aerobee.broker.background.timers import Timers
from aerobee.broker.operations.admin import cluster
from aerobee.broker.state.stats import Span, Spans
from aerobee.errors import DiskFull

POOLS = {
    "send": 10_000, "pull": 100_000, "reply": 100_000, "query": 20_000, "litePull": 100_000, "ack": 100_000,
    "clientManager": 100_000, "heartbeat": 100_000, "consumerManager": 100_000,
}  # fmt: skip
TIMED = ("send", "pull", "query", "litePull", "ack", "reply")


def figures(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, store = bench.broker.stats, bench.broker.store
    rates = {10: (1, 2, 3, 4), 60: (11, 12, 13, 14), 600: (21.5, 22, 23, 24)}
    monkeypatch.setattr(
        stats, "broker_rates", lambda s: dict(zip(("put", "found", "missed", "got"), rates[s], strict=True))
    )
    stats.put_count, stats.put_bytes, stats.late_ms, stats._waiting = 8, 2_000, 17, 3
    stats._mornings, stats.get_count = [(1, 2), (4, 5)], 9
    monkeypatch.setattr(type(store), "refused_puts", 6, raising=False)
    monkeypatch.setattr(type(store), "longest_read_ms", 7, raising=False)
    monkeypatch.setattr(type(store), "unsynced_bytes", 1_536, raising=False)
    monkeypatch.setattr(stats, "timer_rates", lambda: (1.234, 5.678))
    stats.gauges["timerCongestNum"] = lambda: 31


def test_every_key_that_tools_read_has_its_own_figure(
    bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures(bench, monkeypatch)
    broker, started = bench.broker, bench.broker.stats.started_at
    clock.advance(1 * 86_400_000 + 2 * 3_600_000 + 3 * 60_000 + 4_999)
    table = cluster.runtime_info(broker)
    assert list(table) == sorted(table)
    assert all(isinstance(value, str) for value in table.values())
    expected = {
        "brokerVersion": "479", "brokerVersionDesc": "V5_3_3", "aerobeeVersion": __version__,
        "nativeLane": native.state, "brokerActive": "true", "bootTimestamp": str(started),
        "startAcceptSendRequestTimeStamp": "0", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]",
        "putTps": "1.00 11.00 21.50", "putMessageTimesTotal": "8", "putMessageFailedTimes": "6",
        "putMessageSizeTotal": "2000", "putMessageAverageSize": "250.0",
        "putMessageEntireTimeMax": str(broker.store.put_times.longest_ms), "putLatency99": "0.00",
        "putLatency999": "0.00", "msgPutTotalYesterdayMorning": "1", "msgPutTotalTodayMorning": "4",
        "msgPutTotalTodayNow": "5", "getFoundTps": "2.00 12.00 22.00", "getMissTps": "3.00 13.00 23.00",
        "getTotalTps": "5.00 25.00 45.00", "getTransferredTps": "4.00 14.00 24.00",
        "getTransferedTps": "4.00 14.00 24.00", "getMessageEntireTimeMax": "7",
        "msgGetTotalYesterdayMorning": "2", "msgGetTotalTodayMorning": "5", "msgGetTotalTodayNow": "9",
        "commitLogMinOffset": "0", "commitLogMaxOffset": "0", "earliestMessageTimeStamp": "-1",
        "remainHowManyDataToFlush": "1.5 KiB", "dispatchBehindBytes": "0", "dispatchMaxBuffer": "0",
        "remainTransientStoreBufferNumbs": "2147483647", "pageCacheLockTimeMills": "0", "timerReadBehind": "0",
        "timerOffsetBehind": "0", "timerCongestNum": "31", "timerEnqueueTps": "1.23", "timerDequeueTps": "5.68",
        "recordsSteppedOver": "0", "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
    }  # fmt: skip
    for pool, capacity in POOLS.items():
        expected[f"{pool}ThreadPoolQueueSize"] = "0"
        expected[f"{pool}ThreadPoolQueueCapacity"] = str(capacity)
    for pool in TIMED:
        expected[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "17"
    for level in range(1, 19):
        expected[f"scheduleMessageOffset_{level}"] = "0,0"
    ratio = f"{broker.store.disk_ratio():.4f}"
    log = broker.store.root / "commitlog"
    for key in ("commitLogDiskRatio", "consumeQueueDiskRatio", f"commitLogDiskRatio_{log}"):
        expected[key] = ratio
    told = {key: table[key] for key in expected}
    assert told == expected
    rest = table.keys() - expected.keys()
    assert rest == {"putMessageDistributeTime", "commitLogDirCapacity"}
    assert table["commitLogDirCapacity"].startswith("Total : ")


def test_a_store_that_refuses_messages_says_why(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "refusesMessages" not in cluster.runtime_info(bench.broker)
    monkeypatch.setattr(type(bench.broker.store), "refusal", DiskFull("disk 91% full"))
    assert cluster.runtime_info(bench.broker)["refusesMessages"] == "disk 91% full"


def test_a_broker_that_may_not_be_read_is_not_active(make_bench: Any) -> None:
    assert cluster.runtime_info(make_bench(perm=2).broker)["brokerActive"] == "false"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (59_999, "[ 0 days, 0 hours, 0 minutes, 59 seconds ]"),
        (3_600_000, "[ 0 days, 1 hours, 0 minutes, 0 seconds ]"),
        (86_400_000 - 1, "[ 0 days, 23 hours, 59 minutes, 59 seconds ]"),
        (86_400_000, "[ 1 days, 0 hours, 0 minutes, 0 seconds ]"),
    ],
)
def test_how_long_it_runs_in_words(ms: int, text: str) -> None:
    assert cluster._uptime(ms) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (1_536, "1.5 KiB"), (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"), (1 << 40, "1.0 TiB"), (1 << 50, "1.0 PiB"), (1 << 60, "1.0 EiB"),
    ],
)  # fmt: skip
def test_sizes_are_written_as_rocketmq_writes_them(count: int, text: str) -> None:
    assert cluster._bytes(count) == text


def test_figures_of_a_name_are_rounded_and_told_for_each_stretch(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = Spans(Span(1, 1.234, 2.345), Span(2, 3.456, 4.567), Span(3, 5.678, 6.789))
    monkeypatch.setattr(
        bench.broker.stats, "figures", lambda name, key: spans if (name, key) == ("N", "k") else None
    )
    found = cluster.stats("N", "k", bench.broker)
    assert [
        (each.sum, each.tps, each.average) for each in (found.stats_minute, found.stats_hour, found.stats_day)
    ] == [(1, 1.23, 2.35), (2, 3.46, 4.57), (3, 5.68, 6.79)]


def test_there_are_no_slaves(make_bench: Any) -> None:
    bench = make_bench()
    bench.send()
    assert cluster.high_availability(bench.broker) == {
        "haConnectionInfo": [], "inSyncSlaveNums": 0, "master": True,
        "masterCommitLogMaxOffset": bench.broker.store.log_max,
    }  # fmt: skip


# -- what waits in the timer -------------------------------------------------------------------------------


@pytest.fixture
def timers(bench: Any) -> Any:
    made = Timers(bench.broker.store, bench.broker.stats, bench.clock)
    yield made
    made.close()


def run(timers: Timers, now: int) -> None:
    while timers.tick(now) == 0:
        pass


def test_what_waits_is_told_by_topic_and_by_how_long(bench: Any, clock: Any, timers: Timers) -> None:
    for topic, seconds in (("a", 3), ("a", 100), ("b", 3), ("b", 4_000)):
        bench.send(topic, properties={"TIMER_DELAY_SEC": str(seconds)})
    assert (timers.not_added, timers.pending, timers.queue_offset) == (4, 0, 0)
    run(timers, clock.now())
    assert (timers.not_added, timers.pending, timers.queue_offset) == (0, 4, 4)
    assert timers.by_topic() == Counter({"a": 2, "b": 2, "": 0})
    within: Counter[int] = Counter()
    for bound, count in timers.within(clock.now(), (5, 60, 300)):
        within[bound] += count
    assert within == {5: 2, 300: 1, 0: 1}
    clock.advance(seconds=5)
    run(timers, clock.now())
    assert timers.by_topic() == Counter({"a": 1, "b": 1, "": 0})
    assert bench.broker.stats.counted.timer_in == {"a": 2, "b": 2}
    assert bench.broker.stats.counted.timer_out == {"a": 1, "b": 1}


def test_what_waited_before_the_start_has_no_topic(bench: Any, clock: Any) -> None:
    first = Timers(bench.broker.store, bench.broker.stats, clock)
    bench.send("a", properties={"TIMER_DELAY_SEC": "100"})
    run(first, clock.now())
    first.close()
    again = Timers(bench.broker.store, bench.broker.stats, clock)
    bench.send("b", properties={"TIMER_DELAY_SEC": "100"})
    run(again, clock.now())
    assert again.by_topic() == Counter({"b": 1, "": 1})
    clock.advance(seconds=102)
    run(again, clock.now())
    assert again.by_topic() == Counter({"": 0})
    assert again.pending == 0
    again.close()


def test_how_late_the_timer_is(bench: Any, clock: Any, timers: Timers) -> None:
    run(timers, clock.now())
    assert (timers.late_ms(clock.now()), timers.late_seconds(clock.now())) == (0, 0)
    clock.advance(7_500)
    late = timers.late_ms(clock.now())
    assert 5_500 <= late <= 7_500
    assert timers.late_seconds(clock.now()) == (late + 1_000) // 1_000
    run(timers, clock.now())
    assert timers.late_ms(clock.now()) == 0


def test_the_next_look_is_soon_and_at_once_when_there_is_more(bench: Any, clock: Any, timers: Timers) -> None:
    run(timers, clock.now())
    assert 1 <= timers.tick(clock.now()) <= 100
    bench.send(properties={"TIMER_DELAY_SEC": "1"})
    assert 1 <= timers.tick(clock.now()) <= 100, "added, and nothing is due"
    clock.advance(seconds=3)
    assert timers.tick(clock.now()) == 0, "one was delivered: more may be"
    assert len(bench.records("orders")) == 1
