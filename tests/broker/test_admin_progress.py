# SPDX-License-Identifier: Apache-2.0
"""Lag, time spans, copies and corrections of offsets."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.admin import progress
from aerobee.errors import TopicNotFound
from aerobee.protocol.bodies import ConsumerData, Heartbeat, MessageQueue, SubscriptionData


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue("broker-a", queue_id, topic)


def online(bench: Any, group: str, *topics: str) -> None:
    class Link:
        remote_text, is_open = "10.0.0.9:1", True
        attributes: dict[str, Any] = {"language": "JAVA", "version": 479}  # noqa: RUF012

        def send(self, command: Any) -> None: ...

    data = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=t) for t in topics])
    bench.broker.clients.heartbeat(
        Link(), Heartbeat(client_id="c", consumer_data_set=[data]), bench.clock.now()
    )


def test_lag_is_exact_for_every_queue(bench: Any) -> None:
    start = bench.clock.now()
    for i in range(5):
        bench.clock.jump(start + i * 1000)
        bench.send("orders", queue_id=1)
    bench.broker.offsets.set("billing", "orders", 1, 2)
    bench.broker.offsets.pulled("billing", "orders", 1, 4)
    stats = progress.consume_stats("billing", "orders", [], bench.broker)
    row = stats.offset_table[queue(1)]
    assert (row.broker_offset, row.consumer_offset, row.pull_offset) == (5, 2, 4)
    assert row.last_timestamp == start + 1000
    empty = stats.offset_table[queue(0)]
    assert (empty.broker_offset, empty.consumer_offset, empty.last_timestamp) == (0, 0, 0)
    assert len(stats.offset_table) == 4


def test_without_a_topic_all_topics_with_offsets_are_shown(bench: Any) -> None:
    bench.send("orders")
    bench.send("bills")
    for topic in ("orders", "bills", "deleted"):
        bench.broker.offsets.set("billing", topic, 0, 1)
    seen = {q.topic for q in progress.consume_stats("billing", None, [], bench.broker).offset_table}
    assert seen == {"orders", "bills"}
    assert progress.consume_stats("billing", "nowhere", [], bench.broker).offset_table == {}


def test_topics_an_online_group_does_not_subscribe_are_left_out_unless_listed(bench: Any) -> None:
    bench.send("orders")
    bench.send("bills")
    for topic in ("orders", "bills"):
        bench.broker.offsets.set("billing", topic, 0, 1)
    online(bench, "billing", "bills")
    assert {q.topic for q in progress.consume_stats("billing", None, [], bench.broker).offset_table} == {
        "bills"
    }
    assert progress.consume_stats("billing", "orders", [], bench.broker).offset_table == {}
    listed = progress.consume_stats("billing", None, ["orders"], bench.broker)
    assert {q.topic for q in listed.offset_table} == {"orders"}


def test_all_groups_of_the_broker_at_once(bench: Any) -> None:
    for _ in range(3):
        bench.send("orders")
    for group, offset in (("billing", 1), ("shipping", 3)):
        bench.broker.groups.require(group)
        bench.broker.offsets.set(group, "orders", 0, offset)
    result = progress.broker_consume_stats(bench.broker, ordered_only=False)
    by_group = {group: rows for item in result.consume_stats_list for group, rows in item.items()}
    assert by_group["billing"][0].offset_table[queue(0)].broker_offset == 3
    assert by_group["TOOLS_CONSUMER"] == []
    assert result.total_diff == 2
    ordered = progress.broker_consume_stats(bench.broker, ordered_only=True)
    assert ordered.total_diff == 0


def test_time_spans_say_how_old_the_next_message_is(bench: Any) -> None:
    start = bench.clock.now()
    for second in range(4):
        bench.clock.jump(start + second * 1000)
        bench.send("orders")
    bench.clock.jump(start + 10_000)
    bench.broker.offsets.set("billing", "orders", 0, 2)
    span = progress.time_spans("billing", "orders", bench.broker).consume_time_span_set[0]
    assert (span.min_time_stamp, span.max_time_stamp) == (start, start + 3000)
    assert (span.consume_time_stamp, span.delay_time) == (start + 1000, 8000)
    bench.broker.offsets.set("billing", "orders", 0, 4)
    assert progress.time_spans("billing", "orders", bench.broker).consume_time_span_set[0].delay_time == 0
    with pytest.raises(TopicNotFound):
        progress.time_spans("billing", "nowhere", bench.broker)


async def test_offsets_are_cloned(bench: Any) -> None:
    bench.send("orders")
    bench.send("bills")
    for topic in ("orders", "bills"):
        bench.broker.offsets.set("billing", topic, 0, 1)
    await progress.clone_offsets("billing", "copy", "orders", bench.broker, offline=True)
    assert bench.broker.offsets.topics_of("copy") == {"orders"}
    await progress.clone_offsets("billing", "all", None, bench.broker, offline=True)
    assert bench.broker.offsets.topics_of("all") == {"orders", "bills"}
    bench.restart()
    assert bench.broker.offsets.get("copy", "orders", 0) == 1


def test_correction_offsets_are_the_smallest_of_the_other_groups(bench: Any) -> None:
    for _ in range(5):
        bench.send("orders")
    for group, offset in (("a", 4), ("b", 2), ("filtered", 1), ("compared", 3)):
        bench.broker.offsets.set(group, "orders", 0, offset)
    assert progress.correction_offsets("filtered", "compared", "orders", bench.broker) == {0: 2}
    assert progress.correction_offsets("filtered,b", "compared", "orders", bench.broker) == {0: 3}
    bench.broker.offsets.set("behind", "orders", 0, 0)
    assert progress.correction_offsets("behind,filtered", "behind", "orders", bench.broker) == {
        0: progress.NEVER
    }
