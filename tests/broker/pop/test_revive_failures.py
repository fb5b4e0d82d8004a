# SPDX-License-Identifier: Apache-2.0
"""The revive job when something goes wrong half way: nothing that was taken up is forgotten, nothing comes twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.background import revive
from aerobee.broker.background.revive import Revive
from aerobee.broker.operations.pop import pop
from aerobee.protocol import names
from aerobee.protocol import properties as props

RETRY = names.pop_retry_topic("orders", "billing")


def fail_at(monkeypatch: pytest.MonkeyPatch, shop: Any, method: str, number: int) -> None:
    """The given call of the method fails, in a way that is no message's fault."""
    real, calls = getattr(shop.revive, method), []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(shop.revive, method, failing)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    ("method", "invisible_ms"), [("_attend_one", 2_000), ("_attend_one", 60_000), ("_expire_one", 10_000)]
)
def test_what_a_failure_left_over_is_taken_up_again_soon(
    shop: Any, monkeypatch: pytest.MonkeyPatch, method: str, invisible_ms: int, number: int
) -> None:
    """Young leases that are due, young ones to be logged, logged ones that are due: three of each, one fails."""
    shop.send(*"abc")
    for _ in range(3):
        shop.pop(max_messages=1, invisible_ms=invisible_ms)
    if method == "_expire_one":
        shop.wait(5_000)
        assert shop.logged == ["ck", "ck", "ck"]
    with monkeypatch.context() as patch:
        fail_at(patch, shop, method, number)
        shop.clock.advance(seconds=10)
        with pytest.raises(MemoryError):
            shop.tick()
    shop.clock.advance(revive.AFTER_ERROR_MS - 1)
    shop.tick()
    soon = len(shop.records(RETRY)) if invisible_ms < 60_000 else shop.logged.count("ck")
    assert soon == number - 1
    shop.clock.advance(1)
    shop.tick()
    done = [record.body for record in shop.records(RETRY)] if invisible_ms < 60_000 else shop.logged
    assert len(done) == len({*done}) == 3 or done == ["ck"] * 3


def test_a_second_of_redeliveries_is_one_line_a_group(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    shop.send(*"abc")
    shop.pop(max_messages=2, invisible_ms=1_000)
    shop.pop(max_messages=1, invisible_ms=1_000)
    shop.wait(1_200, step=1_200)
    told = [r.getMessage() for r in caplog.records if "not acked in time" in r.getMessage()]
    assert told == ["group=billing topic=orders messages=3: not acked in time, redelivering"]
    shop.wait(400)
    assert caplog.text.count("not acked in time") == 1


@pytest.mark.parametrize("invisible_ms", [1_000, 10_000])
@pytest.mark.parametrize("failure", ["", "KeyError: 'card'"])
def test_a_copy_says_why_it_came_back_where_its_consumer_said(
    shop: Any, failure: str, invisible_ms: int
) -> None:
    """From memory and from the log."""
    shop.send("a")
    (one,) = shop.pop(invisible_ms=60_000)
    changed = shop.change(one, invisible_ms, failure)
    shop.wait(12_000)
    (copy,) = shop.records(RETRY)
    told = {props.LAST_ERROR: failure} if failure else {}
    assert copy.properties == {props.FIRST_POP_TIME: str(changed.receipt.pop_time), **told}


def test_the_end_leaves_no_lease_in_memory_only(shop: Any) -> None:
    shop.send(*"ab")
    shop.pop(max_messages=1, invisible_ms=60_000)
    assert shop.logged == []
    shop.revive.close()
    assert shop.logged == ["ck"]


def test_now_and_then_is_as_often_as_it_says_and_a_clock_set_back_starts_anew(shop: Any) -> None:
    job: Any = Revive(shop.broker)
    assert [job._is_time("x", 100, now) for now in (1_000, 1_099, 1_100, 1_150, 1_199, 1_200)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert job._is_time("y", 100, 1_200) is False, "each has its own"
    assert job._is_time("x", 100, 1_199) is True
    assert job._is_time("x", 100, 1_298) is False
    assert job._is_time("x", 100, 1_299) is True


@pytest.mark.parametrize("queue_id", [-1, 2])
async def test_a_held_pop_is_woken_by_a_reset_that_came_another_way(shop: Any, queue_id: int) -> None:
    """The offsets were set by hand, so nobody told those who wait."""
    shop.send(*"ab", queue_id=2)
    shop.ack(*shop.pop())
    held = shop.hold(queue_id=queue_id)
    for _ in range(5):
        await asyncio.sleep(0)
    shop.broker.offsets.set_reset("billing", "orders", 2, 0)
    shop.tick()
    shop.clock.advance(revive.COMMIT_MS)
    shop.tick()
    assert [one.body for one in await held] == ["a", "b"]


def test_a_tick_that_had_all_it_may_take_asks_for_the_next_at_once(shop: Any) -> None:
    assert shop.revive.tick(shop.clock.now()) == 200
    shop.send(*(str(i) for i in range(revive.ATTENDED_PER_TICK)))
    for _ in range(revive.ATTENDED_PER_TICK):
        pop(shop.request(max_messages=1, invisible_ms=1_000), shop.broker)
    shop.clock.advance(seconds=2)
    assert shop.revive.tick(shop.clock.now()) == 0
    shop.tick()
    assert len(shop.records(RETRY)) == revive.ATTENDED_PER_TICK


@pytest.mark.parametrize(
    ("waits_for", "reset", "woken"),
    [(-1, 0, True), (-1, 3, True), (0, 0, True), (0, 2, False), (2, 2, True), (2, 0, False)],
)
async def test_a_reset_wakes_those_who_wait_for_its_queue(
    shop: Any, waits_for: int, reset: int, woken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = shop.hold(queue_id=waits_for)
    for _ in range(5):
        await asyncio.sleep(0)
    shop.broker.offsets.set_reset("billing", "orders", reset, 0)
    seen: list[Any] = []
    monkeypatch.setattr(shop.broker.pops.parked, "wake", lambda *place: seen.append(place))
    shop.revive._wake_reset()
    assert seen == ([("orders", "billing", waits_for)] if woken else [])
    held.cancel()


@pytest.mark.parametrize(("count", "woken"), [(2, False), (3, True)])
def test_who_leaves_something_wakes_one_who_waits_and_who_takes_all_does_not(
    shop: Any, count: int, woken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send(*"abc"[:count])
    seen: list[Any] = []
    monkeypatch.setattr(shop.broker.pops.parked, "wake", lambda *place: seen.append(place))
    shop.popped(max_messages=2, queue_id=0)
    shop.popped(max_messages=2, queue_id=1)  # nothing there
    assert seen == ([("orders", "billing", 0)] if woken else [])
