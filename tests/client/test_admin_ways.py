# SPDX-License-Identifier: Apache-2.0
"""Before an admin client asks a broker about a queue it asks where that broker is; every figure has its own place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.admin.brokers import parse_lines
from aerobee.errors import NoRoute, RequestCodeNotSupported
from aerobee.protocol import message
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.bodies.figures import MessageState, Place
from aerobee.protocol.headers.consume import LitePullMessage, PullResult
from aerobee.protocol.headers.groups import FindMessage
from aerobee.protocol.headers.offsets import QueryMessage, SearchOffset
from aerobee.protocol.ids import UniqueIds
from tests.client.admin_parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN, QUEUE = MessageQueue("a", 3, "nowhere"), MessageQueue("a", 3, "T")


@pytest.fixture
def parts(session: Any) -> Parts:
    return Parts(session)


@pytest.mark.parametrize(
    "ask",
    [
        lambda progress: progress.offset("g", UNKNOWN),
        lambda progress: progress.set_offset("g", UNKNOWN, 5),
        lambda progress: progress.offset_range(UNKNOWN),
        lambda progress: progress.offset_at(UNKNOWN, 5),
        lambda progress: progress.message_state("g", UNKNOWN, 5),
    ],
    ids=["offset", "set_offset", "offset_range", "offset_at", "message_state"],
)
async def test_the_route_of_a_queue_is_asked_for_first(parts: Parts, ask: Callable[[Any], Any]) -> None:
    with pytest.raises(NoRoute, match="nowhere is unknown"):
        await ask(parts.progress)
    assert parts.session.asked == []


async def test_an_offset_by_time_is_asked_for_in_milliseconds(parts: Parts) -> None:
    parts.offsets(0, 9, at_time=4)
    moment = datetime(2027, 1, 1, 0, 0, 0, 123_600, tzinfo=UTC)
    assert await parts.progress.offset_at(QUEUE, moment) == 4
    assert await parts.progress.offset_at(QUEUE, 77) == 4
    asked = [(each.topic, each.queue_id, each.timestamp) for each in parts.session.headers(SearchOffset)]
    assert asked == [("T", 3, round(moment.timestamp() * 1000)), ("T", 3, 77)]
    assert await parts.progress.offset_range(QUEUE) == (0, 9)


async def test_where_a_message_is_may_be_told_or_not_known(parts: Parts) -> None:
    state = MessageState(group="g", place=Place.LEASED, leased_until=9)
    parts.answer(FindMessage, state, RequestCodeNotSupported("what?"))
    assert await parts.progress.message_state("g", QUEUE, 5) == state
    assert await parts.progress.message_state("g", QUEUE, 5) is None
    (first, _) = parts.session.headers(FindMessage)
    assert (first.consumer_group, first.topic, first.queue_id, first.offset) == ("g", "T", 3, 5)
    assert parts.asked() == [("a:1", 6_000)] * 2


def test_settings_are_lines_of_names_and_values() -> None:
    text = "# a = comment\na=1\n b = two words \nc=x=y\nempty=\nno value\n"
    assert parse_lines(text) == {"a": "1", "b": "two words", "c": "x=y", "empty": ""}


# -- messages -------------------------------------------------------------------------------------------------------


def stored(offset: int, text: str = "", at: int = 0, topic: str = "T", body: bytes = b"body") -> bytes:
    return message.encode(
        message.Record(topic, body, text, queue_offset=offset, physical_offset=offset, store_timestamp=at)
    )


async def test_an_id_that_tells_its_time_is_looked_for_from_an_hour_before_and_another_from_the_first(
    parts: Parts,
) -> None:
    parts.session.answers[QueryMessage] = lambda *_: (0, None, stored(1, "UNIQ_KEY\x01NAME\x02"))
    await parts.messages.message_by_id("NAME", "T")
    made = UniqueIds(b"\x7f\0\0\x01", 7, parts.session.clock).next()
    born = parts.session.clock.wall()
    parts.session.answers[QueryMessage] = lambda *_: (0, None, stored(1, f"UNIQ_KEY\x01{made}\x02"))
    await parts.messages.message_by_id(made, "T")
    by_name, by_id = parts.session.headers(QueryMessage)
    assert (by_name.begin_timestamp, by_name.end_timestamp, by_name.max_num) == (0, 2**63 - 1, 32)
    assert born - by_id.begin_timestamp == 3_600_000


async def test_all_copies_under_an_id_are_asked_for_at_every_broker(parts: Parts) -> None:
    own, other = "UNIQ_KEY\x01ID\x02", "UNIQ_KEY\x01OTHER\x02"
    parts.session.answers[QueryMessage] = [
        (0, None, stored(1, own, at=300, topic="%RETRY%g") + stored(2, other)),
        (0, None, stored(3, own, at=200, topic="%RETRY%g")),
    ]
    found = await parts.messages.copies("kept-in", "ID")
    assert [(each.queue_offset, each.topic, each.broker_name) for each in found] == [
        (3, "kept-in", "b"),
        (1, "kept-in", "a"),
    ]
    header = parts.session.headers(QueryMessage)[0]
    assert (header.topic, header.key, header.max_num, header.unique_key) == ("kept-in", "ID", 32, True)
    assert (header.begin_timestamp, header.end_timestamp) == (0, 2**63 - 1)


async def test_notes_about_a_message_are_told_in_the_order_they_happened(parts: Parts) -> None:
    def before(at: int, message_id: str) -> str:
        return f"SubBefore\x01{at}\x01null\x01g\x01R\x01{message_id}\x010\x01k\x02"

    assert await parts.messages.trace("ID", "no-traces") == []
    parts.session.know("TR", brokers=("a",))
    body = (before(50, "ID") + before(10, "OTHER") + before(20, "ID")).encode()
    note = stored(1, "KEYS\x01ID OTHER\x02", topic="TR", body=body)
    parts.session.answers[QueryMessage] = lambda *_: (0, None, note)
    found = await parts.messages.trace("ID", "TR")
    assert [(each.record.at, each.record.message_id) for each in found] == [(20, "ID"), (50, "ID")]
    assert {each.by for each in found} == {"127.0.0.1:0"}


async def test_browsing_is_nobodys_consuming(parts: Parts) -> None:
    result = PullResult(next_begin_offset=2, min_offset=0, max_offset=9)
    parts.session.answers[LitePullMessage] = [(0, result, stored(0) + stored(1))]
    assert [each.queue_offset async for each in parts.messages.browse(QUEUE, 0, 2)] == [0, 1]
    (asked,) = parts.session.headers(LitePullMessage)
    assert (asked.consumer_group, asked.subscription, asked.sub_version) == ("TOOLS_CONSUMER", "*", 0)
    assert (asked.suspend_timeout_millis, asked.commit_offset) == (0, 0)
