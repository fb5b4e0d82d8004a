# SPDX-License-Identifier: Apache-2.0
"""/metrics: RocketMQ's names, labels and buckets as its own broker has them, and figures that are exact."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aerobee import Message, Producer, PullConsumer, SimpleConsumer
from aerobee.broker.metrics.collect import Metrics
from aerobee.broker.metrics.family import Scrape
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.server import Server
from aerobee.settings import BrokerConfig
from tests.fronts.http.asking import ask
from tests.turning import until
from tests.watch.load import Load
from tests.watch.shape import shape

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from tests.fronts.http.conftest import Dial

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics.json"


async def scrape(server: Server) -> dict[str, list[tuple[dict[str, str], float]]]:
    answer = await ask(server.http_address, "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        name: [(s.labels, s.value) for family in families for s in family.samples if s.name == name]
        for families in [list(text_string_to_metric_families(answer.text))]
        for name in {s.name for family in families for s in family.samples}
    }


def value(found: dict[str, list[tuple[dict[str, str], float]]], name: str, **labels: str) -> float:
    matching = [number for has, number in found[name] if labels.items() <= has.items()]
    assert len(matching) == 1, f"{name}{labels}: {matching} of {found[name]}"
    return matching[0]


# -- names -------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_names_types_labels_and_buckets_are_those_of_rocketmq(server: Server) -> None:
    """tests/golden/metrics.json is what a broker of 5.3.3 showed of the same load: see tests/watch."""
    golden: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text())
    async with Load(server.namesrv) as load:
        counted = server.broker.stats.counted
        await until(lambda: counted.timer_out and counted.retried and load.failed and counted.dead)
        await until(lambda: server.broker.parked.count and counted.revived)
        ours = shape((await ask(server.http_address, "/metrics")).text)
    for name, theirs in golden.items():
        assert name in ours, f"RocketMQ has {name}"
        assert ours[name]["type"] == theirs["type"], name
        assert ours[name].get("buckets") == theirs.get("buckets"), name
        assert all(each in theirs["labels"] for each in ours[name]["labels"]), name
        for label, known in theirs.get("values", {}).items():
            # What never happens here has no value: a retry of a pull, a system topic that producers sent to.
            assert set(ours[name]["values"][label]) <= set(known) | {"true"}, f"{name} {label}"
    unofficial = {name for name in ours if name not in golden}
    assert all(name.startswith("aerobee_") for name in unofficial), unofficial


# -- figures -----------------------------------------------------------------------------------------------


async def test_messages_in_are_counted_by_topic_and_kind_once_each(server: Server) -> None:
    async with Producer(server.namesrv, group="shop") as producer:
        for size in (10, 2_000, 6_000):
            await producer.send(
                Message("orders", Random(size).randbytes(size))
            )  # which nothing makes smaller
        await producer.send_batch([Message("orders", b"x"), Message("orders", b"y")])
        await producer.send(Message("orders", b"later", delay_level=1))
        await until(lambda: server.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1)
        found = await scrape(server)
        assert value(found, "rocketmq_messages_in_total", topic="orders", message_type="normal") == 5
        assert value(found, "rocketmq_messages_in_total", topic="orders", message_type="delay") == 1
        sizes = {
            labels["le"]: number
            for labels, number in found["rocketmq_message_size_bucket"]
            if labels["topic"] == "orders" and labels["message_type"] == "normal"
        }
        assert (sizes["1024.0"], sizes["4096.0"], sizes["524288.0"], sizes["+Inf"]) == (3, 4, 5, 5)
        queues = range(server.broker.topics.require("orders").read_queue_nums)
        await until(lambda: sum(server.broker.store.max_offset("orders", q) for q in queues) == 6)
        found = await scrape(server)
        assert value(found, "rocketmq_messages_in_total", topic="orders", message_type="normal") == 5


async def test_lag_is_exact_for_pop_and_stays_so_when_the_group_has_left(server: Server) -> None:
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"0"))
        async with SimpleConsumer(server.namesrv, group="shipping", topics={"orders": "*"}) as consumer:
            await until(lambda: server.broker.clients.group("shipping"))
            seen = [*(await consumer.receive(max_messages=1, invisible_ms=60_000))]
            for n in range(9):
                await producer.send(Message("orders", str(n).encode()))
            while len(seen) < 4:
                seen += await consumer.receive(max_messages=1, invisible_ms=60_000)
            await seen[0].ack()
            online = await scrape(server)
    offline = await scrape(server)
    for found in (online, offline):
        of = {"consumer_group": "shipping", "topic": "orders", "is_retry": "false"}
        assert value(found, "rocketmq_consumer_lag_messages", **of) == 9
        assert value(found, "rocketmq_consumer_inflight_messages", **of) == 3
        assert value(found, "rocketmq_consumer_ready_messages", **of) == 6
    assert value(online, "rocketmq_messages_out_total", consumer_group="shipping", is_retry="false") == 4
    assert value(online, "aerobee_leases_inflight_messages") == 3


async def test_requests_are_timed_by_code_also_those_of_the_compiled_lane(server: Server) -> None:
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"x"))
        for _ in range(7):
            await producer.send(Message("orders", b"x"))
        found = await scrape(server)
    of = {"request_code": "send_message_v2", "response_code": "success", "is_long_polling": "false"}
    assert value(found, "rocketmq_rpc_latency_milliseconds_count", **of) == 8


async def test_a_held_pull_is_one(server: Server) -> None:
    async with PullConsumer(server.namesrv, group="audit", topics={"orders": "*"}) as consumer:
        async with Producer(server.namesrv, group="shop") as producer:
            await producer.send(Message("orders", b"x"))
        polling = asyncio.ensure_future(consumer.poll(max_messages=1, timeout_ms=20_000))
        await until(lambda: server.broker.parked.count)
        found = await scrape(server)
        assert value(found, "aerobee_held_requests", kind="pull") >= 1
        polling.cancel()


# -- bounds ------------------------------------------------------------------------------------------------


async def test_topics_and_groups_beyond_the_busiest_are_summed() -> None:
    config = BrokerConfig(metrics_top=2)
    async with (
        Server(ephemeral=True, http_port=0, config=config) as server,
        Producer(server.namesrv, group="shop") as producer,
    ):
        for n in range(1, 5):
            for _ in range(n):
                await producer.send(Message(f"topic-{n}", b"x"))
            async with PullConsumer(server.namesrv, group=f"group-{n}", topics={f"topic-{n}": "*"}) as reader:
                await until(partial(server.broker.clients.group, f"group-{n}"))
                await reader.poll(max_messages=10, timeout_ms=5_000)
        found = await scrape(server)
        totals = {
            labels["topic"]: number
            for labels, number in found["rocketmq_messages_in_total"]
            if labels["is_system"] == "false"
        }
        assert totals == {"topic-4": 4, "topic-3": 3, "other": 3}
        lagging = {labels["consumer_group"] for labels, _ in found["rocketmq_consumer_lag_messages"]}
        assert len(lagging - {"other"}) <= 2 and "other" in lagging
        assert len(found["rocketmq_consumer_lag_messages"]) == len(
            {tuple(sorted(labels.items())) for labels, _ in found["rocketmq_consumer_lag_messages"]}
        ), "no series twice"
        change_settings("metrics_top=1", server.broker)
        found = await scrape(server)
        shown = {
            labels["topic"]
            for labels, _ in found["rocketmq_messages_in_total"]
            if labels["is_system"] == "false"
        }
        assert shown == {"topic-4", "other"}


async def test_codes_that_nobody_serves_are_one_series(server: Server) -> None:
    from aerobee.net.pool import Pool
    from aerobee.protocol.command import Command

    pool = Pool()
    connection = await pool.get(server.broker_address)
    for code in range(70_000, 70_050):
        await connection.call(Command(code, 0), 5_000)
    await pool.close()
    found = await scrape(server)
    codes = [labels["request_code"] for labels, _ in found["rocketmq_rpc_latency_milliseconds_count"]]
    assert codes.count("other") == 1


def many_topics(broker: Broker, count: int) -> None:
    model = broker.topics.require("TBW102")
    for n in range(count):
        name = f"topic-{n:05}"
        broker.topics._table[name] = msgspec.structs.replace(model, topic_name=name)
        broker.stats.sent(name, 1, 2_000)


@pytest.mark.slow
async def test_a_scrape_of_many_topics_lets_others_have_their_turn(server: Server) -> None:
    many_topics(server.broker, 3_000)
    change_settings("metrics_top=3000", server.broker)
    metrics, turns = Metrics(server.broker), 0
    asked = asyncio.ensure_future(metrics.scrape())
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 3
    points = {family.name: len(each) for family, each in asked.result()}
    assert points["rocketmq_message_size"] == 3_000


@pytest.mark.slow
async def test_readers_that_do_not_read_are_bounded_and_make_room_when_they_leave(
    server: Server, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_topics(server.broker, 3_000)
    change_settings("metrics_top=3000", server.broker)
    monkeypatch.setattr(sys.modules["aerobee.fronts.http.metrics"], "AT_ONCE", 1)
    reader, writer = await dial(server.http_address)
    writer.write(f"GET /metrics HTTP/1.1\r\nhost: {server.http_address}\r\n\r\n".encode())
    await reader.readline()
    refused = await ask(server.http_address, "/metrics")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    writer.transport.abort()
    async with asyncio.timeout(30):
        while (await ask(server.http_address, "/metrics")).status != 200:
            pass


async def test_who_asks_while_a_scrape_is_under_way_gets_the_same(server: Server) -> None:
    metrics = Metrics(server.broker)
    one, other = await asyncio.gather(metrics.scrape(), metrics.scrape())
    assert one is other
    assert await metrics.scrape() is not one


async def test_no_step_of_a_scrape_does_much(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them others may run: a step that grew with the number of topics would hold them all."""
    many_topics(server.broker, 500)
    for n in range(500):
        server.broker.offsets.set("billing", f"topic-{n:05}", 0, 0)
        server.broker.stats.got("billing", f"topic-{n:05}", 1, 10)
    server.broker.groups.require("billing")
    added: list[int] = []
    monkeypatch.setattr(Scrape, "add", lambda self, *point: added.append(len(added)))
    most = before = 0
    for _ in Metrics(server.broker)._steps():
        most, before = max(most, len(added) - before), len(added)
    assert before > 500 * 10
    assert most < 100


async def test_what_is_counted_of_a_topic_goes_with_it(server: Server) -> None:
    counted = server.broker.stats.counted
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"x" * 5_000))
        await producer.send(Message("orders", b"later", delay_level=1))
    assert "orders" in counted.came
    server.broker.stats.remove_topic("orders")
    assert "orders" not in counted.came
    assert "orders" not in dict(counted.delay_s)
