# SPDX-License-Identifier: Apache-2.0
"""A popped message's receipt, made from what the broker says of its queues, and what is done with it."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.client.consume.popped import Lease, add_receipts, pop
from aerobee.errors import SystemFailure
from aerobee.protocol.headers.consume import (
    AckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
    PopMessage,
    PopResult,
)


def result(starts: str | None = None, offsets: str | None = None, orders: str | None = None) -> PopResult:
    return PopResult(
        pop_time=1_000, invisible_time=60_000, revive_qid=3, rest_num=4,
        start_offset_info=starts, msg_offset_info=offsets, order_count_info=orders,
    )  # fmt: skip


def receipts(messages: list[Any], told: PopResult) -> list[str]:
    return add_receipts(messages, told, "b", "T")


def test_each_message_has_the_start_of_its_queue_and_its_own_offset(make_message: Any) -> None:
    messages = [make_message(7, queue_id=1), make_message(3, queue_id=2), make_message(9, queue_id=1)]
    told = result("0 1 6;0 2 3", "0 1 7,9;0 2 3")
    handles = receipts(messages, told)
    assert handles == [
        "6 1000 60000 3 0 b 1 7",
        "3 1000 60000 3 0 b 2 3",
        "6 1000 60000 3 0 b 1 9",
    ]
    assert [message.property("POP_CK") for message in messages] == handles
    assert [message.property("1ST_POP_TIME") for message in messages] == ["1000"] * 3


def test_a_queue_of_which_nothing_is_said_begins_at_its_first_message(make_message: Any) -> None:
    """As brokers before 4.9.3 answer."""
    messages = [make_message(7, queue_id=1), make_message(8, queue_id=1)]
    assert receipts(messages, result()) == ["7 1000 60000 3 0 b 1 7", "7 1000 60000 3 0 b 1 8"]
    messages = [make_message(7, queue_id=1), make_message(8, queue_id=1)]
    assert receipts(messages, result(None, "0 1 5,6")) == ["5 1000 60000 3 0 b 1 5", "5 1000 60000 3 0 b 1 6"]
    messages = [make_message(7, queue_id=1), make_message(8, queue_id=1)]
    assert receipts(messages, result("0 1 2", None)) == ["2 1000 60000 3 0 b 1 7", "2 1000 60000 3 0 b 1 8"]


def test_a_message_of_the_retry_topic_is_told_as_such_and_comes_under_the_topic_asked_for(
    make_message: Any,
) -> None:
    messages = [
        make_message(7, topic="%RETRY%g_T", queue_id=0),
        make_message(8, topic="%RETRY%g+T", queue_id=0),
        make_message(9, queue_id=0),
    ]
    handles = receipts(messages, result("0 0 9;1 0 5;2 0 6", "0 0 9;1 0 7;2 0 8"))
    assert handles == ["5 1000 60000 3 1 b 0 7", "6 1000 60000 3 2 b 0 8", "9 1000 60000 3 0 b 0 9"]
    assert [message.topic for message in messages] == ["T", "T", "T"]


def test_a_receipt_that_the_broker_has_written_itself_stays(make_message: Any) -> None:
    own = "1 500 9000 2 1 b 4 7"
    kept = make_message(7, properties=f"POP_CK\x01{own}\x021ST_POP_TIME\x01400\x02")
    told = result("1 4 1", "1 4 7", "1 4 2")
    assert receipts([kept], told) == [own]
    assert (kept.property("POP_CK"), kept.property("1ST_POP_TIME")) == (own, "400")
    old = make_message(7, properties=f"POP_CK\x01{own}\x02", queue_id=4)
    assert receipts([old], result(None, None, "1 4 2")) == [own], "and what it tells of the retry counts"
    assert old.reconsume_times == 2


def test_tries_are_counted_by_the_queue_or_by_the_message(make_message: Any) -> None:
    messages = [make_message(n, queue_id=n // 10) for n in (10, 11, 20, 30)]
    receipts(messages, result("0 1 10;0 2 20;0 3 30", "0 1 10,11;0 2 20;0 3 30", "0 1 2;0 qo1%11 5;0 2 0"))
    assert [message.reconsume_times for message in messages] == [2, 5, 0, 0]
    kept = make_message(20, queue_id=2, reconsume_times=3)
    receipts([kept], result("0 2 20", "0 2 20", "0 2 0"))
    assert kept.reconsume_times == 3, "nothing is said of it"


async def test_a_pop_is_answered_with_leases_that_end_by_our_own_clock(
    session: Any, encode_messages: Any
) -> None:
    header = PopMessage(
        consumer_group="g", topic="T", queue_id=-1, max_msg_nums=8, invisible_time=60_000, poll_time=5_000,
        born_time=0, init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip
    told = result("0 0 1", "0 0 1,2")
    session.answers[PopMessage] = [
        (0, told, encode_messages(1, 2)),
        (209, told, b""),
        (210, told, encode_messages(1)),
    ]
    answer = await pop(session, "a:1", header)
    until = session.clock.now() + 60_000
    assert (len(answer.messages), answer.rest, answer.full, answer.until) == (2, 4, False, until)
    assert [message.broker_name for message in answer.messages] == ["a", "a"]
    lease: Any = answer.messages[1].lease
    assert lease.receipt == "1 1000 60000 3 0 a 0 2"
    assert (lease.expired(until - 1), lease.expired(until)) == (False, True)
    assert session.asked[0][2] == 5_000 + 10_000
    answer = await pop(session, "a:1", header)
    assert (answer.messages, answer.full) == ([], True)
    answer = await pop(session, "a:1", header)
    assert (answer.messages, answer.full) == ([], False), "only a success brings messages"


def lease(session: Any, receipt: str = "6 1000 60000 3 1 a 4 7", until: int = 1 << 60) -> Lease:
    return Lease(session, "g", "T", receipt, until)


async def test_without_an_open_connection_an_ack_is_a_request_like_others(session: Any) -> None:
    session.answers[AckMessage] = [(0, None, b""), SystemFailure("no")]
    one = lease(session)
    await one.ack()
    ((address, header, _),) = session.asked
    assert address == "a:1"
    assert (header.consumer_group, header.topic, header.queue_id) == ("g", "%RETRY%g_T", 4)
    assert (header.extra_info, header.offset, header.broker_name) == (one.receipt, 7, "a")
    with pytest.raises(SystemFailure):
        await lease(session, until=0).ack()


async def test_a_message_that_is_hidden_has_another_receipt_and_another_end(session: Any) -> None:
    one = lease(session, until=5)
    hidden = ChangeInvisibleResult(pop_time=9_000, invisible_time=30_500, revive_qid=5)

    def answer(*_: Any) -> Any:
        session.clock.advance(700)  # the broker is slow
        return 0, hidden, b""

    session.answers[ChangeInvisible] = answer
    began = session.clock.now()
    await one.hide(30_000, "ValueError: no")
    ((address, header, _),) = session.asked
    assert (address, header.topic, header.queue_id, header.offset) == ("a:1", "%RETRY%g_T", 4, 7)
    assert (header.extra_info, header.invisible_time) == ("6 1000 60000 3 1 a 4 7", 30_000)
    assert (header.consumer_group, header.broker_name, header.failure) == ("g", "a", "ValueError: no")
    assert one.receipt == "7 9000 30500 5 1 a 4 7"
    assert (one.expired(began + 29_999), one.expired(began + 30_000)) == (False, True)
    await one.hide(10)
    assert session.headers(ChangeInvisible)[1].failure is None
