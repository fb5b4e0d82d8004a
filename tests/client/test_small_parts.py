# SPDX-License-Identifier: Apache-2.0
"""Small parts of the client alone: slots, deadlines, lines, leases, who we are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client import spans
from aerobee.client.consume.scheduled_pull import ScheduledPull, Turn
from aerobee.client.consume.slots import YIELD_EVERY, Slots, each
from aerobee.client.produce.tries import Lines
from aerobee.client.session import identity
from aerobee.client.session.deadlines import TICK_MS, Deadlines
from aerobee.client.session.session import Session
from aerobee.client.session.tasks import Tasks
from aerobee.clock import ManualClock
from aerobee.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable

# -- slots ---------------------------------------------------------------------------------------------------


class Gates:
    """Work that ends when it is let through."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.open: dict[int, asyncio.Event] = {}

    async def work(self, number: int) -> None:
        self.begun.append(number)
        self.open[number] = asyncio.Event()
        await self.open[number].wait()


async def test_no_more_run_at_once_than_there_are_slots_and_the_rest_follows_in_order(
    tasks: Any, settle: Any
) -> None:
    gates = Gates()
    slots: Slots[int] = Slots(tasks, 3, each(gates.work), "work")
    slots.add_all(range(6))
    await settle()
    assert (gates.begun, slots.busy) == ([0, 1, 2], 3)
    gates.open[1].set()
    await settle()
    assert gates.begun == [0, 1, 2, 3]
    slots.add(6)
    for number in (0, 2, 3, 4, 5, 6):
        gates.open[number].set()
        await settle()
    assert (gates.begun, slots.busy, list(slots.ready)) == ([*range(7)], 0, [])
    slots.add_all([])
    slots.add(7)
    await settle()
    assert gates.begun[-1] == 7, "idle slots are woken again"
    assert {task.get_name() for task in tasks._tasks} == {"work-1", "work-2", "work-3"}


async def test_closed_slots_end_what_runs_and_begin_nothing_whoever_adds_it(tasks: Any, settle: Any) -> None:
    gates = Gates()
    slots: Slots[int] = Slots(tasks, 2, each(gates.work), "work")
    slots.add_all(range(4))
    await settle()
    slots.close()
    slots.add(4)
    slots.add_all([5])
    for gate in gates.open.values():
        gate.set()
    assert await slots.drained(60_000)
    await settle()
    assert sorted(gates.open) == [0, 1]


async def test_what_waits_when_slots_are_closed_is_dropped_at_once(tasks: Any, settle: Any) -> None:
    gates = Gates()
    slots: Slots[int] = Slots(tasks, 2, each(gates.work), "work")
    slots.add_all(range(4))
    await settle()
    slots.close()
    for number in (0, 1):
        gates.open[number].set()
    await settle()
    assert (gates.begun, slots.busy) == ([0, 1], 0)


async def test_drained_means_that_the_last_has_ended_and_what_only_waits_is_dropped(
    tasks: Any, settle: Any
) -> None:
    gates = Gates()
    slots: Slots[int] = Slots(tasks, 2, each(gates.work), "work")
    assert await slots.drained(1), "nothing runs"
    slots.add_all(range(4))
    await settle()
    draining = asyncio.ensure_future(slots.drained(60_000))
    await settle()
    gates.open[0].set()
    await settle()
    assert not draining.done(), "one runs still"
    gates.open[1].set()
    await settle()
    assert draining.done()
    assert await draining
    assert gates.begun == [0, 1]


async def test_work_that_outlasts_the_wait_is_told(tasks: Any, settle: Any) -> None:
    gates = Gates()
    slots: Slots[int] = Slots(tasks, 2, each(gates.work), "work")
    slots.add(0)
    await settle()
    assert not await slots.drained(1)


async def test_a_handler_that_never_waits_lets_others_have_their_turn(tasks: Any) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)

    slots: Slots[int] = Slots(tasks, 1, each(work), "work")
    slots.add_all(range(2 * YIELD_EVERY + 1))
    seen = []
    while len(done) <= 2 * YIELD_EVERY:
        await asyncio.sleep(0)
        seen.append(len(done))
    assert {YIELD_EVERY, 2 * YIELD_EVERY} <= set(seen)


# -- deadlines -----------------------------------------------------------------------------------------------


async def test_one_timer_looks_every_tenth_of_a_second_as_long_as_somebody_waits() -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    deadlines = Deadlines(clock)
    first, second = loop.create_future(), loop.create_future()
    deadlines.watch(first, clock.now() + 50)
    deadlines.watch(second, clock.now() + TICK_MS + 1)
    clock.advance(TICK_MS - 1)
    assert not first.done(), "looked at once a tick"
    clock.advance(1)
    assert first.done()
    clock.advance(TICK_MS - 1)
    assert not second.done()
    clock.advance(1)
    assert second.done()
    assert deadlines._timer is None, "nobody waits: no timer"
    third = loop.create_future()
    deadlines.watch(third, clock.now())
    clock.advance(TICK_MS)
    assert third.done()
    deadlines.watch(loop.create_future(), clock.now())
    deadlines.close()
    assert deadlines._timer is None
    for late in (first, second, third):
        late.exception()


async def test_who_was_answered_first_is_not_waited_for_by_those_behind(settle: Any) -> None:
    clock, loop = ManualClock(), asyncio.get_running_loop()
    deadlines = Deadlines(clock)
    calls = [loop.create_future() for _ in range(3)]
    for call, left in zip(calls, (1_000, 1_000, 2_000), strict=True):
        deadlines.watch(call, clock.now() + left)
    calls[0].set_result("answer")
    deadlines.expire(clock.now())
    assert len(deadlines._waiting) == 2, "the answered one is forgotten at once"
    deadlines.expire(clock.now() + 999)
    assert not calls[1].done()
    deadlines.expire(clock.now() + 1_000)
    assert (calls[1].done(), calls[2].done()) == (True, False)
    calls[1].exception()


async def test_one_that_left_its_line_is_not_told_later(settle: Any) -> None:
    clock = ManualClock(0)
    lines, queue = Lines(clock), MessageQueue("a", 0, "T")
    lines.lead(queue)
    joined = asyncio.create_task(lines.join(queue, 50))
    await settle()
    lines.dissolve(queue)
    await settle()
    assert joined.done()
    assert not [timer for *_, timer in clock._timers if not timer.cancelled], "nothing is left to ring"


# -- leases --------------------------------------------------------------------------------------------------


class Lease:
    receipt = "first"

    def __init__(self) -> None:
        self.told: list[Any] = []

    def expired(self, now: int) -> bool:
        return now >= 7

    def ack_soon(self, waiting: Any) -> bool:
        self.told.append(("soon", waiting))
        return waiting == "yes"

    async def ack(self) -> None:
        self.told.append("ack")

    async def hide(self, invisible_ms: int, failure: str = "") -> None:
        self.told.append((invisible_ms, failure) if failure else invisible_ms)


async def test_a_leased_message_is_answered_through_its_lease(make_message: Any) -> None:
    message, lease = make_message(1), Lease()
    assert message.receipt is None
    message.lease = lease
    await message.ack()
    await message.nack()
    await message.nack(30)
    await message.nack(30, ValueError("no card"))
    await message.extend(40)
    assert lease.told == ["ack", 0, 30, (30, "ValueError: no card"), 40]
    assert message.receipt == "first"


async def test_a_watched_lease_is_the_lease_itself(make_message: Any) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    lease = Lease()
    watched = spans._Settled(lease, make_message(1), "g", trace.get_tracer("here"))  # type: ignore[arg-type]
    assert watched.receipt == "first"
    watched.receipt = "second"
    assert lease.receipt == "second"
    assert (watched.expired(6), watched.expired(7)) == (False, True)
    assert (watched.ack_soon("yes"), watched.ack_soon("no")) == (True, False)  # type: ignore[arg-type]
    await watched.ack()
    await watched.hide(9)
    assert lease.told[2:] == ["ack", 9]


def test_what_a_received_message_says_of_itself(make_message: Any) -> None:
    text = "KEYS\x01k1 k2\x02__SHARDINGKEY\x01s\x02POP_CK\x01handle\x02"
    message = make_message(
        3,
        properties=text,
        queue_id=2,
        reconsume_times=4,
        born_timestamp=1_500,
        store_timestamp=2_500,
        born_host=b"\x7f\0\0\x01\0\0\x2a\x9f",
        max_offset=9,
    )
    assert (message.keys, message.sharding_key, message.receipt) == (["k1", "k2"], "s", "handle")
    assert (message.attempt, message.max_offset, message.broker_name) == (5, 9, "a")
    assert message.queue == MessageQueue("a", 2, "T")
    assert (message.born_at.timestamp(), message.stored_at.timestamp()) == (1.5, 2.5)
    assert (message.born_at.utcoffset().seconds, message.stored_at.utcoffset().seconds) == (0, 0)
    assert message.born_address == "127.0.0.1:10911"


# -- who we are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, "127.0.0.1:9876"),
        ({"NAMESRV_ADDR": "a:1"}, "a:1"),
        ({"NAMESRV_ADDR": "a:1", "AEROBEE_NAMESRV": "b:2"}, "b:2"),
        ({"NAMESRV_ADDR": "a:1", "AEROBEE_NAMESRV": ""}, "a:1"),
    ],
)
def test_one_that_is_given_no_name_server_takes_the_usual(
    said: dict[str, str], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NAMESRV_ADDR", "AEROBEE_NAMESRV"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert identity.usual_namesrv() == found
    assert Session().namesrv == found


def test_a_client_is_named_by_its_address_and_its_instance() -> None:
    assert identity.client_id("10.0.0.7", "shop") == "10.0.0.7@shop"
    first, second = (identity.client_id("10.0.0.7", "") for _ in range(2))
    assert first != second
    assert first.startswith("10.0.0.7@")
    assert identity.local_ip("127.0.0.1:9876") == "127.0.0.1"
    assert identity.local_ip("no.such.host.invalid:9876") == "127.0.0.1"


# -- on a schedule -------------------------------------------------------------------------------------------

Q0, Q1, OTHER = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T"), MessageQueue("a", 0, "U")


@pytest.fixture
async def scheduled() -> Any:
    made: list[ScheduledPull] = []

    def make(**callbacks: Callable[[MessageQueue, Turn], Any]) -> ScheduledPull:
        made.append(ScheduledPull("127.0.0.1:1", group="g", callbacks=callbacks, clock=ManualClock()))
        return made[-1]

    yield make
    for each_one in made:
        await each_one._tasks.cancel()


@pytest.mark.seed("S003-10")
async def test_each_owned_queue_has_its_turns_as_often_as_it_asks_for(scheduled: Any, settle: Any) -> None:
    turns: list[MessageQueue] = []

    async def often(queue: MessageQueue, turn: Turn) -> None:
        turns.append(queue)
        assert turn.consumer is pulling.consumer

    def seldom(queue: MessageQueue, turn: Turn) -> None:
        turns.append(queue)
        turn.next_delay_ms = 500

    pulling = scheduled(T=often, U=seldom)
    clock = pulling.consumer.session.clock
    pulling.queues_changed("T", [Q0, Q1], [Q0])
    pulling.queues_changed("U", [OTHER], [OTHER])
    await settle()
    assert turns == [Q0, OTHER]
    for _ in range(5):
        clock.advance(100)
        await settle()
    assert turns == [Q0, OTHER, Q0, Q0, OTHER]
    assert pulling.consumer._paused == {Q0, OTHER}, "nothing is fetched ahead of the turns"


@pytest.mark.seed("S003-10")
async def test_queues_lost_have_no_more_turns_and_those_kept_go_on(scheduled: Any, settle: Any) -> None:
    turns: list[MessageQueue] = []
    pulling = scheduled(T=lambda queue, turn: turns.append(queue), U=lambda queue, turn: turns.append(queue))
    clock = pulling.consumer.session.clock
    pulling.queues_changed("T", [Q0, Q1], [Q0])
    pulling.queues_changed("U", [OTHER], [OTHER])
    await settle()
    pulling.queues_changed("T", [Q0, Q1], [Q0, Q1])
    await settle()
    assert turns == [Q0, OTHER, Q1], "one that is kept does not begin anew"
    pulling.queues_changed("T", [Q0, Q1], [Q1])
    pulling.queues_changed("elsewhere", [], [MessageQueue("a", 0, "elsewhere")])
    turns.clear()
    clock.advance(200)
    await settle()
    assert sorted(turns) == [Q1, OTHER]


@pytest.mark.seed("S003-10", "S003-1")
async def test_a_turn_that_fails_is_followed_by_a_longer_pause(
    scheduled: Any, settle: Any, caplog: Any
) -> None:
    turns: list[MessageQueue] = []

    def fail(queue: MessageQueue, turn: Turn) -> None:
        turns.append(queue)
        raise RuntimeError("no")

    pulling = scheduled(T=fail)
    clock = pulling.consumer.session.clock
    pulling.queues_changed("T", [Q0], [Q0])
    await settle()
    clock.advance(999)
    await settle()
    assert len(turns) == 1
    clock.advance(1)
    await settle()
    assert len(turns) == 2
    assert "scheduled pull failed" in caplog.text


# -- tasks ---------------------------------------------------------------------------------------------------


async def test_a_task_may_end_all_the_others_and_goes_on_itself(settle: Any) -> None:
    tasks, story = Tasks(), []

    async def ends_all() -> None:
        await tasks.cancel()
        story.append("goes on")

    others = [tasks.start(asyncio.Event().wait(), f"other-{n}") for n in range(2)]
    await settle()
    ending = tasks.start(ends_all(), "ends all")
    await settle()
    assert (ending.done(), story) == (True, ["goes on"])
    assert all(other.cancelled() for other in others)
    assert not tasks._tasks


async def test_the_end_of_tasks_is_waited_for_only_so_long(settle: Any) -> None:
    tasks = Tasks()
    assert await tasks.finish(0)
    gate = asyncio.Event()
    tasks.start(gate.wait(), "waits")
    assert not await tasks.finish(1)
    gate.set()
    assert await tasks.finish(60_000)


async def test_a_task_that_fails_is_told_by_its_name(settle: Any, caplog: Any) -> None:
    tasks = Tasks()

    async def fails() -> None:
        raise RuntimeError("no")

    tasks.start(fails(), "watcher")
    cancelled = tasks.start(asyncio.Event().wait(), "other")
    await settle()
    cancelled.cancel()
    await settle()
    assert [record.getMessage() for record in caplog.records] == ["task=watcher failed"]


async def test_no_turn_begins_with_a_consumer_that_has_left(scheduled: Any, settle: Any) -> None:
    pulling = scheduled(T=lambda queue, turn: None)
    pulling.queues_changed("T", [Q0], [Q0])
    await settle()
    running: list[int] = []

    async def stop() -> None:
        running.append(len(pulling._tasks._tasks))

    pulling.consumer.stop = stop
    await pulling.stop()
    assert running == [0]
