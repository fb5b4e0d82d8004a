# SPDX-License-Identifier: Apache-2.0
"""Exact figures of a group, whatever its way of consuming."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from aerobee.broker.background.schedule import Schedule
from aerobee.broker.operations.admin.cluster import delay_offsets
from aerobee.broker.operations.admin.figures import counting, group_figures
from aerobee.broker.operations.admin.progress import broker_consume_stats, consume_stats
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.broker.state.clients import ConsumerGroup
from aerobee.errors import GroupNotFound, InvalidParameter
from aerobee.protocol import names
from aerobee.protocol.bodies import ConsumeStats, GroupConfig, SubscriptionData, decode, encode
from aerobee.protocol.headers.groups import GroupFigures


def counts(shop, group: str = "billing") -> tuple[int, int, int, int]:
    figures = group_figures(group, None, shop.broker)
    return figures.ready, figures.in_flight, figures.retrying, figures.dead


def test_each_message_is_counted_in_one_place_on_its_whole_way(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=1))
    shop.send(*"abcde")
    shop.broker.offsets.set("billing", "orders", 0, 0)
    assert counts(shop) == (5, 0, 0, 0)
    messages = shop.pop(invisible_ms=5_000, max_messages=4)
    assert counts(shop) == (1, 4, 0, 0)
    shop.ack(messages[0])
    assert counts(shop) == (1, 3, 0, 0)
    shop.wait(3_200)
    assert counts(shop) == (1, 3, 0, 0), "the same in the revive log"
    shop.restart()
    assert counts(shop) == (1, 3, 0, 0), "and after a restart"
    shop.wait(2_400)
    assert counts(shop) == (1, 0, 3, 0)
    shop.pop(invisible_ms=1_000)
    assert counts(shop) == (0, 4, 0, 0)
    shop.wait(1_400)
    assert counts(shop) == (0, 0, 1, 3)


def test_after_a_crash_what_is_leased_in_the_log_is_not_ready_twice(shop):
    shop.send(*"abcd")
    shop.pop(invisible_ms=60_000, max_messages=3)
    shop.wait(3_200)
    shop.crash()
    assert counts(shop) == (1, 3, 0, 0)


def test_ordered_batches_are_in_flight_until_acked_or_visible(shop):
    shop.send(*"abc")
    messages = shop.pop(ordered=True, queue_id=0, max_messages=2, invisible_ms=5_000)
    assert counts(shop) == (1, 2, 0, 0)
    shop.ack(messages[0])
    assert counts(shop) == (1, 1, 0, 0)
    shop.wait(5_000)
    assert counts(shop) == (2, 0, 0, 0)


def test_ordered_batches_are_in_flight_by_the_clock_that_receipts_are_stamped_with(shop):
    shop.clock.set_wall(shop.clock.now() + 3_600_000)
    shop.send(*"abc")
    shop.pop(ordered=True, queue_id=0, max_messages=2, invisible_ms=5_000)
    assert counts(shop) == (1, 2, 0, 0)
    shop.wait(5_000)
    assert counts(shop) == (3, 0, 0, 0)


def test_what_was_pulled_behind_what_is_leased_is_in_flight_once(shop):
    shop.send(*"abcdef")
    shop.pop(max_messages=3, queue_id=0)
    shop.broker.offsets.pulled("billing", "orders", 0, 5)
    shop.broker.clients._consumers["billing"] = ConsumerGroup("billing")
    assert counts(shop) == (1, 5, 0, 0)


def test_a_group_that_only_subscribes_has_everything_before_it(shop):
    shop.send(*"ab")
    online = ConsumerGroup("billing", subscriptions={"orders": SubscriptionData(topic="orders")})
    shop.broker.clients._consumers["billing"] = online
    assert counts(shop) == (2, 0, 0, 0)


def test_dead_letters_are_those_that_are_kept(shop, monkeypatch):
    dead = names.dead_letter_topic("billing")
    shop.broker.topics.ensure(dead)
    shop.send(*"abc", topic=dead)
    assert counts(shop) == (0, 0, 0, 3)
    monkeypatch.setattr(shop.broker.store, "min_offset", lambda topic, queue: 2 if topic == dead else 0)
    assert counts(shop) == (0, 0, 0, 1)


def test_pull_groups_have_the_same_figures_connected_or_not(shop):
    shop.send(*"abcdef")
    shop.broker.offsets.set("pulls", "orders", 0, 2)
    shop.broker.offsets.pulled("pulls", "orders", 0, 5)
    assert counts(shop, "pulls") == (4, 0, 0, 0), "nobody is connected: nothing is on its way"
    shop.broker.clients._consumers["pulls"] = ConsumerGroup("pulls")
    assert counts(shop, "pulls") == (1, 3, 0, 0)


def test_messages_sent_back_are_delayed_then_retrying(shop):
    shop.broker.groups.put(GroupConfig(group_name="pulls"))
    shop.send("a")
    place = shop.records("orders")[0].physical_offset
    send_back(SendBackRequest("pulls", place), shop.broker)
    assert group_figures("pulls", None, shop.broker).delayed == 1
    shop.clock.advance(11_000)
    assert group_figures("pulls", None, shop.broker).delayed == 0


def test_what_is_due_waits_until_it_is_delivered(shop):
    shop.broker.groups.put(GroupConfig(group_name="pulls"))
    schedule = Schedule(shop.broker.store, shop.broker.stats)
    shop.send("a")
    send_back(SendBackRequest("pulls", shop.records("orders")[0].physical_offset), shop.broker)
    shop.clock.advance(11_000)
    figures = group_figures("pulls", None, shop.broker)
    assert (figures.delayed, figures.retrying) == (1, 0), "the job that delivers is late"
    assert delay_offsets(shop.broker).offset_table[3] == 0
    schedule.tick(shop.clock.now())
    figures = group_figures("pulls", None, shop.broker)
    assert (figures.delayed, figures.retrying) == (0, 1)
    assert delay_offsets(shop.broker).offset_table[3] == 1


def test_what_is_delivered_between_two_turns_is_counted_once(shop):
    shop.broker.groups.put(GroupConfig(group_name="pulls"))
    schedule = Schedule(shop.broker.store, shop.broker.stats)
    shop.send("a")
    shop.broker.offsets.set("pulls", "orders", 0, 1)
    place = shop.records("orders")[0].physical_offset
    turns, sent_back = 0, 0
    while turns == sent_back:  # delivered before the first turn, after it, after the second ...
        send_back(SendBackRequest("pulls", place), shop.broker)
        sent_back += 1
        shop.clock.advance(11_000)
        counting_on = counting("pulls", None, shop.broker)
        for _ in range(turns):
            next(counting_on)
        schedule.tick(shop.clock.now())
        rest = 0
        while True:
            try:
                next(counting_on)
            except StopIteration as ended:
                figures = ended.value
                break
            rest += 1
        assert figures.delayed + figures.retrying == sent_back
        turns += bool(rest)
    assert turns > len(shop.broker.store.delays)


def test_a_group_that_has_read_nothing_has_everything_before_it_and_never_minus_one(shop):
    shop.send(*"abc")
    figures = group_figures("billing", "orders", shop.broker)
    assert figures.ready == 3
    assert all(queue.committed >= 0 and queue.position >= 0 for queue in figures.queues)


def test_the_age_of_the_oldest_message_not_done(shop):
    shop.send("a")
    shop.clock.advance(60_000)
    shop.send("b")
    shop.clock.advance(1_000)
    shop.broker.offsets.set("billing", "orders", 0, 0)
    assert group_figures("billing", None, shop.broker).oldest_ms == 61_000
    messages = shop.pop(invisible_ms=600_000)
    assert group_figures("billing", None, shop.broker).oldest_ms == 61_000
    shop.ack(messages[0])
    assert group_figures("billing", None, shop.broker).oldest_ms == 1_000
    shop.ack(messages[1])
    assert group_figures("billing", None, shop.broker).oldest_ms == 0


async def test_over_the_wire(shop):
    shop.send(*"ab")
    shop.pop(max_messages=1)
    reply = await shop.ask(GroupFigures(group="billing"))
    body = msgspec.json.decode(reply.body)
    assert (body["group"], body["ready"], body["inFlight"], body["online"]) == ("billing", 1, 1, False)
    queue = body["queues"][0]
    assert queue["topic"] == "orders"
    assert {"queueId", "brokerName", "committed", "position", "ready", "inFlight", "oldestReadyMs"} <= set(
        queue
    )


async def test_refusals(shop):
    with pytest.raises(InvalidParameter):
        await shop.ask(GroupFigures())
    with pytest.raises(GroupNotFound):
        group_figures("nobody", None, shop.broker)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_reset_shows_at_once_where_the_group_will_go_on(shop, ordered):
    shop.send(*"abcd")
    shop.pop(ordered=ordered, queue_id=0)
    asyncio.run(reset_offset(Reset("billing", "orders", queue_id=0, offset=1), shop.broker))
    assert counts(shop) == ((3, 0, 0, 0) if ordered else (3, 1, 0, 0)), "the lease before it stands"
    diff, flight = shown(shop, "orders")["orders"]
    assert (diff, flight) == ((3, 0) if ordered else (4, 1))
    shop.crash()
    assert counts(shop)[0] == 3, "also after a crash"
    assert [one.body for one in shop.pop(ordered=ordered, queue_id=0)] == [*"bcd"]


def test_a_reset_forward_and_of_what_is_in_the_log_shows_at_once(shop):
    shop.send(*"abcd")
    shop.pop(max_messages=2, invisible_ms=60_000)
    shop.wait(3_200)
    asyncio.run(reset_offset(Reset("billing", "orders", queue_id=0, offset=4), shop.broker))
    assert counts(shop) == (0, 2, 0, 0)
    asyncio.run(reset_offset(Reset("billing", "orders", queue_id=0, offset=0), shop.broker))
    assert counts(shop) == (4, 0, 0, 0)


def test_a_reset_forgets_how_far_was_pulled(shop):
    shop.send(*"abcd")
    shop.broker.clients._consumers["billing"] = ConsumerGroup("billing")
    shop.broker.offsets.set("billing", "orders", 0, 4)
    shop.broker.offsets.pulled("billing", "orders", 0, 4)
    asyncio.run(reset_offset(Reset("billing", "orders", queue_id=0, offset=1), shop.broker))
    assert counts(shop)[:2] == (3, 0)
    assert shown(shop, "orders")["orders"] == (3, 0)


# -- what mqadmin shows --------------------------------------------------------------------------------------


def shown(shop, topic: str | None = None, group: str = "billing") -> dict[str, tuple[int, int]]:
    """Topic -> (Diff, Inflight), as mqadmin computes them from the answer's offsets."""
    answer = encode(consume_stats(group, topic, [], shop.broker))
    found: dict[str, tuple[int, int]] = {}
    for queue, row in decode(answer, ConsumeStats).offset_table.items():
        assert 0 <= row.consumer_offset <= row.pull_offset <= row.broker_offset
        diff, flight = found.get(queue.topic, (0, 0))
        diff += row.broker_offset - row.consumer_offset
        found[queue.topic] = diff, flight + row.pull_offset - row.consumer_offset
    return found


def test_mqadmin_shows_exact_differences_though_the_offset_passes_what_is_leased(shop):
    retry = names.pop_retry_topic("orders", "billing")
    shop.send(*"abcde")
    messages = shop.pop(invisible_ms=5_000, max_messages=4)
    assert shown(shop)["orders"] == (5, 4)
    shop.ack(messages[2])
    assert shown(shop)["orders"] == (4, 3), "acked out of turn is done"
    shop.wait(3_200)
    assert shop.broker.offsets.get("billing", "orders", 0) == 4, "the offset has passed what is leased"
    assert shown(shop)["orders"] == (4, 3)
    shop.restart()
    assert shown(shop)["orders"] == (4, 3)
    shop.wait(2_400)
    assert shown(shop) == {"orders": (1, 0), retry: (3, 0)}, "retries wait though nobody has read there yet"
    messages = shop.pop()
    assert shown(shop) == {"orders": (1, 1), retry: (3, 3)}
    shop.ack(*messages)
    assert shown(shop) == {"orders": (0, 0), retry: (0, 0)}
    assert shown(shop, "orders") == {"orders": (0, 0)}


def test_mqadmin_shows_exact_differences_of_an_ordered_batch(shop):
    shop.send(*"abcd")
    messages = shop.pop(ordered=True, queue_id=0, max_messages=3, invisible_ms=5_000)
    shop.ack(messages[1])
    assert counts(shop) == (1, 2, 0, 0), "one acked behind an open one is neither ready nor in flight"
    assert shown(shop)["orders"] == (3, 2)
    shop.restart()
    assert shown(shop)["orders"] == (3, 2), "and after a restart"
    shop.wait(5_000)
    assert shown(shop)["orders"] == (4, 0), "the batch is read again as a whole"


def test_an_online_group_is_shown_the_pop_retries_of_what_it_subscribes(shop):
    shop.send(*"ab")
    shop.pop(invisible_ms=1_000)
    shop.wait(1_400)
    shop.broker.clients._consumers["billing"] = ConsumerGroup(
        "billing", subscriptions={"orders": SubscriptionData(topic="orders")}
    )
    assert shown(shop)[names.pop_retry_topic("orders", "billing")] == (2, 0)


def test_all_groups_at_once_have_the_same_differences(shop):
    shop.send(*"abcde")
    shop.ack(shop.pop(max_messages=4)[3])
    shop.broker.groups.put(GroupConfig(group_name="pulls"))
    shop.broker.offsets.set("pulls", "orders", 0, 2)
    shop.broker.offsets.pulled("pulls", "orders", 0, 4)
    result = broker_consume_stats(shop.broker, ordered_only=False)
    assert (result.total_diff, result.total_inflight_diff) == (4 + 3, 3 + 2)
