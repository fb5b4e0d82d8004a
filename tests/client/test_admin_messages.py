# SPDX-License-Identifier: Apache-2.0
"""Messages that the admin client looks for: by key, by id, by offset, and dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.client.admin.messages import as_new
from aerobee.errors import QueryNotFound
from aerobee.protocol import bodies, message
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import BrokerData, MessageQueue
from aerobee.protocol.headers.consume import LitePullMessage, PullResult
from aerobee.protocol.headers.offsets import (
    QueryMessage,
    ViewMessage,
)
from aerobee.protocol.message import offset_message_id
from tests.client.admin_parts import PATIENCE_MS, Parts


@pytest.fixture
def parts(session: Any) -> Parts:
    session.know("T", brokers=("a", "b"), queues=2)
    return Parts(session)


# -- messages --------------------------------------------------------------------------------------------------


def stored(offset: int, text: str = "", at: int = 0, topic: str = "T") -> bytes:
    record = message.Record(
        topic, b"body", text, queue_offset=offset, physical_offset=offset * 100, store_timestamp=at
    )
    return message.encode(record)


def pulled(*offsets: int, following: int, code: int = 0) -> Any:
    result = PullResult(next_begin_offset=following, min_offset=0, max_offset=99)
    return code, result, b"".join(stored(offset) for offset in offsets)


QUEUE = MessageQueue("a", 0, "T")


@pytest.mark.parametrize(
    ("begin", "end", "answers", "found", "asked"),
    [
        (0, 3, [pulled(0, 1, 2, following=3)], [0, 1, 2], [(0, 3)]),
        (0, None, [pulled(*range(32), following=32), pulled(32, 33, following=34)], [*range(34)],
         [(0, 32), (32, 2)]),
        (0, 40, [pulled(following=5, code=20), pulled(5, 6, following=7), pulled(following=7, code=19)],
         [5, 6], [(0, 32), (5, 32), (7, 32)]),
        (2, 4, [pulled(2, 3, 4, 5, following=6)], [2, 3], [(2, 2)]),
        (2, 9, [pulled(2, following=2)], [2], [(2, 7)]),
        (4, 4, [], [], []),
    ],
)  # fmt: skip
async def test_a_queue_is_browsed_from_the_first_up_to_the_last_and_never_without_end(
    parts: Parts, begin: int, end: int | None, answers: Any, found: list[int], asked: list[tuple[int, int]]
) -> None:
    parts.offsets(0, 34)
    parts.session.answers[LitePullMessage] = list(answers)
    browsed = [each.queue_offset async for each in parts.messages.browse(QUEUE, begin, end)]
    assert browsed == found
    headers = parts.session.headers(LitePullMessage)
    assert [(each.queue_offset, each.max_msg_nums) for each in headers] == asked
    assert {each.consumer_group for each in headers} <= {"TOOLS_CONSUMER"}


async def test_a_message_at_an_offset_is_that_one_or_none(parts: Parts) -> None:
    parts.session.answers[LitePullMessage] = [pulled(7, following=8), pulled(9, following=10)]
    assert (await parts.messages.message_at(QUEUE, 7)).queue_offset == 7
    with pytest.raises(QueryNotFound, match="has no message at offset 8"):
        await parts.messages.message_at(QUEUE, 8)


async def test_messages_with_a_key_come_by_their_time_and_only_those(parts: Parts) -> None:
    keyed = "KEYS\x01k other\x02"
    parts.session.answers[QueryMessage] = [
        (0, None, stored(1, keyed, at=300) + stored(2, "KEYS\x01no\x02", at=50)),
        (0, None, stored(3, keyed, at=200) + stored(4, keyed, at=100, topic="same-hash")),
    ]
    found = await parts.messages.messages_by_key("T", "k", max_messages=5, begin=10, end=20)
    assert [(each.queue_offset, each.broker_name) for each in found] == [(3, "b"), (1, "a")]
    asked = parts.session.headers(QueryMessage)[0]
    assert (asked.topic, asked.key, asked.max_num, asked.unique_key) == ("T", "k", 5, False)
    assert (asked.begin_timestamp, asked.end_timestamp) == (10, 20)
    assert {timeout_ms for _, _, timeout_ms in parts.session.asked} == {2 * PATIENCE_MS}
    parts.session.answers[QueryMessage] = [QueryNotFound("none"), (0, None, stored(3, keyed))]
    assert [each.queue_offset for each in await parts.messages.messages_by_key("T", "k")] == [3]


async def test_a_message_is_found_by_the_producers_id_the_brokers_or_neither(parts: Parts) -> None:
    theirs = stored(5, "UNIQ_KEY\x01ID\x02") + stored(6, "UNIQ_KEY\x01OTHER\x02")
    parts.session.answers[QueryMessage] = lambda *_: (0, None, theirs)
    assert (await parts.messages.message_by_id("OTHER", "T")).queue_offset == 6
    assert parts.session.headers(QueryMessage)[0].unique_key is True
    with pytest.raises(QueryNotFound, match="'GONE' is unknown; it is no id of a broker either"):
        await parts.messages.message_by_id("GONE", "T")

    here = "127.0.0.1:10911"
    parts.table["GetClusterInfo"] = bodies.ClusterInfo(
        broker_addr_table={"a": BrokerData(broker_name="a", cluster="c", broker_addrs={0: here})},
        cluster_addr_table={"c": ["a"]},
    )
    parts.session.answers[ViewMessage] = lambda *_: (0, None, stored(8))
    by_broker = offset_message_id(b"\x7f\0\0\x01\0\0\x2a\x9f", 4_096)
    assert (await parts.messages.message_by_id(by_broker, "T")).queue_offset == 8
    address, header, timeout_ms = parts.session.asked[-1]
    assert (address, header.offset, header.topic, timeout_ms) == (here, 4_096, "T", PATIENCE_MS)
    elsewhere = offset_message_id(b"\x7f\0\0\x02\0\0\x2a\x9f", 4_096)
    with pytest.raises(QueryNotFound, match=r"is not found by key, and 127\.0\.0\.2:10911 is no broker here"):
        await parts.messages.message_by_id(elsewhere, "T")


async def test_without_its_topic_a_message_is_looked_for_in_all_of_users(parts: Parts) -> None:
    topics = [f"T{n:02}" for n in range(40)]
    parts.table["AllTopics"] = bodies.TopicList(topic_list=topics)
    for topic in topics[1:]:  # T00 was deleted meanwhile
        parts.session.know(topic, queues=1)
    there = {"T37": stored(5, "UNIQ_KEY\x01ID\x02")}
    parts.session.answers[QueryMessage] = lambda address, header, body: (
        (0, None, there[header.topic]) if header.topic in there else QueryNotFound("none")
    )
    assert (await parts.messages.message_by_id("ID")).queue_offset == 5
    assert len(parts.session.headers(QueryMessage)) == 39
    with pytest.raises(QueryNotFound, match="'NONE' is unknown"):
        await parts.messages.message_by_id("NONE")


async def test_dead_letters_of_every_queue_are_told_and_none_is_no_error(parts: Parts) -> None:
    assert [each async for each in parts.messages.dead_letters("g")] == []
    parts.session.know("%DLQ%g", queues=2)
    parts.offsets(3, 5)
    parts.session.answers[LitePullMessage] = [pulled(3, 4, following=5), pulled(3, 4, following=5)]
    found = [each.queue_offset async for each in parts.messages.dead_letters("g")]
    assert found == [3, 4, 3, 4]
    headers = parts.session.headers(LitePullMessage)
    assert [(each.topic, each.queue_id, each.queue_offset) for each in headers] == [
        ("%DLQ%g", 0, 3), ("%DLQ%g", 1, 3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("named", "topic"),
    [
        ({"RETRY_TOPIC": "T"}, "T"),
        ({"DLQ_ORIGIN_TOPIC": "U"}, "U"),
        ({"RETRY_TOPIC": "T", "DLQ_ORIGIN_TOPIC": "U"}, "T"),
    ],
)
def test_a_dead_letter_goes_as_new_to_where_it_came_from(
    make_message: Any, named: dict[str, str], topic: str
) -> None:
    own = {"colour": "red", "KEYS": "k1 k2", "__SHARDINGKEY": "s", "DELAY": "3", **named}
    letter = make_message(5, tags="paid", flag=9, properties=props.render(own), reconsume_times=16)
    again = as_new(letter)
    assert (again.topic, again.body, again.tags, list(again.keys)) == (topic, b"body", "paid", ["k1", "k2"])
    assert (again.sharding_key, again.flag, again.message_id, again.delay_level) == ("s", 9, None, 0)
    assert again.properties == {"colour": "red", "ORIGIN_MESSAGE_ID": "ID5"}


def test_a_dead_letter_of_nowhere_is_said(make_message: Any) -> None:
    with pytest.raises(ValueError, match="dead letter ID5 does not say which topic it came from"):
        as_new(make_message(5))


@pytest.mark.parametrize(
    ("choose", "again"), [(None, [1, 2, 3]), (lambda letter: letter.queue_offset != 2, [1, 3])]
)
async def test_dead_letters_are_sent_again_all_or_those_that_are_chosen(
    parts: Parts, make_message: Any, monkeypatch: pytest.MonkeyPatch, choose: Any, again: list[int]
) -> None:
    sent: list[Any] = []

    class Sends:
        def __init__(self, session: Any, *, group: str) -> None:
            assert (session, group) == (parts.messages._session, "aerobee-resend")

        async def __aenter__(self) -> Sends:
            return self

        async def __aexit__(self, *_: object) -> None:
            sent.append("left")

        async def send(self, message: Any) -> str:
            sent.append(message)
            return f"sent {message.topic}"

    async def letters(group: str) -> Any:
        assert group == "g"
        for offset in (1, 2, 3):
            yield make_message(offset, topic="%DLQ%g", properties="RETRY_TOPIC\x01orders\x02")

    monkeypatch.setattr("aerobee.client.admin.messages.Producer", Sends)
    monkeypatch.setattr(parts.messages, "dead_letters", letters)
    assert await parts.messages.resend_dead_letters("g", choose=choose) == ["sent orders"] * len(again)
    *messages, left = sent
    assert [each.properties["ORIGIN_MESSAGE_ID"] for each in messages] == [f"ID{n}" for n in again]
    assert left == "left"


async def test_at_most_sixty_four_of_a_key_are_asked_for_unless_it_is_said(parts: Parts) -> None:
    parts.session.answers[QueryMessage] = lambda *_: (22, None, b"")
    assert await parts.messages.messages_by_key("T", "k") == []
    await parts.messages.messages_by_key("T", "k", max_messages=5, begin=7, end=9)
    asked = parts.session.headers(QueryMessage)
    assert {(each.key, each.max_num, each.begin_timestamp, each.end_timestamp) for each in asked} == {
        ("k", 64, 0, 2**63 - 1), ("k", 5, 7, 9)
    }  # fmt: skip
