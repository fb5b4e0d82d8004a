# SPDX-License-Identifier: Apache-2.0
"""The small parts of POP, held against plain lists: buckets of due times, bits and offsets, planned wake-ups."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.access.pointed import Nothing, Pointed
from aerobee.broker.background import revive
from aerobee.broker.operations import ack
from aerobee.broker.pop import bits
from aerobee.broker.pop.due_buckets import BUCKET_MS, DueBuckets
from aerobee.errors import DiskFull
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.net.connection import Reply
from aerobee.net.routes import Request
from aerobee.protocol import names
from aerobee.protocol.command import request as command_of
from aerobee.protocol.headers.consume import AckMessage, Notification, NotificationResult, PopMessage
from aerobee.protocol.message import Record

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 1_500), st.just(0)),
        st.tuples(st.just("take"), st.integers(0, 1_500), st.integers(1, 4)),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(steps)
def test_what_is_due_comes_in_order_never_early_and_at_most_a_bucket_late(
    history: list[tuple[str, int, int]],
) -> None:
    buckets, naive, position = DueBuckets(), [], 0
    for what, moment, limit in history:
        if what == "add":
            position += 1
            buckets.add(moment, position)
            naive.append((-(-moment // BUCKET_MS) * BUCKET_MS, position))
            naive.sort()
        else:
            taken = [each for each in naive if each[0] <= moment][:limit]
            assert buckets.take(moment, limit) == [place for _, place in taken]
            naive = naive[len(taken) :]
        assert buckets.count == len(naive)
        assert buckets.next_due() == (naive[0][0] if naive else None)
    assert BUCKET_MS == 200


@pytest.mark.slow
@given(st.integers(0, 50), st.sets(st.integers(0, 40), min_size=1), st.data())
def test_bits_and_offsets_say_the_same(start: int, places: set[int], data: st.DataObject) -> None:
    offsets = [start + place for place in sorted(places)]
    diffs = bits.diffs_of(start, offsets)
    assert (diffs is None) == (offsets == list(range(start, start + len(offsets))))
    chosen = sorted(data.draw(st.sets(st.sampled_from(offsets))))
    open_bits = sum(1 << offsets.index(offset) for offset in chosen)
    assert bits.offsets_of(start, len(offsets), diffs, open_bits) == chosen
    for offset in range(start - 2, start + 45):
        expected = 1 << offsets.index(offset) if offset in offsets else 0
        assert bits.bit_of(offset - start, len(offsets), diffs) == expected
    told = diffs if diffs is not None else tuple(range(len(offsets)))
    at = sum(1 << offset - start for offset in chosen)
    assert bits.bits_of(at, told) == open_bits
    assert bits.places_of(open_bits, told) == at


def test_bits_that_are_acked_together_are_those_in_memory_that_lie_together(shop: Any) -> None:
    shop.send(*"abc")
    messages = shop.pop(invisible_ms=60_000)
    place, pop_time = ("orders", "billing", 0), messages[0].receipt.pop_time
    assert ack.open_bits(place, 0, pop_time, shop.broker) == 0b111
    shop.ack(messages[1])
    assert ack.open_bits(place, 0, pop_time, shop.broker) == 0b101
    for wrong in ((("orders", "other", 0), 0, pop_time), (place, 1, pop_time), (place, 0, pop_time + 1)):
        assert ack.open_bits(*wrong, shop.broker) == 0
    assert ack.open_bits(place, -1, pop_time, shop.broker) == ack.open_bits(place, 0, -1, shop.broker) == 0
    ack.ack_bits(place, 0, pop_time, 0b101, shop.broker)
    assert (shop.in_flight, shop.committed()) == (0, 3)
    shop.send("x", tags="other")
    shop.send("y", tags="wanted")
    (gap,) = shop.pop(expression="wanted", queue_id=0)
    assert ack.open_bits(place, gap.receipt.start_offset, gap.receipt.pop_time, shop.broker) == 0


@pytest.mark.parametrize("what", ["topic", "group"])
async def test_what_is_deleted_takes_its_planned_wake_ups_along_and_no_others(shop: Any, what: str) -> None:
    pops = shop.broker.pops
    for topic in ("orders", "bills"):
        for group in ("billing", "other"):
            pops.release_at((topic, group, 0), shop.clock.wall() + 1_000)
    if what == "topic":
        pops.remove_topic("orders")
        left = {("bills", "billing", 0), ("bills", "other", 0)}
    else:
        pops.remove_group("billing")
        left = {("orders", "other", 0), ("bills", "other", 0)}
    assert set(pops._releases) == left
    woken: list[Any] = []
    pops.wake = lambda *key: woken.append(key)
    shop.clock.advance(1_000)
    assert set(woken) == left
    assert pops._releases == {}


async def test_a_wake_up_that_is_planned_anew_comes_once_at_its_new_time(shop: Any) -> None:
    pops, key, woken = shop.broker.pops, ("orders", "billing", 0), []
    pops.wake = lambda *place: woken.append((shop.clock.now(), place))
    start = shop.clock.now()
    for ms in (1_000, 1_000, 3_000, 2_000):
        pops.release_at(key, start + ms)
    shop.clock.advance(5_000)
    assert woken == [(start + 2_000, key)]


def test_a_redelivery_that_the_disk_refuses_is_tried_again_later(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send("a")
    shop.pop(invisible_ms=5_000)
    shop.wait(4_000)
    assert shop.logged == ["ck"]
    tried: list[int] = []

    def full(*_args: Any) -> None:
        tried.append(shop.clock.now())
        raise DiskFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "append", full)
        shop.wait(2_000)
        (first,) = tried
        shop.wait(first + revive.AFTER_ERROR_MS - 1 - shop.clock.now())
        assert tried == [first]
        shop.wait(201)
        assert len(tried) == 2
    shop.wait(revive.AFTER_ERROR_MS + 200)
    retry = names.pop_retry_topic("orders", "billing")
    assert [record.body for record in shop.records(retry)] == [b"a"]


def test_the_topic_of_a_message_that_a_request_points_at(shop: Any) -> None:
    store, pointed = shop.broker.store, Pointed(shop.broker.store, shop.broker.groups, shop.broker.topics)
    places = {}
    for name, topic, text in (
        ("plain", "orders", ""),
        ("plain with a real topic", "orders", "REAL_TOPIC\x01elsewhere\x02"),
        ("waiting", names.SCHEDULE_TOPIC, "REAL_TOPIC\x01orders\x02"),
        ("half", names.HALF_TOPIC, "REAL_TOPIC\x01orders\x02"),
        ("timed", names.TIMER_TOPIC, "REAL_TOPIC\x01orders\x02"),
        ("given up", names.CHECK_MAX_TOPIC, "REAL_TOPIC\x01orders\x02"),
        ("waiting for nothing", names.TIMER_TOPIC, ""),
    ):
        record = Record(topic, b"x", text)
        store.append(record)
        places[name] = record.physical_offset
    assert {name: pointed.topic_at(place) for name, place in places.items()} == {
        "plain": "orders",
        "plain with a real topic": "orders",
        "waiting": "orders",
        "half": "orders",
        "timed": "orders",
        "given up": "orders",
        "waiting for nothing": names.TIMER_TOPIC,
    }
    assert places["plain"] == 0, "the first message of all has a topic too"
    assert [pointed.topic_at(place) for place in (-1, 1 << 40)] == [None, None]
    assert [pointed.is_group(name) for name in ("billing", "nobody")] == [True, False]
    assert (Nothing().topic_at(0), Nothing().is_group("billing")) == (None, False)


@pytest.mark.parametrize("born_time", [0, None])
async def test_a_notification_that_does_not_say_when_it_was_made_is_held_from_now_on(
    shop: Any, born_time: int | None
) -> None:
    fields: Any = {} if born_time is None else {"born_time": born_time}
    later = shop.ask(
        Notification(consumer_group="billing", topic="orders", queue_id=-1, poll_time=5_000, **fields)
    )
    assert inspect.iscoroutine(later), "held"
    task = asyncio.ensure_future(later)
    for _ in range(5):
        await asyncio.sleep(0)
    shop.send("a")
    reply = await task
    assert (reply.code, reply.header.has_msg) == (0, True)


async def test_a_notification_that_its_client_has_given_up_is_answered_without_waiting(shop: Any) -> None:
    born = shop.clock.now() - 60_000
    asked = Notification(consumer_group="billing", topic="orders", poll_time=5_000, born_time=born)
    task = asyncio.ensure_future(shop.ask(asked))
    for _ in range(5):
        await asyncio.sleep(0)
    assert task.done()
    assert task.result().header.has_msg is False


async def test_a_notification_is_told_that_too_many_wait(make_shop: Any) -> None:
    shop = make_shop(pop_polling_total=0)
    asked = Notification(consumer_group="billing", topic="orders", poll_time=5_000)
    reply = await shop.ask(asked)
    assert (reply.code, reply.header) == (0, NotificationResult(has_msg=False, polling_full=True))


def binary(header: Any) -> Any:
    """The command of a client that writes RocketMQ's binary headers."""
    command = command_of(header)
    command.serialize = 1
    return Request(None, command)  # type: ignore[arg-type]


def test_a_client_that_writes_binary_headers_is_answered_in_them(shop: Any) -> None:
    """The answers made straight as frames are JSON: a binary client must not get one."""
    shop.send("a")
    pop_header = PopMessage(
        consumer_group="billing", topic="orders", queue_id=0, max_msg_nums=1, invisible_time=60_000,
        poll_time=0, born_time=shop.clock.now(), init_mode=0,
    )  # fmt: skip
    popped: Any = ROUTES[pop_header.code].adapter(binary(pop_header), pop_header, shop.broker)
    assert isinstance(popped, Reply)
    receipt = f"0 {popped.header.pop_time} 60000 {popped.header.revive_qid} 0 broker-a 0 0"
    ack_header = AckMessage(
        consumer_group="billing", topic="orders", queue_id=0, extra_info=receipt, offset=0
    )
    assert isinstance(ROUTES[ack_header.code].adapter(binary(ack_header), ack_header, shop.broker), Reply)
    assert shop.in_flight == 0


def test_the_revive_log_is_read_from_what_is_still_there(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = shop.broker.pops.leases.log
    for committed, least, first in ((-1, 0, 0), (4, 0, 5), (4, 5, 5), (4, 9, 9)):
        monkeypatch.setattr(shop.broker.offsets, "get", lambda *_, committed=committed: committed)
        monkeypatch.setattr(shop.broker.store, "min_offset", lambda *_, least=least: least)
        assert log._first_unread(0) == first


def test_a_broker_that_stopped_hears_of_no_clock_any_more(shop: Any) -> None:
    moved = shop.broker.pops.orders.moved
    assert moved in shop.clock.on_jump
    for _ in range(2):
        shop.broker.pops.stop()
        assert moved not in shop.clock.on_jump
