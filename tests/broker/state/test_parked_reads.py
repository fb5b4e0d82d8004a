# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.state.parked_reads import ParkedReads
from aerobee.clock import ManualClock
from aerobee.protocol.filters import Accept, compile_filter
from aerobee.protocol.message import Record
from aerobee.protocol.properties import render, tag_code
from aerobee.settings import BrokerConfig, InForce

if TYPE_CHECKING:
    from collections.abc import Mapping


class Queues:
    """The store's side: how far each queue goes."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)


class Bench:
    def __init__(self, capacity: int = 1000) -> None:
        self.clock = ManualClock()
        self.queues = Queues()
        self.parked = ParkedReads(
            self.clock, self.queues.max_offset, InForce(BrokerConfig(max_held_pulls=capacity))
        )

    def hold(
        self,
        queue_id: int = 0,
        offset: int = 0,
        hold_ms: int = 15_000,
        accept: Accept | None = None,
        topic: str = "t",
    ) -> asyncio.Task[bool]:
        wait = self.parked.until_past(topic, queue_id, offset, self.clock.now() + hold_ms, accept)
        return asyncio.get_running_loop().create_task(wait)

    def arrive(self, queue_id: int = 0, offset: int = 0, tag: str = "", **properties: str) -> None:
        record = Record("t", b"x", render(properties), queue_id, offset)
        self.queues.ends["t", queue_id] = offset + 1
        self.parked.arrived(record, tag_code(tag))


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.seed("S002-3", "S002-10", "S002-13", "S002-14", "S002-19", "S004-17", "S004-35")
async def test_reader_is_held_until_a_message_arrives() -> None:
    bench = Bench()
    held = bench.hold()
    await turns()
    assert not held.done()
    assert bench.parked.counts() == {("t", 0): 1}
    bench.arrive(offset=0)
    assert await held is True
    assert bench.parked.count == 0


@pytest.mark.seed("S002-36", "S002-18")
async def test_only_readers_of_that_queue_that_want_this_offset_are_woken() -> None:
    bench = Bench()
    here, later, elsewhere = bench.hold(offset=5), bench.hold(offset=6), bench.hold(queue_id=1, offset=0)
    await turns()
    bench.arrive(offset=5)
    await turns()
    assert (here.done(), later.done(), elsewhere.done()) == (True, False, False)
    for task in (later, elsewhere):
        task.cancel()
    await turns()
    assert bench.parked.counts() == {}


@pytest.mark.seed("S002-18", "S002-20")
async def test_queues_are_told_apart_by_topic_and_number() -> None:
    bench = Bench()
    names = [("u", 0), ("t", 1), ("t", 0), ("u", 1)]
    held = {name: bench.hold(topic=name[0], queue_id=name[1]) for name in names}
    await turns()
    assert bench.parked.counts() == dict.fromkeys(names, 1)
    bench.arrive(queue_id=0)
    await turns()
    assert [name for name in names if held[name].done()] == [("t", 0)]
    bench.queues.ends["u", 1] = 1
    bench.parked.tick(bench.clock.now())
    await turns()
    assert [name for name in names if held[name].done()] == [("t", 0), ("u", 1)]
    bench.parked.wake("u", 0)
    await turns()
    assert [name for name in names if not held[name].done()] == [("t", 1)]
    bench.parked.stop()
    assert await held["t", 1] is False


@pytest.mark.seed("S002-23")
async def test_an_arrival_looks_at_every_reader_whoever_was_there_before() -> None:
    """Before the one that wants it: one that wants a later one, one whose filter is another, one woken already."""
    bench = Bench()
    later = bench.hold(offset=2)
    picky = bench.hold(accept=compile_filter("TAG", "void"))
    woken = bench.hold(accept=compile_filter("TAG", "first"))
    waits = bench.hold(accept=compile_filter("TAG", "second"))
    await turns()
    bench.arrive(offset=0, tag="first")
    bench.arrive(offset=1, tag="second")  # before anybody had a turn
    await turns()
    assert [held.done() for held in (later, picky, woken, waits)] == [False, False, True, True]
    bench.parked.stop()
    await asyncio.gather(later, picky)


@pytest.mark.seed("S002-20", "S002-36")
async def test_the_safety_check_looks_at_every_reader_of_every_queue() -> None:
    bench = Bench()
    places = [(0, 5), (0, 3), (0, 4), (1, 9), (1, 8), (2, 0), (2, 0)]  # queue, offset
    held = [bench.hold(queue_id=queue_id, offset=offset) for queue_id, offset in places]
    await turns()
    bench.queues.ends = {("t", 0): 5, ("t", 1): 9, ("t", 2): 1}
    bench.parked.tick(bench.clock.now())
    await turns()
    assert [done.done() for done in held] == [False, True, True, False, True, True, True]
    bench.parked.stop()
    await asyncio.gather(*held)


@pytest.mark.seed("S002-6", "S002-9", "S002-26", "S004-38", "S004-39", "S002-30")
async def test_deadline_lets_a_reader_of_a_silent_queue_go() -> None:
    bench = Bench()
    push, pull = bench.hold(hold_ms=15_000), bench.hold(hold_ms=20_000)
    await turns()
    bench.clock.advance(14_999)
    await turns()
    assert not push.done()
    bench.clock.advance(1)
    assert await push is False
    bench.clock.advance(5_000)
    assert await pull is False


@pytest.mark.seed("S002-25", "S002-27")
async def test_message_that_the_filter_rejects_wakes_nobody() -> None:
    bench = Bench()
    held = bench.hold(accept=compile_filter("TAG", "paid || void"))
    await turns()
    bench.arrive(offset=0, tag="open")
    await turns()
    assert not held.done()
    bench.arrive(offset=1, tag="void")
    assert await held is True


@pytest.mark.seed("S002-25")
async def test_sql_filter_is_tested_on_the_properties_of_the_arrival() -> None:
    bench = Bench()
    held = bench.hold(accept=compile_filter("SQL92", "amount > 10"))
    await turns()
    bench.arrive(offset=0, amount="10")
    await turns()
    assert not held.done()
    bench.arrive(offset=1, amount="11")
    assert await held is True


@pytest.mark.seed("S002-25")
async def test_properties_are_looked_at_only_where_the_tag_is_right_and_both_must_be() -> None:
    seen: list[object] = []

    def is_big(properties: Mapping[str, str]) -> bool:
        seen.append(properties["n"])
        return properties["size"] == "big"

    bench = Bench()
    held = bench.hold(accept=Accept(codes=frozenset({tag_code("paid")}), properties=is_big))
    await turns()
    bench.arrive(offset=0, tag="open", size="big", n="0")
    bench.arrive(offset=1, tag="paid", size="small", n="1")
    await turns()
    assert (held.done(), seen) == (False, ["1"])
    bench.arrive(offset=2, tag="paid", size="big", n="2")
    assert await held is True
    assert seen == ["1", "2"]


@pytest.mark.seed("S002-32")
async def test_filter_that_fails_does_not_stop_the_send_nor_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(properties: object) -> bool:
        raise RuntimeError("broken filter")

    bench = Bench()
    broken, sound = bench.hold(accept=Accept(properties=fail)), bench.hold()
    await turns()
    bench.arrive(offset=0)
    assert await sound is True
    assert not broken.done()
    assert "filter failed" in caplog.text
    broken.cancel()


@pytest.mark.seed("S002-20", "S002-22", "S002-24", "S002-25", "S004-37")
async def test_safety_check_lets_go_whoever_missed_newer_data_match_or_not() -> None:
    bench = Bench()
    behind, level = bench.hold(offset=0, accept=compile_filter("TAG", "paid")), bench.hold(offset=1)
    await turns()
    bench.arrive(offset=0, tag="open")
    bench.parked.tick(bench.clock.now())
    assert await behind is True
    assert not level.done()
    level.cancel()


@pytest.mark.seed("S002-21", "S002-33")
async def test_safety_check_goes_on_after_an_error_on_one_queue(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bad, good = bench.hold(queue_id=0), bench.hold(queue_id=1)
    await turns()

    def max_offset(topic: str, queue_id: int) -> int:
        if queue_id == 0:
            raise RuntimeError("unreadable")
        return 1

    bench.parked._max_offset = max_offset
    bench.parked.tick(bench.clock.now())
    assert await good is True
    assert not bad.done()
    assert "queue=0" in caplog.text
    bad.cancel()


@pytest.mark.seed("S002-23", "S002-34")
async def test_readers_held_while_others_are_woken_are_kept() -> None:
    bench = Bench()
    first = bench.hold(offset=0)
    await turns()
    bench.arrive(offset=0)
    second = bench.hold(offset=1)
    assert await first is True
    await turns()
    assert not second.done()
    bench.arrive(offset=1)
    assert await second is True


async def test_cancelled_reader_leaves_nothing_behind() -> None:
    bench = Bench()
    held = bench.hold()
    await turns()
    held.cancel()
    await turns()
    assert bench.parked.count == 0
    assert bench.parked.counts() == {}
    bench.arrive(offset=0)


async def test_stop_lets_everybody_go_and_holds_nobody() -> None:
    bench = Bench()
    held = bench.hold()
    await turns()
    bench.parked.stop()
    assert await held is False
    assert await bench.hold() is False


async def test_reset_wakes_the_readers_of_a_queue() -> None:
    bench = Bench()
    held = bench.hold(offset=7)
    await turns()
    bench.parked.wake("t", 0)
    bench.parked.wake("t", 9)
    assert await held is True


async def test_full_table_does_not_hold() -> None:
    bench = Bench(capacity=1)
    first = bench.hold()
    await turns()
    assert await bench.hold() is False
    first.cancel()


@pytest.mark.slow
@pytest.mark.seed("S002-19", "S002-23")
async def test_thousands_of_readers_of_one_queue_are_all_served() -> None:
    bench = Bench(capacity=10_000)
    held = [bench.hold() for _ in range(5_000)]
    await turns()
    assert bench.parked.count == 5_000
    bench.arrive(offset=0)
    assert all(await asyncio.gather(*held))
    assert bench.parked.counts() == {}


async def test_a_reader_whose_time_is_over_is_not_held_at_all() -> None:
    bench = Bench()
    for hold_ms in (0, -1):
        wait = bench.parked.until_past("t", 0, 0, bench.clock.now() + hold_ms)
        with pytest.raises(StopIteration) as ended:
            wait.send(None)  # without a turn of the loop
        assert ended.value.value is False
    held = bench.hold(hold_ms=1)
    await turns()
    assert bench.parked.count == 1
    bench.clock.advance(1)
    assert await held is False


async def test_without_long_polling_an_arrival_wakes_nobody() -> None:
    bench = Bench()
    bench.parked._settings = InForce(BrokerConfig(long_polling=False))
    held = bench.hold(hold_ms=1_000)
    await turns()
    bench.arrive(offset=0)
    await turns()
    assert not held.done()
    bench.clock.advance(1_000)
    assert await held is False
    assert not bench.parked.awaited()
