# SPDX-License-Identifier: Apache-2.0
"""What pops and acks leave behind besides leases: figures, subscriptions learned, progress over what is skipped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.operations.ack import MAX_BATCH_ACKS, ack_bits, batch_ack, open_bits
from aerobee.broker.operations.pop import pop
from aerobee.errors import InvalidParameter, SystemFailure
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import BatchAckEntry
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.receipt import MAX_BITS, Receipt, bits_text, real_topic

RETRY = names.pop_retry_topic("orders", "billing")


def acked(shop: Any) -> tuple[int, int]:
    """Requests, and messages they acked."""
    ((key, meter),) = shop.broker.stats.meters("GROUP_ACK")
    assert key == "orders@billing"
    return meter.calls, meter.count


def entry(receipt: Receipt, *places: int, **more: Any) -> BatchAckEntry:
    fields: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "start_offset": receipt.start_offset,
        "queue_id": receipt.queue_id,
        "revive_queue_id": receipt.revive_qid,
        "pop_time": receipt.pop_time,
        "invisible_time": receipt.invisible_time,
        "bits": bits_text(list(places)),
    }
    return BatchAckEntry(**{**fields, **more})


@pytest.mark.parametrize("ordered", [False, True])
def test_acks_are_counted_by_message_in_order_or_not(shop: Any, ordered: bool) -> None:
    shop.send(*"abcd")
    found = shop.pop(queue_id=0, ordered=ordered)
    shop.ack(found[0])
    assert acked(shop) == (1, 1)
    batch_ack([entry(found[0].receipt, 1, 2, 3)], shop.broker)
    assert acked(shop) == ((4, 4) if ordered else (2, 4))
    shop.ack(found[0])
    assert acked(shop)[1] == 4, "a second time acks nothing"


def test_one_request_acks_so_many_batches_and_no_more(shop: Any) -> None:
    shop.send("a")
    (one,) = shop.pop()
    with pytest.raises(InvalidParameter, match=f"{MAX_BATCH_ACKS + 1} acks in one request"):
        batch_ack([entry(one.receipt, 0)] * (MAX_BATCH_ACKS + 1), shop.broker)
    assert shop.in_flight == 1
    batch_ack([entry(one.receipt, 0)] * MAX_BATCH_ACKS, shop.broker)
    assert shop.in_flight == 0


def test_a_bit_set_may_be_as_long_as_the_longest_batch_and_its_padding(shop: Any) -> None:
    shop.send("a")
    (one,) = shop.pop()
    longest = MAX_BITS // 6 + 8
    with pytest.raises(SystemFailure, match=f"a bit set of {longest + 1} characters"):
        batch_ack([entry(one.receipt, bits="A" * (longest + 1))], shop.broker)
    with pytest.raises(SystemFailure, match="a bit set of 0 characters"):
        batch_ack([entry(one.receipt, bits="")], shop.broker)
    batch_ack([entry(one.receipt, 0, MAX_BITS - 1)], shop.broker)
    assert shop.in_flight == 0
    batch_ack([entry(one.receipt, bits="AAAA" * (longest // 4))], shop.broker)


@pytest.mark.seed("S000-16")
def test_each_retry_brings_its_own_receipt(shop: Any) -> None:
    shop.broker.topics.ensure(RETRY)
    shop.send("a", "b", topic=RETRY, POP_CK="of another time")
    found = shop.pop()
    for one in found:
        told = Receipt.parse(one.record.properties[props.POP_CK])
        assert (told.offset, told.start_offset, told.retry) == (one.receipt.offset, 0, "1")
    assert [one.receipt.offset for one in found] == [0, 1]


def test_a_queue_whose_next_messages_are_all_leased_from_before_is_read_on_after_them(shop: Any) -> None:
    shop.send(*"abc")
    shop.broker.pops.leases.in_flight.lane("orders", "billing", 0).skip.update((0, 1))
    first = shop.popped(queue_id=0, max_messages=2)
    assert (first.messages, first.advanced, first.rest) == ([], True, 1)
    assert [one.body for one in shop.pop(queue_id=0, max_messages=2)] == ["c"]


async def test_a_pop_that_came_past_something_reads_on_though_too_many_wait(make_shop: Any) -> None:
    """It would not be held: what it looks for may lie a stretch further on."""
    shop = make_shop(pop_polling_total=0)
    shop.send(*"a" * 801, tags="other")
    shop.send("wanted", tags="mine")
    asked = {"queue_id": 0, "expression": "mine", "expression_type": "TAG"}
    assert [one.body for one in await shop.hold(**asked)] == ["wanted"]
    assert shop.popped(poll_ms=15_000, **asked).code == ResponseCode.POLLING_FULL


async def test_a_pop_that_reads_on_leaves_others_their_turns_and_ends_with_its_time(shop: Any) -> None:
    """However much there is that does not match."""
    shop.send(*"a" * 3_300, tags="other")
    held = shop.hold(queue_id=0, expression="mine", expression_type="TAG", poll_ms=1_000)
    await asyncio.sleep(0)
    assert shop.committed() == 1_600, "a stretch a turn"
    shop.clock.advance(1_000)
    assert await held == []
    assert shop.committed() == 3_200


@pytest.mark.seed("S000-52")
async def test_one_that_read_on_and_found_nothing_is_told_that_too_many_wait(make_shop: Any) -> None:
    shop = make_shop(pop_polling_total=0)
    shop.send(*"a" * 801, tags="other")
    request = shop.request(queue_id=0, expression="mine", expression_type="TAG", poll_ms=15_000)
    popped = await pop(request, shop.broker)  # type: ignore[misc]
    assert (popped.code, popped.messages, popped.rest) == (ResponseCode.POLLING_FULL, [], 0)
    assert shop.committed() == 801, "what does not match is passed all the same"


async def test_what_a_held_pop_reads_is_known_from_when_it_last_looked(shop: Any) -> None:
    held = shop.hold()
    for _ in range(3):
        await asyncio.sleep(0)
    shop.clock.advance(5_000)
    shop.send("a")
    await held
    known = shop.broker.clients.subscription("billing", "orders")
    assert (known.sub_version, known.sub_string) == (shop.clock.now(), "*")


def test_a_message_stored_by_a_clock_that_ran_ahead_is_not_behind(shop: Any) -> None:
    shop.send("a")
    shop.clock.set_wall(shop.clock.wall() - 7_200_000)
    shop.pop(queue_id=0)
    assert shop.broker.stats.behind("billing", "orders", 0)[1] == 0


def test_figures_of_the_revive_log_go_with_their_group_or_topic_and_no_others(shop: Any) -> None:
    written = shop.broker.pops.leases.log.written
    for group in ("billing", "audit"):
        for topic in ("orders", "bills"):
            written[group, topic, "ck"] += 1
    shop.broker.pops.remove_group("billing")
    assert set(written) == {("audit", "orders", "ck"), ("audit", "bills", "ck")}
    shop.broker.pops.remove_topic("orders")
    assert set(written) == {("audit", "bills", "ck")}


def test_how_far_a_group_is_behind_is_told_by_the_last_message_it_got(shop: Any) -> None:
    shop.send("a")
    shop.clock.advance(5_000)
    shop.send("b")
    shop.clock.advance(700)
    assert len(shop.pop()) == 2
    assert shop.broker.stats.behind("billing", "orders", 0)[1] == 700


def test_acks_taken_together_are_counted_one_by_one(shop: Any) -> None:
    shop.send(*"abc")
    first, *_ = shop.pop(queue_id=0)
    place, receipt = ("orders", "billing", 0), first.receipt
    assert open_bits(place, receipt.start_offset, receipt.pop_time, shop.broker) == 0b111
    ack_bits(place, receipt.start_offset, receipt.pop_time, 0b101, shop.broker)
    assert open_bits(place, receipt.start_offset, receipt.pop_time, shop.broker) == 0b010
    assert {key: meter.count for key, meter in shop.broker.stats.meters("GROUP_ACK")} == {"orders@billing": 2}
    shop.wait(4_000)
    assert open_bits(place, receipt.start_offset, receipt.pop_time, shop.broker) == 0, "it is in the log"


def test_an_ack_of_an_earlier_ordered_pop_moves_nothing(shop: Any) -> None:
    shop.send("a", "b")
    asked = {"ordered": True, "queue_id": 0, "invisible_ms": 1_000}
    old, _ = shop.pop(**asked)
    shop.wait(1_000)
    new, _ = shop.pop(**asked)
    shop.ack(old)
    assert shop.committed() == 0
    assert shop.broker.stats.meters("GROUP_ACK") == []
    shop.ack(new)
    assert shop.committed() == 1


@pytest.mark.parametrize("flag", ["1", "2"])
def test_a_batch_acks_messages_of_either_retry_topic(shop: Any, flag: str) -> None:
    retry = real_topic("orders", "billing", flag)
    shop.broker.topics.ensure(retry)
    shop.send("a", topic=retry)
    (one,) = shop.pop()
    assert one.receipt.retry == flag
    batch_ack([entry(one.receipt, 0, retry=flag)], shop.broker)
    assert (shop.in_flight, shop.committed(topic=retry)) == (0, 1)


def test_acks_in_order_of_a_queue_that_is_not_there_leave_no_offset(shop: Any) -> None:
    shop.send("a")
    (one,) = shop.pop(ordered=True, queue_id=0)
    for queue_id in (-1, 4, 99):
        batch_ack([entry(one.receipt, 0, queue_id=queue_id)], shop.broker)
    assert set(shop.broker.offsets.table("billing", "orders")) <= {0}
