# SPDX-License-Identifier: Apache-2.0
"""Held pops: what wakes them, whom, and when they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.operations.notify import Notified, Notify, notify
from aerobee.broker.operations.pop import pop
from aerobee.broker.operations.send import PlainOrigin, send_batch
from aerobee.broker.pop.held_pops import Parked, ParkedPops, Reads
from aerobee.errors import NoPermission, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.headers.consume import PollingInfo
from aerobee.settings import BrokerConfig, InForce

RETRY = names.pop_retry_topic("orders", "billing")
RETRY_V2 = names.pop_retry_topic_v2("orders", "billing")


async def turns(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.seed("S000-52", "S002-29")
async def test_an_arrival_wakes_a_held_pop(shop):
    held = shop.hold()
    await turns()
    assert not held.done()
    shop.send("a", queue_id=2)
    assert [one.body for one in await held] == ["a"]
    assert shop.broker.pops.parked.count == 0


async def test_a_batch_wakes_a_held_pop_and_a_notification_as_a_message_does(shop):
    asking: Any = notify(Notify("other", "orders", -1, 15_000, shop.clock.now()), shop.broker)
    asked = asyncio.ensure_future(asking)
    held = shop.hold()
    await turns()
    send_batch(Batch("orders", 2, Columns([0, 0], [b"a", b"b"], ["", ""])), PlainOrigin(), shop.broker)
    assert [one.body for one in await held] == ["a", "b"]
    assert (await asked).has_message


async def test_a_message_between_the_look_and_the_waiting_is_not_missed(shop):
    popping = shop.hold()  # a task that has not run yet
    asking = notify(Notify("other", "orders", -1, 15_000, shop.clock.now()), shop.broker)
    shop.send("a")
    assert (await asking).has_message  # type: ignore[misc]
    assert [one.body for one in await popping] == ["a"]


async def test_one_arrival_wakes_one_request_per_key(shop):
    held = [shop.hold() for _ in range(5)] + [shop.hold(queue_id=1)]
    await turns()
    shop.send("a", queue_id=0)
    await turns()
    assert sum(one.done() for one in held) == 1
    shop.broker.pops.parked.stop()
    await asyncio.gather(*held)


async def test_the_request_that_expires_first_is_woken_first(shop):
    late, early = shop.hold(poll_ms=20_000), shop.hold(poll_ms=10_000)
    await turns()
    shop.send("a")
    await turns()
    assert early.done()
    assert not late.done()
    late.cancel()


@pytest.mark.seed("S000-51")
async def test_messages_left_over_wake_another_request_of_the_same_key_only(shop):
    first, second = shop.hold(max_messages=1), shop.hold(max_messages=1)
    other = shop.hold(queue_id=1, max_messages=1)
    await turns()
    shop.broker.store.listeners.remove(shop.broker.pops.parked)  # only what is left over wakes now
    shop.send("a", "b", "c")
    shop.broker.pops.parked.wake("orders", "billing", -1)
    await turns()
    assert first.done()
    assert second.done(), "two were left over"
    assert not other.done(), "holds of one queue and of all queues never wake each other"
    other.cancel()


@pytest.mark.seed("S000-51")
@pytest.mark.parametrize(("popped", "others"), [(-1, 0), (0, -1)])
async def test_what_a_pop_leaves_wakes_nobody_who_asked_for_other_queues_or_another_group(
    shop, popped, others
):
    """Though they would find something, were they to look."""
    first, second = shop.hold(max_messages=1, queue_id=popped), shop.hold(max_messages=1, queue_id=popped)
    asleep = [shop.hold(max_messages=1, queue_id=others), shop.hold(group="shipping", queue_id=popped)]
    await turns()
    shop.broker.store.listeners.remove(shop.broker.pops.parked)  # only what is left over wakes now
    shop.send(*"abcd")
    shop.broker.pops.parked.wake("orders", "billing", popped)
    await turns()
    assert [one.done() for one in (first, second, *asleep)] == [True, True, False, False]
    for one in asleep:
        one.cancel()


@pytest.mark.seed("S000-52")
async def test_the_end_of_the_poll_time_is_a_timeout(shop):
    later = pop(shop.request(poll_ms=10_000), shop.broker)
    task = asyncio.get_running_loop().create_task(later)  # type: ignore[arg-type]
    await turns()
    shop.clock.advance(9_949)
    await turns()
    assert not task.done()
    shop.clock.advance(1)  # 50 ms before the client gives up
    popped = await task
    assert popped.code is ResponseCode.POLLING_TIMEOUT
    assert popped.pop_time == shop.clock.now()


async def test_a_filter_is_asked_before_waking(shop):
    wanted, other = shop.hold(expression="wanted"), shop.hold(expression="other")
    await turns()
    shop.send("x", tags="nobody's")
    shop.send("a", tags="other")
    await turns()
    assert not wanted.done()
    assert [one.body for one in await other] == ["a"]
    wanted.cancel()


async def test_an_sql_filter_is_asked_before_waking(shop):
    held = shop.hold(expression="price > 50", expression_type="SQL92")
    await turns()
    shop.send("cheap", price="1")
    await turns()
    assert not held.done()
    shop.send("dear", price="99")
    assert [one.body for one in await held] == ["dear"]


async def test_every_800th_message_wakes_whatever_the_filter_says(shop):
    held = shop.hold(expression="wanted", queue_id=0)
    await turns()
    shop.send(*("x" for _ in range(799)), tags="other")
    await turns()
    assert shop.committed() == 0
    shop.send("x", tags="other")
    await turns()
    assert shop.committed() == 800, "it looked, found nothing, and progress moved"
    assert not held.done()
    held.cancel()


@pytest.mark.seed("S000-52")
@pytest.mark.parametrize("retry", [RETRY, RETRY_V2])
@pytest.mark.parametrize("queue_id", [-1, 2])
async def test_an_arrival_in_either_retry_topic_wakes_the_owning_group_only(shop, retry, queue_id):
    shop.broker.topics.ensure(retry)
    mine, others = shop.hold(queue_id=queue_id), shop.hold(group="shipping")
    await turns()
    shop.send("again", topic=retry)
    assert [one.body for one in await mine] == ["again"]
    await turns()
    assert not others.done()
    others.cancel()


async def test_a_retry_does_not_wake_an_ordered_pop(shop):
    shop.broker.topics.ensure(RETRY)
    ordered, plain = shop.hold(ordered=True, poll_ms=1_000), shop.hold(poll_ms=10_000)
    await turns()
    shop.send("again", topic=RETRY)
    assert [one.body for one in await plain] == ["again"]
    assert not ordered.done()
    ordered.cancel()


async def test_a_redelivery_wakes_the_group(shop):
    shop.send("a")
    shop.pop(invisible_ms=5_000)
    held = shop.hold()
    await turns()
    shop.wait(5_400)
    assert [(one.body, one.record.reconsume_times) for one in await held] == [("a", 1)]


async def test_a_reset_wakes_the_group(shop):
    shop.send("a")
    shop.ack(*shop.pop())
    held = shop.hold()
    await turns()
    shop.broker.offsets.set_reset("billing", "orders", 0, 0)
    shop.wait(1_200)
    assert [one.body for one in await held] == ["a"]


@pytest.mark.seed("S000-44")
async def test_a_deleted_topic_ends_the_wait(shop):
    held = shop.hold()
    await turns()
    shop.broker.topics.delete("orders")
    shop.broker.pops.remove_topic("orders")
    await turns()
    assert held.done()
    with pytest.raises(TopicNotFound):
        await held


@pytest.mark.seed("S000-44")
async def test_a_held_pop_is_refused_when_its_group_may_not_consume_any_more(shop):
    held = shop.hold()
    await turns()
    shop.broker.groups.put(GroupConfig(group_name="billing", consume_enable=False))
    shop.send("a")
    await turns()
    assert held.done()
    with pytest.raises(NoPermission):
        await held
    assert shop.in_flight == 0, "nothing was taken"


async def test_a_stop_answers_everybody_and_holds_nobody_any_more(shop):
    held = shop.hold()
    await turns()
    shop.broker.pops.stop()
    assert await held == []
    later = pop(shop.request(poll_ms=10_000), shop.broker)
    assert (await later).code is ResponseCode.POLLING_TIMEOUT  # type: ignore[misc]


async def test_a_stop_answers_notifications_too(shop):
    asked: Any = notify(Notify("billing", "orders", -1, 15_000, shop.clock.now()), shop.broker)
    held = asyncio.ensure_future(asked)
    await turns()
    assert not held.done()
    shop.broker.pops.stop()
    assert await held == Notified(has_message=False)


async def test_a_connection_that_goes_leaves_nothing_behind(shop):
    held = [shop.hold() for _ in range(3)]
    await turns()
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    parked = shop.broker.pops.parked
    assert (parked.count, parked.places(), parked._waiting, parked._owners) == (0, [], {}, {})


@pytest.mark.seed("S000-10")
async def test_a_wake_up_taken_by_a_connection_that_goes_is_handed_on(shop):
    first, second = shop.hold(poll_ms=1_000), shop.hold(poll_ms=10_000)
    await turns()
    shop.send("a")
    first.cancel()  # woken, and gone before it could run
    await turns()
    assert second.done()
    assert [one.body for one in await second] == ["a"]


@pytest.mark.seed("S000-52")
async def test_too_many_requests_of_one_key_or_in_all_are_refused(make_shop):
    shop = make_shop(pop_polling_per_key=2, pop_polling_total=5)
    held = [shop.hold() for _ in range(3)]  # more than the limit: one above it, as in RocketMQ
    await turns()
    assert shop.popped(poll_ms=1_000).code is ResponseCode.POLLING_FULL
    held += [shop.hold(queue_id=1), shop.hold(queue_id=2)]
    await turns()
    full = shop.popped(poll_ms=1_000, queue_id=3)
    assert full.code is ResponseCode.POLLING_FULL
    assert full.pop_time == shop.clock.now()
    info = shop.ask(PollingInfo(consumer_group="billing", topic="orders", queue_id=-5))
    assert info.header.polling_num == 3
    for one in held:
        one.cancel()


@pytest.mark.slow
async def test_thousands_of_held_requests_of_one_key_cost_an_arrival_little(clock):
    parked = ParkedPops(clock, InForce(BrokerConfig(pop_polling_per_key=10_000)))
    place = ("orders", "billing", -1)
    deadline = clock.now() + 10_000
    waits = [
        asyncio.ensure_future(parked.wait(place, deadline, None, Reads.WITH_RETRIES)) for _ in range(5_000)
    ]
    await turns()
    assert parked.waiting(*place) == 5_000
    for _ in range(2_500):
        parked.wake(*place)
    await turns()
    assert parked.waiting(*place) == 2_500
    clock.advance(10_000)
    ended = await asyncio.gather(*waits)
    assert ended.count(Parked.WOKEN) == 2_500
    assert ended.count(Parked.EXPIRED) == 2_500


# -- notification ------------------------------------------------------------------------------------------


def notice(shop, **more) -> Notify:
    return Notify("billing", "orders", born_time=shop.clock.now(), **more)


async def test_a_notification_says_at_once_or_as_soon_as_there_is_something(shop):
    assert notify(notice(shop), shop.broker).has_message is False
    held = asyncio.ensure_future(notify(notice(shop, poll_ms=5_000), shop.broker))  # type: ignore[arg-type]
    await turns()
    shop.send("a", queue_id=3)
    assert (await held).has_message
    assert notify(notice(shop), shop.broker).has_message
    assert notify(notice(shop, queue_id=1), shop.broker).has_message is False
    shop.pop()
    assert notify(notice(shop), shop.broker).has_message is False, "popped: not there for others"


async def test_a_notification_sees_retries_and_not_blocked_ordered_queues(shop):
    shop.broker.topics.ensure(RETRY)
    shop.send("r", topic=RETRY)
    assert notify(notice(shop), shop.broker).has_message
    assert notify(notice(shop, ordered=True), shop.broker).has_message is False
    shop.send("a", "b")
    shop.pop(ordered=True, max_messages=1, invisible_ms=5_000)
    assert notify(notice(shop, ordered=True), shop.broker).has_message is False
    held = asyncio.ensure_future(notify(notice(shop, ordered=True, poll_ms=20_000), shop.broker))  # type: ignore[arg-type]
    await turns()
    shop.clock.advance(5_000)
    assert (await held).has_message, "woken exactly when the block ended"


async def test_a_notification_woken_for_what_others_took_waits_on(shop):
    held = asyncio.ensure_future(notify(notice(shop, poll_ms=5_000), shop.broker))  # type: ignore[arg-type]
    await turns()
    shop.send("a")
    shop.pop()
    await turns()
    assert not held.done()
    shop.send("b")
    await turns()
    assert (await held).has_message


@pytest.mark.parametrize("waits", ["pop", "notification"])
async def test_a_retry_wakes_the_one_who_can_read_it_not_an_ordered_reader_before_him(shop, waits):
    def ask(poll_ms: int, *, ordered: bool) -> asyncio.Future[Any]:
        if waits == "pop":
            return shop.hold(poll_ms=poll_ms, ordered=ordered)
        asked = notice(shop, poll_ms=poll_ms, ordered=ordered)
        return asyncio.ensure_future(notify(asked, shop.broker))  # type: ignore[arg-type]

    shop.broker.topics.ensure(RETRY)
    in_order, any_order = ask(5_000, ordered=True), ask(9_000, ordered=False)
    await turns()
    shop.send("again", topic=RETRY)
    await turns()
    assert (in_order.done(), any_order.done()) == (False, True)
    in_order.cancel()


async def test_a_notification_of_an_ordered_queue_goes_by_the_clock_that_the_batch_was_stamped_with(shop):
    shop.clock.set_wall(shop.clock.wall() + 7_200_000)
    shop.send("a")
    shop.pop(ordered=True, invisible_ms=5_000)
    asked = notice(shop, ordered=True)
    assert notify(asked, shop.broker).has_message is False
    shop.clock.advance(5_000)
    assert notify(asked, shop.broker).has_message


async def test_a_notification_ends_with_its_poll_time_or_when_too_many_wait(make_shop):
    shop = make_shop(pop_polling_per_key=0)
    held = asyncio.ensure_future(notify(notice(shop, poll_ms=5_000), shop.broker))  # type: ignore[arg-type]
    await turns()
    full = await notify(notice(shop, poll_ms=5_000), shop.broker)  # type: ignore[misc]
    assert full.polling_full
    shop.clock.advance(5_000)
    assert await held == type(full)()
