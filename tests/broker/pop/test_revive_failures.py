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
def test_what_was_given_back_with_a_reason_is_no_warning(
    shop: Any, caplog: pytest.LogCaptureFixture, invisible_ms: int
) -> None:
    caplog.set_level("INFO", logger="aerobee.revive")
    shop.send(*"abcd")
    given_back, extended, *_ = shop.pop(invisible_ms=invisible_ms)
    shop.change(given_back, invisible_ms, "no stock")
    shop.change(extended, invisible_ms)
    shop.wait(invisible_ms + 2_000)
    told = {(r.levelname, r.getMessage()) for r in caplog.records if r.name == "aerobee.revive"}
    assert ("INFO", "group=billing topic=orders messages=1: given back by its consumer, redelivering") in told
    late = [message for level, message in told if level == "WARNING"]
    assert sum(int(message.split("messages=")[1].split(":")[0]) for message in late) == 3


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


@pytest.mark.parametrize("invisible_ms", [2_000, 8_000], ids=["in memory", "in the log"])
def test_a_lease_that_cannot_be_handled_is_stepped_over_for_good(
    shop: Any, monkeypatch: pytest.MonkeyPatch, invisible_ms: int
) -> None:
    def broken(expired: Any, broker: Any) -> int:
        raise ValueError("nobody can read it")

    shop.send("a")
    shop.pop(invisible_ms=invisible_ms)
    with monkeypatch.context() as patch:
        patch.setattr(revive, "redeliver", broken)
        shop.wait(9_000)
    assert shop.broker.stats.skipped.count == 1
    shop.wait(60_000, step=1_000)
    assert (shop.broker.stats.skipped.count, shop.records(RETRY)) == (1, [])
    assert shop.broker.pops.leases.log.behind == 0 if invisible_ms > 3_000 else shop.in_flight == 0


def test_a_lease_comes_back_in_the_moment_it_ends(shop: Any) -> None:
    shop.send("a")
    shop.pop(invisible_ms=2_000)
    shop.clock.advance(1_999)
    shop.tick()
    assert shop.records(RETRY) == []
    shop.clock.advance(1)
    shop.tick()
    assert [record.body for record in shop.records(RETRY)] == [b"a"]


def test_the_end_of_a_logged_lease_is_written_where_its_beginning_is(shop: Any) -> None:
    """RocketMQ reads each queue of the log by itself."""
    shop.send(*"abcdef")
    for _ in "abcdef":
        shop.pop(max_messages=1, invisible_ms=8_000)
    shop.wait(9_000)
    topic = shop.broker.pops.leases.log.topic
    tags = [[record.tags for record in shop.records(topic, queue_id)] for queue_id in range(8)]
    assert sorted(tags) == [[]] * 2 + [["ck", "ack"]] * 6


def test_the_end_says_how_far_the_log_is_done_with(shop: Any) -> None:
    shop.send("a")
    shop.pop(invisible_ms=8_000)
    shop.wait(7_900, step=100)
    log = shop.broker.pops.leases.log
    behind = log.behind
    shop.clock.advance(100)
    shop.tick()
    assert len(shop.records(RETRY)) == 1
    assert log.behind > behind, "its end is written, and nobody was told yet"
    shop.revive.close()
    assert log.behind == 0


def test_a_lease_stays_in_the_log_until_its_group_is_past_it(shop: Any) -> None:
    """Else a crash would deliver again what has come back already."""
    shop.send(*"ab")
    shop.pop(invisible_ms=8_000)
    shop.wait(4_000)
    lane, log = shop.broker.pops.leases.in_flight.lane("orders", "billing", 0), shop.broker.pops.leases.log
    shop.broker.offsets.set("billing", "orders", 0, 1)
    lane.skip.add(1)  # as after a start that found a gap before it
    shop.wait(10_000)
    assert len(shop.records(RETRY)) == 2
    assert log.behind > 0
    shop.broker.offsets.set("billing", "orders", 0, 2)
    lane.skip.clear()
    shop.wait(3_000)
    assert log.behind == 0
    assert len(shop.records(RETRY)) == 2


def test_batches_that_nobody_asks_for_go_by_the_clock_they_are_stamped_with(shop: Any) -> None:
    shop.clock.set_wall(shop.clock.wall() + 30 * 24 * 3_600_000)
    shop.send("a")
    shop.pop(ordered=True, queue_id=0)
    shop.clock.advance(hours=23)
    shop.wait(150_000, step=30_000)
    assert shop.broker.pops.orders.keys() == [("orders", "billing", 0)]
    shop.clock.advance(hours=1)
    shop.wait(150_000, step=30_000)
    assert shop.broker.pops.orders.keys() == []
