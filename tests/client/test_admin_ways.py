# SPDX-License-Identifier: Apache-2.0
"""Before an admin client asks a broker about a queue it asks where that broker is; every figure has its own place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.admin.brokers import parse_lines
from aerobee.errors import NoRoute, RequestCodeNotSupported
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.bodies.figures import MessageState, Place
from aerobee.protocol.headers.groups import FindMessage
from aerobee.protocol.headers.offsets import SearchOffset
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
