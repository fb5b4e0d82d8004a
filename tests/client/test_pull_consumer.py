# SPDX-License-Identifier: Apache-2.0
"""The pull consumer's own work: what it fetches when, what a poll hands out, and what then counts as consumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.consume.membership import OwnedQueue
from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.consume.raw_pull import PullStatus
from aerobee.client.options import Options
from aerobee.errors import FlowControl, NetworkError, NoPermission
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.headers.consume import LitePullMessage, PullResult
from aerobee.protocol.headers.offsets import GetMaxOffset, GetMinOffset, OffsetResult

Q0, Q1 = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T")


@pytest.fixture
async def reader(session: Any) -> Any:
    """A consumer on the fake session that owns two queues; nothing is fetched unless a test says so."""
    consumer = PullConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, clock=session.clock)
    consumer.session = consumer._member.session = session
    consumer._member.offsets._session = consumer._place._session = session  # type: ignore[attr-defined]
    session.consumers["g"] = consumer
    consumer._last_commit = session.clock.now()
    for queue in (Q0, Q1):
        consumer._member.pulled[queue] = OwnedQueue(queue, 0, session.clock.now())
    yield consumer
    await consumer._tasks.cancel()


def found(next_offset: int, body: bytes = b"", code: int = 0) -> Any:
    return code, PullResult(next_begin_offset=next_offset, min_offset=0, max_offset=99), body


async def fetch(reader: Any, session: Any, queue: MessageQueue, *answers: Any) -> int | None:
    session.answers[LitePullMessage] = list(answers)
    waited: int | None = await reader._fetch_once(reader._member.pulled[queue])
    return waited


async def test_what_was_fetched_is_polled_in_order_and_no_more_than_asked_for(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    assert await fetch(reader, session, Q0, found(3, encode_messages(0, 1, 2))) == 0
    assert await fetch(reader, session, Q1, found(2, encode_messages(0, 1))) == 0
    assert [m.queue_offset for m in await reader.poll(2, timeout_ms=0)] == [0, 1]
    assert [m.queue_offset for m in await reader.poll(2, timeout_ms=0)] == [2, 0]
    assert [m.queue_offset for m in await reader.poll(timeout_ms=0)] == [1]
    assert await reader.poll(timeout_ms=0) == []
    assert [header.queue_offset for header in session.headers(LitePullMessage)] == [0, 0]
    assert reader._member.pulled[Q0].next_offset == 3


@pytest.mark.seed("S004-50", "S004-51")
async def test_a_pull_by_hand_is_one_request_of_what_was_asked_and_keeps_nothing(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    session.answers[LitePullMessage] = [
        NetworkError("gone"),
        found(9, encode_messages(7, 8)),
        found(9, code=19),
    ]
    with pytest.raises(NetworkError):
        await reader.pull(Q1, 7)
    answer = await reader.pull(Q1, 7, max_messages=5, hold_ms=2_000)
    assert ([m.queue_offset for m in answer.messages], answer.next_offset) == ([7, 8], 9)
    answer = await reader.pull(Q1, 9, expression="A")
    assert (answer.status, answer.messages, answer.next_offset) == (PullStatus.NO_NEW_MESSAGE, [], 9)
    asked = [
        (h.queue_id, h.queue_offset, h.max_msg_nums, h.subscription, h.suspend_timeout_millis)
        for h in session.headers(LitePullMessage)
    ]
    assert asked == [(1, 7, 32, "*", 0), (1, 7, 5, "*", 2_000), (1, 9, 32, "A", 0)]
    assert await reader.poll(timeout_ms=0) == [], "beside poll"
    assert reader._member.offsets.memory.snapshot() == {}, "and beside what the group has consumed"


async def test_a_poll_ends_as_soon_as_something_comes(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    polling = asyncio.ensure_future(reader.poll(timeout_ms=60_000))
    await asyncio.sleep(0)
    assert not polling.done()
    await fetch(reader, session, Q0, found(1, encode_messages(0)))
    assert [m.queue_offset for m in await polling] == [0]


async def test_a_poll_raises_what_is_refused_at_once_and_each_time_it_is_refused_once(
    reader: Any, session: Any
) -> None:
    polling = asyncio.ensure_future(reader.poll(timeout_ms=60_000))
    await asyncio.sleep(0)
    assert await fetch(reader, session, Q0, NoPermission("not yours")) == 30_000
    with pytest.raises(NoPermission, match="not yours"):
        await polling
    assert await reader.poll(timeout_ms=0) == []
    await fetch(reader, session, Q0, NoPermission("still not"))
    with pytest.raises(NoPermission, match="still not"):
        await reader.poll(timeout_ms=0)


async def test_what_is_dropped_while_it_waits_is_not_handed_out(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    await fetch(reader, session, Q0, found(2, encode_messages(0, 1)))
    await fetch(reader, session, Q1, found(1, encode_messages(7)))
    reader._member.pulled[Q0].inbox.dropped = True
    assert [m.queue_offset for m in await reader.poll(timeout_ms=0)] == [7]


@pytest.mark.parametrize(
    ("answer", "wait_ms"),
    [(FlowControl("slow down"), 20), (NetworkError("gone"), 1_000), ((1, None, b""), 1_000)],
)
async def test_after_a_failed_pull_it_waits(reader: Any, session: Any, answer: Any, wait_ms: int) -> None:
    assert await fetch(reader, session, Q0, answer) == wait_ms
    assert reader._member.pulled[Q0].next_offset == 0


async def test_nothing_is_fetched_of_a_queue_that_is_paused_dropped_or_not_subscribed(
    reader: Any, session: Any
) -> None:
    reader.pause([Q0])
    session.clock.advance(500)
    assert await fetch(reader, session, Q0) == 1_000
    assert reader._member.pulled[Q0].inbox.last_pull == session.clock.now() - 500, "a pause is no pull"
    reader.resume([Q0])
    reader._member.subscriptions.remove("T")
    assert await fetch(reader, session, Q0) == 1_000
    reader._member.pulled[Q0].inbox.dropped = True
    assert await fetch(reader, session, Q0) is None
    assert session.asked == []


async def test_a_queue_that_is_resumed_is_fetched_again_and_only_that(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    reader.pause([Q0, Q1])
    reader.resume([Q0])
    assert await fetch(reader, session, Q0, found(1, encode_messages(0))) == 0
    assert await fetch(reader, session, Q1) == 1_000


async def test_nothing_is_fetched_while_too_much_waits_to_be_polled(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    session.options = Options(poll_messages=1)
    assert await fetch(reader, session, Q0, found(1, encode_messages(0))) == 0
    assert await fetch(reader, session, Q1, found(1, encode_messages(0))) == 0, "one may wait"
    assert await fetch(reader, session, Q0) == 50
    await reader.poll(timeout_ms=0)
    assert await fetch(reader, session, Q0, found(1, code=19)) == 0


async def test_an_offset_that_is_not_there_is_left_for_the_nearest(
    reader: Any, session: Any, caplog: Any
) -> None:
    reader._member.pulled[Q0].next_offset = 100
    assert await fetch(reader, session, Q0, found(42, code=21)) == 0
    assert reader._member.pulled[Q0].next_offset == 42
    assert "offset=100 of queue=T/a/0 is outside min=0 max=99, next=42" in caplog.text


async def test_a_reset_is_told_as_one(reader: Any, session: Any, caplog: Any) -> None:
    caplog.set_level("INFO", "aerobee.client.fetch")
    reader._member.pulled[Q0].next_offset = 99
    await fetch(reader, session, Q0, found(0, code=21))
    assert reader._member.pulled[Q0].next_offset == 0
    assert "goes on at offset=0, it was at offset=99" in caplog.text
    assert "outside" not in caplog.text


@pytest.mark.seed("S003-6")
@pytest.mark.parametrize("trouble", [NetworkError("gone"), RuntimeError("a mistake of ours")])
async def test_a_fetch_goes_on_by_itself_until_the_queue_is_dropped(
    reader: Any, session: Any, settle: Any, trouble: Exception
) -> None:
    owned = reader._member.pulled[Q0]
    answers = [trouble, found(5, code=19)]
    held = asyncio.get_running_loop().create_future()
    session.answers[LitePullMessage] = lambda *_: answers.pop(0) if answers else held
    reader._start_fetching(owned)
    await settle()
    assert len(session.asked) == 1
    session.clock.advance(1_000)
    await settle()
    assert [header.queue_offset for header in session.headers(LitePullMessage)] == [0, 0, 5]
    owned.inbox.dropped = True
    held.set_result(found(6, code=19))
    await settle()
    assert owned.fetching.done()


async def test_what_was_polled_counts_at_a_poll_after_the_interval(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    await fetch(reader, session, Q0, found(3, encode_messages(0, 1, 2)))
    await reader.poll(2, timeout_ms=0)
    session.clock.advance(4_999)
    await reader.poll(1, timeout_ms=0)
    assert reader.status("T") == {}, "not yet"
    session.clock.advance(1)
    await reader.poll(timeout_ms=0)
    assert reader.status("T") == {Q0: 3}
    assert session.sent == [], "the timer reports it"


async def test_without_automatic_commits_only_commit_counts(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    session.options = Options(auto_commit_ms=0)
    await fetch(reader, session, Q0, found(3, encode_messages(0, 1, 2)))
    await reader.poll(2, timeout_ms=0)
    session.clock.advance(60_000)
    await reader.poll(1, timeout_ms=0)
    assert reader.status("T") == {}
    await reader.commit()
    assert [(header.queue_id, header.commit_offset) for _, header, _ in session.sent] == [(0, 3)]


async def test_progress_of_a_queue_that_was_lost_is_not_told(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    for queue in (Q0, Q1):
        await fetch(reader, session, queue, found(1, encode_messages(0)))
    await reader.poll(timeout_ms=0)
    reader._member.pulled[Q0].inbox.dropped = True
    del reader._member.pulled[Q1]
    await reader.commit()
    assert session.sent == []


async def test_wrong_arguments_are_refused_at_the_call(reader: Any, session: Any) -> None:
    for wrong, call in (
        ("max_messages is 0; ask for at least one", lambda: reader.poll(0)),
        ("timeout_ms is -1; it cannot be negative", lambda: reader.poll(timeout_ms=-1)),
        ("max_messages is 0; ask for at least one", lambda: reader.pull(Q0, 0, max_messages=0)),
        ("offset is -1; it cannot be negative", lambda: reader.pull(Q0, -1)),
        ("offset -1 of queue", lambda: reader.commit({Q0: -1})),
        ("is not assigned to this consumer", lambda: reader.seek(MessageQueue("a", 7, "T"), 0)),
    ):
        with pytest.raises(ValueError, match=wrong):
            await call()
    with pytest.raises(TypeError, match="was given topics and shares their queues"):
        await reader.assign([Q0])
    assert session.asked == []


async def test_a_seek_goes_on_elsewhere_and_forgets_what_was_fetched(
    reader: Any, session: Any, encode_messages: Any, settle: Any
) -> None:
    session.answers[GetMinOffset] = lambda *_: (0, OffsetResult(offset=10), b"")
    session.answers[GetMaxOffset] = lambda *_: (0, OffsetResult(offset=20), b"")
    await fetch(reader, session, Q0, found(13, encode_messages(10, 11, 12)))
    await fetch(reader, session, Q1, found(8, encode_messages(7)))
    session.answers[LitePullMessage] = lambda *_: asyncio.get_running_loop().create_future()
    for wrong in (9, 21):
        with pytest.raises(ValueError, match="which has 10 to 20"):
            await reader.seek(Q0, wrong)
    for right in (20, 10):
        await reader.seek(Q0, right)
        await settle()
        assert session.headers(LitePullMessage)[-1].queue_offset == right
    assert [m.queue_offset for m in await reader.poll(timeout_ms=0)] == [7], "of the other queue"
    assert reader.status("T") == {Q0: 10}


async def test_what_was_polled_counts_at_the_first_poll_after_each_interval(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    memory = reader._member.offsets.memory
    for offset in range(3):
        await fetch(reader, session, Q0, found(offset + 1, encode_messages(offset)))
    for advance, known in ((0, None), (4_999, None), (1, 2), (0, 2), (4_999, 2), (1, 3)):
        session.clock.advance(advance)
        await reader.poll(1, timeout_ms=0)
        assert memory.get(Q0) == known, advance


async def test_a_queue_that_is_begun_elsewhere_forgets_what_was_fetched_of_it(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    await fetch(reader, session, Q0, found(3, encode_messages(0, 1, 2)))
    await fetch(reader, session, Q1, found(1, encode_messages(0)))
    owned = reader._member.pulled[Q0]
    owned.fetching = fetching = asyncio.ensure_future(asyncio.Event().wait())
    reader._restart(owned, 8)
    await reader._tasks.cancel()
    await asyncio.wait([fetching])
    assert fetching.cancelled()
    assert (owned.inbox.count, reader._buffer.count, owned.next_offset) == (0, 1, 8)
    assert reader._member.offsets.memory.get(Q0) == 8
    await fetch(reader, session, Q0, found(9, encode_messages(8)))
    assert [m.queue_offset for m in await reader.poll(timeout_ms=0)] == [0, 8]
    await reader.commit()
    assert {header.queue_id: header.commit_offset for _, header, _ in session.sent} == {0: 9, 1: 1}


@pytest.mark.parametrize(("offset", "good"), [(1, False), (2, True), (9, True), (10, False)])
async def test_a_reader_may_go_to_any_offset_from_the_first_to_the_next_that_is_written(
    reader: Any, session: Any, offset: int, good: bool
) -> None:
    session.answers[GetMinOffset] = [(0, OffsetResult(offset=2), b"")]
    session.answers[GetMaxOffset] = [(0, OffsetResult(offset=9), b"")]
    if good:
        await reader.seek(Q0, offset)
        assert reader._member.pulled[Q0].next_offset == offset
    else:
        with pytest.raises(ValueError, match=f"offset {offset} is outside of queue T/a/0, which has 2 to 9"):
            await reader.seek(Q0, offset)


async def test_a_commit_after_a_seek_reports_where_it_went_and_not_what_was_polled_before(
    reader: Any, session: Any, encode_messages: Any
) -> None:
    session.answers[GetMinOffset] = lambda *_: (0, OffsetResult(offset=0), b"")
    session.answers[GetMaxOffset] = lambda *_: (0, OffsetResult(offset=9), b"")
    await fetch(reader, session, Q0, found(3, encode_messages(0, 1, 2)))
    assert len(await reader.poll(timeout_ms=0)) == 3
    await reader.seek(Q0, 1)
    await reader.commit()
    assert [(header.queue_id, header.commit_offset) for _, header, _ in session.sent] == [(0, 1)]
