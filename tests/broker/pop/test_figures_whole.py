# SPDX-License-Identifier: Apache-2.0
"""Figures of a group field by field, where the first message of a queue is gone and every number is another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.broker.operations.admin import progress
from aerobee.broker.operations.admin.figures import group_figures, queue_figures
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.broker.state import delayed
from aerobee.broker.state.clients import ConsumerGroup
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    GroupConfig,
    MessageQueue,
    Mode,
    RequestMode,
    SubscriptionData,
    TopicConfig,
)

if TYPE_CHECKING:
    import pytest

QUEUE = MessageQueue("broker-a", 0, "orders")


def filled(shop: Any, count: int = 10, step_ms: int = 1_000) -> None:
    for number in range(count):
        shop.send(str(number))
        shop.clock.advance(step_ms)


def low(shop: Any, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    monkeypatch.setattr(shop.broker.store, "min_offset", lambda topic, queue: offset if queue == 0 else 0)


def test_a_queue_of_a_group_that_pulls_and_is_connected(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(shop)
    low(shop, monkeypatch, 2)
    shop.broker.offsets.set("billing", "orders", 0, 4)
    shop.broker.offsets.pulled("billing", "orders", 0, 7)
    shop.broker.stats.fell_behind("billing", "orders", 0, 55, 66)
    offline = queue_figures(shop.broker, "billing", "orders", 0)
    assert msgspec.structs.asdict(offline) == {
        "topic": "orders", "broker_name": "broker-a", "queue_id": 0, "min_offset": 2, "max_offset": 10,
        "committed": 4, "position": 4, "ready": 6, "in_flight": 0, "oldest_ready_ms": 6_000,
        "oldest_in_flight_ms": 0, "behind_bytes": 55, "behind_ms": 66,
    }  # fmt: skip
    shop.broker.clients._consumers["billing"] = ConsumerGroup("billing")
    online = queue_figures(shop.broker, "billing", "orders", 0)
    assert msgspec.structs.asdict(online) == {
        **msgspec.structs.asdict(offline), "position": 7, "ready": 3, "in_flight": 3, "oldest_ready_ms": 3_000,
        "oldest_in_flight_ms": 6_000,
    }  # fmt: skip
    for pulled, in_flight in ((4, 0), (5, 1), (10, 6), (11, 0)):  # past the end: of a queue that was cut
        shop.broker.offsets.pulled("billing", "orders", 0, pulled)
        assert queue_figures(shop.broker, "billing", "orders", 0).in_flight == in_flight, pulled


def test_a_group_behind_what_is_kept_has_only_what_is_kept_before_it(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop)
    low(shop, monkeypatch, 6)
    for committed, ready in ((-1, 4), (3, 4), (6, 4), (7, 3), (10, 0), (12, 0)):
        if committed >= 0:
            shop.broker.offsets.set("billing", "orders", 0, committed)
        found = queue_figures(shop.broker, "billing", "orders", 0)
        assert (found.ready, found.committed) == (ready, 6 if committed < 0 else committed)
        assert found.oldest_ready_ms == (ready * 1_000 if ready else 0)


def test_a_group_that_pops_has_leased_skipped_and_ready_messages_apart(shop: Any) -> None:
    filled(shop)
    messages = shop.pop(max_messages=4, queue_id=0, invisible_ms=60_000)
    shop.ack(messages[0], messages[2])
    found = queue_figures(shop.broker, "billing", "orders", 0)
    assert (found.committed, found.position, found.ready, found.in_flight) == (0, 4, 6, 2)
    assert (found.oldest_ready_ms, found.oldest_in_flight_ms) == (6_000, 9_000)
    shop.broker.pops.leases.in_flight.lane("orders", "billing", 0).skip |= {3, 4, 8}
    assert queue_figures(shop.broker, "billing", "orders", 0).ready == 4, "those past the position"


def test_all_figures_of_a_group_add_up(shop: Any) -> None:
    broker = shop.broker
    broker.groups.put(GroupConfig(group_name="billing", retry_max_times=5))
    broker.topics.ensure("bills", 2)
    retry, dead = names.pop_retry_topic("orders", "billing"), names.dead_letter_topic("billing")
    for topic in (retry, dead, names.retry_topic("billing")):
        broker.topics.ensure(topic)
    filled(shop, 4)
    shop.send("b", topic="bills", queue_id=1)
    shop.send("r", "r", topic=retry)
    shop.send("r", topic=names.retry_topic("billing"))
    shop.send(*"ddd", topic=dead)
    broker.offsets.set("billing", "orders", 0, 1)
    broker.offsets.set("billing", "bills", 1, 0)
    broker.pops.modes.put(RequestMode(topic="bills", consumer_group="billing", mode=Mode.POP))
    found = group_figures("billing", None, broker)
    assert (found.ready, found.retrying, found.dead, found.in_flight, found.delayed) == (4, 3, 3, 0, 0)
    assert (found.group, found.online, found.conflicts, found.delayed_is_exact) == (
        "billing",
        False,
        {},
        True,
    )
    assert found.oldest_ms == 3_000
    assert found.modes == {"orders": "PULL", "bills": "POP"}
    assert [queue.topic for queue in found.queues] == [
        "bills", "bills", *["orders"] * 4, "%RETRY%billing_orders", "%RETRY%billing",
    ]  # fmt: skip
    only = group_figures("billing", "bills", broker)
    assert (only.ready, {queue.topic for queue in only.queues}) == (1, {"bills", "%RETRY%billing"})
    online = ConsumerGroup("billing", subscriptions={"orders": SubscriptionData(topic="orders")})
    online.conflicts["orders"] = {"a": ["c1"], "b": ["c2"]}
    broker.clients._consumers["billing"] = online
    found = group_figures("billing", None, broker)
    assert (found.online, found.conflicts) == (True, {"orders": {"a": ["c1"], "b": ["c2"]}})


def test_so_many_delayed_messages_are_looked_at(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed, "REMEMBERED", 3)
    for group in ("billing", "other"):
        shop.broker.groups.put(GroupConfig(group_name=group))
    shop.send("a")
    where = shop.records("orders")[0].physical_offset
    for group, count, exact in (
        ("billing", 1, True),
        ("other", 1, True),
        ("billing", 2, True),
        ("billing", 2, False),
    ):
        send_back(SendBackRequest(group, where), shop.broker)
        found = group_figures("billing", None, shop.broker)
        assert (found.delayed, found.delayed_is_exact) == (count, exact)
    assert group_figures("other", None, shop.broker).delayed == 1
    shop.clock.advance(11_000)
    found = group_figures("billing", None, shop.broker)
    assert (found.delayed, found.delayed_is_exact) == (0, True)


def test_the_first_that_waits_is_found_wherever_it_lies(shop: Any) -> None:
    start = shop.clock.now()
    for number in range(9):
        shop.send(str(number), topic=names.SCHEDULE_TOPIC, DELAY="1", REAL_TOPIC="orders", REAL_QID="0")
        shop.clock.advance(1_000)
    store = shop.broker.store
    due = [store.unit(names.SCHEDULE_TOPIC, 0, at).tags_code for at in range(9)]
    assert due == sorted(due)
    for at, moment in enumerate(due):
        assert delayed.first_waiting(store, 0, 9, moment - 1) == at
        assert delayed.first_waiting(store, 0, 9, moment) == at + 1
    assert delayed.first_waiting(store, 0, 0, start) == 0


# -- what mqadmin shows of it --------------------------------------------------------------------------------


def test_times_of_a_queue_its_first_last_and_next_message(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start = shop.clock.wall()
    filled(shop, 5)
    shop.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=2))
    low(shop, monkeypatch, 1)
    for offset, consumed, delay in ((-1, 1_000, 4_000), (0, 1_000, 4_000), (3, 2_000, 2_000), (5, 4_000, 0)):
        if offset >= 0:
            shop.broker.offsets.set("billing", "orders", 0, offset)
        first, second = progress.time_spans("billing", "orders", shop.broker).consume_time_span_set
        assert (first.min_time_stamp - start, first.max_time_stamp - start) == (1_000, 4_000)
        assert (first.consume_time_stamp - start, first.delay_time) == (consumed, delay), offset
        assert (second.message_queue.queue_id, second.delay_time) == (1, 0)


def test_progress_of_a_group_that_pulls(shop: Any) -> None:
    start = shop.clock.wall()
    filled(shop, 5)
    for offset, pulled, last in ((0, 0, 0), (3, 3, 2_000), (3, 4, 2_000)):
        shop.broker.offsets.set("billing", "orders", 0, offset)
        shop.broker.offsets.pulled("billing", "orders", 0, pulled)
        row = progress.consume_stats("billing", "orders", [], shop.broker).offset_table[QUEUE]
        assert (row.broker_offset, row.consumer_offset, row.pull_offset) == (5, offset, pulled)
        assert row.last_timestamp == (start + last if offset else 0)


def test_topics_that_an_online_group_does_not_subscribe_are_left_out_unless_listed(shop: Any) -> None:
    broker = shop.broker
    for topic in ("orders", "bills"):
        broker.topics.ensure(topic, 1)
        broker.offsets.set("billing", topic, 0, 0)

    def told(topic: str | None = None, listed: tuple[str, ...] = ()) -> set[str]:
        return {
            queue.topic for queue in progress.consume_stats("billing", topic, listed, broker).offset_table
        }

    assert told() == {"orders", "bills"}
    online = broker.clients._consumers["billing"] = ConsumerGroup("billing")
    assert told() == {"orders", "bills"}, "it has not said what it subscribes"
    online.subscriptions["orders"] = SubscriptionData(topic="orders")
    assert told() == told("orders") == {"orders"}
    assert told("bills") == set()
    assert told(listed=("bills", "", "nowhere")) == {"bills"}
    assert told("orders", ("bills",)) == {"bills"}, "a list goes first"


def test_all_groups_are_told_with_the_sums_of_what_they_are_behind(shop: Any) -> None:
    broker = shop.broker
    filled(shop, 5)
    broker.topics.put(TopicConfig(topic_name="ordered", order=True, read_queue_nums=1, write_queue_nums=1))
    shop.send(*"ab", topic="ordered")
    broker.groups.put(GroupConfig(group_name="pulls"))
    broker.offsets.set("pulls", "orders", 0, 2)
    broker.offsets.pulled("pulls", "orders", 0, 3)
    broker.offsets.set("pulls", "ordered", 0, 0)
    everything = progress.broker_consume_stats(broker, ordered_only=False)
    assert (everything.total_diff, everything.total_inflight_diff) == (5, 1)
    assert everything.broker_addr == progress.address(broker)
    groups = [next(iter(entry)) for entry in everything.consume_stats_list]
    assert groups == sorted(broker.groups.all())
    (rows,) = [entry["pulls"] for entry in everything.consume_stats_list if "pulls" in entry]
    assert [len(row.offset_table) for row in rows] == [1, 4]
    ordered = progress.broker_consume_stats(broker, ordered_only=True)
    assert (ordered.total_diff, ordered.total_inflight_diff) == (2, 0)


def test_corrections_are_the_least_of_all_other_groups(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = shop.broker
    filled(shop, 9)
    low(shop, monkeypatch, 2)
    for group, offset in (("a", 5), ("b", 4), ("gone", 1), ("edge", 2)):
        broker.offsets.set(group, "orders", 0, offset)
    broker.offsets.set("a", "orders", 1, 7)

    def told(filtered: str, compared: str) -> dict[int, int]:
        return progress.correction_offsets(filtered, compared, "orders", broker)

    assert told("", "a") == {0: 2, 1: 7}
    assert told("edge", "a") == {0: 4, 1: 7}, "what lies before the queue's begin does not count"
    assert told("edge,b,", "a") == {0: 5, 1: 7}
    assert told("edge", "gone") == {0: progress.NEVER, 1: 7}, "it is behind even that"
    assert told("edge", "b") == {0: 4, 1: 7}


async def test_offsets_are_cloned_on_one_topic_or_on_all_that_are_read(shop: Any) -> None:
    broker = shop.broker
    for topic in ("orders", "bills"):
        broker.topics.ensure(topic, 1)
        broker.offsets.set("source", topic, 0, 5)
    broker.offsets.set("source", "deleted", 0, 5)
    await progress.clone_offsets("source", "one", "orders", broker, offline=False)
    assert (broker.offsets.get("one", "orders", 0), broker.offsets.get("one", "bills", 0)) == (5, -1)
    await progress.clone_offsets("source", "all", None, broker, offline=False)
    assert sorted(broker.offsets.topics_of("all")) == ["bills", "orders"]
    subscribed = {"orders": SubscriptionData(topic="orders")}
    broker.clients._consumers["source"] = ConsumerGroup("source", subscriptions=subscribed)
    await progress.clone_offsets("source", "online", None, broker, offline=False)
    await progress.clone_offsets("source", "offline", None, broker, offline=True)
    assert sorted(broker.offsets.topics_of("online")) == ["orders"]
    assert sorted(broker.offsets.topics_of("offline")) == ["bills", "orders"]
