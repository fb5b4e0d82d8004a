# SPDX-License-Identifier: Apache-2.0
"""Ordered POP: one batch out per queue, blocked until it is acked or visible again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.operations.ack import Ack, ack, batch_ack
from aerobee.broker.pop.orders import NO_PROGRESS, OTHER_POP, OrderedBatch, Orders
from aerobee.errors import MessageIllegal
from aerobee.protocol.bodies import BatchAck, BatchAckEntry, encode
from aerobee.protocol.headers.consume import BatchAckMessage, PopMessage
from aerobee.protocol.receipt import bits_text


def ordered(shop, **more):
    more.setdefault("queue_id", 0)
    more.setdefault("invisible_ms", 10_000)
    return shop.pop(ordered=True, **more)


@pytest.mark.seed("S000-56")
def test_a_queue_is_blocked_while_a_message_is_out_and_invisible(shop):
    shop.send(*"abc")
    first = ordered(shop, max_messages=2)
    assert [one.body for one in first] == ["a", "b"]
    popped = shop.popped(ordered=True, queue_id=0)
    assert (popped.messages, popped.rest) == ([], 0), "blocked, and not counted as rest"
    shop.ack(first[0])
    assert ordered(shop) == []
    shop.ack(first[1])
    assert [one.body for one in ordered(shop)] == ["c"]


def test_other_queues_and_groups_are_not_blocked(shop):
    shop.send("a", queue_id=0)
    shop.send("b", queue_id=1)
    ordered(shop)
    assert [one.body for one in ordered(shop, queue_id=-1)] == ["b"]
    assert len(ordered(shop, group="other")) == 1


def test_a_batch_that_is_out_blocks_no_ordinary_pop(shop):
    shop.send(*"ab")
    ordered(shop, max_messages=1)
    assert [one.body for one in shop.pop(queue_id=0)] == ["a", "b"]


@pytest.mark.seed("S000-62")
def test_an_expired_batch_is_read_again_from_its_first_unacked_message(shop):
    shop.send(*"abcd")
    first = ordered(shop, max_messages=3)
    shop.ack(first[1])
    assert shop.committed() == 0
    shop.wait(10_000)
    again = ordered(shop)
    assert [one.body for one in again] == ["a", "b", "c", "d"], "in order, from the first un-acked one"
    assert shop.records("%RETRY%billing_orders") == [], "never by way of a retry topic"


def test_progress_stops_before_the_first_unacked_message(shop):
    shop.send(*"abcd")
    messages = ordered(shop)
    for one, committed in ((messages[2], 0), (messages[0], 1), (messages[1], 3), (messages[3], 4)):
        shop.ack(one)
        assert shop.committed() == committed


def test_the_same_attempt_gets_the_same_batch_again(shop):
    shop.send(*"ab")
    ordered(shop, attempt_id="try-1")
    assert ordered(shop, attempt_id="try-2") == []
    again = ordered(shop, attempt_id="try-1")
    assert [one.body for one in again] == ["a", "b"]
    shop.ack(*again)
    assert shop.committed() == 2


@pytest.mark.seed("S000-53")
def test_order_counts_say_how_often_a_message_was_delivered_before(shop):
    def pop(**more) -> str:
        header = PopMessage(
            consumer_group="billing", topic="orders", queue_id=0, invisible_time=10_000, order=True, **more
        )
        return shop.ask(header).header.order_count_info

    shop.send(*"ab")
    assert pop(max_msg_nums=1) == "0 0 0"
    shop.wait(10_000)
    assert pop(max_msg_nums=2) == "0 qo0%0 1;0 0 0", "b is new"
    shop.wait(10_000)
    assert pop(max_msg_nums=2, attempt_id="x") == "0 qo0%0 2;0 qo0%1 1;0 0 1"
    assert pop(max_msg_nums=2, attempt_id="x") == "0 qo0%0 2;0 qo0%1 1;0 0 1", "the same attempt counts once"


def test_acks_of_ordered_messages(shop):
    shop.send(*"abc")
    messages = ordered(shop, max_messages=2)
    stranger = messages[0].receipt._replace(pop_time=5)
    ack(Ack("billing", "orders", 0, 2, stranger), shop.broker)  # another pop: no effect, though 2 is not out
    with pytest.raises(MessageIllegal):
        ack(Ack("billing", "orders", 0, 2, messages[0].receipt), shop.broker)
    shop.ack(messages[0])
    shop.ack(messages[0])  # below the committed offset: ignored
    assert shop.committed() == 1


def test_a_batch_of_ordered_acks(shop):
    shop.send(*"abc")
    messages = ordered(shop)
    r = messages[0].receipt
    one = BatchAckEntry(
        consumer_group="billing", topic="orders", start_offset=0, queue_id=0, revive_queue_id=999,
        pop_time=r.pop_time, invisible_time=r.invisible_time, bits=bits_text([0, 2]),
    )  # fmt: skip
    assert shop.ask(BatchAckMessage(), encode(BatchAck(acks=[one]))).code == 0
    assert shop.committed() == 1


@pytest.mark.parametrize(
    ("kept_from", "acked", "refused", "left"),
    [
        (0, [0, 1, 2], False, []),
        (1, [0, 1, 2], False, [0]),
        (3, [0, 1, 2], False, [0, 1, 2]),
        (100_000, [0, 1, 2], False, [0, 1, 2]),
        (0, [0, 3], True, [1, 2]),  # where the next message will be: it cannot have been handed out
        (0, [0, 4, 5], False, [1, 2]),
        (0, [4], False, [0, 1, 2]),
    ],
)
def test_a_batch_of_ordered_acks_is_of_what_the_queue_has(shop, monkeypatch, kept_from, acked, refused, left):
    shop.send(*"abc")
    r = ordered(shop)[0].receipt
    one = BatchAckEntry(
        consumer_group="billing", topic="orders", start_offset=0, queue_id=0, revive_queue_id=999,
        pop_time=r.pop_time, invisible_time=r.invisible_time, bits=bits_text(acked),
    )  # fmt: skip
    monkeypatch.setattr(shop.broker.store, "kept_from", lambda topic, queue_id: kept_from)
    if refused:
        with pytest.raises(MessageIllegal, match="offset 3 is not out to group 'billing'"):
            batch_ack([one], shop.broker)
    else:
        batch_ack([one], shop.broker)
    assert shop.broker.pops.orders.get("orders", "billing", 0).open_offsets() == left


@pytest.mark.seed("S000-20", "S000-56")
@pytest.mark.parametrize("jump", [0, 7_200_000])
def test_a_change_moves_the_time_of_one_message_and_keeps_the_receipt(shop, jump):
    shop.clock.set_wall(shop.clock.wall() + jump)
    shop.send(*"ab")
    messages = ordered(shop)
    shop.clock.advance(1_000)
    changed = shop.change(messages[0], 30_000)
    r = changed.receipt
    assert (r.pop_time, r.invisible_time, r.revive_qid) == (messages[0].receipt.pop_time, 31_000, 999)
    shop.ack(messages[1])
    shop.wait(20_000)
    assert ordered(shop) == []
    shop.wait(10_000)
    assert [one.body for one in ordered(shop)] == ["a", "b"]
    assert shop.change(messages[0]._replace(receipt=messages[0].receipt), 5).receipt.revive_qid == 999


def test_a_change_below_the_committed_offset_is_success_with_zeros(shop):
    shop.send(*"ab")
    messages = ordered(shop)
    shop.ack(messages[0])
    changed = shop.change(messages[0], 5_000).receipt
    assert (changed.pop_time, changed.invisible_time, changed.revive_qid) == (0, 0, 0)


async def test_acking_the_last_message_wakes_one_that_waits(shop):
    shop.send(*"ab")
    (one,) = ordered(shop, max_messages=1)
    waits = [shop.hold(ordered=True, queue_id=q, max_messages=1) for q in (0,)]
    await asyncio.sleep(0)
    shop.ack(one)
    assert [x.body for x in await waits[0]] == ["b"]


@pytest.mark.seed("S000-56")
async def test_the_end_of_the_block_wakes_exactly_then_at_the_latest_of_all_times(shop):
    shop.send(*"abc")
    messages = ordered(shop, invisible_ms=5_000)
    shop.change(messages[0], 2_000)
    shop.change(messages[2], 8_000)
    held = shop.hold(ordered=True)
    await asyncio.sleep(0)
    shop.clock.advance(7_999)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not held.done()
    shop.clock.advance(1)
    assert [one.body for one in await held] == ["a", "b", "c"]


@pytest.mark.seed("S000-56")
async def test_after_a_restart_the_block_stands_and_still_wakes(shop):
    shop.send(*"ab")
    ordered(shop, invisible_ms=5_000, max_messages=1)
    shop.restart()
    held = shop.hold(ordered=True)
    await asyncio.sleep(0)
    shop.clock.advance(5_000)
    assert [one.body for one in await held] == ["a", "b"]


async def test_a_time_that_was_changed_is_written_with_the_next_save(shop):
    shop.send("a")
    (one,) = shop.pop(ordered=True, invisible_ms=5_000)
    await shop.broker.pops.orders.saved()
    shop.change(one, 60_000)
    await shop.broker.pops.orders.saved()
    shop.crash()
    shop.clock.advance(30_000)
    assert shop.pop(ordered=True) == []
    shop.clock.advance(30_000)
    assert [again.body for again in shop.pop(ordered=True)] == ["a"]


async def test_a_reset_clears_the_block(shop):
    shop.send(*"abc")
    ordered(shop)
    shop.broker.offsets.set_reset("billing", "orders", 0, 1)
    assert [one.body for one in ordered(shop)] == ["b", "c"]


def test_the_file_has_javas_shape(shop):
    shop.send(*"ab")
    messages = ordered(shop, attempt_id="x")
    shop.ack(messages[0])
    shop.change(messages[1], 20_000)
    shop.broker.pops.orders.save()
    path = next(shop._directory.rglob("consumerOrderInfo.json"))
    now = shop.clock.now()
    info = json.loads(path.read_text())["table"]["orders@billing"]["0"]
    assert info == {
        "popTime": now, "i": 10_000, "o": [0, 1], "ot": {"1": now + 20_000}, "oc": {}, "l": now, "cm": 1, "a": "x",
    }  # fmt: skip
    java = b'{"table":{"orders@billing":{0:{"popTime":5,"i":60000,"l":5,"o":[10,1,3],"ot":{13:99},"oc":{10:2},"cm":2}}}}'
    orders = Orders()
    orders.load(java)
    info = orders.get("orders", "billing", 0)
    assert info.absolute == [10, 11, 13]
    assert info.open_offsets() == [10, 13]
    assert info.free_at() == 60_005


def test_records_of_batches_nobody_touches_for_a_day_go(shop):
    shop.send("a")
    ordered(shop)
    shop.clock.advance(hours=25)
    shop.wait(150_000, step=30_000)
    assert shop.broker.pops.orders.keys() == []


def test_a_deleted_topic_or_group_leaves_no_batch(shop):
    shop.send("a")
    ordered(shop)
    shop.broker.pops.remove_group("billing")
    assert shop.broker.pops.orders.keys() == []


# -- order, against a model ----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_happens_a_queue_is_delivered_in_order_and_one_batch_at_a_time(data):
    """Pops, acks, changes and time at random on one queue of 40 messages, on the pure state."""
    orders, key, end = Orders(), ("t", "g", 0), 40
    now, committed = 1_000, 0
    out: dict[str, Any] | None = None
    acked: set[int] = set()
    for _ in range(data.draw(st.integers(1, 80))):
        step = data.draw(st.sampled_from(["pop", "ack", "ack", "ack", "change", "wait"]))
        if step == "wait":
            now += data.draw(st.sampled_from([1, 500, 5_000]))
        elif step == "pop":
            visible: dict[int, int] = {} if out is None else out["visible"]
            busy = any(at > now for offset, at in visible.items() if offset not in acked)
            assert orders.blocked(key, None, now) == busy
            offsets = list(range(committed, min(end, committed + data.draw(st.integers(1, 5)))))
            if busy or not offsets:
                continue
            assert offsets[0] == committed
            assert all(offset in acked for offset in range(committed))
            lease = OrderedBatch(pop_time=now, invisible_time=1_000, last_consume=now)
            counts = dict(orders.popped(key, offsets, lease))
            before: dict[int, int] = {} if out is None else out["counts"]
            assert counts == {offset: before.get(offset, -1) + 1 for offset in offsets}
            out = {"time": now, "visible": dict.fromkeys(offsets, now + 1_000), "counts": counts}
            acked -= set(offsets)  # delivered again: to be acked again
        elif out is not None:
            offset = data.draw(st.sampled_from(sorted(out["visible"])))
            stale = data.draw(st.integers(0, 9)) == 0
            pop_time = out["time"] - 1 if stale else out["time"]
            if offset < committed:
                continue
            if step == "change":
                orders.set_visible(key, offset, pop_time, now + 3_000)
                if not stale:
                    out["visible"][offset] = now + 3_000
                continue
            reached = orders.ack(key, offset, pop_time, now)
            if stale:
                assert reached == OTHER_POP
                continue
            acked.add(offset)
            left = [o for o in out["visible"] if o not in acked]
            assert reached == (left[0] if left else max(out["visible"]) + 1)
            committed = reached
    assert orders.ack(("t", "g", 9), 4, 1, now) == 5, "nothing known: the next offset"
    if out is not None:
        assert orders.ack(key, 1_000, out["time"], now) == NO_PROGRESS


def test_the_state_survives_its_own_file():
    orders = Orders()
    orders.popped(("t", "g", 3), [5, 9], OrderedBatch(pop_time=1, invisible_time=2, attempt_id="a"))
    again = Orders()
    again.load(orders.text())
    assert msgspec.structs.astuple(again.get("t", "g", 3)) == msgspec.structs.astuple(orders.get("t", "g", 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("jump", [-3_600_000, 0, 3_600_000])
def test_a_receipt_holds_its_batch_until_that_may_be_read_again_whatever_the_clock_is_set_to(
    shop: Any, jump: int
) -> None:
    shop.send("a")
    (one,) = ordered(shop)
    pops, clock = shop.broker.pops, shop.clock
    clock.set_wall(clock.wall() + jump)
    clock.advance(9_999)
    assert pops.is_leased("orders", "billing", one.receipt)
    clock.advance(1)
    assert not pops.is_leased("orders", "billing", one.receipt)
    (again,) = ordered(shop)
    held = [pops.is_leased("orders", "billing", each.receipt) for each in (one, again)]
    assert held == [False, True]
    assert not pops.is_leased("orders", "others", again.receipt)


def test_whatever_becomes_of_a_batch_is_to_be_written_down(shop: Any) -> None:
    orders, clock = shop.broker.pops.orders, shop.clock
    key = ("orders", "billing", 0)
    shop.send(*"ab")
    got: list[Any] = []
    steps = {
        "popped": lambda: got.extend(ordered(shop, max_messages=2)),
        "acked": lambda: shop.ack(got[0]),
        "hidden for longer": lambda: shop.change(got[1], 60_000),
        "the clock was set": lambda: clock.set_wall(clock.wall() + 1_000),
        "reset": lambda: orders.clear(key),
        "popped again": lambda: got.extend(ordered(shop)),
        "idle for long": lambda: orders.drop_idle(clock.wall() + 48 * 3_600_000),
        "popped once more": lambda: got.extend(ordered(shop)),
        "its group is gone": lambda: orders.forget(None, "billing"),
    }
    for name, step in steps.items():
        orders.save()
        assert not orders.unsaved
        step()
        assert orders.unsaved, name


@pytest.mark.seed("S000-56")
@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
async def test_the_end_of_the_block_wakes_exactly_then_though_the_clock_was_set_before(
    shop: Any, jump: int
) -> None:
    shop.clock.set_wall(shop.clock.wall() + jump)
    shop.send("a")
    ordered(shop)
    held = shop.hold(ordered=True, queue_id=0, poll_ms=20_000)
    for _ in range(5):
        await asyncio.sleep(0)
    shop.clock.advance(9_999)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not held.done()
    shop.clock.advance(1)
    assert [one.body for one in await held] == ["a"]


@pytest.mark.parametrize(
    ("forget", "left"),
    [
        (("orders", None), [("bills", "audit", 0), ("bills", "billing", 0)]),
        ((None, "billing"), [("bills", "audit", 0), ("orders", "audit", 0)]),
    ],
)
def test_what_is_forgotten_of_batches_is_a_topics_or_a_groups_and_no_others(
    forget: tuple[str | None, str | None], left: list[Any]
) -> None:
    orders = Orders()
    for topic in ("bills", "orders"):
        for group in ("audit", "billing"):
            orders.popped((topic, group, 0), [0], OrderedBatch(pop_time=1, invisible_time=10))
    orders.forget(*forget)
    assert sorted(orders.keys()) == left


def test_a_batch_of_which_something_was_acked_lately_is_not_idle() -> None:
    orders, key, day = Orders(), ("orders", "billing", 0), 24 * 3_600_000
    orders.popped(key, [0, 1], OrderedBatch(pop_time=1, invisible_time=10 * day, last_consume=1))
    orders.ack(key, 0, 1, day)
    orders.drop_idle(2 * day)
    assert orders.keys() == [key]
    orders.drop_idle(2 * day + 1)
    assert orders.keys() == []
