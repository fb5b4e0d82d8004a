# SPDX-License-Identifier: Apache-2.0
"""Every family has the value that was counted, under labels that boards know; what is not shown is summed."""

from __future__ import annotations

import os
import re
from collections import Counter
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee import __version__, native
from aerobee.broker.metrics import family as families
from aerobee.broker.metrics import health, lag, pops, storage, traffic
from aerobee.broker.metrics.collect import Asked, Metrics
from aerobee.broker.metrics.family import Distribution, Kind
from aerobee.protocol import names
from aerobee.protocol.bodies import ConsumeType
from aerobee.protocol.codes import VERSION
from aerobee.store.histogram import Histogram
from aerobee.store.platform import Disk


class Found:
    """A scrape as a table: name -> labels -> value."""

    def __init__(self, scrape: Any) -> None:
        self.table = {
            family.name: {tuple(labels): value for labels, value in points} for family, points in scrape
        }
        self.families = {family.name: family for family, _ in scrape}

    def of(self, name: str, **labels: str) -> dict[tuple[str, ...], Any]:
        """Values by the labels that are not given, of those that have the given ones."""
        return {
            tuple(text for name, text in has if name not in labels): value
            for has, value in self.table.get(name, {}).items()
            if labels.items() <= dict(has).items()
        }

    def one(self, name: str, **labels: str) -> Any:
        (value,) = self.of(name, **labels).values()
        return value


async def scrape(bench: Any) -> Found:
    return Found(await Metrics(bench.broker).scrape())


def everything(module: Any) -> dict[str, families.Family]:
    return {each.name: each for each in vars(module).values() if isinstance(each, families.Family)}


# -- what they are called ----------------------------------------------------------------------------------


def test_names_of_families_end_in_their_unit_and_counters_in_total() -> None:
    found: dict[str, families.Family] = {}
    for module in (health, lag, pops, storage, traffic):
        found.update(everything(module))
    own = {name: (each.kind.value, each.unit) for name, each in found.items() if name.startswith("aerobee_")}
    assert own == {
        "aerobee_build_info": ("gauge", ""),
        "aerobee_loop_lag_seconds": ("histogram", "seconds"),
        "aerobee_held_requests": ("gauge", ""),
        "aerobee_leases_inflight_messages": ("gauge", ""),
        "aerobee_revive_lateness_seconds": ("gauge", "seconds"),
        "aerobee_fsync_seconds": ("histogram", "seconds"),
        "aerobee_cold_reads_total": ("counter", ""),
        "aerobee_refused_logins_total": ("counter", ""),
        "aerobee_skipped_records_total": ("counter", ""),
        "aerobee_refused_puts_total": ("counter", ""),
        "aerobee_disk_used_ratio": ("gauge", ""),
        "aerobee_disk_free_bytes": ("gauge", "bytes"),
        "aerobee_store_writable": ("gauge", ""),
    }
    for name, each in found.items():
        assert each.kind is not Kind.COUNTER or name.endswith("_total"), name
        assert not each.unit or name.endswith(f"_{each.unit}"), name
        assert re.fullmatch(r"([A-Z][a-z]|\d ).*\.", each.help), name


async def test_how_full_the_disk_is_and_whether_the_store_takes_messages(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "disk_of", lambda root: Disk(used=910, free=90))
    found = await scrape(bench)
    assert found.one("rocketmq_storage_size_bytes") == 910
    assert (found.one("aerobee_disk_used_ratio"), found.one("aerobee_disk_free_bytes")) == (0.91, 90)
    assert found.one("aerobee_store_writable") == 1
    monkeypatch.setattr(type(bench.broker.store), "writable", False)
    assert (await scrape(bench)).one("aerobee_store_writable") == 0


def test_a_distribution_is_told_in_another_unit() -> None:
    histogram = Histogram((1_000, 5_000))
    for value in (500, 1_000, 3_000, 9_000):
        histogram.add(value)
    assert Distribution.of(histogram) == ((1_000, 5_000), (2, 1, 1), 13_500)
    assert Distribution.of(histogram, 1_000) == ((1, 5), (2, 1, 1), 13.5)
    assert Distribution.of(histogram).total == 4


# -- the broker --------------------------------------------------------------------------------------------


def member(client_id: str, language: str = "JAVA", version: int = VERSION, **attributes: str) -> Thing:
    link = Thing(attributes=attributes, remote_text="")
    return Thing(client_id=client_id, language=language, version=version, link=link)


async def test_who_is_connected_by_what_they_are(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = [
        ("a", ConsumeType.CONSUME_ACTIVELY, "pull"),
        ("b", ConsumeType.CONSUME_PASSIVELY, "push"),
        ("c", ConsumeType.CONSUME_POP, "pop"),
        ("CID_RMQ_SYS_x", ConsumeType.CONSUME_POP, "pop"),
    ]
    members = {1: member("1"), 2: member("2"), 3: member("3", "GO", protocol="grpc")}
    groups = {name: Thing(name=name, consume_type=kind, members=members) for name, kind, _ in modes}
    clients = bench.broker.clients
    monkeypatch.setattr(clients, "groups", lambda: groups)
    monkeypatch.setattr(clients, "producer_groups", lambda: {"p": members, "q": {1: member("1")}})
    found = await scrape(bench)
    for name, _, mode in modes:
        of = found.of("rocketmq_consumer_connections", consumer_group=name)
        system = "true" if name.startswith("CID") else "false"
        assert of == {
            (mode, system, "java", "v5_3_3", "remoting"): 2,
            (mode, system, "go", "v5_3_3", "grpc"): 1,
        }
    assert found.of("rocketmq_producer_connections") == {
        ("java", "v5_3_3", "remoting"): 3,
        ("go", "v5_3_3", "grpc"): 1,
    }


async def test_how_long_requests_took(bench: Any) -> None:
    counted = bench.broker.stats.counted
    counted.rpc.add(310, 0, 500_000)
    counted.rpc.held[11, 19].add(2_000_000_000)
    counted.rpc.add(15, -1, 1_000_000)
    counted.rpc.add(99_999, 3, 1)
    counted.topic_made(5, True)
    counted.topic_made(50, False)
    counted.group_made(500, True)
    found = await scrape(bench)
    times = found.of("rocketmq_rpc_latency_milliseconds", protocol_type="remoting")
    assert times.keys() == {
        ("send_message_v2", "success", "false", "success"),
        ("pull_message", "pull_not_found", "true", "success"),
        ("update_consumer_offset", "success", "false", "oneway"),
        ("other", "request_code_not_supported", "false", "success"),
    }
    held = times["pull_message", "pull_not_found", "true", "success"]
    assert (held.sum, held.counts.index(1), held.ends) == (
        2_000,
        7,
        (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000),
    )
    for name, labels in (
        ("rocketmq_topic_create_execution_time_milliseconds", {"is_system": "false"}),
        ("rocketmq_consumer_group_create_execution_time_milliseconds", {}),
    ):
        assert found.one(name, invocation_status="success", **labels).total == 1
    assert (
        found.one("rocketmq_topic_create_execution_time_milliseconds", invocation_status="failure").sum == 50
    )


async def test_what_it_holds_and_could_not_do(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = bench.broker
    broker.pops.parked.count = 4
    broker.parked.count = 3
    broker.stats.counted.late_ms.add(700)
    broker.stats.skipped.count = 5
    monkeypatch.setattr(type(broker.store), "cold_reads", 6, raising=False)
    monkeypatch.setattr(type(broker.store), "refused_puts", 7, raising=False)
    monkeypatch.setattr(pops, "late_ms", lambda broker: 1_500)
    monkeypatch.setattr(health, "late_ms", lambda broker: 1_500)
    lane = broker.pops.leases.in_flight.lane("t", "g", 0)
    lane.in_flight = 8
    found = await scrape(bench)
    assert found.of("aerobee_held_requests") == {("pull",): 3, ("pop",): 4}
    assert found.one("aerobee_leases_inflight_messages") == 8
    assert found.one("aerobee_skipped_records_total") == 5
    assert found.one("aerobee_cold_reads_total") == 6
    assert found.one("aerobee_refused_puts_total") == 7
    assert found.one("aerobee_refused_logins_total") == 0
    assert found.one("aerobee_revive_lateness_seconds") == 1.5
    loop = found.one("aerobee_loop_lag_seconds")
    assert loop.ends == (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
    assert loop.counts[6] == 1
    assert found.table["aerobee_build_info"] == {
        (("version", __version__), ("native", "on" if native.is_on else "off")): 1
    }
    assert found.one("rocketmq_broker_permission") == 6
    assert found.one("rocketmq_topic_number") == len(broker.topics.all())
    assert found.one("rocketmq_consumer_group_number") == len(broker.groups.all())
    assert found.of("rocketmq_processor_watermark") == {
        (name,): 0
        for name in (
            "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull",
            "transaction", "consumer_manager", "admin", "reply",
        )
    }  # fmt: skip


# -- traffic -----------------------------------------------------------------------------------------------


async def test_messages_in_by_topic_kind_and_size(bench: Any) -> None:
    broker, stats = bench.broker, bench.broker.stats
    for topic in ("orders", "fifo"):
        broker.topics.ensure(topic)
    broker.topics.require("fifo").attributes["message.type"] = "FIFO"
    stats.sent("orders", 2, 600)
    stats.sent("orders", 1, 5_000)
    stats.moved("orders", 4, 4_000)  # the broker's own copies are nobody's messages
    stats.sent("fifo", 1, 100)
    stats.waits("orders", names.SCHEDULE_TOPIC, 2_000)
    stats.waits("orders", names.HALF_TOPIC, 300)
    found = await scrape(bench)
    of = found.of("rocketmq_messages_in_total", is_system="false")
    assert of == {
        ("orders", "normal"): 3, ("orders", "delay"): 1, ("orders", "transaction"): 1, ("fifo", "fifo"): 1,
    }  # fmt: skip
    assert found.of("rocketmq_throughput_in_total", topic="orders", is_system="false") == {
        ("normal",): 5_600, ("delay",): 2_000, ("transaction",): 300,
    }  # fmt: skip
    sizes = found.one("rocketmq_message_size", topic="orders", message_type="normal", is_system="false")
    assert tuple(sizes.counts) == (2, 0, 1, 0, 0, 0, 0)
    delayed = found.one("rocketmq_message_size", topic="orders", message_type="delay", is_system="false")
    assert tuple(delayed.counts) == (0, 1, 0, 0, 0, 0, 0)


async def test_messages_out_dead_letters_and_transactions(bench: Any) -> None:
    broker, stats = bench.broker, bench.broker.stats
    broker.topics.ensure("orders")
    broker.groups.require("g")
    retry = names.pop_retry_topic("orders", "g")
    stats.got("g", "orders", 3, 300)
    stats.got("g", retry, 2, 20)
    stats.got("g", names.retry_topic("g"), 1, 10)
    stats.counted.dead["g", "orders"] += 4
    stats.counted.dead["g", ""] += 1
    stats.counted.committed["orders"] += 5
    stats.counted.rolled_back["orders"] += 6
    stats.counted.finish_s.add("orders", 61)
    broker.transactions.by_topic["orders"] = 7
    found = await scrape(bench)
    assert found.of("rocketmq_messages_out_total", consumer_group="g", is_system="false") == {
        ("orders", "false"): 3, ("orders", "true"): 2, ("%RETRY%g", "true"): 1,
    }  # fmt: skip
    assert found.one("rocketmq_throughput_out_total", topic="orders", is_retry="false") == 300
    dead = found.of("rocketmq_send_to_dlq_messages_total", consumer_group="g", is_system="false")
    assert dead == {("orders",): 4, ("other",): 1}
    for name, value in (
        ("rocketmq_half_messages", 7),
        ("rocketmq_commit_messages_total", 5),
        ("rocketmq_rollback_messages_total", 6),
    ):
        assert found.of(name) == {("orders",): value}
    finished = found.one("rocketmq_finish_message_latency_milliseconds", topic="orders")
    assert (finished.sum, finished.counts.index(1)) == (61, 2)


async def test_what_is_not_shown_by_name_is_summed(make_bench: Any) -> None:
    bench = make_bench(metrics_top=1)
    broker, stats = bench.broker, bench.broker.stats
    for topic, count in (("busy", 9), ("a", 2), ("b", 3)):
        broker.topics.ensure(topic)
        broker.groups.require(f"g-{topic}")
        stats.sent(topic, count, 10 * count)
        stats.got(f"g-{topic}", topic, count, 10 * count)
        stats.counted.finish_s.add(topic, count)
        stats.counted.delay_s.add(topic, 100 * count)
        stats.counted.committed[topic] += count
        stats.counted.timer_in[topic] += count
        stats.counted.dead[f"g-{topic}", topic] += count
        stats.counted.retried[f"g-{topic}", topic] += count
    found = await scrape(bench)
    assert found.of("rocketmq_messages_in_total", is_system="false", message_type="normal") == {
        ("busy",): 9, ("other",): 5,
    }  # fmt: skip
    assert found.one("rocketmq_throughput_in_total", topic="other", is_system="false") == 50
    assert found.of("rocketmq_messages_out_total", is_system="false", is_retry="false") == {
        ("g-busy", "busy"): 9, ("other", "other"): 5,
    }  # fmt: skip
    assert found.of("rocketmq_commit_messages_total") == {("busy",): 9, ("other",): 5}
    assert found.one("rocketmq_finish_message_latency_milliseconds", topic="other").sum == 5
    assert found.one("rocketmq_finish_message_latency_milliseconds", topic="other").total == 2
    assert found.of("rocketmq_timer_enqueue_total", storage_type="local", storage_medium="disk") == {
        ("busy",): 9, ("other",): 5,
    }  # fmt: skip
    delays = found.one("rocketmq_delay_message_latency_seconds", topic="other")
    assert (delays.sum, tuple(delays.counts)) == (500, (0, 2, 0, 0, 0, 0, 0))
    assert found.of("rocketmq_send_to_dlq_messages_total", is_system="false") == {
        ("g-busy", "busy"): 9, ("other", "other"): 5,
    }  # fmt: skip
    assert found.of("rocketmq_pop_revive_retry_messages_total", put_status="PUT_OK") == {
        ("g-busy", "busy"): 9, ("other", "other"): 5,
    }  # fmt: skip


def test_a_groups_own_retry_topic_goes_with_the_group() -> None:
    asked = Asked({"orders"}, {"g"})

    def pair(group: str, topic: str) -> tuple[str, str, str, str]:
        group_label, topic_label, retry, system = asked.pair(group, topic)
        assert [name for name, _ in (group_label, topic_label, retry, system)] == [
            "consumer_group", "topic", "is_retry", "is_system",
        ]  # fmt: skip
        return group_label[1], topic_label[1], retry[1], system[1]

    assert pair("g", "orders") == ("g", "orders", "false", "false")
    assert pair("g", "hidden") == ("g", "other", "false", "false")
    assert pair("hidden", "orders") == ("other", "other", "false", "false")
    assert pair("g", names.pop_retry_topic("orders", "g")) == ("g", "orders", "true", "false")
    assert pair("g", names.pop_retry_topic_v2("orders", "g")) == ("g", "orders", "true", "false")
    assert pair("g", "%RETRY%g") == ("g", "%RETRY%g", "true", "false")
    assert pair("g", "%DLQ%g") == ("g", "%DLQ%g", "true", "false")
    assert pair("g", "%RETRY%other") == ("g", "other", "true", "false")
    assert pair("g", names.SCHEDULE_TOPIC) == ("g", names.SCHEDULE_TOPIC, "false", "true")
    assert pair("CID_RMQ_SYS_x", "orders") == ("other", "other", "false", "true")


# -- storage -----------------------------------------------------------------------------------------------


async def test_the_disk_and_its_oldest_message(bench: Any, clock: Any) -> None:
    found = await scrape(bench)
    assert found.of("rocketmq_storage_message_reserve_time_milliseconds") == {}
    bench.send()
    clock.advance(5_000)
    found = await scrape(bench)
    where = {"storage_type": "local", "storage_medium": "disk"}
    assert found.one("rocketmq_storage_message_reserve_time_milliseconds", **where) == 5_000
    assert found.one("rocketmq_storage_flush_behind_bytes", **where) == bench.broker.store.unsynced_bytes > 0
    assert found.one("rocketmq_storage_dispatch_behind_bytes", **where) == 0
    used = os.statvfs(bench.broker.store.root)
    assert found.one("rocketmq_storage_size_bytes", **where) == pytest.approx(
        (used.f_blocks - used.f_bfree) * used.f_frsize, rel=0.2
    )


class Waiting:
    pending, not_added = 30, 2

    def by_topic(self) -> Counter[str]:
        return Counter({"orders": 3, "hidden": 4, "": 5})

    def within(self, now: int, bounds_s: Any) -> Any:
        return iter([(5, 1), (60, 2), (5, 3), (0, 9)])

    def late_ms(self, now: int) -> int:
        return 250


async def test_what_waits_for_its_time(bench: Any) -> None:
    broker = bench.broker
    broker.topics.ensure("orders")
    broker.stats.counted.timer_out["orders"] += 8
    assert "rocketmq_timer_enqueue_lag" not in (await scrape(bench)).table
    timers = broker.stats.counted.timers = Waiting()
    found = await scrape(bench)
    where = {"storage_type": "local", "storage_medium": "disk"}
    for name, value in (
        ("rocketmq_timer_enqueue_lag", 2),
        ("rocketmq_timer_enqueue_latency_milliseconds", 250),
        ("rocketmq_timer_dequeue_lag", 30),
        ("rocketmq_timer_dequeue_latency_milliseconds", 250),
    ):
        assert found.one(name, **where) == value, name
    assert found.of("rocketmq_timing_messages", **where) == {("orders",): 3, ("other",): 9}
    assert found.of("rocketmq_timer_message_snapshot", **where) == {
        ("5",): 4, ("60",): 2, ("300",): 0, ("900",): 0, ("3600",): 0, ("14400",): 0, ("28800",): 0, ("86400",): 0,
    }  # fmt: skip
    assert found.of("rocketmq_timer_dequeue_total", **where) == {("orders",): 8}
    timers.not_added = 0
    timers.by_topic = lambda: Counter({"orders": 3})  # type: ignore[method-assign]
    found = await scrape(bench)
    assert found.one("rocketmq_timer_enqueue_latency_milliseconds", **where) == 0
    assert found.of("rocketmq_timing_messages", **where) == {("orders",): 3}


# -- POP and lag -------------------------------------------------------------------------------------------


async def test_leases_and_their_log(bench: Any, clock: Any) -> None:
    broker = bench.broker
    broker.topics.ensure("orders")
    broker.groups.require("g")
    leases, counted = broker.pops.leases, broker.stats.counted
    leases.log.written["g", "orders", "ck"] += 3
    leases.log.written["g", names.pop_retry_topic("orders", "g"), "ck"] += 1
    leases.log.written["g", "orders", "ack"] += 2
    counted.revived["g", "orders", 5] += 6
    counted.retried["g", "orders"] += 7
    counted.scan_ms.add(50)
    for queue_id in (0, 1):
        lane = leases.in_flight.lane("orders", "g", queue_id)
        lane.line.extend([None, None])  # type: ignore[list-item]
    leases.in_flight.young = 9
    leases.in_flight.due.add(clock.now() - 5_000, 1)
    found = await scrape(bench)
    assert found.of("rocketmq_pop_revive_in_message_total", consumer_group="g", put_status="PUT_OK") == {
        ("orders", "CK"): 4, ("orders", "ACK"): 2,
    }  # fmt: skip
    assert found.table["rocketmq_pop_revive_out_message_total"] == {
        (("consumer_group", "g"), ("topic", "orders"), ("queue_id", "5"), ("revive_message_type", "CK")): 6
    }
    assert found.of("rocketmq_pop_revive_retry_messages_total", put_status="PUT_OK") == {("g", "orders"): 7}
    assert found.one("rocketmq_pop_offset_buffer_size") == 4
    assert found.one("rocketmq_pop_checkpoint_buffer_size") == 9
    assert found.one("rocketmq_pop_buffer_scan_time_consume_milliseconds").counts[2] == 1
    lags = found.of("rocketmq_pop_revive_lag_milliseconds")
    assert lags == {(str(queue),): 0 for queue in range(leases.log.queues)}
    late = found.of("rocketmq_pop_revive_latency_milliseconds")
    assert all(value == pytest.approx(5_000, abs=200) for value in late.values())
    assert len(late) == leases.log.queues


async def test_how_far_groups_are_behind(bench: Any, clock: Any) -> None:
    broker = bench.broker
    for queue_id, count in ((0, 3), (1, 2)):
        for _ in range(count):
            bench.send(queue_id=queue_id)
        clock.advance(1_000)
    broker.groups.require("g")
    broker.offsets.set("g", "orders", 0, 1)
    broker.offsets.set("g", "orders", 1, 0)
    broker.offsets.set("CID_RMQ_SYS_x", "orders", 0, 0)
    found = await scrape(bench)
    of = {"consumer_group": "g", "topic": "orders", "is_retry": "false", "is_system": "false"}
    for name, value in (
        ("rocketmq_consumer_lag_messages", 4),
        ("rocketmq_consumer_ready_messages", 4),
        ("rocketmq_consumer_inflight_messages", 0),
        ("rocketmq_consumer_lag_latency_milliseconds", 2_000),
        ("rocketmq_consumer_queueing_latency_milliseconds", 2_000),
    ):
        assert found.one(name, **of) == value, name
    groups = {dict(labels)["consumer_group"] for labels in found.table["rocketmq_consumer_lag_messages"]}
    assert groups == {"g"}, "none of the broker's own"


def test_lag_is_the_sum_of_queues_and_the_age_of_the_oldest() -> None:
    sums = lag._Sums()
    for ready, in_flight, oldest_ready, oldest_in_flight in ((3, 1, 50, 70), (2, 4, 60, 10)):
        sums.add(
            Thing(
                ready=ready,
                in_flight=in_flight,
                oldest_ready_ms=oldest_ready,
                oldest_in_flight_ms=oldest_in_flight,
            )  # type: ignore[arg-type]
        )
    assert (sums.ready, sums.in_flight, sums.oldest_ready, sums.oldest) == (5, 5, 60, 70)
