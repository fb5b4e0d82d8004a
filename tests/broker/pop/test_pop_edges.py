# SPDX-License-Identifier: Apache-2.0
"""Edges of POP that ordinary histories pass by: files that go, disks that refuse, waiters that are one too many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.operations.admin.topics import delete_topic
from aerobee.broker.operations.notify import Notify, notify
from aerobee.broker.operations.peek import Peek, peek
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.errors import DiskFull, NoPermission, TopicNotFound
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.settings import StoreConfig
from aerobee.store.results import Found, ReadStatus

RETRY = names.pop_retry_topic("orders", "billing")
TINY = StoreConfig(
    commit_log_segment_bytes=1 << 16, consume_queue_units=100, index_slots=1000, index_entries=4000
)


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.seed("S000-44")
def test_a_broker_that_may_not_be_read_says_so_before_anything_else(make_shop: Any) -> None:
    with pytest.raises(NoPermission):
        make_shop(perm=2).popped(max_messages=0, topic="unknown")


def test_where_nothing_may_be_read_nobody_looks_or_waits_either(make_shop: Any) -> None:
    shop = make_shop(perm=2)
    shop.send("a")
    with pytest.raises(NoPermission):
        peek(Peek("billing", "orders", 0, 1), shop.broker)
    with pytest.raises(NoPermission):
        notify(Notify("billing", "orders", -1, 15_000, shop.clock.now()), shop.broker)


# -- what is gone --------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-59", "S000-70")
def test_a_pop_goes_on_past_a_deleted_log_file(make_shop: Any) -> None:
    """Lease, answer and commit are those of the offset it went on at."""
    shop = make_shop(TINY)
    shop.send(*(str(number) * 20_000 for number in range(6)))  # three to a file
    (before,) = shop.pop(queue_id=0, max_messages=1)
    shop.clock.advance(hours=73)
    shop.broker.store.tick(shop.clock.now())
    assert shop.broker.store.min_offset("orders", 0) == 3
    after = shop.pop(queue_id=0, max_messages=2)
    assert [(one.body[0], one.receipt.start_offset, one.receipt.offset) for one in after] == [
        ("3", 3, 3),
        ("4", 3, 4),
    ]
    shop.ack(before)
    assert shop.committed() == 3
    shop.ack(*after)
    assert shop.committed() == 5
    assert shop.in_flight == 0


@pytest.mark.seed("S000-59", "S000-70")
def test_an_ordered_pop_goes_on_past_a_deleted_log_file(make_shop: Any) -> None:
    shop = make_shop(TINY)
    shop.send(*(str(number) * 20_000 for number in range(6)))
    shop.broker.offsets.set("billing", "orders", 0, 1)
    shop.clock.advance(hours=73)
    shop.broker.store.tick(shop.clock.now())
    found = shop.pop(queue_id=0, ordered=True, max_messages=2)
    assert [(one.body[0], one.receipt.start_offset) for one in found] == [("3", 3), ("4", 3)]
    assert shop.committed() == 3
    shop.ack(*found)
    assert shop.committed() == 5


@pytest.mark.seed("S000-58", "S000-59")
@pytest.mark.parametrize("ordered", [False, True])
def test_past_a_deleted_log_file_a_pop_reads_through_its_filter_and_no_more_than_it_asked_for(
    make_shop: Any, ordered: bool
) -> None:
    shop = make_shop(TINY)
    shop.broker.offsets.set("billing", "orders", 0, 0)
    for number in range(12):  # three to a file
        shop.send(str(number) * 10_000, tags="even" if number % 2 == 0 else "odd", padding="x" * 9_000)
    shop.clock.advance(hours=73)
    shop.broker.store.tick(shop.clock.now())
    low = shop.broker.store.min_offset("orders", 0)
    assert 0 < low < 12
    shop.send(*"abcd", tags="odd")
    shop.send(*"efgh", tags="even")
    found = shop.pop(queue_id=0, expression="even", max_messages=2, ordered=ordered)
    assert [one.record.tags for one in found] == ["even", "even"]
    assert {one.receipt.start_offset for one in found} == {low}


@pytest.mark.seed("S000-64")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "status",
    [
        ReadStatus.NO_MATCHED_MESSAGE,
        ReadStatus.OFFSET_FOUND_NULL,
        ReadStatus.MESSAGE_WAS_REMOVING,
        ReadStatus.NO_MATCHED_LOGIC_QUEUE,
    ],
)
def test_whatever_hides_a_range_progress_moves_over_it(
    shop: Any, monkeypatch: pytest.MonkeyPatch, status: ReadStatus, ordered: bool
) -> None:
    shop.send(*"abcdef")
    read = shop.broker.store.read

    def hiding(topic: str, queue_id: int, offset: int, *more: Any) -> Found:
        if topic == "orders" and offset < 4:
            return Found(status, 2 if offset < 2 else 4, 0, 6)
        found: Found = read(topic, queue_id, offset, *more)
        return found

    monkeypatch.setattr(shop.broker.store, "read", hiding)
    reached = []
    while not (found := shop.pop(queue_id=0, ordered=ordered)):
        reached.append(shop.committed())
    # A file of the queue that is lost is stepped over at once, and the next one read.
    assert reached == ([4] if status is ReadStatus.OFFSET_FOUND_NULL else [2, 4])
    assert shop.committed() == 4
    assert [(one.body, one.receipt.start_offset) for one in found] == [("e", 4), ("f", 4)]
    shop.ack(*found)
    assert shop.committed() == 6


# -- a lease that was changed, and a crash ---------------------------------------------------------------------


@pytest.mark.seed("S000-67", "S000-27", "S000-29")
def test_acks_meet_their_checkpoint_in_memory_in_the_log_and_after_a_crash(shop: Any) -> None:
    shop.send(*"abcde")
    a, b, c, _d, e = shop.pop(invisible_ms=20_000)
    shop.ack(a)
    assert shop.logged == []
    shop.wait(3_200)
    assert shop.logged == ["ck"]
    shop.ack(b)
    assert shop.logged == ["ck", "ack"]
    shop.crash()
    shop.ack(c)
    assert shop.logged == ["ck", "ack", "ack"]
    shop.crash()
    assert shop.in_flight == 2
    shop.ack(a, b, c, e)  # again, or for the first time
    shop.wait(20_000)
    assert [record.body for record in shop.records(RETRY)] == [b"d"]


class Killed(BaseException):
    """The process ends here."""


def kill_after(shop: Any, patch: pytest.MonkeyPatch, writes: int, refused: tuple[int, ...] = ()) -> None:
    """The store refuses some of the attempts and takes so many others; at the next one the process is killed."""
    append, asked, kept = shop.broker.store.append, 0, 0

    def dying(record: Any) -> Any:
        nonlocal asked, kept
        asked += 1
        if asked in refused:
            raise DiskFull("no space")
        if kept == writes:
            raise Killed
        kept += 1
        return append(record)

    patch.setattr(shop.broker.store, "append", dying)


@pytest.mark.parametrize("refused", [(), (1,), (1, 2), (1, 3)], ids=str)
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_crash_amid_the_logging_of_a_batch_loses_nothing_that_was_split_off_it(
    shop: Any, writes: int, refused: tuple[int, ...]
) -> None:
    """The batch's entry says that it has no more to do with what was split off: those must be in the log before it."""
    shop.send("a", "b", "c")
    messages = shop.pop(invisible_ms=20_000)
    for one in messages[:2]:
        shop.wait(200)
        shop.change(one, 30_000)
    with pytest.MonkeyPatch.context() as patch:
        kill_after(shop, patch, writes, refused)
        with pytest.raises(Killed):
            shop.wait(5_000)
    shop.crash()
    shop.wait(60_000)
    assert sorted(one.body for one in shop.pop()) == ["a", "b", "c"]


@pytest.mark.parametrize(("split_off", "writes"), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)])
def test_nor_does_a_crash_while_room_is_made(make_shop: Any, split_off: int, writes: int) -> None:
    shop = make_shop(pop_checkpoint_cap=1 + split_off)
    shop.send(*"abcdef")
    for one in shop.pop(max_messages=3, queue_id=0)[1 : 1 + split_off]:
        shop.change(one, 60_000)  # now there is no room for one more
    with pytest.MonkeyPatch.context() as patch:
        kill_after(shop, patch, writes)
        with pytest.raises(Killed):
            shop.pop(max_messages=3, queue_id=0)
    shop.crash()
    shop.wait(61_000)
    assert {one.body for _ in range(3) for one in shop.pop()} == {*"abcdef"}


# -- ordered ---------------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-57", "S000-60")
def test_an_ordered_pop_counts_what_it_leaves_and_not_what_nobody_could_take(shop: Any) -> None:
    for queue_id in (0, 1, 2):
        shop.send("a", "b", queue_id=queue_id)
    assert len(shop.pop(ordered=True, queue_id=2, max_messages=1)) == 1
    shop.draws(20)  # it begins at queue 0
    popped = shop.popped(ordered=True, max_messages=1)
    assert len(popped.messages) == 1
    assert popped.rest == 1 + 2, "queue 2 is blocked"


@pytest.mark.seed("S000-62")
def test_an_ordered_pop_behind_plain_ones_commits_its_own_start(shop: Any) -> None:
    """The group was switched: what is leased comes back by its lease, and a restart reads the ordered batch again."""
    shop.send(*"abcd")
    shop.pop(queue_id=0, max_messages=2)
    found = shop.pop(queue_id=0, ordered=True)
    assert [one.body for one in found] == ["c", "d"]
    assert shop.committed() == 2


# -- retries -------------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-46")
@pytest.mark.parametrize(("drawn", "retries_first"), [(7, True), (22, False)])
def test_every_queue_of_the_retry_topic_is_read_from_one_drawn_by_lot(
    shop: Any, drawn: int, retries_first: bool
) -> None:
    shop.broker.topics.ensure(RETRY, 3)
    for queue_id in (0, 1, 2):
        shop.send(f"r{queue_id}", topic=RETRY, queue_id=queue_id)
    shop.send("normal", queue_id=0)
    shop.draws(drawn)
    rotated = ["r1", "r2", "r0"]  # 7 and 22 leave 1 by 3
    found = [one.body for one in shop.pop(queue_id=0)]
    assert found == ([*rotated, "normal"] if retries_first else ["normal", *rotated])


@pytest.mark.seed("S000-48")
def test_a_retry_topic_that_was_read_first_is_not_read_again(shop: Any) -> None:
    """What has left memory comes eight of a queue at a time, so there is more to read."""
    shop.broker.topics.ensure(RETRY)
    shop.send(*(f"r{number}" for number in range(10)), topic=RETRY)
    shop.send("normal")
    shop.broker.store.memory_bytes = 0
    shop.draws(0)
    assert [one.body for one in shop.pop()] == [*(f"r{number}" for number in range(8)), "normal"]


def test_the_time_of_the_first_pop_stays_over_all_retries(shop: Any) -> None:
    shop.send("a")
    (first,) = shop.pop(invisible_ms=500)
    for _ in range(3):
        shop.wait(1_500)
        (again,) = shop.pop(invisible_ms=500)
        assert again.record.properties[props.FIRST_POP_TIME] == str(first.receipt.pop_time)
    assert again.receipt.pop_time > first.receipt.pop_time


# -- who is woken --------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-51")
async def test_one_message_left_over_wakes_another_request(shop: Any) -> None:
    first, second, third = (shop.hold(max_messages=1) for _ in range(3))
    await turns()
    shop.broker.store.listeners.remove(shop.broker.pops.parked)  # only what is left over wakes now
    shop.send("a", "b")
    shop.broker.pops.parked.wake("orders", "billing", -1)
    await turns()
    assert [first.done(), second.done(), third.done()] == [True, True, False]
    third.cancel()


@pytest.mark.parametrize("waits", ["pop", "notification"])
@pytest.mark.parametrize("queue_id", [0, -1], ids=["of the queue", "of any queue"])
@pytest.mark.parametrize("how", ["ack", "time", "change", "reset"])
async def test_a_queue_that_is_free_again_wakes_a_reader(
    shop: Any, how: str, queue_id: int, waits: str
) -> None:
    shop.send("a", "b")
    (one,) = shop.pop(ordered=True, max_messages=1, queue_id=0, invisible_ms=10_000)
    if waits == "pop":
        held = shop.hold(ordered=True, queue_id=queue_id)
    else:
        asked: Any = Notify("billing", "orders", queue_id, 15_000, shop.clock.now(), ordered=True)
        later: Any = notify(asked, shop.broker)
        held = asyncio.get_running_loop().create_task(later)
    await turns()
    assert not held.done()
    if how == "ack":
        shop.ack(one)
    elif how == "time":
        shop.clock.advance(10_000)
    elif how == "change":
        shop.change(one, 0)
    else:
        await reset_offset(Reset("billing", "orders", offset=1, queue_id=0), shop.broker)
    await turns()
    assert held.done()
    found = await held
    assert found[-1].body == "b" if waits == "pop" else found.has_message


@pytest.mark.seed("S002-29")
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_retry_is_told_to_a_held_notification_unless_it_is_of_an_ordered_group(
    shop: Any, ordered: bool
) -> None:
    shop.broker.topics.ensure(RETRY)
    asked: Any = Notify("billing", "orders", 0, 15_000, shop.clock.now(), ordered=ordered)
    later: Any = notify(asked, shop.broker)
    held = asyncio.get_running_loop().create_task(later)
    await turns()
    shop.send("again", topic=RETRY)
    await turns()
    assert held.done() is not ordered
    shop.clock.advance(15_000)
    assert (await held).has_message is not ordered


async def test_a_held_notification_is_told_when_its_topic_is_deleted(shop: Any) -> None:
    asked: Any = Notify("billing", "orders", 0, 15_000, shop.clock.now())
    later: Any = notify(asked, shop.broker)
    held = asyncio.get_running_loop().create_task(later)
    await turns()
    await delete_topic("orders", shop.broker)
    await turns()
    assert held.done()
    with pytest.raises(TopicNotFound):
        await held


async def test_after_a_restart_a_blocked_queue_still_tells_a_notification_when_it_is_free(shop: Any) -> None:
    shop.send("a")
    shop.pop(ordered=True, invisible_ms=5_000)
    shop.restart()
    asked: Any = Notify("billing", "orders", 0, 15_000, shop.clock.now(), ordered=True)
    later: Any = notify(asked, shop.broker)
    held = asyncio.get_running_loop().create_task(later)
    await turns()
    shop.clock.advance(4_999)
    await turns()
    assert not held.done()
    shop.clock.advance(1)
    await turns()
    assert held.done()
    assert (await held).has_message


@pytest.mark.parametrize(("drawn", "first"), [(5, "retry"), (6, "normal")])
def test_one_in_five_peeks_looks_at_the_retry_topic_first(shop: Any, drawn: int, first: str) -> None:
    shop.broker.topics.ensure(RETRY)
    shop.send("retry", topic=RETRY)
    shop.send("normal")
    shop.draws(drawn)
    peeked = peek(Peek("billing", "orders", 0, 1), shop.broker)
    assert [message.decode(raw).body.decode() for raw in peeked.messages] == [first]
    assert peeked.rest == 1


async def test_readers_of_the_queue_and_of_any_queue_are_both_woken(shop: Any) -> None:
    shop.send("a", "b")
    shop.ack(*shop.pop(queue_id=0))
    held = [shop.hold(queue_id=queue_id, max_messages=1) for queue_id in (-1, 0)]
    await turns()
    await reset_offset(Reset("billing", "orders", offset=0, queue_id=0), shop.broker)
    await turns()
    assert [each.done() for each in held] == [True, True]


async def test_a_held_ordered_pop_wakes_at_a_time_that_was_made_shorter(shop: Any) -> None:
    shop.send("a")
    (one,) = shop.pop(ordered=True, invisible_ms=60_000)
    held = shop.hold(ordered=True)
    await turns()
    shop.change(one, 2_000)
    shop.clock.advance(1_999)
    await turns()
    assert not held.done()
    shop.clock.advance(1)
    await turns()
    assert held.done()


# -- an operator's reset that no reader has taken yet ------------------------------------------------------------


def test_acks_do_not_overwrite_a_reset(shop: Any) -> None:
    shop.send(*"abc")
    messages = shop.pop(queue_id=0)
    shop.broker.offsets.set_reset("billing", "orders", 0, 1)
    shop.ack(*messages)
    assert shop.committed() == 1
    assert [one.body for one in shop.pop(queue_id=0)] == ["b", "c"]


async def test_acks_of_an_ordered_batch_do_not_overwrite_a_reset(shop: Any) -> None:
    shop.send(*"abc")
    messages = shop.pop(queue_id=0, ordered=True)
    await reset_offset(Reset("billing", "orders", offset=1, queue_id=0), shop.broker)
    shop.ack(messages[2])
    assert shop.committed() == 1
    assert [one.body for one in shop.pop(queue_id=0, ordered=True)] == ["b", "c"]
