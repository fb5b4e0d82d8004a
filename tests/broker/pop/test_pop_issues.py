# SPDX-License-Identifier: Apache-2.0
"""What users of RocketMQ reported about POP, one regression test each.

A number in a test's name is apache/rocketmq's issue. Not here: what belongs to designs this broker does not have (a
RocksDB store, a timer for checkpoints, an HA proxy) or to the client.
"""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.admin.figures import group_figures, lag
from aerobee.broker.operations.admin.topics import delete_topic
from aerobee.broker.operations.pop import pop
from aerobee.broker.pop.in_flight import InFlight, LeasedBatch, Matched
from aerobee.errors import StoreError
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import Receipt, parse_start_offsets
from aerobee.settings import BrokerConfig, InForce

RETRY = names.pop_retry_topic("orders", "billing")


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# -- A. revive, checkpoints, timers ----------------------------------------------------------------------------


def test_issue_3443_5408_the_revive_offset_advances_when_only_acks_arrive(shop):
    log = shop.broker.pops.leases.log.topic
    for _ in range(20):
        body = b'{"ao":0,"so":0,"c":"billing","t":"orders","q":0,"pt":1,"bn":"broker-a"}'
        shop.broker.store.append(Record(log, body, props.render({props.TAGS: "ack"}), queue_id=2))
    shop.wait(2_000)
    assert shop.broker.pops.leases.log.behind == 0


def test_issue_3507_nothing_is_revived_before_its_acks_were_read(shop):
    shop.send(*map(str, range(32)))
    messages = shop.pop(invisible_ms=10_000)
    shop.wait(9_800)
    shop.ack(*messages)  # at the last moment, the checkpoint being logged
    shop.wait(5_000)
    assert shop.records(RETRY) == []


def test_issue_3787_4153_acks_and_checkpoints_need_no_timer_so_none_is_late(shop):
    shop.send("a")
    (one,) = shop.pop(invisible_ms=7_300)
    shop.wait(7_200)
    shop.ack(one)
    shop.crash()
    shop.wait(3_000)
    assert shop.records(RETRY) == []


def test_issue_4815_the_first_retry_comes_when_the_invisible_time_is_over(shop):
    shop.send("a")
    shop.pop(invisible_ms=10_000)
    shop.wait(10_600)
    assert len(shop.records(RETRY)) == 1


def test_issue_7914_due_times_are_compared_with_one_clock(shop):
    shop.send("a")
    shop.pop(invisible_ms=10_000)
    shop.clock.set_wall(shop.clock.wall() - 60_000)
    shop.wait(9_800)
    assert shop.records(RETRY) == []
    shop.wait(800)
    assert len(shop.records(RETRY)) == 1


def test_issue_7724_6652_a_cleaned_message_is_not_replaced_by_the_next_one(shop, monkeypatch):
    shop.send("cleaned", "next")
    shop.pop(invisible_ms=4_000, max_messages=1)
    shop.clean_away(monkeypatch, 0)
    shop.wait(5_000)
    assert shop.records(RETRY) == []


def test_issue_8460_a_failed_read_is_not_taken_for_an_absent_message(shop, monkeypatch):
    shop.send("a")
    shop.pop(invisible_ms=4_000)
    read = shop.broker.store.read

    def failing(topic, *at):
        if topic == "orders":
            raise StoreError("disk does not answer")
        return read(topic, *at)

    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "read", failing)
        shop.wait(6_000)
        assert shop.in_flight == 1
    shop.wait(11_000)
    assert len(shop.records(RETRY)) == 1


def test_issue_8835_bits_acked_before_the_checkpoint_was_written_go_with_it(shop):
    shop.send(*map(str, range(10)))
    messages = shop.pop(invisible_ms=10_000)
    shop.ack(*messages[:7])
    shop.wait(3_200)
    shop.crash()
    shop.wait(8_000)
    assert [record.body for record in shop.records(RETRY)] == [b"7", b"8", b"9"]


def test_issue_7412_every_field_of_a_checkpoint_survives_the_log(shop):
    shop.send(*"abc", tags="x")
    messages = shop.pop(invisible_ms=12_345, expression="x")
    shop.wait(3_200)
    leases = shop.broker.pops.leases
    (position,) = leases.in_flight.due.take(1 << 50, 10)
    logged, _ = leases.log.checkpoint_at(position)
    r = messages[0].receipt
    assert (logged.topic, logged.group, logged.queue_id, logged.broker_name) == (
        "orders",
        "billing",
        0,
        "broker-a",
    )
    assert (logged.start_offset, logged.pop_time, logged.invisible_time) == (0, r.pop_time, 12_345)
    assert (logged.count, logged.diffs, logged.bitmap) == (3, [0, 1, 2], 0)


def test_issue_8479_a_topic_deleted_and_created_again_gets_nothing_of_the_old_one(shop):
    shop.send("old-1", "old-2")
    shop.pop(invisible_ms=10_000)
    shop.wait(3_200)
    asyncio.run(delete_topic("orders", shop.broker))
    shop.broker.topics.ensure("orders", 4)
    shop.send("new-1", "new-2")
    shop.wait(10_000)
    assert [one.body for one in shop.pop()] == ["new-1", "new-2"]
    assert shop.broker.topics.get(RETRY) is None
    assert shop.in_flight == 2


def test_issue_8479_nor_after_a_crash(shop):
    shop.send("old-1", "old-2")
    shop.pop(invisible_ms=10_000)
    shop.wait(3_200)
    asyncio.run(delete_topic("orders", shop.broker))
    shop.broker.topics.ensure("orders", 4)
    shop.broker.topics.save()
    shop.broker.offsets.save()
    shop.send("new-1", "new-2")
    shop.crash()
    assert [one.body for one in shop.pop(invisible_ms=60_000)] == ["new-1", "new-2"]
    shop.wait(12_000)
    assert shop.pop() == []


@pytest.mark.parametrize(
    "jump_ms", [-3_600_000, 0, 3_600_000], ids=["clock set back", "right", "set forward"]
)
def test_issue_8479_nor_when_the_drop_was_not_logged(shop, monkeypatch, jump_ms):
    """The checkpoint's own place in the log tells: what was written after it was not popped by it."""
    shop.clock.set_wall(shop.clock.wall() + jump_ms)
    shop.send("old")
    shop.pop(invisible_ms=10_000)
    shop.wait(3_200)
    monkeypatch.setattr(shop.broker.pops.leases.log, "write_drop", lambda *args: 0)
    asyncio.run(delete_topic("orders", shop.broker))
    shop.broker.topics.ensure("orders", 4)
    shop.broker.topics.save()
    shop.broker.offsets.save()
    shop.send("new")
    shop.crash()
    log = shop.broker.pops.leases.log
    shop.wait(6_000)
    assert log.behind > 0, "its lease is not over"
    shop.wait(2_000)
    assert log.behind == 0
    shop.wait(4_000)
    assert shop.broker.topics.get(RETRY) is None or shop.records(RETRY) == []


def test_issue_8479_nor_are_new_messages_taken_for_old_ones_that_were_done(shop):
    """Found by the model: finished leases of the old topic, still in the log, hid messages of the new one."""
    shop.send("old-1", "old-2")
    shop.pop(invisible_ms=500)
    shop.wait(150_000, step=10_000)  # redelivered; the lane, idle, is forgotten
    asyncio.run(delete_topic("orders", shop.broker))
    shop.broker.topics.ensure("orders", 4)
    shop.broker.topics.save()
    shop.send("new-1", "new-2")
    shop.crash()
    assert [one.body for one in shop.pop()] == ["new-1", "new-2"]


def test_issue_9956_many_checkpoints_due_at_one_time_are_all_passed(shop):
    shop.send(*map(str, range(700)))
    for _ in range(700):
        shop.pop(max_messages=1, invisible_ms=5_000, queue_id=0)
    shop.wait(6_000)
    assert len(shop.records(RETRY)) == 700
    shop.wait(2_000)
    assert shop.broker.pops.leases.log.behind == 0


def test_issue_9921_one_tick_redelivers_a_bounded_number(shop):
    shop.send(*map(str, range(600)))
    for _ in range(600):
        shop.pop(max_messages=1, invisible_ms=1_000, queue_id=0)
    shop.clock.advance(1_500)
    assert shop.revive.tick(shop.clock.now()) == 0, "there is more: it wants to be called again at once"
    assert 0 < len(shop.records(RETRY)) < 600


def test_issue_9318_a_queue_unused_for_long_keeps_its_work(shop):
    shop.send("a", "b")
    first, _ = shop.pop(invisible_ms=3_600_000)
    shop.wait(600_000, step=10_000)
    shop.ack(first)
    assert shop.in_flight == 1
    shop.wait(3_100_000, step=20_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]


def test_issue_11180_offsets_beyond_32_bits():
    flight = InFlight(InForce(BrokerConfig()), lambda lane, offset: None)
    lane = flight.lane("t", "g", 0)
    start = 1 << 40
    flight.lease(lane, LeasedBatch(lane, start, 5, 10_000, 0, 1, 1, (1 << 12,), start + (1 << 12) + 1))
    assert flight.ack(lane, start & 0xFFFFFFFF, 5, 1 << (1 << 12)) == (Matched.UNKNOWN, 0)
    assert flight.ack(lane, start, 5, 1 << (1 << 12)) == (Matched.YOUNG, 1 << (1 << 12))


# -- B. locks, memory, buffers -----------------------------------------------------------------------------------


@pytest.mark.seed("S000-65")
def test_issue_5813_8601_8704_a_failing_read_leaves_the_queue_usable(shop, monkeypatch):
    shop.send("a")
    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "read", _raise)
        assert shop.pop() == []
    assert [one.body for one in shop.pop()] == ["a"]


def _raise(*_args):
    raise StoreError("read failed")


async def test_issue_3491_two_requests_at_once_cannot_lose_each_other(shop):
    """There is no lock to lose: each request runs in one turn. Both waiters are served by two messages."""
    first, second = shop.hold(max_messages=1), shop.hold(max_messages=1)
    await turns()
    shop.send("a", "b")
    bodies = [one.body for held in (first, second) for one in await held]
    assert sorted(bodies) == ["a", "b"]


def test_issue_3521_a_huge_share_number_costs_nothing(shop):
    from aerobee.broker.operations.assignment import share
    from aerobee.protocol.allocation import average
    from aerobee.protocol.bodies import MessageQueue

    queues = [MessageQueue(topic="t", broker_name="b", queue_id=i) for i in range(8)]
    assert len(share("c1", queues, ["c1", "c2", "c3"], 2_000_000_000, average)) == 1


def test_issue_6598_10052_leases_that_cannot_be_written_do_not_pile_up(make_shop, monkeypatch):
    shop = make_shop(pop_checkpoint_cap=10)
    shop.send(*map(str, range(100)))
    monkeypatch.setattr(shop.broker.store, "append", _raise)
    taken = sum(len(shop.pop(max_messages=1)) for _ in range(50))
    assert taken == 10
    assert shop.broker.pops.leases.in_flight.young == 10


async def test_issue_9581_held_requests_of_many_topics_leave_no_trace(shop):
    held = []
    for number in range(200):
        shop.broker.topics.ensure(f"t{number}")
        held.append(shop.hold(topic=f"t{number}", poll_ms=1_000))
    await turns()
    shop.clock.advance(2_000)
    await asyncio.gather(*held)
    parked = shop.broker.pops.parked
    assert (parked._waiting, parked._counts, parked._owners) == ({}, {}, {})
    shop.broker.pops.leases.in_flight.sweep()
    assert shop.broker.pops.leases.in_flight.lanes == {}


def test_issue_7772_the_number_in_flight_is_bounded_in_memory(make_shop):
    shop = make_shop(pop_checkpoint_cap=50)
    shop.send(*map(str, range(1_000)))
    while shop.pop(max_messages=1, queue_id=0):
        assert shop.broker.pops.leases.in_flight.young <= 50
    assert shop.in_flight == 1_000, "the rest is in the revive log"
    assert shop.committed() >= 950


def test_issue_10736_an_ack_in_the_moment_of_journaling_counts(shop):
    shop.send("a", "b")
    first, second = shop.pop(invisible_ms=10_000)
    shop.ack(first)
    shop.wait(3_200)
    shop.ack(second)
    shop.crash()
    shop.wait(12_000)
    assert shop.records(RETRY) == []
    assert shop.pop() == []


# -- C. long polling ---------------------------------------------------------------------------------------------


async def test_issue_6681_9632_an_arrival_in_a_v1_retry_topic_wakes(shop):
    """With underscores in both names: `%RETRY%a_b_c_d` is never parsed, so it cannot be parsed wrongly."""
    shop.broker.topics.ensure("c_d", 1)
    retry = names.pop_retry_topic("c_d", "a_b")
    shop.broker.topics.ensure(retry)
    held = shop.hold(group="a_b", topic="c_d")
    await turns()
    shop.send("again", topic=retry)
    assert [one.body for one in await held] == ["again"]


async def test_issue_8472_a_sparse_filter_reads_on_while_there_is_more(shop):
    shop.send(*("x" for _ in range(3_000)), tags="other")
    shop.send("hit", tags="wanted")
    held = shop.hold(expression="wanted", queue_id=0)
    await turns(20)
    assert [one.body for one in await held] == ["hit"]


@pytest.mark.slow
async def test_a_sparse_filter_reads_on_no_longer_than_its_request_is_held(shop):
    """What matches comes after its time: read on for ever, it would be given to a client that has left."""
    shop.send(*("x" for _ in range(8_000)), tags="other")
    shop.send("hit", tags="wanted")
    request = shop.request(expression="wanted", queue_id=0, poll_ms=1_000)
    task = asyncio.ensure_future(pop(request, shop.broker))  # type: ignore[arg-type]
    await turns(1)
    shop.clock.advance(1_000)
    await turns(30)
    assert (await task).code is ResponseCode.POLLING_TIMEOUT
    assert shop.committed() < 8_000


@pytest.mark.seed("S000-48")
def test_issue_10058_retries_are_read_by_requests_for_one_queue_too(shop):
    shop.broker.topics.ensure(RETRY)
    shop.send(*map(str, range(10)), topic=RETRY)
    assert len(shop.pop(queue_id=3)) == 10


async def test_issue_8592_a_blocked_ordered_queue_does_not_spin(shop):
    shop.send(*map(str, range(10)))
    shop.pop(ordered=True, max_messages=1, invisible_ms=10_000)
    held = shop.hold(ordered=True)
    await turns()  # its second look, then it waits
    looks = 0
    blocked = shop.broker.pops.orders.blocked

    def counted(*args):
        nonlocal looks
        looks += 1
        return blocked(*args)

    shop.broker.pops.orders.blocked = counted
    await turns(50)
    assert looks == 0
    held.cancel()


@pytest.mark.seed("S000-52")
async def test_issue_7986_6496_5839_one_deadline_and_the_answer_comes_before_it(shop):
    request = shop.request(poll_ms=10_000, born_time=shop.clock.now() - 4_000)
    task = asyncio.ensure_future(pop(request, shop.broker))  # type: ignore[arg-type]
    await turns()
    shop.clock.advance(5_949)
    await turns()
    assert not task.done()
    shop.clock.advance(1)
    await turns()
    assert task.done(), "50 ms before its client gives up, by when that asked"
    assert (await task).code is ResponseCode.POLLING_TIMEOUT


# -- D. offsets, filters, reset ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_issue_9339_8268_ranges_without_a_match_are_committed(shop, ordered):
    shop.send(*("x" for _ in range(30)), tags="other")
    shop.pop(expression="wanted", ordered=ordered, queue_id=0)
    assert shop.committed() == 30


def test_issue_7117_9246_9083_where_a_new_group_starts_is_said_and_settled(shop):
    shop.send(*"abc")
    assert shop.pop(group="min", start=Start.MIN)[0].body == "a"
    assert shop.pop(group="max", start=Start.MAX)[0].body == "a", "a young topic is read from its beginning"
    assert shop.committed(group="max") == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_issue_10229_9369_a_reset_clears_block_leases_and_position_at_once(shop, ordered):
    shop.send(*"abcd")
    shop.pop(ordered=ordered, max_messages=3, queue_id=0, invisible_ms=20_000)
    shop.broker.offsets.set_reset("billing", "orders", 0, 1)
    assert [one.body for one in shop.pop(ordered=ordered, queue_id=0, invisible_ms=20_000)] == ["b", "c", "d"]
    shop.wait(21_000)
    retried = [record.body for record in shop.records(RETRY)]
    assert retried == ([] if ordered else [b"a", b"b", b"c", b"d"]), "b and c once, not twice"


def test_issue_10229_a_reset_forward_keeps_what_is_out(shop):
    shop.send(*"abcd")
    (first, *_) = shop.pop(max_messages=2, queue_id=0, invisible_ms=20_000)
    shop.broker.offsets.set_reset("billing", "orders", 0, 4)
    assert shop.pop(queue_id=0) == []
    assert shop.in_flight == 2
    shop.ack(first)
    shop.wait(21_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]


def test_issue_9695_10949_9217_lag_is_exact_and_both_offsets_are_shown(shop):
    shop.send(*map(str, range(10)))
    messages = shop.pop(max_messages=4, queue_id=0)
    shop.ack(messages[2])
    (queue, *_) = lag(shop.broker, "billing", "orders")
    assert (queue.committed, queue.position, queue.max_offset) == (0, 4, 10)
    assert (queue.ready, queue.in_flight, queue.lag) == (6, 3, 9)
    shop.ack(*messages)
    (queue, *_) = lag(shop.broker, "billing", "orders")
    assert (queue.committed, queue.ready, queue.in_flight) == (4, 6, 0)


def test_issue_9703_a_deleted_topic_leaves_no_offsets_leases_or_modes(shop):
    shop.send(*"ab")
    shop.pop(max_messages=1)
    shop.pop(ordered=True, group="ordered", queue_id=0)
    asyncio.run(delete_topic("orders", shop.broker))
    assert shop.broker.offsets.topics_of("billing") == set()
    assert shop.in_flight == 0
    assert shop.broker.pops.orders.keys() == []


# -- E. retry topics, naming, properties ---------------------------------------------------------------------------


def test_issue_7543_9633_10836_11158_names_with_underscores_are_not_mixed_up(shop):
    """Group a of topic b_c and group a_b of topic c share the V1 name: what V2 names are for."""
    for topic in ("b_c", "c"):
        shop.broker.topics.ensure(topic, 1)
    assert names.pop_retry_topic("b_c", "a") == names.pop_retry_topic("c", "a_b")
    assert names.pop_retry_topic_v2("b_c", "a") != names.pop_retry_topic_v2("c", "a_b")
    shop.send("mine", topic="c")
    shop.pop(group="a_b", topic="c", invisible_ms=500)
    shop.wait(1_000)
    (again,) = shop.pop(group="a_b", topic="c")
    assert again.body == "mine"


def test_issue_11158_v2_retry_topics_can_be_created_and_written(make_shop):
    shop = make_shop(pop_retry_v2=True)
    shop.send("a")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    assert shop.broker.topics.get("%RETRY%billing+orders") is not None
    shop.crash()
    assert [one.body for one in shop.pop()] == ["a"]


def test_issue_7208_6751_retry_topics_go_with_their_topic(shop):
    shop.send("a")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    assert shop.broker.topics.get(RETRY) is not None
    asyncio.run(delete_topic("orders", shop.broker))
    assert shop.broker.topics.get(RETRY) is None


def test_issue_7531_a_forwarded_receipt_does_not_confuse(shop):
    """A consumer that sends a popped message on may leave its POP_CK in; the retry copy has none of it."""
    stale = props.render({props.POP_CK: "9 9 9 9 1 elsewhere 9 9"})
    shop.broker.store.append(Record("orders", b"a", stale))
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    assert props.POP_CK not in shop.records(RETRY)[0].properties
    (again,) = shop.pop()
    assert Receipt.parse(again.record.properties[props.POP_CK]).broker_name == "broker-a"


def test_issue_7001_retry_messages_are_keyed_by_their_own_flag(shop):
    shop.broker.topics.ensure(RETRY)
    shop.send("r0", "r1", topic=RETRY)
    shop.send("q0", queue_id=0)
    popped = shop.popped()
    info = ";".join(f"{t.retry} {t.queue_id} {t.start_offset}" for t in popped.taken)
    assert parse_start_offsets(info) == {("0", 0): 0, ("1", 0): 0}


def test_issue_10285_every_answer_has_its_pop_time(shop):
    assert shop.popped().pop_time == shop.clock.now()
    shop.send("a")
    assert shop.popped().pop_time == shop.clock.now()


# -- F. handles, attempts, limits, ordered -----------------------------------------------------------------------


@pytest.mark.parametrize("logged", [False, True])
def test_issue_9583_an_ack_after_a_change_is_effective(shop, logged):
    shop.send(*"abc")
    messages = shop.pop(invisible_ms=20_000)
    if logged:
        shop.wait(3_200)
    shop.ack(shop.change(messages[1], 5_000))
    assert shop.in_flight == 2
    shop.wait(6_000)
    assert shop.records(RETRY) == []


def test_issue_10276_a_change_in_the_same_millisecond_keeps_the_message(shop):
    shop.send("a")
    (one,) = shop.pop(invisible_ms=5_000)
    changed = shop.change(one, 5_000)
    assert changed.receipt.pop_time == one.receipt.pop_time + 1
    assert shop.in_flight == 1
    shop.wait(6_000)
    assert len(shop.records(RETRY)) == 1


def test_issue_8332_the_limit_holds_for_consumers_that_never_answer_in_time(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=3))
    shop.send("a")
    deliveries = 0
    for _ in range(10):
        deliveries += len(shop.pop(invisible_ms=500))
        shop.wait(1_000)
    assert deliveries == 4
    assert len(shop.records(names.dead_letter_topic("billing"))) == 1


def test_issue_7842_a_negative_limit_is_no_limit(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=-1))
    shop.send("a")
    for attempt in range(30):
        (one,) = shop.pop(invisible_ms=500)
        assert one.record.reconsume_times == attempt
        shop.wait(1_000)


def test_issue_10827_the_same_attempt_is_served_again(shop):
    shop.send(*"ab")
    assert len(shop.pop(ordered=True, attempt_id="1")) == 2
    assert len(shop.pop(ordered=True, attempt_id="1")) == 2


def test_issue_8686_8957_not_knowing_is_null_so_clients_keep_what_they_have(shop):
    from aerobee.broker.operations.assignment import query_assignment
    from aerobee.protocol.bodies import AssignmentQuery

    assert query_assignment(AssignmentQuery(topic="orders", consumer_group="billing"), shop.broker) is None


# -- S000: what POP is for ---------------------------------------------------------------------------------------


@pytest.mark.seed("S000-10")
async def test_a_consumer_that_leaves_holds_up_nobody_and_no_rebalance_is_waited_for(shop):
    """What is in its queue is another's at once; what it had is another's when its time is over."""
    shop.send(*map(str, range(40)), queue_id=2)
    left_with = shop.pop(queue_id=-1, invisible_ms=10_000)
    assert len(left_with) == 32
    others = shop.pop(queue_id=-1, invisible_ms=60_000)
    assert {one.body for one in others} == {str(i) for i in range(32, 40)}
    shop.ack(*others)
    waiting = shop.hold(queue_id=-1, poll_ms=20_000)
    await turns()
    shop.wait(9_800)
    assert not waiting.done()
    shop.wait(600)
    assert {one.body for one in await waiting} == {str(i) for i in range(32)}


@pytest.mark.seed("S000-12", "S000-22")
def test_a_hung_consumer_blocks_nobody_and_others_finish_its_messages(shop):
    shop.send(*map(str, range(100)))
    hung = shop.pop(queue_id=0, invisible_ms=30_000)
    assert len(hung) == 32
    done = set()
    for _ in range(200):
        for one in shop.pop(queue_id=0, max_messages=8):
            shop.ack(one)
            done.add(one.body)
        shop.wait(200)
    assert done == {str(i) for i in range(100)}
    assert group_figures("billing", None, shop.broker).in_flight == 0


@pytest.mark.seed("S000-10", "S000-11", "S000-15")
def test_consumers_beyond_the_number_of_queues_all_get_work(shop):
    shop.send(*map(str, range(64)))
    got = [shop.pop(queue_id=0, max_messages=8) for _ in range(8)]
    assert [len(one) for one in got] == [8] * 8


def test_a_lease_given_anew_in_the_millisecond_of_a_reset_keeps_its_own_time(shop):
    """Found by the model: both have the same key, and the log still speaks of the old one."""
    shop.send(*"abcd")
    messages = shop.pop(max_messages=3, queue_id=0, invisible_ms=5_000)
    shop.ack(messages[0], messages[2])
    shop.change(messages[1], 500)
    shop.broker.offsets.set_reset("billing", "orders", 0, 1)
    assert len(shop.pop(queue_id=0, invisible_ms=5_000, max_messages=1)) == 1
    shop.wait(4_800)
    assert shop.records(RETRY) == []
    shop.wait(600)
    assert len(shop.records(RETRY)) == 1


@pytest.mark.seed("S000-20", "S000-28")
@pytest.mark.parametrize("invisible_ms", [300, 20_000])
def test_a_message_split_off_its_batch_survives_a_crash_after_the_batch_was_logged(shop, invisible_ms):
    """Found by the model: the batch's entry in the log does not speak for a message whose time was changed."""
    shop.send("a", "b")
    first, _second = shop.pop(invisible_ms=invisible_ms)
    shop.clock.advance(200)
    shop.change(first, 10_000)
    shop.wait(200 if invisible_ms < 3_000 else 3_200)
    shop.crash()
    shop.wait(30_000)
    assert sorted(one.body for one in shop.pop()) == ["a", "b"]
