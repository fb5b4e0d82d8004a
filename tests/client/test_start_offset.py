# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aerobee.client.consume.offset_keeper import RemoteOffsets
from aerobee.client.consume.start_offset import StartPoint, start_offset
from aerobee.errors import RequestTimeout
from aerobee.protocol.bodies import ConsumeFromWhere, MessageQueue
from aerobee.protocol.headers.offsets import GetMaxOffset, OffsetResult, QueryConsumerOffset, SearchOffset

QUEUE, RETRY = MessageQueue("a", 0, "T"), MessageQueue("a", 0, "%RETRY%g")
NONE = (22, None, b"")


async def begin(session: Any, start: Any, queue: MessageQueue = QUEUE) -> int:
    session.answers[GetMaxOffset] = [(0, OffsetResult(offset=900), b"")]
    session.answers[SearchOffset] = [(0, OffsetResult(offset=333), b"")]
    return await start_offset(session, RemoteOffsets(session, "g"), StartPoint.of(start), queue)


@pytest.mark.seed("S003-35", "S003-36", "S003-37", "S004-48")
@pytest.mark.parametrize("start", ["first", "last", 1_700_000_000_000])
@pytest.mark.parametrize("stored", [0, 42])
async def test_a_stored_offset_wins_even_zero(session: Any, start: Any, stored: int) -> None:
    session.answers[QueryConsumerOffset] = [(0, OffsetResult(offset=stored), b"")]
    assert await begin(session, start) == stored


@pytest.mark.seed("S003-35", "S003-36", "S003-37", "S003-31")
@pytest.mark.parametrize(
    ("start", "queue", "expected"),
    [
        ("last", QUEUE, 900),
        ("last", RETRY, 0),
        ("first", QUEUE, 0),
        ("first", RETRY, 0),
        (1_700_000_000_000, QUEUE, 333),
        (1_700_000_000_000, RETRY, 900),
    ],
)
async def test_a_new_group_begins_by_the_rule(
    session: Any, start: Any, queue: MessageQueue, expected: int
) -> None:
    session.answers[QueryConsumerOffset] = [NONE]
    assert await begin(session, start, queue) == expected
    for header in session.headers(SearchOffset):
        assert (header.topic, header.queue_id, header.timestamp) == ("T", 0, start)
    for header in session.headers(GetMaxOffset):
        assert (header.topic, header.queue_id) == (queue.topic, queue.queue_id)


@pytest.mark.seed("S003-35", "S003-36", "S003-37", "S003-23")
@pytest.mark.parametrize("start", ["first", "last", 1_700_000_000_000])
@pytest.mark.parametrize("queue", [QUEUE, RETRY])
async def test_an_error_is_raised_and_never_guessed_away(
    session: Any, start: Any, queue: MessageQueue
) -> None:
    session.answers[QueryConsumerOffset] = [RequestTimeout("late")]
    with pytest.raises(RequestTimeout):
        await begin(session, start, queue)


@pytest.mark.seed("S003-35", "S003-37")
@pytest.mark.parametrize(
    ("start", "queue", "asks"),
    [("last", QUEUE, GetMaxOffset), (1_700_000_000_000, QUEUE, SearchOffset), (1, RETRY, GetMaxOffset)],
)
async def test_nor_is_where_to_begin_guessed_when_the_broker_does_not_say_it(
    session: Any, start: Any, queue: MessageQueue, asks: Any
) -> None:
    session.answers[QueryConsumerOffset] = [NONE]
    session.answers[asks] = [RequestTimeout("late")]
    with pytest.raises(RequestTimeout):
        await start_offset(session, RemoteOffsets(session, "g"), StartPoint.of(start), queue)


def test_times_are_taken_in_several_forms() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    epoch = round(moment.timestamp() * 1000)
    assert (
        StartPoint.of(moment)
        == StartPoint.of(epoch)
        == StartPoint(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, epoch)
    )
    local = datetime(2026, 1, 2, 3, 4, 5).astimezone()
    assert StartPoint.of("20260102030405").timestamp == round(local.timestamp() * 1000)
    for wrong in ("yesterday", -1, True, None):
        with pytest.raises(ValueError, match="start is"):
            StartPoint.of(wrong)  # type: ignore[arg-type]


async def test_an_offset_below_zero_is_none(session: Any) -> None:
    """Some brokers say so where a group has none."""
    session.answers[QueryConsumerOffset] = [(0, OffsetResult(offset=-1), b"")]
    assert await begin(session, "last") == 900
