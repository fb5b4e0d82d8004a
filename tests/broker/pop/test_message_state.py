# SPDX-License-Identifier: Apache-2.0
"""Where one message is for a group: waiting, leased until when, handed out, done."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.admin import message_state
from aerobee.broker.operations.admin.message_state import Where, finding
from aerobee.broker.pop import in_flight
from aerobee.broker.state.clients import ConsumerGroup
from aerobee.broker.turns import at_once
from aerobee.errors import NoMessage
from aerobee.protocol import names

RETRY = names.pop_retry_topic("orders", "billing")


def state(shop: Any, offset: int, topic: str = "orders", group: str = "billing") -> Any:
    return at_once(finding(Where(group, topic, 0, offset), shop.broker))


def places(shop: Any, count: int, **where: Any) -> list[str]:
    return [str(state(shop, offset, **where).place) for offset in range(count)]


def test_each_message_of_a_batch_is_told_for_itself(shop: Any) -> None:
    shop.send(*"abcd")
    first, second, _ = shop.pop(max_messages=3, invisible_ms=60_000)
    shop.ack(second)
    assert places(shop, 4) == ["leased", "done", "leased", "waiting"]
    assert state(shop, 0).leased_until == first.receipt.pop_time + 60_000
    assert state(shop, 0).popped_at == first.receipt.pop_time


@pytest.mark.seed("S000-18")
def test_the_end_of_a_lease_is_told_by_the_wall_clock(shop: Any) -> None:
    shop.clock.set_wall(shop.clock.wall() + 7_200_000)
    shop.send("a")
    shop.pop(invisible_ms=60_000)
    assert state(shop, 0).leased_until == shop.clock.wall() + 60_000


def test_a_logged_lease_is_found_by_each_of_its_messages(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a stretch of the table ends."""
    for module in (in_flight, message_state):
        monkeypatch.setattr(module, "BLOCK_SHIFT", 6)
    shop.send(*"x" * 300)
    for _ in range(10):
        shop.pop(queue_id=0, max_messages=30, invisible_ms=60_000)
    shop.wait(4_000)
    assert places(shop, 300) == ["leased"] * 300


@pytest.mark.parametrize("begin_anew", ["", "restart", "crash"])
def test_a_lease_in_the_revive_log_is_known_with_its_end(shop: Any, begin_anew: str) -> None:
    shop.send(*"abc")
    first, second, third = shop.pop(invisible_ms=60_000)
    ends = shop.change(third, 90_000, "KeyError: 'card'").receipt.pop_time + 90_000
    assert (state(shop, 2).leased_until, state(shop, 2).reason) == (ends, "KeyError: 'card'")
    shop.wait(4_000)
    if begin_anew:
        getattr(shop, begin_anew)()
    shop.ack(second)
    assert places(shop, 3) == ["leased", "done", "leased"]
    assert state(shop, 0).leased_until == first.receipt.pop_time + 60_000
    assert (state(shop, 2).leased_until, state(shop, 2).reason) == (ends, "KeyError: 'card'")


def test_a_message_that_a_filter_left_out_is_passed(shop: Any) -> None:
    shop.send("a", tags="x")
    shop.send("b", tags="y")
    shop.send("c", tags="x")
    shop.pop(expression="x", invisible_ms=60_000)
    assert places(shop, 3) == ["leased", "done", "leased"]
    shop.wait(4_000)
    assert places(shop, 3) == ["leased", "done", "leased"], "the same from the log"


@pytest.mark.seed("S000-20")
def test_what_came_back_is_done_here_and_waits_among_the_retries(shop: Any) -> None:
    shop.send("a")
    shop.pop(invisible_ms=1_000)
    shop.wait(2_000)
    assert places(shop, 1) == ["done"]
    assert places(shop, 1, topic=RETRY) == ["waiting"]
    shop.pop(invisible_ms=5_000)
    assert places(shop, 1, topic=RETRY) == ["leased"]


def test_an_ordered_batch_is_leased_until_it_may_be_read_again(shop: Any) -> None:
    shop.send(*"abc")
    first, second = shop.pop(ordered=True, queue_id=0, max_messages=2, invisible_ms=10_000)
    shop.ack(first)
    assert places(shop, 3) == ["done", "leased", "waiting"]
    assert state(shop, 1).leased_until == second.receipt.pop_time + 10_000
    shop.wait(10_000)
    assert places(shop, 3) == ["done", "waiting", "waiting"]


def test_pulled_messages_are_handed_out_until_the_group_has_passed_them(shop: Any) -> None:
    shop.send(*"abcd")
    shop.broker.offsets.set("pulls", "orders", 0, 1)
    shop.broker.offsets.pulled("pulls", "orders", 0, 3)
    shop.broker.clients._consumers["pulls"] = ConsumerGroup("pulls")
    assert places(shop, 4, group="pulls") == ["done", "handed out", "handed out", "waiting"]


def test_a_message_that_is_not_there_is_refused(shop: Any) -> None:
    shop.send("a")
    with pytest.raises(NoMessage, match="offsets 0 to 0, not 7"):
        state(shop, 7)


def test_thousands_of_leases_are_looked_through_a_few_at_a_time(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done between two stops does not grow with what is leased."""
    monkeypatch.setattr(message_state, "STEP", 10)
    shop.send(*(["x"] * 100))
    for _ in range(100):
        shop.pop(max_messages=1, queue_id=0, invisible_ms=60_000)
    shop.wait(4_000)  # all in the log by now
    stops = sum(1 for _ in finding(Where("billing", "orders", 0, 99), shop.broker))
    assert stops == 9, "the last of ten stretches has it"
