# SPDX-License-Identifier: Apache-2.0
"""What a scrape leaves out, keeps apart and shares."""

from __future__ import annotations

import asyncio
from typing import Any

from aerobee.broker.delivery.reading import Start
from aerobee.broker.metrics.collect import Metrics
from aerobee.broker.operations.pop import Pop, pop
from aerobee.protocol import names
from tests.broker.metrics.test_values import Found, scrape


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
