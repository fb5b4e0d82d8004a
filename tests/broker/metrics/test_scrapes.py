# SPDX-License-Identifier: Apache-2.0
"""What a scrape leaves out, keeps apart and shares."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aerobee.broker.delivery.reading import Start
from aerobee.broker.metrics.collect import Metrics
from aerobee.broker.operations.pop import Pop, pop
from aerobee.protocol import names
from aerobee.protocol.message import Record
from tests.broker.metrics.test_values import Found, scrape
from tests.broker.operations.test_core_pull import connect

if TYPE_CHECKING:
    import pytest


async def test_the_brokers_own_groups_have_no_lag(bench: Any) -> None:
    bench.send()
    own = min(names.SYSTEM_GROUPS)
    assert bench.broker.groups.get(own) is not None
    bench.broker.offsets.set(own, "orders", 0, 0)
    found = await scrape(bench)
    assert found.of("rocketmq_consumer_lag_messages") == {}


async def test_the_oldest_at_a_consumer_is_not_the_oldest_that_waits(bench: Any, clock: Any) -> None:
    bench.send()
    bench.broker.groups.require("g")
    pop(Pop("g", "orders", Start.MIN, queue_id=0, born_time=clock.now()), bench.broker)
    clock.advance(2_000)
    bench.send()
    clock.advance(1_000)
    found = await scrape(bench)
    of = {"consumer_group": "g", "topic": "orders"}
    assert found.one("rocketmq_consumer_lag_messages", **of) == 2
    assert found.one("rocketmq_consumer_inflight_messages", **of) == 1
    assert found.one("rocketmq_consumer_lag_latency_milliseconds", **of) == 3_000
    assert found.one("rocketmq_consumer_queueing_latency_milliseconds", **of) == 1_000


async def test_retries_are_those_of_a_group_that_reads_something(bench: Any) -> None:
    for group in ("reads", "idle"):
        bench.broker.groups.require(group)
        bench.broker.topics.ensure(names.retry_topic(group))
    bench.send()
    bench.broker.offsets.set("reads", "orders", 0, 0)
    shown = (await scrape(bench)).of("rocketmq_consumer_ready_messages", is_retry="true")
    assert {group for group, *_ in shown} == {"reads"}


async def test_how_late_leases_are_is_no_matter_of_the_wall_clock(bench: Any, clock: Any) -> None:
    clock.set_wall(clock.wall() + 7_200_000)
    bench.broker.pops.leases.in_flight.due.add(clock.now() - 5_000, 1)
    assert (await scrape(bench)).one("aerobee_revive_lateness_seconds") < 6


async def test_what_is_on_disk_is_not_behind(bench: Any) -> None:
    bench.send()
    bench.broker.store.flush()
    assert (await scrape(bench)).one("rocketmq_storage_flush_behind_bytes") == 0


async def test_what_the_broker_moved_there_itself_came_from_no_producer(bench: Any) -> None:
    bench.broker.topics.ensure("orders")
    bench.broker.stats.moved("orders", 2, 100)
    found = await scrape(bench)
    assert found.of("rocketmq_messages_in_total", topic="orders") == {}
    bench.broker.stats.sent("orders", 1, 70)
    found = await scrape(bench)
    assert found.one("rocketmq_messages_in_total", topic="orders") == 1
    assert found.one("rocketmq_throughput_in_total", topic="orders") == 70


async def test_the_brokers_own_topics_keep_their_names_however_few_are_shown(make_bench: Any) -> None:
    bench = make_bench(metrics_top=1)
    stats = bench.broker.stats
    for topic, count in (("busy", 9), ("calm", 2), (names.SELF_TEST_TOPIC, 1)):
        bench.broker.topics.ensure(topic)
        stats.sent(topic, count, 10)
    shown = (await scrape(bench)).of("rocketmq_messages_in_total", message_type="normal")
    assert shown == {("busy", "false"): 9, ("other", "false"): 2, (names.SELF_TEST_TOPIC, "true"): 1}


async def test_the_groups_shown_are_those_that_got_most(make_bench: Any) -> None:
    bench = make_bench(metrics_top=1)
    bench.broker.topics.ensure("t")
    for group, count in (("aa", 2), ("zz", 9), ("mm", 3)):
        bench.broker.groups.require(group)
        bench.broker.stats.got(group, "t", count, 10 * count)
    bench.broker.stats.sent("t", 1, 1)
    found = await scrape(bench)
    assert found.of("rocketmq_messages_out_total", is_system="false", is_retry="false") == {
        ("zz", "t"): 9, ("other", "other"): 5,
    }  # fmt: skip
    assert found.one("rocketmq_throughput_out_total", topic="other") == 50


async def test_one_who_asks_and_leaves_takes_the_answer_from_nobody(bench: Any) -> None:
    metrics = Metrics(bench.broker)
    leaves, stays = (asyncio.ensure_future(metrics.scrape()) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    first = await stays
    assert Found(first).one("aerobee_build_info") == 1
    assert await metrics.scrape() is not first, "the next one is of its own moment"


async def test_what_a_broker_may_is_what_its_setting_says_and_syncs_are_told_in_seconds(
    make_bench: Any,
) -> None:
    bench = make_bench(perm=4)
    bench.broker.store.sync_ms.add(500)
    found = await scrape(bench)
    assert found.one("rocketmq_broker_permission") == 4
    assert found.one("aerobee_fsync_seconds").sum == 0.5


async def test_a_connected_group_without_settings_has_its_lag(bench: Any) -> None:
    bench.send()
    connect(bench)
    assert bench.broker.groups.get("billing") is None
    found = await scrape(bench)
    assert found.one("rocketmq_consumer_lag_messages", consumer_group="billing", is_retry="false") == 1


async def test_messages_that_come_back_to_a_group_that_pops_are_its_lag(bench: Any) -> None:
    bench.send()
    bench.broker.groups.require("billing")
    bench.broker.offsets.set("billing", "orders", 0, 1)
    retry = names.pop_retry_topic("orders", "billing")
    bench.broker.topics.ensure(retry)
    bench.broker.store.append(Record(retry, b"x", "", 0))
    shown = (await scrape(bench)).of("rocketmq_consumer_ready_messages", consumer_group="billing")
    assert shown == {("orders", "false", "false"): 0, ("orders", "true", "false"): 1}


async def test_each_queue_of_the_revive_log_has_its_own_lag(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.broker.pops.leases.log, "behind_in", lambda queue: 10 * queue)
    shown = (await scrape(bench)).of("rocketmq_pop_revive_lag_milliseconds")
    assert shown == {(str(queue),): 10 * queue for queue in range(8)}


async def test_figures_of_leases_that_are_not_shown_by_name_are_summed(make_bench: Any) -> None:
    bench = make_bench(metrics_top=1)
    broker = bench.broker
    broker.topics.ensure("t")
    for group, count in (("busy", 9), ("b", 1), ("c", 1)):
        broker.groups.require(group)
        broker.stats.got(group, "t", count, 10)
        broker.stats.counted.revived[group, "t", 3] += 2
        broker.stats.counted.retried[group, "t"] += 3
        broker.pops.leases.log.written[group, "t", "ck"] += 4
    broker.stats.sent("t", 1, 1)
    found = await scrape(bench)
    for name, one in (
        ("rocketmq_pop_revive_out_message_total", 2),
        ("rocketmq_pop_revive_retry_messages_total", 3),
        ("rocketmq_pop_revive_in_message_total", 4),
    ):
        assert found.one(name, consumer_group="busy", topic="t") == one, name
        assert found.one(name, consumer_group="other") == 2 * one, name


async def test_a_message_that_waits_is_one_that_came_in_for_its_topic(bench: Any) -> None:
    bench.send(properties={"DELAY": "3"})
    shown = (await scrape(bench)).of("rocketmq_messages_in_total", topic="orders")
    assert shown == {("delay", "false"): 1}


async def test_how_old_the_oldest_message_is_is_told_by_the_clock_that_stamped_it(
    bench: Any, clock: Any
) -> None:
    clock.set_wall(clock.now() + 3_600_000)
    bench.send()
    clock.advance(5_000)
    assert (await scrape(bench)).one("rocketmq_storage_message_reserve_time_milliseconds") == 5_000
