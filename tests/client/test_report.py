# SPDX-License-Identifier: Apache-2.0
"""What a consumer tells an operator: its queues, and what its handler made of one message."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.client.consume import report
from aerobee.client.consume.handler import ConsumeResult, Handler, Outcome, Returned
from aerobee.client.consume.membership import PoppedQueue
from aerobee.client.options import Options
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.message import Record


def refuse(message: object) -> None:
    raise ValueError("no such order")


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "CR_SUCCESS"),
        (False, "CR_LATER"),
        (ConsumeResult.SUCCESS, "CR_SUCCESS"),
        (ConsumeResult.RETRY, "CR_LATER"),
        (ConsumeResult.SUSPEND, "CR_LATER"),
        (ConsumeResult.COMMIT, "CR_COMMIT"),
        (Outcome(ConsumeResult.ROLLBACK), "CR_ROLLBACK"),
    ],
)
async def test_a_message_consumed_at_an_operators_word_ends_as_the_handler_says(
    make_member: Any, returned: Returned, told: str
) -> None:
    async def handle(message: Any) -> Returned:
        return returned

    found = await report.consume_directly(make_member(), Handler(handle, 1, 1, "g"), Record("T", b"x"), "a")
    assert (found.consume_result, found.remark, found.order) == (told, None, False)


async def test_an_exception_is_told_by_its_name_and_text(make_member: Any, session: Any) -> None:
    session.options = Options(ordered_auto_commit=False)

    async def handle(message: Any) -> None:
        session.clock.advance(250)
        refuse(message)

    member = make_member(ordered=True)
    found = await report.consume_directly(member, Handler(handle, 1, 1, "g"), Record("T", b"x"), "a")
    assert (found.consume_result, found.remark) == ("CR_THROW_EXCEPTION", "ValueError: no such order")
    assert (found.order, found.auto_commit, found.spent_time_mills) == (True, False, 250)


@pytest.mark.parametrize(
    ("topic", "text", "seen"),
    [
        ("%RETRY%g", "RETRY_TOPIC\x01orders\x02", "orders"),
        ("%RETRY%g", "", "%RETRY%g"),
        ("%RETRY%other", "RETRY_TOPIC\x01orders\x02", "%RETRY%other"),
        ("T", "RETRY_TOPIC\x01orders\x02", "T"),
    ],
)
async def test_a_retry_of_the_own_group_shows_the_topic_it_was_sent_to(
    make_member: Any, topic: str, text: str, seen: str
) -> None:
    topics: list[tuple[str, str]] = []

    async def handle(message: Any) -> None:
        topics.append((message.topic, message.broker_name))

    await report.consume_directly(make_member(), Handler(handle, 1, 1, "g"), Record(topic, b"x", text), "a")
    assert topics == [(seen, "a")]


async def test_a_pulled_queue_is_told_with_what_waits_in_it(
    make_member: Any, make_message: Any, own: Any, session: Any
) -> None:
    member = make_member(ordered=True)
    owned = own(member, 2, 5)
    member.offsets.memory.set(owned.queue, 4)
    owned.inbox.put([make_message(n, body=b"x" * 1_100_000) for n in (5, 6, 7)])
    owned.inbox.take(1)
    owned.inbox.last_lock, owned.inbox.last_pull = 11, 12
    owned.inbox.unlock_attempts = 3
    popped = PoppedQueue(MessageQueue("a", -1, "T"), 99)
    popped.unacked = 8
    member.popped[popped.queue] = popped
    info = report.running_info(member, 1_234)
    told = info.mq_table[owned.queue]
    assert (told.cached_msg_count, told.cached_msg_min_offset, told.cached_msg_max_offset) == (2, 6, 7)
    assert told.cached_msg_size_in_mi_b == 3
    assert (told.transaction_msg_count, told.transaction_msg_min_offset, told.transaction_msg_max_offset) == (
        1,
        5,
        5,
    )
    assert (told.commit_offset, told.locked, told.dropped, told.try_unlock_times) == (4, True, False, 3)
    assert (told.last_lock_timestamp, told.last_pull_timestamp) == (11, 12)
    waiting = info.mq_pop_table[popped.queue]
    assert (waiting.wait_ack_count, waiting.last_pop_timestamp, waiting.dropped) == (8, 99, False)
    assert info.properties["PROP_CONSUMEORDERLY"] == "true"
    assert info.properties["PROP_CONSUMER_START_TIMESTAMP"] == "1234"
    assert info.properties["PROP_NAMESERVER_ADDR"] == session.namesrv
    assert [each.topic for each in info.subscription_set] == ["T"]


async def test_an_empty_queue_is_told_with_zeros(make_member: Any, own: Any) -> None:
    member = make_member()
    assert report.running_info(member, 0).mq_table == {}
    queue = own(member, 1).queue
    empty = report.running_info(member, 0).mq_table[queue]
    assert (empty.cached_msg_min_offset, empty.cached_msg_max_offset, empty.commit_offset) == (0, 0, 0)
    assert (empty.transaction_msg_min_offset, empty.transaction_msg_max_offset) == (0, 0)


def test_results_are_named_by_what_they_are() -> None:
    assert {each.name.lower() for each in ConsumeResult} == {each.value for each in ConsumeResult}


async def test_the_last_offset_told_is_of_what_still_waits(
    make_member: Any, make_message: Any, own: Any
) -> None:
    member = make_member()
    owned, messages = own(member), [make_message(n) for n in (5, 6, 7)]
    owned.inbox.put(messages)
    owned.inbox.remove(messages[1:])
    told = report.running_info(member, 0).mq_table[owned.queue]
    assert (told.cached_msg_count, told.cached_msg_min_offset, told.cached_msg_max_offset) == (1, 5, 5)
