# SPDX-License-Identifier: Apache-2.0
"""Lag, time spans, copies and corrections of offsets."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.admin import figures, progress
from aerobee.errors import TopicNotFound
from aerobee.protocol.bodies import (
    ConsumerData,
    Heartbeat,
    MessageQueue,
    Mode,
    RequestMode,
    SubscriptionData,
)


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


def test_of_a_group_that_is_online_only_what_it_subscribes_is_summed(bench: Any) -> None:
    for topic in ("orders", "bills"):
        bench.send(topic)
        bench.broker.offsets.set("billing", topic, 0, 0)
    bench.broker.groups.require("billing")
    assert progress.broker_consume_stats(bench.broker, ordered_only=False).total_diff == 2
    online(bench, "billing", "bills")
    result = progress.broker_consume_stats(bench.broker, ordered_only=False)
    by_group = {group: rows for item in result.consume_stats_list for group, rows in item.items()}
    assert [{each.topic for each in row.offset_table} for row in by_group["billing"]] == [{"bills"}]
    assert result.total_diff == 1


def test_a_group_switched_to_pop_has_nothing_in_flight_that_it_pulled_before(bench: Any) -> None:
    for _ in range(5):
        bench.send("orders")
    broker = bench.broker
    broker.offsets.set("billing", "orders", 0, 2)
    broker.offsets.pulled("billing", "orders", 0, 5)

    def shown() -> tuple[int, int]:
        row = progress.consume_stats("billing", "orders", [], broker).offset_table[queue(0)]
        return row.consumer_offset, row.pull_offset

    assert shown() == (2, 5)
    broker.pops.modes.put(RequestMode(topic="orders", consumer_group="billing", mode=Mode.POP))
    assert shown() == (2, 2)


def test_how_long_the_next_message_has_waited_is_told_by_the_clock_that_stamped_it(bench: Any) -> None:
    bench.clock.set_wall(bench.clock.now() + 3_600_000)
    bench.send("orders")
    bench.clock.advance(5_000)
    span = progress.time_spans("billing", "orders", bench.broker).consume_time_span_set[0]
    assert span.delay_time == 5_000
    assert figures.queue_figures(bench.broker, "billing", "orders", 0).oldest_ready_ms == 5_000


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


@pytest.mark.parametrize("deleted", [0, 2])
@pytest.mark.parametrize("offset", [-1, 0, 1, 2, 3, 4])
def test_time_spans_wherever_the_group_stands(
    bench: Any, offset: int, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four messages, a second apart; of some the file was deleted."""
    start = bench.clock.now()
    for second in range(4):
        bench.clock.jump(start + second * 1000)
        bench.send("orders", queue_id=1)
    bench.clock.jump(start + 10_000)
    if offset >= 0:
        bench.broker.offsets.set("billing", "orders", 1, offset)
    store = bench.broker.store
    times = {place: start + place * 1000 for place in range(deleted, 4)}
    monkeypatch.setattr(store, "min_offset", lambda topic, queue_id: deleted)
    monkeypatch.setattr(store, "store_time", lambda topic, queue_id, place: times.get(place, -1))
    span = progress.time_spans("billing", "orders", bench.broker).consume_time_span_set[1]
    assert span.message_queue == queue(1)
    assert (span.min_time_stamp, span.max_time_stamp) == (start + deleted * 1000, start + 3000)
    assert span.consume_time_stamp == (times.get(offset - 1, -1) if offset > 0 else start + deleted * 1000)
    following = max(offset, deleted)
    assert span.delay_time == (10_000 - following * 1000 if following < 4 else 0)


def test_time_spans_of_a_queue_with_nothing_in_it(bench: Any) -> None:
    bench.send("orders", queue_id=0)
    spans = progress.time_spans("billing", "orders", bench.broker).consume_time_span_set
    assert [span.message_queue.queue_id for span in spans] == [0, 1, 2, 3]
    empty = spans[1]
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.consume_time_stamp, empty.delay_time) == (
        -1,
        -1,
        -1,
        0,
    )


def test_lag_of_a_group_at_every_place(bench: Any) -> None:
    start = bench.clock.now()
    for i in range(3):
        bench.clock.jump(start + i * 1000)
        bench.send("orders", queue_id=0)
    for offset, last in ((0, 0), (1, start), (2, start + 1000), (3, start + 2000)):
        bench.broker.offsets.set("billing", "orders", 0, offset)
        row = progress.consume_stats("billing", "orders", [], bench.broker).offset_table[queue(0)]
        assert (row.broker_offset, row.consumer_offset, row.pull_offset) == (3, offset, offset)
        assert row.last_timestamp == last


def test_sums_over_all_groups_are_those_of_their_queues(bench: Any) -> None:
    for queue_id in (0, 1):
        for _ in range(5):
            bench.send("orders", queue_id=queue_id)
    for group, offset, pulled in (("a", 1, 4), ("b", 3, 3)):
        bench.broker.groups.require(group)
        for queue_id in (0, 1):
            bench.broker.offsets.set(group, "orders", queue_id, offset)
            bench.broker.offsets.pulled(group, "orders", queue_id, pulled)
    bench.broker.stats.got("a", "orders", 50, 1)
    bench.broker.stats.tick(bench.clock.now() + 10_000)
    found = progress.broker_consume_stats(bench.broker, ordered_only=False)
    assert (found.total_diff, found.total_inflight_diff) == (2 * 4 + 2 * 2, 2 * 3)
    assert found.broker_addr == progress.address(bench.broker)
    rows = {group: row for entry in found.consume_stats_list for group, row in entry.items() if row}
    assert list(rows) == ["a", "b"]
    (row,) = rows["a"]
    assert row.consume_tps == 5.0
    assert {q.queue_id: p.consumer_offset for q, p in row.offset_table.items()} == {0: 1, 1: 1, 2: 0, 3: 0}
    ordered = progress.broker_consume_stats(bench.broker, ordered_only=True)
    assert (
        ordered.total_diff,
        [row for entry in ordered.consume_stats_list for row in entry.values() if row],
    ) == (0, [])


def test_rates_of_several_topics_add_up(bench: Any) -> None:
    for topic in ("orders", "bills"):
        bench.send(topic)
        bench.broker.offsets.set("billing", topic, 0, 0)
        bench.broker.stats.got("billing", topic, 20, 1)
    bench.broker.stats.tick(bench.clock.now() + 10_000)
    assert progress.consume_stats("billing", None, [], bench.broker).consume_tps == 4.0
    assert progress.consume_stats("billing", None, ["bills", ""], bench.broker).consume_tps == 2.0


async def test_of_a_group_that_is_online_only_what_it_subscribes_is_cloned_unless_it_counts_as_offline(
    bench: Any,
) -> None:
    for topic in ("orders", "bills"):
        bench.send(topic)
        bench.broker.offsets.set("billing", topic, 0, 1)
    bench.broker.offsets.set("billing", "deleted", 0, 1)
    online(bench, "billing", "orders")
    await progress.clone_offsets("billing", "online", None, bench.broker, offline=False)
    assert bench.broker.offsets.topics_of("online") == {"orders"}
    await progress.clone_offsets("billing", "offline", None, bench.broker, offline=True)
    assert bench.broker.offsets.topics_of("offline") == {"orders", "bills"}


def test_corrections_leave_out_groups_that_stand_before_the_first_message(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        bench.send("orders")
    for group, offset in (("a", 4), ("old", 1), ("just", 2)):
        bench.broker.offsets.set(group, "orders", 0, offset)
    monkeypatch.setattr(bench.broker.store, "min_offset", lambda topic, queue_id: 2)
    assert progress.correction_offsets("", "a", "orders", bench.broker) == {0: 2}
    assert progress.correction_offsets("just", "a", "orders", bench.broker) == {0: 4}
    assert progress.correction_offsets("just", "just", "orders", bench.broker) == {0: progress.NEVER}
    assert progress.correction_offsets("a,just", "nobody", "orders", bench.broker) == {}


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
