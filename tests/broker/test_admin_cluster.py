# SPDX-License-Identifier: Apache-2.0
"""The broker's own figures and settings."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.operations.admin import cluster, settings
from aerobee.broker.operations.end_transaction import EndTransaction, end_transaction
from aerobee.broker.state.half_messages import Outcome
from aerobee.broker.state.stats import METERS_PER_TICK, Stats
from aerobee.errors import InvalidParameter, MessageIllegal, NoPermission, SystemFailure, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from collections.abc import Callable

_SHEET_KEYS = """brokerActive brokerVersionDesc putTps getTransferredTps getTransferedTps sendThreadPoolQueueSize
pullThreadPoolQueueSize ackThreadPoolQueueSize sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueHeadWaitTimeMills pageCacheLockTimeMills
earliestMessageTimeStamp commitLogDiskRatio timerReadBehind timerOffsetBehind timerCongestNum timerEnqueueTps
timerDequeueTps msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow bootTimestamp runtime putMessageTimesTotal
putMessageFailedTimes putMessageSizeTotal putMessageAverageSize putMessageEntireTimeMax putMessageDistributeTime
getMessageEntireTimeMax dispatchMaxBuffer getFoundTps getMissTps getTotalTps putLatency99 putLatency999
consumeQueueDiskRatio commitLogMinOffset commitLogMaxOffset commitLogDirCapacity dispatchBehindBytes
remainHowManyDataToFlush remainTransientStoreBufferNumbs startAcceptSendRequestTimeStamp scheduleMessageOffset_1
scheduleMessageOffset_18 sendThreadPoolQueueCapacity queryThreadPoolQueueSize litePullThreadPoolQueueSize
EndTransactionQueueSize"""
SHEET_KEYS = frozenset(_SHEET_KEYS.split())


def test_the_runtime_table_has_every_key_of_the_tools(bench: Any) -> None:
    first = bench.clock.now()
    bench.send("orders", b"12345")
    table = cluster.runtime_info(bench.broker)
    assert SHEET_KEYS - table.keys() == set()
    assert all(isinstance(value, str) for value in table.values())
    assert re.fullmatch(r"\d+\.\d+ \d+\.\d+ \d+\.\d+", table["putTps"])
    assert int(table["earliestMessageTimeStamp"]) == first
    assert int(table["commitLogMaxOffset"]) == bench.broker.store.log_max
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "1"
    float(table["commitLogDiskRatio"])


def test_the_runtime_table_says_what_happened(bench: Any) -> None:
    """All of it, but for what the machine decides: times of appends, the disk, versions."""
    started = bench.clock.now()
    bench.send("orders", b"12345")
    bench.send("orders", b"678")
    assert len(bench.pull("orders", 0).messages) == 2
    bench.pull("orders", 2)
    bench.clock.advance(seconds=10)
    bench.broker.stats.tick(bench.clock.now())
    table = cluster.runtime_info(bench.broker)
    size = bench.broker.store.log_max
    pools = [
        "send",
        "pull",
        "reply",
        "query",
        "litePull",
        "ack",
        "clientManager",
        "heartbeat",
        "consumerManager",
    ]
    other = {"send": "10000", "query": "20000"}
    expected = {
        "bootTimestamp": str(started),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 10 seconds ]",
        "brokerActive": "true",
        "startAcceptSendRequestTimeStamp": "0",
        "putTps": "0.20 0.20 0.20",
        "putMessageTimesTotal": "2",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": str(size),
        "putMessageAverageSize": str(size / 2),
        "msgPutTotalYesterdayMorning": "0",
        "msgPutTotalTodayMorning": "0",
        "msgPutTotalTodayNow": "2",
        "getFoundTps": "0.10 0.10 0.10",
        "getMissTps": "0.10 0.10 0.10",
        "getTotalTps": "0.20 0.20 0.20",
        "getTransferredTps": "0.20 0.20 0.20",
        "getTransferedTps": "0.20 0.20 0.20",
        "msgGetTotalYesterdayMorning": "0",
        "msgGetTotalTodayMorning": "0",
        "msgGetTotalTodayNow": "2",
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(size),
        "earliestMessageTimeStamp": str(started),
        "dispatchBehindBytes": "0",
        "dispatchMaxBuffer": "0",
        "remainTransientStoreBufferNumbs": str(2**31 - 1),
        "pageCacheLockTimeMills": "0",
        "timerReadBehind": "0",
        "timerOffsetBehind": "0",
        "timerCongestNum": "0",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
        **{f"{pool}ThreadPoolQueueSize": "0" for pool in pools},
        **{f"{pool}ThreadPoolQueueCapacity": other.get(pool, "100000") for pool in pools},
        **{f"scheduleMessageOffset_{level}": "0,0" for level in range(1, 19)},
    }
    assert {key: table.get(key) for key in expected} == expected
    waits = [key for key in table if key.endswith("HeadWaitTimeMills")]
    pools = ["ack", "litePull", "pull", "query", "reply", "send"]
    assert waits == [f"{pool}ThreadPoolQueueHeadWaitTimeMills" for pool in pools]
    assert re.fullmatch(r"Total : \d+\.\d GiB, Free : \d+\.\d GiB\.", table["commitLogDirCapacity"])
    ratio = table[f"commitLogDiskRatio_{bench.broker.store.root / 'commitlog'}"]
    assert ratio == table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"]
    assert 0 < float(ratio) < 1


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (3 << 50, "3.0 PiB"),
        (2 << 60, "2.0 EiB"),
    ],
)
def test_sizes_read_as_rocketmqs(count: int, text: str) -> None:
    assert cluster._bytes(count) == text


def test_delay_levels_show_what_is_delivered_and_what_is_stored(bench: Any) -> None:
    start = bench.clock.now()
    for second in (0, 2, 4):
        bench.clock.jump(start + second * 1000)
        bench.send("orders", properties={"DELAY": "2"})  # 5 s
    assert cluster.runtime_info(bench.broker)["scheduleMessageOffset_2"] == "0,3"
    bench.clock.jump(start + 7000)
    assert cluster.runtime_info(bench.broker)["scheduleMessageOffset_2"] == "2,3"
    assert cluster.delay_offsets(bench.broker).offset_table[1] == 0


def test_the_times_of_appends_are_measured(bench: Any) -> None:
    for _ in range(3):
        bench.send("orders")
    with pytest.raises(MessageIllegal):
        bench.broker.store.append(Record("orders", b"x" * (bench.broker.store.config.max_message_bytes + 1)))
    table = cluster.runtime_info(bench.broker)
    buckets = re.findall(r"(\[[^]]+\]):(\d+) ", table["putMessageDistributeTime"])
    assert [name for name, _ in buckets][:2] == ["[<=0ms]", "[0~10ms]"]
    assert len(buckets) == 13
    assert sum(int(count) for _, count in buckets) == 3
    assert float(table["putLatency999"]) >= float(table["putLatency99"]) >= 0
    assert table["putMessageFailedTimes"] == "1"


def test_what_is_not_on_disk_yet_is_told(bench: Any) -> None:
    assert cluster.runtime_info(bench.broker)["remainHowManyDataToFlush"] == "0 B"
    bench.send("orders", b"x" * 3000)
    assert re.fullmatch(r"3\.\d KiB", cluster.runtime_info(bench.broker)["remainHowManyDataToFlush"])
    bench.broker.store.flush()
    assert cluster.runtime_info(bench.broker)["remainHowManyDataToFlush"] == "0 B"


async def test_in_sync_mode_the_time_to_the_disk_counts(bench: Any) -> None:
    settings.change_settings("flushDiskType=SYNC_FLUSH", bench.broker)
    await bench.broker.store.durable(bench.send("orders").end)
    assert sum(bench.broker.store.put_times.distribution().values()) == 1
    settings.change_settings("flushDiskType=ASYNC_FLUSH", bench.broker)


def test_requests_wait_as_long_as_the_loop_is_late(bench: Any) -> None:
    now = bench.clock.now()
    wait = "sendThreadPoolQueueHeadWaitTimeMills"
    bench.broker.stats.tick(now + 1000)
    assert cluster.runtime_info(bench.broker)[wait] == "0"
    bench.broker.stats.tick(now + 2250)
    assert cluster.runtime_info(bench.broker)[wait] == "250"


def puts_of(bench: Any, topic: str) -> int:
    bench.clock.advance(seconds=10)
    bench.broker.stats.tick(bench.clock.now())
    try:
        return cluster.stats("TOPIC_PUT_NUMS", topic, bench.broker).stats_day.sum
    except SystemFailure:
        return 0


def test_a_delayed_message_counts_where_it_waits_and_then_in_its_topic(bench: Any) -> None:
    """mqadmin's exportMetrics shows the first as scheduleOneDayInNum."""
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    bench.send("orders", properties={"DELAY": "1"})
    assert cluster.runtime_info(bench.broker)["msgPutTotalTodayNow"] == "0"
    assert (puts_of(bench, names.SCHEDULE_TOPIC), puts_of(bench, "orders")) == (1, 0)
    schedule.tick(bench.clock.now())
    assert (puts_of(bench, names.SCHEDULE_TOPIC), puts_of(bench, "orders")) == (1, 1)
    assert cluster.runtime_info(bench.broker)["msgPutTotalTodayNow"] == "1"


def test_so_does_one_with_a_delivery_time(bench: Any) -> None:
    timers = Timers(bench.broker.store, bench.broker.stats, bench.clock)
    bench.send("orders", properties={"TIMER_DELIVER_MS": str(bench.clock.now() + 5000)})
    assert timers.not_added == 1
    timers.tick(bench.clock.now())
    assert (timers.not_added, timers.pending) == (0, 1)
    assert (puts_of(bench, names.TIMER_TOPIC), puts_of(bench, "orders")) == (1, 0)
    assert timers.late_seconds(bench.clock.now()) == 20
    while timers.tick(bench.clock.now()) == 0:
        pass
    assert timers.late_seconds(bench.clock.now()) == 0
    assert puts_of(bench, "orders") == 1
    table = cluster.runtime_info(bench.broker)
    assert float(table["timerEnqueueTps"]) > 0
    assert float(table["timerDequeueTps"]) > 0
    timers.close()


def test_so_does_a_transaction(bench: Any) -> None:
    """mqadmin's exportMetrics shows the first as transOneDayInNum."""
    sent = bench.send("orders", properties={"TRAN_MSG": "true", "PGROUP": "shop"})
    assert (puts_of(bench, names.HALF_TOPIC), puts_of(bench, "orders")) == (1, 0)
    wanted = EndTransaction("shop", sent.queue_offset, sent.physical_offset, Outcome.COMMIT, from_check=False)
    end_transaction(wanted, bench.broker)
    assert (puts_of(bench, names.HALF_TOPIC), puts_of(bench, "orders")) == (1, 1)


def test_parts_show_their_figures_as_gauges(bench: Any) -> None:
    assert cluster.runtime_info(bench.broker)["timerCongestNum"] == "0"
    bench.broker.stats.gauges["timerCongestNum"] = lambda: 7
    assert cluster.runtime_info(bench.broker)["timerCongestNum"] == "7"


def test_uptime_reads_as_rocketmqs(bench: Any) -> None:
    bench.clock.advance(hours=49, seconds=61)
    assert cluster.runtime_info(bench.broker)["runtime"] == "[ 2 days, 1 hours, 1 minutes, 1 seconds ]"


def test_uptime_is_no_matter_of_the_wall_clock(bench: Any) -> None:
    bench.clock.set_wall(bench.clock.now() + 86_400_000)
    assert cluster.runtime_info(bench.broker)["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"


def test_what_is_delayed_is_delivered_by_the_clock_that_no_operator_sets(bench: Any) -> None:
    bench.send(properties={"DELAY": "3"})
    bench.clock.set_wall(bench.clock.now() + 3_600_000)
    assert cluster.delay_offsets(bench.broker).offset_table[3] == 0
    bench.clock.advance(10_000)
    assert cluster.delay_offsets(bench.broker).offset_table[3] == 1


def test_the_runtime_table_says_what_the_machine_decides(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = SimpleNamespace(longest_ms=7, distribution=dict, percentile_ms=lambda part: part * 1_000)
    monkeypatch.setattr(type(bench.broker.store), "put_times", times)
    disk = SimpleNamespace(used=3 << 30, free=5 << 30)
    monkeypatch.setattr(cluster, "disk_of", lambda root: disk)
    table = cluster.runtime_info(bench.broker)
    assert (table["putLatency99"], table["putLatency999"]) == ("990.00", "999.00")
    assert table["putMessageEntireTimeMax"] == "7"
    assert table["commitLogDirCapacity"] == "Total : 8.0 GiB, Free : 5.0 GiB."


def test_the_earliest_message_is_the_first_that_is_kept(bench: Any) -> None:
    for _ in range(4):
        bench.send("orders", bytes(400_000))  # two to a file
        bench.clock.advance(hours=1)
    bench.clock.advance(hours=73)
    bench.broker.store.tick(bench.clock.now())
    low = bench.broker.store.log_min
    assert low > 0
    first = bench.broker.store.record_at(low)
    assert cluster.runtime_info(bench.broker)["earliestMessageTimeStamp"] == str(first.store_timestamp)


def test_figures_of_a_topic(bench: Any) -> None:
    stats, now = bench.broker.stats, bench.clock.now()
    with pytest.raises(SystemFailure, match="no figures 'TOPIC_PUT_NUMS' of 'orders'"):
        cluster.stats("TOPIC_PUT_NUMS", "orders", bench.broker)
    for tick in range(1, 4):
        stats.sent("orders", 100, 1000)
        stats.tick(now + tick * 10_000)
    shown = cluster.stats("TOPIC_PUT_NUMS", "orders", bench.broker)
    minute = shown.stats_minute
    assert (minute.sum, minute.tps, minute.average) == (300, 10.0, 100.0)
    assert shown.stats_day.sum == 300
    assert cluster.stats("TOPIC_PUT_SIZE", "orders", bench.broker).stats_minute.sum == 3000
    assert cluster.stats("BROKER_PUT_NUMS", "DefaultCluster", bench.broker).stats_minute.sum == 300


def test_there_are_no_slaves(bench: Any) -> None:
    bench.send("orders")
    assert cluster.high_availability(bench.broker) == {
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": True,
        "masterCommitLogMaxOffset": bench.broker.store.log_max,
    }


def test_a_broker_with_another_id_is_no_master(make_bench: Any) -> None:
    assert cluster.high_availability(make_bench(broker_id=1).broker)["master"] is False


def test_cleaning_up_takes_what_belongs_to_no_topic_and_nothing_else(bench: Any) -> None:
    bench.send("orders")
    bench.broker.store.append(Record("gone", b"x"))
    cluster.clean_up(bench.broker)
    assert len(bench.records("orders")) == 1
    assert "gone" not in bench.broker.store.topics()


def test_cleaning_up_takes_what_is_over_its_time_at_once(bench: Any) -> None:
    for _ in range(4):
        bench.send("orders", bytes(400_000))
    bench.clock.advance(hours=73)
    assert bench.broker.store.log_min == 0
    cluster.clean_up(bench.broker)
    assert bench.broker.store.log_min > 0


# -- counting over time --------------------------------------------------------------------------------------


def test_rates_fall_to_zero_a_minute_after_the_last_message() -> None:
    stats = Stats(0)
    stats.sent("t", 60, 600)
    for now in range(0, 130_000, 10_000):
        stats.tick(now)
    figures = stats.figures("TOPIC_PUT_NUMS", "t")
    assert figures is not None
    assert figures.minute.sum == 0
    assert stats.send_rate("t") == 0.0


def test_the_hour_and_the_day_are_sampled_more_rarely() -> None:
    stats = Stats(0)
    for step in range(1, 6 * 60 * 26):
        stats.sent("t", 1, 10)
        stats.tick(step * 10_000)
    figures = stats.figures("TOPIC_PUT_NUMS", "t")
    assert figures is not None
    assert figures.minute.sum == 6
    assert figures.hour.sum == pytest.approx(6 * 60, rel=0.17)  # up to 10 minutes more
    assert figures.day.sum == pytest.approx(6 * 60 * 24, rel=0.05)  # up to an hour more
    assert figures.day.per_second == pytest.approx(0.1)


def test_consumption_is_counted_per_group_and_topic() -> None:
    stats = Stats(0)
    stats.tick(10_000)
    stats.got("g", "t", 50, 500)
    stats.missed()
    stats.tick(20_000)
    assert stats.consume_rate("g", "t") == 5.0
    assert stats.consume_rate("other", "t") == 0.0
    rates = stats.broker_rates(10)
    assert (rates["got"], rates["found"], rates["missed"]) == (5.0, 0.1, 0.1)


def test_sending_back_acks_and_checkpoints_have_figures() -> None:
    stats = Stats(0)
    for count, name in (
        (stats.sent_back, "SNDBCK_PUT_NUMS"),
        (stats.acked, "GROUP_ACK_NUMS"),
        (stats.popped, "GROUP_CK_NUMS"),
    ):
        count("g", "t")
        assert stats.figures(name, "t@g") is not None
    stats.remove_group("g")
    assert stats.figures("GROUP_ACK_NUMS", "t@g") is None
    stats.acked("g", "t")
    stats.remove_topic("t")
    assert stats.figures("GROUP_ACK_NUMS", "t@g") is None


def test_ten_thousand_topics_are_sampled_a_few_at_a_time() -> None:
    stats = Stats(0)
    for i in range(METERS_PER_TICK * 2):
        stats.sent(f"t{i}", 1, 1)
    calls = 1
    while stats.tick(10_000) == 0:
        calls += 1
    assert calls == 3


def test_totals_at_midnight_are_kept() -> None:
    from datetime import datetime

    noon = int(datetime(2026, 5, 1, 12).timestamp() * 1000)
    stats = Stats(noon)
    stats.sent("t", 5, 5)
    stats.got("g", "t", 2, 2)
    day = 24 * 3_600_000
    stats.tick(noon + day)
    stats.sent("t", 1, 1)
    assert stats.put_day() == (0, 5, 6)
    stats.tick(noon + 2 * day)
    assert stats.put_day() == (5, 6, 6)
    assert stats.got_day() == (2, 2, 2)


# -- settings ------------------------------------------------------------------------------------------------


def test_settings_are_shown_under_rocketmqs_names(bench: Any) -> None:
    lines = dict(line.split("=", 1) for line in settings.settings(bench.broker).splitlines())
    assert lines["brokerName"] == "broker-a"
    assert lines["brokerClusterName"] == "DefaultCluster"
    assert lines["flushDiskType"] == "ASYNC_FLUSH"
    assert lines["autoCreateTopicEnable"] == "true"
    assert lines["fileReservedTime"] == "72"


def test_a_changed_setting_takes_effect(bench: Any) -> None:
    settings.change_settings(
        "brokerPermission=4\nrecallMessageEnable=False\n# note\n\nfileReservedTime=48.5", bench.broker
    )
    assert bench.broker.config.perm == 4
    assert bench.broker.config.recall is False
    assert bench.broker.store.config.retention_hours == 48.5
    settings.change_settings("flushDiskType=SYNC_FLUSH", bench.broker)
    assert bench.broker.store.needs_sync


def test_any_setting_may_be_given_the_value_it_has(bench: Any) -> None:
    before = settings.settings(bench.broker)
    settings.change_settings("longPollingEnable=true\nbrokerName=broker-a\nlistenPort=10911", bench.broker)
    assert settings.settings(bench.broker) == before


def test_creating_topics_on_send_can_be_turned_off_and_on(bench: Any) -> None:
    settings.change_settings("autoCreateTopicEnable=false", bench.broker)
    with pytest.raises(TopicNotFound):
        bench.send("new")
    bench.send("RMQ_SYS_TRACE_TOPIC")
    settings.change_settings("autoCreateTopicEnable=true", bench.broker)
    bench.send("new")


def test_topics_created_on_send_have_as_many_queues_as_the_setting_says(bench: Any) -> None:
    for queues in (2, 9):
        settings.change_settings(f"defaultTopicQueueNums={queues}", bench.broker)
        template = bench.broker.topics.require("TBW102")
        assert (template.read_queue_nums, template.write_queue_nums) == (queues, queues)
        bench.send(f"new-{queues}", default_topic_queue_nums=16)
        made = bench.broker.topics.require(f"new-{queues}")
        assert (made.read_queue_nums, made.write_queue_nums) == (queues, queues)


def test_rocketmqs_own_settings_are_taken_without_effect(bench: Any) -> None:
    before = settings.settings(bench.broker)
    settings.change_settings("waitTimeMillsInSendQueue=1000", bench.broker)
    assert settings.settings(bench.broker) == before


@pytest.mark.parametrize(
    ("text", "error", "remark"),
    [
        ("brokerName=x", InvalidParameter, "'brokerName' takes effect at the next start"),
        ("listenPort=1", InvalidParameter, "at the next start"),
        ("brokerPermision=4", InvalidParameter, "did you mean 'brokerPermission'"),
        ("qqqqqqqqqqqqqqq=4", InvalidParameter, "no setting"),
        ("brokerPermission=many", InvalidParameter, "not a whole number from 0 to 7"),
        ("flushDiskType=NEVER", InvalidParameter, "not ASYNC_FLUSH or SYNC_FLUSH"),
        ("brokerPermission", InvalidParameter, "name=value"),
        ("rocketmqHome=/", NoPermission, "remotely"),
    ],
)
def test_a_wrong_change_is_refused_by_name(
    make_bench: Callable[..., Any], text: str, error: type[Exception], remark: str
) -> None:
    bench = make_bench()
    before = settings.settings(bench.broker)
    with pytest.raises(error, match=remark):
        settings.change_settings("transactionCheckMax=5\n" + text, bench.broker)
    assert settings.settings(bench.broker) == before
