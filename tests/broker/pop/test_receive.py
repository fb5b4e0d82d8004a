# SPDX-License-Identifier: Apache-2.0
"""A received message has its receipt and its number; what is not the consumer's business never reaches it."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.broker.operations.admin.topics import delete_topic
from aerobee.broker.operations.pop import Pop
from aerobee.broker.operations.receive import dead_letter, receive
from aerobee.broker.operations.renew import extend, give_back, give_back_all, give_up, renew_due, take_over
from aerobee.errors import DiskFull, FlowControl, NoMessage
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.message import Record


async def received(shop: Any, **more: Any) -> list[Any]:
    request = Pop("billing", "orders", Start.MIN, born_time=shop.clock.now(), **more)
    return await receive(request, shop.broker)


def bodies(found: list[Any]) -> list[str]:
    return [each.record.body.decode() for each in found]


async def test_each_message_can_be_acked_by_its_own_receipt(shop: Any) -> None:
    shop.send("a", "b", queue_id=1)
    shop.send("c", queue_id=2)
    found = await received(shop)
    assert sorted(bodies(found)) == ["a", "b", "c"]
    for each in found:
        place = (each.receipt.queue_id, each.receipt.offset, each.receipt.commit_log_offset)
        record = each.record
        assert place == (record.queue_id, record.queue_offset, record.physical_offset)
        assert each.attempt == 1
        ack(Ack("billing", "orders", *place[:2], each.receipt), shop.broker)
    assert shop.broker.pops.leases.in_flight.messages == 0


async def test_a_tag_that_only_has_the_same_hash_is_done(shop: Any) -> None:
    """Java's hash of Aa is that of BB."""
    shop.send("wanted", tags="Aa")
    shop.send("stranger", tags="BB")
    assert bodies(await received(shop, expression="Aa", expression_type="TAG")) == ["wanted"]
    assert shop.broker.pops.leases.in_flight.messages == 1


async def test_what_a_filter_by_properties_finds_is_wanted_whatever_its_tag(shop: Any) -> None:
    shop.send("wanted", amount="5")
    shop.send("other", amount="1")
    found = await received(shop, queue_id=0, expression="amount > 2", expression_type="SQL92")
    assert bodies(found) == ["wanted"]
    assert shop.broker.pops.leases.in_flight.messages == 1, "nothing of it is done"


async def test_attempts_at_an_ordered_message_are_its_own(shop: Any) -> None:
    """They are kept by the broker: the message is read where it stands."""
    shop.send("a", "b")
    asked = {"ordered": True, "queue_id": 0, "invisible_ms": 1_000}
    for expected in ([("a", 1)], [("a", 2), ("b", 1)], [("a", 3), ("b", 2)]):
        found = await received(shop, max_messages=len(expected), **asked)
        assert [(each.record.body.decode(), each.attempt) for each in found] == expected
        shop.wait(1_000)


@pytest.mark.parametrize(
    ("retries", "times", "dead"),
    [(2, 2, False), (2, 3, True), (0, 0, False), (0, 1, True), (-1, 1_000, False)],
)
async def test_past_the_groups_attempts_a_message_is_dead(
    shop: Any, retries: int, times: int, dead: bool
) -> None:
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=retries))
    shop.broker.store.append(Record("orders", b"poison", "", 0, reconsume_times=times))
    found = await received(shop)
    assert bodies(found) == ([] if dead else ["poison"])
    assert len(shop.records("%DLQ%billing")) == dead
    assert shop.broker.pops.leases.in_flight.messages == (not dead)


async def test_in_order_a_message_is_never_passed_over_for_having_been_tried_too_often(shop: Any) -> None:
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=2))
    shop.broker.store.append(Record("orders", b"poison", "", 0, reconsume_times=9))
    assert bodies(await received(shop, ordered=True)) == ["poison"]
    assert shop.records("%DLQ%billing") == []


async def test_a_dead_letter_is_kept_even_when_its_receipt_is_of_no_use_any_more(shop: Any) -> None:
    shop.send("poison")
    (found,) = await received(shop)
    shop.clock.advance(hours=1)
    dead_letter("billing", "orders", found.receipt._replace(offset=99), shop.broker)
    assert [record.body for record in shop.records("%DLQ%billing")] == [b"poison"]
    with pytest.raises(NoMessage, match="names no place"):
        dead_letter("billing", "orders", found.receipt._replace(commit_log_offset=-1), shop.broker)


async def test_a_message_that_the_disk_refuses_among_the_dead_letters_comes_back(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(record: Record) -> None:
        raise DiskFull("no space")

    shop.send("poison")
    (found,) = await received(shop, invisible_ms=5_000)
    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "append", full)
        with pytest.raises(DiskFull):
            give_up("billing", "orders", found.receipt, shop.broker)
    shop.wait(6_000)
    assert [(each.record.body, each.attempt) for each in await received(shop)] == [(b"poison", 2)]


async def test_too_many_that_wait_are_flow_control(shop: Any) -> None:
    change_settings("maxPopPollingSize=0", shop.broker)
    with pytest.raises(FlowControl, match="billing"):
        await received(shop, poll_ms=5_000)


async def test_a_renewed_lease_is_found_by_the_first_receipt_and_then_left_alone(shop: Any) -> None:
    shop.send("slow")
    (found,) = await received(shop)
    shop.broker.pops.renewals.hold("billing", "orders", "c1", found.receipt)
    shop.clock.advance(seconds=55)
    renew_due(shop.clock.now(), lambda client_id: client_id == "c1", shop.broker)
    shop.clock.advance(seconds=10)
    newest = take_over("billing", "orders", found.receipt, shop.broker)
    assert newest.visible_at > found.receipt.visible_at
    renew_due(newest.visible_at, lambda _: True, shop.broker)
    shop.wait(65_000, step=1_000)  # nothing renewed it, and revive took it back
    with pytest.raises(NoMessage, match="is over"):
        take_over("billing", "orders", newest, shop.broker)


async def test_an_ordered_receipt_is_over_when_the_batch_is_out_to_another(shop: Any) -> None:
    shop.send("slow")
    (first,) = await received(shop, ordered=True, invisible_ms=5_000)
    shop.clock.advance(6_000)
    (second,) = await received(shop, ordered=True, invisible_ms=60_000)
    with pytest.raises(NoMessage, match="is over"):
        take_over("billing", "orders", first.receipt, shop.broker)
    assert take_over("billing", "orders", second.receipt, shop.broker) == second.receipt


async def test_an_expired_receipt_is_told_by_the_clock_that_stamped_it(shop: Any) -> None:
    shop.clock.set_wall(shop.clock.wall() + 7_200_000)
    shop.send("slow")
    (found,) = await received(shop)
    shop.wait(65_000, step=1_000)
    with pytest.raises(NoMessage, match="is over"):
        take_over("billing", "orders", found.receipt, shop.broker)


@pytest.mark.parametrize("why", ["its client is gone", "three hours are over", "its topic is gone"])
async def test_a_lease_that_is_not_renewed_is_not_looked_at_again(shop: Any, why: str) -> None:
    shop.send("slow")
    (found,) = await received(shop)
    shop.broker.pops.renewals.hold("billing", "orders", "c1", found.receipt)
    shop.clock.advance(seconds=55)
    if why == "three hours are over":
        shop.clock.advance(hours=3)
    elif why == "its topic is gone":
        await delete_topic("orders", shop.broker)
    renew_due(shop.clock.wall(), lambda _: why != "its client is gone", shop.broker)
    assert len(shop.broker.pops.renewals) == 0


async def test_each_message_of_a_batch_is_extended_again_and_again_by_its_newest_receipt(shop: Any) -> None:
    shop.send("a", "b", "c")
    found = await received(shop)
    receipt = found[1].receipt
    for seconds in (20, 40):
        shop.clock.advance(1_000)
        receipt = extend("billing", "orders", receipt, seconds * 1000, shop.broker)
        assert receipt.visible_at == shop.clock.wall() + seconds * 1000
    ack(Ack("billing", "orders", receipt.queue_id, receipt.offset, receipt), shop.broker)
    assert shop.in_flight == 2


async def test_who_gives_up_on_a_renewed_message_does_so_for_good(shop: Any) -> None:
    shop.send("slow")
    (found,) = await received(shop)
    shop.broker.pops.renewals.hold("billing", "orders", "c1", found.receipt)
    shop.clock.advance(seconds=55)
    renew_due(shop.clock.wall(), lambda _: True, shop.broker)
    give_up("billing", "orders", found.receipt, shop.broker)
    assert (shop.in_flight, len(shop.broker.pops.renewals)) == (0, 0)
    assert [record.body for record in shop.records("%DLQ%billing")] == [b"slow"]


async def test_a_receipt_of_another_broker_is_of_no_use(shop: Any) -> None:
    shop.send("x")
    (found,) = await received(shop)
    with pytest.raises(NoMessage, match="broker-z"):
        take_over("billing", "orders", found.receipt._replace(broker_name="broker-z"), shop.broker)


@pytest.mark.parametrize("how", ["one", "all"])
async def test_what_is_given_back_is_visible_a_second_later(shop: Any, how: str) -> None:
    shop.send("x")
    (found,) = await received(shop)
    shop.broker.pops.renewals.hold("billing", "orders", "c1", found.receipt)
    if how == "one":
        give_back("billing", "orders", found.receipt, shop.broker)
    else:
        give_back_all("nobody", shop.broker)
        assert len(shop.broker.pops.renewals) == 1
        give_back_all("c1", shop.broker)
    assert len(shop.broker.pops.renewals) == 0
    shop.wait(2_000)
    (again,) = await received(shop)
    assert (again.record.body, again.attempt) == (b"x", 2)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing_orders"])
async def test_a_lease_is_taken_over_and_extended_in_the_topic_it_lies_in(shop: Any, topic: str) -> None:
    """Also past its time, as long as it is nobody else's."""
    shop.broker.topics.ensure(topic)
    shop.send("a", topic=topic)
    (one,) = await received(shop, invisible_ms=5_000)
    shop.clock.advance(5_000)
    taken = take_over("billing", "orders", one.receipt, shop.broker)
    assert extend("billing", "orders", taken, 60_000, shop.broker).invisible_time == 60_000
    shop.wait(10_000)
    assert shop.in_flight == 1
