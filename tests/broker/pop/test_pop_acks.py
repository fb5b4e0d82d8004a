# SPDX-License-Identifier: Apache-2.0
"""Ack, batch ack and change of invisible time, on the wire: codes, idempotence, receipts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.errors import MessageIllegal, NoMessage, SystemFailure, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.bodies import BatchAck, BatchAckEntry, encode
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.headers.consume import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
)
from aerobee.protocol.receipt import bits_text

RETRY = names.pop_retry_topic("orders", "billing")


def ack_header(one, **more) -> AckMessage:
    fields = {
        "consumer_group": one.group,
        "topic": one.topic,
        "queue_id": one.receipt.queue_id,
        "extra_info": one.receipt.text,
        "offset": one.receipt.offset,
    }
    return AckMessage(**fields | more)


def change_header(one, invisible_time: int, **more) -> ChangeInvisible:
    header = msgspec.structs.asdict(ack_header(one, **more))
    return ChangeInvisible(**header, invisible_time=invisible_time)


def entry(*messages, **more) -> BatchAckEntry:
    r = messages[0].receipt
    fields = {
        "consumer_group": messages[0].group,
        "topic": "orders",
        "retry": r.retry,
        "start_offset": r.start_offset,
        "queue_id": r.queue_id,
        "revive_queue_id": r.revive_qid,
        "pop_time": r.pop_time,
        "invisible_time": r.invisible_time,
        "bits": bits_text(one.receipt.offset - r.start_offset for one in messages),
    }
    return BatchAckEntry(**fields | more)


def batch(*entries: BatchAckEntry) -> bytes:
    return encode(BatchAck(acks=list(entries), broker_name="broker-a"))


@pytest.fixture
def popped(shop: Any) -> list[Any]:
    shop.send(*"abc")
    return shop.pop(invisible_ms=20_000)


# -- ack -------------------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-25", "S000-67")
def test_an_ack_is_answered_with_the_code_only(shop, popped):
    reply = shop.ask(ack_header(popped[0]))
    assert (reply.code, reply.header, reply.body) == (0, None, b"")
    assert shop.in_flight == 2


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "unknown"}, TopicNotFound),
        ({"queue_id": -1}, MessageIllegal),
        ({"queue_id": 4}, MessageIllegal),
        ({"offset": -1}, NoMessage),
        ({"offset": 4}, NoMessage),
        ({"extra_info": "0 1 2 3 0"}, SystemFailure),
        ({"extra_info": "0 one 2 3 0 broker-a 0 0"}, SystemFailure),
    ],
)
def test_what_cannot_be_an_ack_of_a_message_here_is_refused(shop, popped, fields, error):
    with pytest.raises(error):
        shop.ask(ack_header(popped[0], **fields))
    assert shop.in_flight == 3


def test_an_ack_at_the_end_of_the_queue_is_accepted_and_a_change_is_not(shop, popped):
    """RocketMQ's ranges differ by one: ack up to max, change below it."""
    assert shop.ask(ack_header(popped[0], offset=3)).code == 0
    assert shop.ask(change_header(popped[0], 1_000, offset=3)).code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize(
    "foreign",
    [
        {"extra_info": "0 1600000000000 60000 0 0 broker-a 0 0"},  # another pop
        {"extra_info": "7 1700000000000 60000 0 0 broker-a 0 0"},  # another start
        {"extra_info": "-1 -1 -1 -1 0 broker-a 0 0"},
        {"extra_info": f"0 {1 << 70} 1 0 0 broker-a 0 0"},
        {"consumer_group": "another"},
        {"offset": 2, "queue_id": 0, "extra_info": "1 1700000000000 60000 0 0 broker-a 0 2"},
    ],
)
def test_expired_unknown_and_foreign_receipts_are_answered_as_success_and_change_nothing(
    shop, popped, foreign
):
    assert shop.ask(ack_header(popped[0], **foreign)).code == 0
    assert shop.in_flight == 3


def test_acking_twice_is_success_and_counts_once(shop, popped):
    for _ in range(2):
        assert shop.ask(ack_header(popped[1])).code == 0
    assert shop.in_flight == 2


def test_an_ack_after_the_redelivery_changes_nothing(shop, popped):
    shop.wait(21_000)
    assert len(shop.records(RETRY)) == 3
    assert shop.ask(ack_header(popped[0])).code == 0
    again = shop.pop()
    assert len(again) == 3


def test_older_clients_may_send_a_shorter_handle(shop, popped):
    r = popped[0].receipt
    short = f"{r.start_offset} {r.pop_time} {r.invisible_time} {r.revive_qid} 0 broker-a"
    assert shop.ask(ack_header(popped[0], extra_info=short)).code == 0
    assert shop.in_flight == 2


def test_a_handle_of_a_grpc_client_has_a_ninth_field(shop, popped):
    text = popped[0].receipt._replace(commit_log_offset=4711).text
    assert shop.ask(ack_header(popped[0], extra_info=text)).code == 0
    assert shop.in_flight == 2


# -- batch ack ---------------------------------------------------------------------------------------------------


def test_a_batch_acks_what_its_bits_say(shop, popped):
    assert shop.ask(BatchAckMessage(), batch(entry(popped[0], popped[2]))).code == 0
    assert shop.in_flight == 1
    shop.wait(3_200)
    shop.ask(BatchAckMessage(), batch(entry(*popped)))
    assert shop.in_flight == 0
    assert shop.logged == ["ck", "ack"]


@pytest.mark.seed("S000-29", "S000-30")
def test_a_batch_for_a_logged_checkpoint_is_one_log_entry(shop, popped):
    shop.wait(3_200)
    shop.ask(BatchAckMessage(), batch(entry(*popped)))
    assert shop.logged == ["ck", "bAck"]
    shop.crash()
    assert shop.pop() == []
    assert shop.in_flight == 0


def test_a_batch_takes_several_queues_and_retry_topics_at_once(shop):
    shop.send("a", queue_id=0)
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    shop.send("b", queue_id=1)
    messages = shop.pop()
    assert {one.topic for one in messages} == {"orders", RETRY}
    assert shop.ask(BatchAckMessage(), batch(*(entry(one) for one in messages))).code == 0
    assert shop.in_flight == 0


def test_long_member_names_are_read_too(shop, popped):
    names_of = {
        "c": "consumerGroup", "t": "topic", "r": "retry", "so": "startOffset", "q": "queueId", "rq": "reviveQueueId",
        "pt": "popTime", "it": "invisibleTime", "b": "bitSet",
    }  # fmt: skip
    short = msgspec.to_builtins(entry(*popped))
    body = {"brokerName": "broker-a", "acks": [{names_of[k]: v for k, v in short.items()}]}
    assert shop.ask(BatchAckMessage(), msgspec.json.encode(body)).code == 0
    assert shop.in_flight == 0


@pytest.mark.parametrize(
    "wrong",
    [{"topic": "unknown"}, {"queue_id": 9}, {"queue_id": -1}, {"start_offset": 1_000}, {"start_offset": -50}],
)
def test_entries_that_fit_no_queue_are_skipped_silently(shop, popped, wrong):
    assert shop.ask(BatchAckMessage(), batch(entry(*popped, **wrong), entry(popped[0]))).code == 0
    assert shop.in_flight == 2


@pytest.mark.parametrize("wrong", [{"retry": "7"}, {"bits": ""}, {"bits": "!!"}])
def test_an_entry_that_cannot_be_read_fails_the_whole_request(shop, popped, wrong):
    with pytest.raises(SystemFailure):
        shop.ask(BatchAckMessage(), batch(entry(popped[0]), entry(popped[1], **wrong)))
    assert shop.in_flight == 3


@pytest.mark.parametrize("body", [b"", b'{"acks":[]}', b'{"brokerName":"b"}'])
def test_an_empty_batch_is_no_message(shop, body):
    with pytest.raises(NoMessage):
        shop.ask(BatchAckMessage(), body)


# -- change of invisible time --------------------------------------------------------------------------------------


@pytest.mark.seed("S000-20")
@pytest.mark.parametrize("logged", [False, True])
def test_a_message_is_visible_again_at_the_changed_time(shop, popped, logged):
    began = 3_200 if logged else 0
    shop.wait(began)
    longer = shop.change(popped[0], 40_000)
    sooner = shop.change(popped[1], 6_000)
    assert longer.receipt.start_offset == longer.receipt.offset == 0
    shop.wait(5_800)
    assert shop.records(RETRY) == []
    shop.wait(600)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]
    shop.wait(14_000 - began)
    assert [record.body for record in shop.records(RETRY)] == [b"b", b"c"]
    shop.wait(19_200)
    assert [record.body for record in shop.records(RETRY)] == [b"b", b"c"]
    shop.wait(800 + began)
    assert [record.body for record in shop.records(RETRY)] == [b"b", b"c", b"a"]
    assert sooner.body == "b"


def test_the_answer_carries_the_new_receipts_values(shop, popped):
    shop.clock.advance(50)
    reply = shop.ask(change_header(popped[1], 30_000))
    assert reply.code == 0
    r = popped[1].receipt
    expected = ChangeInvisibleResult(
        pop_time=shop.clock.now(), invisible_time=30_000, revive_qid=r.revive_qid
    )
    assert reply.header == expected


@pytest.mark.seed("S000-20")
@pytest.mark.parametrize("logged", [False, True])
def test_the_new_receipt_acks_and_the_old_one_does_not(shop, popped, logged):
    if logged:
        shop.wait(3_200)
    changed = shop.change(popped[0], 30_000)
    shop.ack(popped[0])
    assert shop.in_flight == 3
    shop.ack(changed)
    assert shop.in_flight == 2
    shop.ack(*popped[1:])
    shop.wait(60_000)
    assert shop.records(RETRY) == []
    assert shop.committed() == 3


@pytest.mark.parametrize("logged", [False, True])
def test_changing_again_and_again_keeps_one_lease(shop, popped, logged):
    if logged:
        shop.wait(3_200)
    one = popped[0]
    for _ in range(5):
        one = shop.change(one, 10_000)
        shop.wait(1_000)
    assert shop.in_flight == 3
    shop.crash()
    assert [x.body for x in shop.pop()] == [], "all three are leased, in the log by now"
    shop.ack(one)
    assert shop.in_flight == 2


def test_a_lease_renewed_all_the_time_does_not_hold_the_groups_progress_for_ever(shop, popped):
    one = popped[0]
    shop.ack(*popped[1:])
    for _ in range(8):
        one = shop.change(one, 10_000)
        shop.wait(600)
    assert shop.committed() == 3
    assert "ck" in shop.logged


@pytest.mark.seed("S000-20")
def test_zero_gives_the_message_back_at_once(shop, popped):
    shop.change(popped[0], 0)
    shop.wait(200)
    assert [record.body for record in shop.records(RETRY)] == [b"a"]


def test_less_than_nothing_is_as_zero_also_for_the_log(shop, popped):
    assert shop.change(popped[0], -5_000).receipt.invisible_time == -5_000, "answered as it was said"
    shop.restart()
    shop.wait(400)
    assert [record.body for record in shop.records(RETRY)] == [b"a"]
    assert shop.broker.stats.skipped.count == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "unknown"}, 17),
        ({"queue_id": 9}, 13),
        ({"offset": 3}, 208),
        ({"offset": -1}, 208),
        ({"extra_info": "x"}, 1),
    ],
)
def test_refused_changes_carry_the_header_with_zeros(shop, popped, fields, code):
    reply = shop.ask(change_header(popped[0], 1_000, **fields))
    assert reply.code == code
    assert reply.header == ChangeInvisibleResult()


def test_a_change_of_an_unknown_receipt_is_success_without_effect(shop, popped):
    shop.ack(popped[0])
    assert shop.ask(change_header(popped[0], 1_000)).code == 0
    assert shop.in_flight == 2
    shop.wait(10_000)
    assert shop.records(RETRY) == []


def test_a_message_of_a_retry_topic_is_changed_and_acked_under_its_real_topic(shop):
    shop.send("a")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    (one,) = shop.pop(invisible_ms=10_000)
    changed = shop.change(one, 500)
    shop.wait(1_000)
    (again,) = shop.pop()
    assert again.record.reconsume_times == 2
    shop.ack(changed)
    assert shop.in_flight == 1
    shop.ack(again)
    assert shop.in_flight == 0


# -- what its topic no longer serves -----------------------------------------------------------------------------


def test_a_message_may_be_answered_when_it_is_too_old_to_be_served(shop, popped):
    """It was handed out before: an ack that is not taken would bring it again."""
    shop.broker.store.serve_since("orders", 0, shop.clock.now() + 1)
    assert shop.broker.store.bounds("orders", 0) == (3, 3)
    assert shop.ask(BatchAckMessage(), batch(entry(popped[0], popped[1]))).code == 0
    changed = shop.change(popped[2], 60_000)
    shop.ack(changed)
    assert shop.in_flight == 0


def test_a_pop_goes_on_where_the_served_messages_begin(shop):
    shop.send("old")
    shop.clock.advance(hours=2)
    shop.send("new")
    shop.broker.offsets.set("billing", "orders", 0, 0)
    shop.broker.store.serve_since("orders", 0, shop.clock.now() - 1)
    found = shop.pop() or shop.pop()
    assert [one.record.body for one in found] == [b"new"]
