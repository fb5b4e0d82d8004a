# SPDX-License-Identifier: Apache-2.0
"""Exact figures of a group, whatever its way of consuming."""

from __future__ import annotations

import msgspec
import pytest

from aerobee.broker.operations.admin.figures import group_figures
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.broker.state.clients import ConsumerGroup
from aerobee.errors import GroupNotFound, InvalidParameter
from aerobee.fronts.remoting.pop import ROUTES
from aerobee.protocol import names
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command


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


def test_over_the_wire(shop):
    shop.send(*"ab")
    shop.pop(max_messages=1)
    code = RequestCode.AEROBEE_GROUP_FIGURES
    reply = ROUTES[code](None, Command(code, ext={"group": "billing"}), shop.broker)
    body = msgspec.json.decode(reply.body)
    assert (body["group"], body["ready"], body["inFlight"], body["online"]) == ("billing", 1, 1, False)
    queue = body["queues"][0]
    assert queue["topic"] == "orders"
    assert {"queueId", "brokerName", "committed", "position", "ready", "inFlight", "oldestReadyMs"} <= set(
        queue
    )


def test_refusals(shop):
    code = RequestCode.AEROBEE_GROUP_FIGURES
    with pytest.raises(InvalidParameter):
        ROUTES[code](None, Command(code, ext={}), shop.broker)
    with pytest.raises(GroupNotFound):
        group_figures("nobody", None, shop.broker)


def test_a_pending_reset_shows_where_the_group_will_go_on(shop):
    shop.send(*"abcd")
    shop.ack(*shop.pop())
    shop.broker.offsets.set_reset("billing", "orders", 0, 1)
    assert counts(shop)[0] == 3
    assert names.is_retry(names.retry_topic("billing"))
