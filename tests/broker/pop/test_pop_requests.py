# SPDX-License-Identifier: Apache-2.0
"""What a pop answers: refusals in RocketMQ's order, which queues it visits, its strings, its offsets."""

from __future__ import annotations

from collections import Counter

import pytest

from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack
from aerobee.clock import ManualClock
from aerobee.errors import (
    GroupNotFound,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    StoreError,
    SubscriptionParseFailed,
    TopicNotFound,
)
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import GroupConfig, TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.headers.consume import PeekMessage, PopMessage, PopResult
from aerobee.protocol.message import Record, decode_all
from aerobee.protocol.receipt import Receipt
from aerobee.store.results import Found, ReadStatus

RETRY = names.pop_retry_topic("orders", "billing")
RETRY_V2 = names.pop_retry_topic_v2("orders", "billing")


def header(shop, **more) -> PopMessage:
    more.setdefault("consumer_group", "billing")
    more.setdefault("topic", "orders")
    more.setdefault("born_time", shop.clock.now())
    more.setdefault("invisible_time", 60_000)
    return PopMessage(**more)


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-44")
@pytest.mark.parametrize(
    ("request_fields", "error"),
    [
        ({"max_messages": 33}, InvalidParameter),
        ({"max_messages": 0}, InvalidParameter),
        ({"topic": "unknown"}, TopicNotFound),
        ({"topic": "closed"}, NoPermission),
        ({"queue_id": 4}, InvalidParameter),
        ({"group": "disabled"}, NoPermission),
        ({"expression": "a >", "expression_type": "SQL92"}, SubscriptionParseFailed),
        ({"expression": "a", "expression_type": "XPATH"}, SubscriptionParseFailed),
    ],
)
def test_refusals(shop, request_fields, error):
    shop.broker.topics.put(TopicConfig(topic_name="closed", perm=2, read_queue_nums=1))
    shop.broker.groups.put(GroupConfig(group_name="disabled", consume_enable=False))
    with pytest.raises(error):
        shop.popped(**request_fields)


def test_the_queues_that_may_be_popped_and_acked_are_those_to_read(shop):
    def queues(read: int, write: int) -> None:
        config = TopicConfig(topic_name="orders", read_queue_nums=read, write_queue_nums=write)
        shop.broker.topics.put(config)

    queues(4, 2)
    shop.send("a", queue_id=3)
    (one,) = shop.pop(queue_id=3)
    one = shop.change(one, 30_000)
    queues(2, 4)
    with pytest.raises(InvalidParameter, match="topic 'orders' has 2 queues to read; asked for 3"):
        shop.popped(queue_id=3)
    with pytest.raises(MessageIllegal, match="topic 'orders' has 2 queues to read; asked for 3"):
        shop.change(one, 30_000)


def test_messages_that_were_popped_are_counted_by_group_and_topic(shop):
    shop.send(*"abc")
    shop.pop(max_messages=2)
    shop.pop(ordered=True, group="other")
    counted = {key: meter.count for key, meter in shop.broker.stats.meters("GROUP_CK")}
    assert counted == {"orders@billing": 2, "orders@other": 3}


@pytest.mark.seed("S000-44")
def test_refusals_come_in_rocketmqs_order(make_shop):
    """Everything is wrong at once; putting right the first refusal brings up the next."""
    shop = make_shop(auto_create_groups=False)
    fields = {"max_messages": 33, "topic": "unknown", "queue_id": 9, "group": "none", "expression": "a >"}
    fields |= {"expression_type": "SQL92", "born_time": 1}
    assert shop.popped(**fields).code is ResponseCode.POLLING_TIMEOUT
    del fields["born_time"]
    for error, name, value in (
        (InvalidParameter, "max_messages", 1),
        (TopicNotFound, "topic", "orders"),
        (InvalidParameter, "queue_id", -1),
        (GroupNotFound, "group", "billing"),
        (SubscriptionParseFailed, "expression", "a > 1"),
    ):
        with pytest.raises(error):
            shop.popped(**fields)
        fields[name] = value
    assert shop.popped(**fields).code is ResponseCode.POLLING_TIMEOUT


def test_a_broker_that_may_not_be_read_refuses(make_shop):
    with pytest.raises(NoPermission):
        make_shop(perm=2).popped()


@pytest.mark.seed("S000-44")
def test_a_request_whose_poll_time_is_over_is_answered_with_zeros_and_no_strings(shop):
    shop.send("a")
    reply = shop.ask(header(shop, born_time=shop.clock.now() - 1_501, poll_time=1_000))
    assert reply.code == ResponseCode.POLLING_TIMEOUT
    assert reply.header == PopResult()
    fresh = shop.ask(header(shop, born_time=shop.clock.now() - 1_500, poll_time=1_000))
    assert fresh.code == 0


def test_a_client_whose_clock_is_behind_is_told_of_once_a_minute(shop, caplog):
    def ask(behind_ms: int, **more) -> None:
        shop.ask(header(shop, born_time=shop.clock.now() - behind_ms, poll_time=1_000, **more))

    ask(3_999)
    assert caplog.messages == [], "that may be the way, or a busy broker"
    ask(1_801_000)
    ask(1_801_000)
    shop.clock.advance(60_000)
    ask(4_000, consumer_group="other")
    first, second = caplog.messages
    assert first.startswith(
        "group=billing topic=orders: a pop whose time was over s=1800.0 ago by its client's clock"
    )
    assert first.endswith("clock=server.clock")
    assert second.startswith("group=other topic=orders: a pop whose time was over s=3.0 ago")


def test_an_unknown_group_is_created_on_use(shop):
    shop.send("a")
    assert len(shop.pop(group="new")) == 1
    assert shop.broker.groups.get("new") is not None


# -- the answer ----------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-16", "S000-53", "S000-63", "S000-66", "S000-72", "S000-50")
def test_the_answer_of_a_pop_over_several_queues_and_the_retry_topic(shop):
    shop.broker.topics.ensure(RETRY)
    shop.send("r0", topic=RETRY)
    shop.send("q0-0", "q0-1", queue_id=0)
    shop.send("q3-0", queue_id=3)
    shop.draws(99)  # queues 3, 0, 1, 2, then retries
    reply = shop.ask(header(shop))
    assert reply.code == 0
    assert reply.remark == "FOUND"
    result = reply.header
    assert result.pop_time == shop.clock.now()
    assert result.invisible_time == 60_000
    assert 0 <= result.revive_qid < 8
    assert result.rest_num == 0
    assert result.start_offset_info == "0 3 0;0 0 0;1 0 0"
    assert result.msg_offset_info == "0 3 0;0 0 0,1;1 0 0"
    assert result.order_count_info is None
    records = list(decode_all(reply.body))
    assert [record.body for record in records] == [b"q3-0", b"q0-0", b"q0-1", b"r0"]
    assert [record.topic for record in records] == ["orders"] * 4
    expected = f"0 {result.pop_time} 60000 {result.revive_qid} 1 broker-a 0 0"
    assert records[3].properties[props.POP_CK] == expected
    assert all(props.POP_CK not in record.properties for record in records[:3])


@pytest.mark.seed("S000-72")
def test_the_pop_time_is_one_and_the_same_though_time_goes_on_meanwhile(shop, monkeypatch):
    shop.broker.topics.ensure(RETRY)
    shop.send("r", topic=RETRY)
    for queue_id in (0, 1, 3):
        shop.send("q", queue_id=queue_id)
    monkeypatch.setattr(ManualClock, "wall", lambda clock: clock.advance(1) or clock.now())
    reply = shop.ask(header(shop))
    lanes = shop.broker.pops.leases.in_flight.lanes.values()
    checkpoints = [checkpoint for lane in lanes for checkpoint in lane.young.values()]
    assert [checkpoint.pop_time for checkpoint in checkpoints] == [reply.header.pop_time] * 4
    (handle,) = [r.properties[props.POP_CK] for r in decode_all(reply.body) if props.POP_CK in r.properties]
    assert Receipt.parse(handle).pop_time == reply.header.pop_time


@pytest.mark.seed("S000-16", "S000-53")
def test_every_message_has_a_handle_that_acks_it_and_no_other_in_batches_of_up_to_32(shop):
    for topic in (RETRY, RETRY_V2):
        shop.broker.topics.ensure(topic)
        shop.send(*(f"{topic} {number}" for number in range(3)), topic=topic)
    shop.send(*map(str, range(20)), queue_id=0)
    shop.send(*map(str, range(20)), queue_id=1)
    shop.draws(0)
    reply = shop.ask(header(shop, max_msg_nums=32))
    records = list(decode_all(reply.body))
    assert len(records) == 32
    assert reply.header.rest_num == 14
    for at, record in enumerate(records[:6]):
        version, offset = divmod(at, 3)
        receipt = Receipt.parse(record.properties[props.POP_CK])
        assert (receipt.retry, receipt.queue_id, receipt.start_offset, receipt.offset) == (
            str(version + 1), 0, 0, offset
        )  # fmt: skip
        topic = receipt.real_topic("orders", "billing")
        ack(Ack("billing", topic, 0, receipt.offset, receipt), shop.broker)
        lane = shop.broker.pops.leases.in_flight.lanes[topic, "billing", 0]
        assert [o for each in lane.young.values() for o in each.open_offsets] == [*range(offset + 1, 3)]
    assert all(props.POP_CK not in record.properties for record in records[6:]), "of their client's making"


@pytest.mark.seed("S000-52", "S000-53")
def test_nothing_there_and_no_poll_time_is_a_timeout_with_the_whole_header(shop):
    reply = shop.ask(header(shop))
    assert reply.code == ResponseCode.POLLING_TIMEOUT
    assert reply.remark == "NO_MESSAGE_IN_QUEUE"
    assert (reply.header.pop_time, reply.header.invisible_time) == (shop.clock.now(), 60_000)
    assert (reply.header.start_offset_info, reply.header.msg_offset_info) == ("", "")


@pytest.mark.seed("S000-60", "S000-57")
def test_rest_counts_what_was_not_taken_in_the_queues_visited(shop):
    shop.send(*"abc", queue_id=0)
    shop.send(*"de", queue_id=1)
    shop.draws(0 + 20)  # starts at queue 0
    popped = shop.popped(max_messages=2)
    assert len(popped.messages) == 2
    assert popped.rest == 3


@pytest.mark.seed("S000-57", "S000-58", "S000-60")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("most", [1, 2, 5, 6, 7, 14, 32])
def test_rest_is_what_waits_for_the_group_and_was_not_taken_wherever_it_stands(shop, ordered, most):
    """In every queue: where it was taken from, where there was no room left, where the group is half through."""
    for queue_id, count in enumerate((3, 5, 0, 9)):
        shop.send(*(str(i) for i in range(count)), queue_id=queue_id)
    for queue_id in (0, 1):  # two of each are done
        shop.ack(*shop.pop(queue_id=queue_id, max_messages=2, ordered=ordered))
    waiting, shop_draws = 13, 20
    shop.draws(shop_draws)
    popped = shop.popped(max_messages=most, ordered=ordered)
    assert len(popped.messages) == min(most, waiting)
    assert popped.rest == waiting - len(popped.messages)


@pytest.mark.seed("S000-50")
def test_the_revive_queue_is_chosen_in_turn_once_per_request(shop):
    shop.send("a", queue_id=0)
    shop.send("b", queue_id=1)
    queues = [shop.popped(group=f"g{i}").revive_queue for i in range(16)]
    assert sorted(queues) == sorted([*range(8)] * 2)
    assert len({one.receipt.revive_qid for one in shop.pop()}) == 1


# -- which queues --------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-32", "S000-45", "S000-46")
@pytest.mark.parametrize(("drawn", "first"), [(0, "retry"), (19, "retry"), (20, "normal"), (99, "normal")])
def test_one_in_five_pops_reads_the_retry_topic_first(shop, drawn, first):
    shop.broker.topics.ensure(RETRY)
    shop.send("retry", topic=RETRY)
    for queue_id in range(4):
        shop.send("normal", queue_id=queue_id)
    shop.draws(drawn)
    assert [one.body for one in shop.pop(max_messages=1)] == [first]


@pytest.mark.seed("S000-32", "S000-45", "S000-47")
def test_the_lot_falls_on_each_of_a_hundred_alike(shop, monkeypatch):
    monkeypatch.setattr(shop, "draws", lambda *numbers: None)
    shop.restart()
    drawn = Counter(shop.broker.pops.draw() for _ in range(20_000))
    assert set(drawn) == set(range(100))
    retries_first = sum(count for number, count in drawn.items() if number < 20)
    assert 3_500 < retries_first < 4_500, "nine times what chance could do"


@pytest.mark.seed("S000-48")
def test_a_batch_that_is_not_full_is_filled_from_the_retry_topic(shop):
    shop.broker.topics.ensure(RETRY)
    shop.send("retry", topic=RETRY)
    shop.send("normal")
    assert [one.body for one in shop.pop()] == ["normal", "retry"]


@pytest.mark.seed("S000-47")
def test_any_queue_begins_where_chance_says_and_a_named_queue_is_the_only_one(shop):
    for queue_id in range(4):
        shop.send(f"q{queue_id}", queue_id=queue_id)
    shop.draws(22)
    assert [one.body for one in shop.pop(group="g1")] == ["q2", "q3", "q0", "q1"]
    assert [one.body for one in shop.pop(group="g2", queue_id=1)] == ["q1"]


@pytest.mark.seed("S000-49")
def test_ordered_pops_never_read_retries_and_use_queue_999(shop):
    shop.broker.topics.ensure(RETRY)
    shop.send("retry", topic=RETRY)
    shop.send("a")
    shop.draws(0)
    popped = shop.popped(ordered=True)
    assert len(popped.messages) == 1
    assert popped.revive_queue == 999


@pytest.mark.seed("S000-68")
def test_a_retry_topic_that_does_not_exist_is_skipped_silently(shop):
    shop.draws(0)
    assert shop.popped().rest == 0
    assert shop.broker.topics.get(RETRY) is None


@pytest.mark.seed("S000-15", "S000-26", "S000-54", "S000-65")
def test_many_consumers_pop_one_queue_and_nobody_gets_the_same_message(shop):
    """One turn of the loop per request stands for RocketMQ's queue lock: it cannot be lost or leaked."""
    shop.send(*map(str, range(100)))
    bodies = [one.body for _ in range(40) for one in shop.pop(max_messages=3, queue_id=0)]
    assert bodies == [str(i) for i in range(100)]


@pytest.mark.seed("S000-58")
def test_a_pop_reads_no_more_than_it_has_room_for(shop):
    shop.send(*"abcdef")
    assert [one.body for one in shop.pop(max_messages=4)] == [*"abcd"]
    assert [one.body for one in shop.pop(max_messages=4)] == [*"ef"]


@pytest.mark.seed("S004-58")
def test_a_pop_of_what_has_left_memory_takes_eight_of_a_queue(shop):
    shop.send(*map(str, range(40)))
    shop.send(*map(str, range(10)), queue_id=1)
    shop.broker.store.memory_bytes = 0
    popped = shop.popped()
    assert [len(taken.offsets) for taken in popped.taken] == [8, 8]
    assert popped.rest == 34
    assert shop.broker.stats.behind("billing", "orders", 0)[0] > 0


@pytest.mark.seed("S000-61", "S000-79")
@pytest.mark.parametrize("ordered", [False, True])
def test_statistics_count_messages_and_bytes_of_every_queue_by_group_and_for_the_broker(shop, ordered):
    shop.broker.topics.ensure(RETRY)
    shop.send("again", topic=RETRY)
    for queue_id, size in ((0, 5_000), (1, 10), (3, 1)):
        shop.send("x" * size, "y", queue_id=queue_id)
    popped = shop.popped(ordered=ordered)
    shop.popped(group="audit", queue_id=0, max_messages=1, ordered=ordered)
    stats = shop.broker.stats
    sizes = {q: [record.size for record in shop.records("orders", q)] for q in (0, 1, 3)}
    expected = {
        "orders@billing": (6, sum(map(sum, sizes.values()))),
        "orders@audit": (1, sizes[0][0]),
    }
    if not ordered:
        expected[f"{RETRY}@billing"] = (1, shop.records(RETRY)[0].size)
    assert {key: (meter.count, meter.size_bytes) for key, meter in stats.meters("GROUP_GET")} == expected
    assert stats.get_count == len(popped.messages) + 1 == sum(count for count, _ in expected.values())
    assert stats.get_bytes == sum(size for _, size in expected.values())


# -- offsets -------------------------------------------------------------------------------------------------


def test_a_new_group_starts_at_the_oldest_message_or_at_the_newest(shop):
    shop.send(*"abc")
    assert [one.body for one in shop.pop(group="first", start=Start.MIN)] == [*"abc"]
    assert [one.body for one in shop.pop(group="young", start=Start.MAX)] == [*"abc"], (
        "message 0 is in memory"
    )
    shop.broker.store.memory_bytes = 0
    assert [one.body for one in shop.pop(group="last", start=Start.MAX)] == ["c"]
    assert shop.committed(group="last") == 2


def test_a_group_that_stands_at_the_first_message_is_no_new_one(shop):
    shop.send("a", "b")
    shop.broker.offsets.set("billing", "orders", 0, 0)
    shop.broker.store.memory_bytes = 0  # a topic that is not young: a new group begins at its newest message
    assert [one.body for one in shop.pop(group="new", start=Start.MAX, queue_id=0)] == ["b"]
    assert [one.body for one in shop.pop(start=Start.MAX, queue_id=0)] == ["a", "b"]


def test_a_retry_topic_is_always_read_from_its_beginning(shop):
    shop.broker.store.memory_bytes = 0
    shop.broker.topics.ensure(RETRY)
    shop.send("r1", "r2", topic=RETRY)
    assert [one.body for one in shop.pop(start=Start.MAX)] == ["r1", "r2"]


@pytest.mark.seed("S000-55")
def test_the_next_read_is_after_what_is_popped_though_not_committed(shop):
    shop.send(*"abcd")
    shop.pop(max_messages=2)
    assert shop.committed() == 0
    assert [one.body for one in shop.pop()] == ["c", "d"]
    shop.broker.offsets.set("billing", "orders", 0, 4)  # moved on by another hand: the newer one counts
    shop.send("e")
    assert [one.body for one in shop.pop()] == ["e"]


@pytest.mark.seed("S000-14")
def test_progress_is_the_brokers_and_passes_only_the_acked_prefix(shop):
    shop.send(*"abcdef")
    first, second, third = shop.pop(max_messages=2), shop.pop(max_messages=2), shop.pop(max_messages=2)
    shop.ack(*second)
    assert shop.committed() == 0
    shop.ack(first[1])
    assert shop.committed() == 0
    shop.ack(first[0])
    assert shop.committed() == 4
    shop.ack(*third)
    assert shop.committed() == 6


@pytest.mark.seed("S000-59", "S000-70")
@pytest.mark.parametrize("saved", [50, 10_000])
def test_an_offset_that_does_not_exist_is_corrected_committed_and_read_again(shop, saved):
    shop.send(*"abc")
    shop.broker.offsets.set("billing", "orders", 0, saved)
    assert shop.pop(queue_id=0) == [], "past the end: nothing there yet"
    assert shop.committed() == 3
    shop.send("d")
    (one,) = shop.pop(queue_id=0)
    assert (one.body, one.receipt.start_offset) == ("d", 3)


@pytest.mark.seed("S000-59", "S000-70")
def test_an_offset_that_was_cleaned_away_moves_to_the_oldest_message(shop, monkeypatch):
    shop.send(*"abc")
    shop.broker.offsets.set("billing", "orders", 0, 0)
    read = shop.broker.store.read

    def cleaned(topic, queue_id, offset, *more):
        if (topic, queue_id, offset) == ("orders", 0, 0):
            return Found(ReadStatus.OFFSET_TOO_SMALL, 2, 2, 3)
        return read(topic, queue_id, offset, *more)

    monkeypatch.setattr(shop.broker.store, "read", cleaned)
    (one,) = shop.pop(queue_id=0)
    assert (one.body, one.receipt.start_offset) == ("c", 2)
    assert shop.committed() == 2


@pytest.mark.seed("S000-64")
def test_a_range_without_a_match_moves_progress(shop):
    shop.send(*map(str, range(100)), tags="other")
    assert shop.pop(expression="wanted", queue_id=0) == []
    assert shop.committed() == 100
    assert shop.logged == []


@pytest.mark.seed("S000-64")
def test_a_range_without_a_match_behind_a_lease_moves_progress_with_it(shop):
    shop.send("hit", tags="wanted")
    shop.send(*map(str, range(50)), tags="other")
    (one,) = shop.pop(expression="wanted", queue_id=0, max_messages=1)
    assert shop.pop(expression="wanted", queue_id=0) == []
    assert shop.committed() == 0
    shop.ack(one)
    assert shop.committed() == 51


@pytest.mark.seed("S000-62", "S000-64")
def test_ordered_pops_commit_the_start_of_the_batch_and_ranges_without_a_match(shop):
    shop.send(*map(str, range(10)), tags="other")
    shop.send("hit", tags="wanted")
    shop.send("more", tags="other")
    (one,) = shop.pop(expression="wanted", queue_id=0, ordered=True)
    assert one.body == "hit"
    assert shop.committed() == 0
    shop.ack(one)
    assert shop.committed() == 11
    shop.pop(expression="wanted", queue_id=0, ordered=True)
    assert shop.committed() == 12


@pytest.mark.seed("S000-17", "S000-58", "S000-63")
def test_gaps_left_by_a_filter_are_in_the_strings_and_can_be_acked(shop):
    for number in range(6):
        shop.send(str(number), tags="even" if number % 2 == 0 else "odd")
    popped = shop.popped(expression="odd", queue_id=0)
    assert popped.taken[0].start_offset == 0
    assert popped.taken[0].offsets == [1, 3, 5]
    shop.restart()
    messages = shop.pop(expression="odd", queue_id=0)
    assert messages == []
    assert shop.in_flight == 3


def test_sql_filters_work_whatever_the_property_filter_switch_says(make_shop):
    shop = make_shop(property_filter=False)
    shop.send("cheap", price="1")
    shop.send("dear", price="100")
    (one,) = shop.pop(expression="price > 50", expression_type="SQL92")
    assert one.body == "dear"


@pytest.mark.seed("S000-69", "S000-71")
def test_a_queue_that_cannot_be_read_is_left_out_and_the_others_are_still_read(shop, monkeypatch, caplog):
    shop.send("a", "c", queue_id=0)
    shop.send("b", queue_id=1)
    read = shop.broker.store.read

    def broken(topic, queue_id, *more):
        if (topic, queue_id) == ("orders", 0):
            raise StoreError("bad sector")
        return read(topic, queue_id, *more)

    monkeypatch.setattr(shop.broker.store, "read", broken)
    popped = shop.popped()
    assert len(popped.messages) == 1
    assert popped.rest == 2, "what the broken queue holds"
    assert "bad sector" in caplog.text


@pytest.mark.seed("S000-73")
def test_messages_that_cannot_be_leased_are_not_returned_but_counted(make_shop, monkeypatch):
    shop = make_shop(pop_checkpoint_cap=1)
    shop.send("a", queue_id=0)
    shop.send("b", queue_id=1)

    def full(*_args):
        raise StoreError("no space")

    monkeypatch.setattr(shop.broker.store, "append", full)
    popped = shop.popped()
    assert len(popped.messages) == 1, "the table holds one, and the log refuses to take it"
    assert popped.rest == 1
    monkeypatch.undo()
    shop.wait(1_000)
    assert len(shop.pop()) == 1


@pytest.mark.seed("S000-14")
def test_what_a_pop_subscribes_is_remembered_without_a_heartbeat(shop):
    shop.pop(expression="paid")
    assert shop.broker.clients.subscription("billing", "orders") is not None


# -- peek ----------------------------------------------------------------------------------------------------


def test_a_peek_takes_nothing(shop):
    shop.send(*"abc")
    for _ in range(2):
        reply = shop.ask(PeekMessage(consumer_group="billing", topic="orders", queue_id=-1, max_msg_nums=2))
        assert reply.code == 0
        assert [record.body for record in decode_all(reply.body)] == [b"a", b"b"]
        assert reply.header.rest_num == 1
        assert reply.header.pop_time == 0
    assert shop.committed() == -1
    assert len(shop.pop()) == 3
    empty = shop.ask(PeekMessage(consumer_group="billing", topic="orders", queue_id=-1, max_msg_nums=2))
    assert empty.code == ResponseCode.PULL_NOT_FOUND


def test_an_old_receipt_in_a_message_is_replaced_by_the_good_one(shop):
    shop.broker.topics.ensure(RETRY)
    shop.broker.store.append(Record(RETRY, b"r", props.render({props.POP_CK: "1 2 3 4 1 other 0 9"})))
    (one,) = shop.pop()
    assert one.record.properties[props.POP_CK] == one.receipt.text
