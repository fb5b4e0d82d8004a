# SPDX-License-Identifier: Apache-2.0
"""A reset or a deletion takes the leases of its topic, group and queue along, and nobody else's, crash or not; and a
held pop that is woken for a retry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations.admin import topics
from aerobee.broker.pop.held_pops import Parked, ParkedPops, Place, Reads
from aerobee.protocol import names
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.filters import Accept
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import CheckpointRecord, Receipt
from aerobee.settings import BrokerConfig, InForce

if TYPE_CHECKING:
    from aerobee.clock import ManualClock

PLACES = [
    (topic, group, queue)
    for topic in ("orders", "bills")
    for group in ("billing", "other")
    for queue in (0, 1)
]
LIFE = {
    "goes on": lambda shop: None,
    "restart": lambda shop: shop.restart(),
    "crash": lambda shop: shop.crash(),
}


@pytest.fixture
def full(shop: Any) -> Any:
    """A message leased in every place, long enough to be in the log."""
    shop.broker.topics.ensure("bills", 4)
    shop.broker.groups.put(GroupConfig(group_name="other"))
    for topic in ("orders", "bills"):
        for queue in (0, 1):
            shop.send(f"{topic}{queue}", topic=topic, queue_id=queue)
    for topic, group, queue in PLACES:
        assert len(shop.pop(topic=topic, group=group, queue_id=queue, invisible_ms=20_000)) == 1
    shop.wait(4_000)
    for table in (shop.broker.topics, shop.broker.groups):
        table.save()  # they are there after a crash, too
    return shop


def redelivered(shop: Any) -> set[tuple[str, str, int]]:
    return {
        place
        for place in PLACES
        if f"{place[0]}{place[2]}".encode()
        in [record.body for record in shop.records(names.pop_retry_topic(place[0], place[1]))]
    }


DROPS = {
    "a queue is reset": (lambda shop: reset(shop, 0), lambda place: place == ("orders", "billing", 0)),
    "another queue is reset": (lambda shop: reset(shop, 1), lambda place: place == ("orders", "billing", 1)),
    "a queue is reset past its leases": (lambda shop: reset(shop, 0, 1), lambda place: False),
    "the topic is deleted": (
        lambda shop: shop.broker.pops.leases.forget("orders", None, shop.clock.now()),
        lambda place: place[0] == "orders",
    ),
    "the group is deleted": (
        lambda shop: shop.broker.pops.leases.forget(None, "billing", shop.clock.now()),
        lambda place: place[1] == "billing",
    ),
    "nobody is deleted": (
        lambda shop: shop.broker.pops.leases.forget("nowhere", None, shop.clock.now()),
        lambda place: False,
    ),
}


def reset(shop: Any, queue: int, offset: int = 0) -> None:
    leases = shop.broker.pops.leases
    leases.reset(leases.in_flight.lane("orders", "billing", queue), offset, shop.clock.now())


@pytest.mark.seed("S000-27", "S000-31")
@pytest.mark.parametrize("life", LIFE)
@pytest.mark.parametrize("drop", DROPS)
def test_only_what_was_dropped_does_not_come_back(full: Any, drop: str, life: str) -> None:
    act, is_dropped = DROPS[drop]
    act(full)
    LIFE[life](full)
    full.tick()
    left = {place for place in PLACES if not is_dropped(place)}
    lanes = full.broker.pops.leases.in_flight.lanes
    assert {place for place in PLACES if place in lanes and lanes[place].in_flight} == left
    full.wait(21_000)
    assert redelivered(full) == left
    assert full.in_flight == 0


def test_a_drop_is_written_only_when_something_was_leased(full: Any) -> None:
    before = len(full.logged)
    full.broker.pops.leases.forget("nowhere", None, full.clock.now())
    full.broker.pops.leases.forget(None, "nobody", full.clock.now())
    assert len(full.logged) == before
    full.broker.pops.leases.forget("bills", None, full.clock.now())
    assert full.logged[before:] == ["drop"] * full.broker.pops.leases.log.queues


def test_groups_that_only_pop_are_groups_of_the_topic_they_pop(shop: Any) -> None:
    shop.broker.pops.leases.in_flight.lane("orders", "pops-orders", 0)
    shop.broker.pops.leases.in_flight.lane("bills", "pops-bills", 3)
    assert topics.groups_of("orders", shop.broker) == ["pops-orders"]
    assert topics.groups_of("bills", shop.broker) == ["pops-bills"]
    assert topics.groups_of("nowhere", shop.broker) == []


@pytest.mark.seed("S000-17")
def test_what_the_log_speaks_for_is_not_read_again_when_the_offset_comes_to_it(shop: Any) -> None:
    """After a crash: messages 0 to 2 were in memory only and are read again, 3 is leased in the log."""
    shop.send(*"abcde")
    shop.pop(queue_id=0, max_messages=3, invisible_ms=60_000)
    shop.pop(queue_id=0, max_messages=1, invisible_ms=60_000)
    leases = shop.broker.pops.leases
    (last,) = [
        each for each in leases.in_flight.lane("orders", "billing", 0).young.values() if each.start == 3
    ]
    assert leases.journal(last, shop.clock.now())
    shop.crash()
    shop.clock.advance(10)
    shop.tick()
    lane = shop.broker.pops.leases.in_flight.lane("orders", "billing", 0)
    assert lane.skip == {3}
    again = shop.pop(queue_id=0, max_messages=3, invisible_ms=60_000)
    assert [one.body for one in again] == ["a", "b", "c"]
    shop.ack(*again)
    assert (shop.committed(), lane.skip) == (3, {3}), "it is next, and still somebody's"
    assert [one.body for one in shop.pop(queue_id=0, invisible_ms=60_000)] == ["e"]
    shop.wait(61_000)
    retried = [record.body for record in shop.records(names.pop_retry_topic("orders", "billing"))]
    assert sorted(retried) == [b"d", b"e"]


def test_the_newest_drops_of_a_queue_count_however_many_there_were(shop: Any) -> None:
    """A lease may be made in the moment of a drop, under the key of one that is void."""
    shop.send("a")
    leases = shop.broker.pops.leases
    lane = leases.in_flight.lane("orders", "billing", 0)
    for _ in range(12):
        leases.reset(lane, 0, shop.clock.now())
    dropped_at = shop.broker.store.log_max
    leases.reset(lane, 0, shop.clock.now())
    (one,) = shop.pop(invisible_ms=20_000)
    shop.wait(3_200)
    leases.reset(lane, 1, shop.clock.now())  # of what comes after it
    logged = CheckpointRecord(topic="orders", group="billing", start_offset=0, count=1, diffs=[0])
    logged.pop_time = one.receipt.pop_time
    assert leases.open_bits(lane, logged, dropped_at - 1) == 0
    assert leases.open_bits(lane, logged, dropped_at + 1) == 1


def test_only_acks_of_before_the_start_whose_time_is_not_over_are_kept_for_what_may_still_come(
    shop: Any,
) -> None:
    """A checkpoint may still be in RocketMQ's timer; any other unknown ack has nothing to wait for."""
    leases, place = shop.broker.pops.leases, ("orders", "billing", 0)
    leases.in_flight.lane(*place)
    shop.clock.advance(50_000)
    now, started = shop.clock.now(), leases._started
    for popped, invisible, kept in (
        (started - 1, 60_000, True),
        (started - 1, 50_001, False),  # just over
        (started - 1, 50_002, True),
        (started, 60_000, False),  # of this run, which knows all of its own
        (started, 10_000, False),
        (now, 60_000, False),
    ):
        leases._early.clear()
        receipt = Receipt(0, popped, invisible, 0, "0", "broker-a", 0, 0)
        assert leases.ack(place, receipt, 0b1, now) == 0
        assert leases._early == ({(*place, 0, popped): 1} if kept else {}), (popped - started, invisible)
    receipt = Receipt(0, started - 1, 60_000, 0, "0", "broker-a", 0, 0)
    leases.ack(place, receipt, 0b100, now)
    leases.ack(("nowhere", "billing", 0), receipt, 0b1, now)
    leases.ack(place, receipt, 0b1, now)
    assert leases._early == {(*place, 0, started - 1): 0b101, ("nowhere", "billing", 0, 0, started - 1): 1}


def test_of_too_many_early_acks_the_oldest_go(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.broker.pop.leases.EARLY_ACKS", 3)
    leases, now = shop.broker.pops.leases, shop.clock.now()
    for start in range(5):
        receipt = Receipt(start, leases._started - 1, 60_000, 0, "0", "broker-a", 0, start)
        leases.ack(("orders", "billing", 0), receipt, 1, now)
    assert [key[3] for key in leases._early] == [2, 3, 4]


# -- who is woken ------------------------------------------------------------------------------------------


class Hall:
    """Waiters by name."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.parked = ParkedPops(clock, InForce(BrokerConfig()))
        self.waits: dict[str, asyncio.Task[Parked]] = {}

    async def wait(
        self, name: str, queue_id: int = -1, poll_ms: int = 10_000, group: str = "billing",
        accept: Accept | None = None, reads: Reads = Reads.WITH_RETRIES, topic: str = "orders",
    ) -> None:  # fmt: skip
        place: Place = (topic, group, queue_id)
        wait = self.parked.wait(place, self.clock.now() + poll_ms, accept, reads)
        self.waits[name] = asyncio.ensure_future(wait)
        await turns()

    async def woken(self) -> list[str]:
        """Since last asked, the gone left out."""
        await turns()
        done = [name for name, task in self.waits.items() if task.done()]
        ended = {name: self.waits.pop(name) for name in done}
        return [
            name for name, task in ended.items() if not task.cancelled() and task.result() is Parked.WOKEN
        ]

    async def close(self) -> None:
        self.parked.stop()
        for task in self.waits.values():
            assert await task is Parked.EXPIRED
        assert (self.parked.count, self.parked.places(), self.parked._waiting, self.parked._owners) == (
            0,
            [],
            {},
            {},
        )


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def retry(hall: Hall, group: str = "billing", named: Any = names.pop_retry_topic) -> None:
    hall.parked.arrived(Record(named("orders", group), b"x"), 0)


@pytest.mark.seed("S000-52")
@pytest.mark.parametrize("named", [names.pop_retry_topic, names.pop_retry_topic_v2])
async def test_a_retry_wakes_one_request_of_its_group_whichever_queue_it_names(
    clock: ManualClock, named: Any
) -> None:
    hall = Hall(clock)
    await hall.wait("other group", group="other", poll_ms=100)
    await hall.wait("other topic", topic="bills", poll_ms=100)
    await hall.wait("queue 2", queue_id=2, poll_ms=1_000)
    await hall.wait("any, late")
    await hall.wait("any, soon", poll_ms=5_000)
    await hall.wait("queue 1", queue_id=1, poll_ms=500)
    for expected in (["any, soon"], ["any, late"], ["queue 2"], ["queue 1"], []):
        retry(hall, named=named)
        assert await hall.woken() == expected
    retry(hall, "other", named)
    assert await hall.woken() == ["other group"]
    await hall.close()


async def test_a_retry_passes_over_requests_that_do_not_read_retries(clock: ManualClock) -> None:
    hall = Hall(clock)
    await hall.wait("ordered", reads=Reads.TOPIC_ONLY, poll_ms=100)
    await hall.wait("queue 3", queue_id=3)
    retry(hall)
    assert await hall.woken() == ["queue 3"], "though it stands behind"
    retry(hall)
    assert await hall.woken() == []
    hall.parked.arrived(Record("orders", b"x"), 0)
    assert await hall.woken() == ["ordered"]
    await hall.close()


async def test_an_arrival_wakes_one_of_any_queue_and_one_of_its_own(clock: ManualClock) -> None:
    hall = Hall(clock)
    for name, queue in (("any", -1), ("any too", -1), ("one", 1), ("one too", 1), ("two", 2)):
        await hall.wait(name, queue_id=queue)
    hall.parked.arrived(Record("orders", b"x", queue_id=1), 0)
    assert sorted(await hall.woken()) == ["any", "one"]
    hall.parked.arrived(Record("bills", b"x", queue_id=1), 0)
    assert await hall.woken() == []
    hall.parked.wake_queue("orders", "billing", 2)
    assert sorted(await hall.woken()) == ["any too", "two"]
    hall.parked.wake_topic("orders")
    assert await hall.woken() == ["one too"]
    await hall.close()


async def test_a_wake_up_for_a_retry_is_handed_on_to_whoever_reads_retries(clock: ManualClock) -> None:
    hall = Hall(clock)
    await hall.wait("gone")
    await hall.wait("ordered", queue_id=1, reads=Reads.TOPIC_ONLY)
    await hall.wait("queue 2", queue_id=2)
    retry(hall)
    hall.waits["gone"].cancel()
    assert await hall.woken() == ["queue 2"]
    await hall.close()


async def test_the_earliest_of_all_filters_is_woken_and_each_only_for_what_it_takes(
    clock: ManualClock,
) -> None:
    hall = Hall(clock)
    a, b = Accept(codes=frozenset({1})), Accept(codes=frozenset({2}))
    await hall.wait("a late", accept=a, poll_ms=9_000)
    await hall.wait("b", accept=b, poll_ms=5_000)
    await hall.wait("a soon", accept=a, poll_ms=8_000)
    for code, expected in ((3, []), (1, ["a soon"]), (1, ["a late"]), (1, []), (2, ["b"])):
        hall.parked.arrived(Record("orders", b"x"), code)
        assert await hall.woken() == expected, code
    await hall.wait("a", accept=a, poll_ms=9_000)
    await hall.wait("b", accept=b, poll_ms=5_000)
    assert hall.parked.wake("orders", "billing", -1) is True
    assert await hall.woken() == ["b"], "whatever the filter"
    assert hall.parked.wake("orders", "billing", 3) is False
    hall.parked.arrived(Record("orders", b"x", queue_offset=798), 3)
    assert await hall.woken() == []
    hall.parked.arrived(Record("orders", b"x", queue_offset=799), 3)
    assert await hall.woken() == ["a"], "every 800th"
    await hall.close()


async def test_a_request_is_given_up_just_before_its_deadline(clock: ManualClock) -> None:
    hall = Hall(clock)
    await hall.wait("just in time", poll_ms=50)
    assert not hall.waits["just in time"].done()
    await hall.wait("too late", poll_ms=49)
    assert await hall.waits.pop("too late") is Parked.EXPIRED
    await hall.wait("longer", poll_ms=150)
    clock.advance(99)
    await turns()
    assert await hall.waits.pop("just in time") is Parked.EXPIRED
    assert not hall.waits["longer"].done()
    clock.advance(1)
    assert await hall.waits.pop("longer") is Parked.EXPIRED
    await hall.close()


async def test_waits_that_ended_do_not_pile_up_behind_one_that_goes_on(clock: ManualClock) -> None:
    hall = Hall(clock)
    await hall.wait("stays", poll_ms=100_000)
    for _ in range(100):
        gone = asyncio.ensure_future(
            hall.parked.wait(("orders", "billing", -1), clock.now() + 200_000, None, Reads.WITH_RETRIES)
        )
        await turns()
        gone.cancel()
        await turns()
    (line,) = hall.parked._waiting["orders"]["billing", -1].values()
    assert len(line.heap) <= 20
    assert hall.parked.waiting("orders", "billing", -1) == 1
    hall.parked.wake("orders", "billing", -1)
    assert await hall.woken() == ["stays"]
    await hall.close()


async def test_ended_waits_are_not_looked_for_each_time_one_ends(clock: ManualClock) -> None:
    """All of a line would be gone through for each of thousands."""
    hall = Hall(clock)
    await hall.wait("stays", poll_ms=100_000)
    for number in range(1, 18):
        await hall.wait(f"goes {number}", poll_ms=10_000 + number)
        hall.waits.pop(f"goes {number}").cancel()
        await turns()
        (line,) = hall.parked._waiting["orders"]["billing", -1].values()
        assert len(line.heap) == 1 + number
    await hall.wait("one too many")
    hall.waits.pop("one too many").cancel()
    await turns()
    assert len(line.heap) == 1
    await hall.close()


async def test_lines_of_filters_that_nobody_waits_with_any_more_are_gone(clock: ManualClock) -> None:
    hall = Hall(clock)
    a, b = Accept(codes=frozenset({1})), Accept(codes=frozenset({2}))
    await hall.wait("a", accept=a)
    await hall.wait("b", accept=b)
    hall.parked.arrived(Record("orders", b"x"), 1)
    assert await hall.woken() == ["a"]
    assert [line.accept for line in hall.parked._waiting["orders"]["billing", -1].values()] == [b]
    await hall.close()


async def test_any_negative_queue_is_any_queue_also_when_messages_are_left_over(shop: Any) -> None:
    waiting = shop.hold(queue_id=-1, max_messages=1)
    await turns()
    shop.broker.store.listeners.remove(shop.broker.pops.parked)  # only what is left over wakes now
    shop.send("a", "b")
    assert [one.body for one in shop.pop(queue_id=-5, max_messages=1)] == ["a"]
    assert [one.body for one in await waiting] == ["b"]
    held = shop.hold(queue_id=-7)
    await turns()
    assert shop.broker.pops.parked.waiting("orders", "billing", -1) == 1
    held.cancel()


async def test_requests_of_several_filters_are_woken_in_the_order_of_their_deadlines(
    clock: ManualClock,
) -> None:
    hall = Hall(clock)
    for number, accept in enumerate([Accept(codes=frozenset({n})) for n in (1, 2, 3)]):
        for turn in (3, 1, 2):
            poll_ms = 1_000 * (3 * turn + number)
            await hall.wait(str(poll_ms), accept=accept, poll_ms=poll_ms)
    order = []
    while hall.parked.wake("orders", "billing", -1):
        order += await hall.woken()
    assert order == [str(1_000 * n) for n in range(3, 12)]
    await hall.close()


async def test_who_waits_for_a_topic_that_goes_is_told_whatever_he_waits_for(clock: ManualClock) -> None:
    hall = Hall(clock)
    waits = ["any", "another", "a queue", "a tag"]
    await hall.wait(waits[0])
    await hall.wait(waits[1])
    await hall.wait(waits[2], queue_id=3, group="audit")
    await hall.wait(waits[3], accept=Accept(codes=frozenset({1})))
    await hall.wait("elsewhere", topic="bills")
    hall.parked.wake_topic("orders")
    assert await hall.woken() == waits
    await hall.close()


async def test_one_who_is_gone_takes_no_wake_up_from_those_with_another_filter(clock: ManualClock) -> None:
    hall = Hall(clock)
    await hall.wait("gone", accept=Accept(codes=frozenset({1})), poll_ms=1_000)
    await hall.wait("there", accept=Accept(codes=frozenset({2})), poll_ms=2_000)
    hall.waits["gone"].cancel()
    assert hall.parked.wake("orders", "billing", -1)
    assert await hall.woken() == ["there"]
    await hall.close()
