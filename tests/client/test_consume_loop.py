# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aerobee.client.consume.concurrent_loop import ConsumeLoop
from aerobee.client.consume.handler import SUCCESS, ConsumeResult, Handler, Outcome
from aerobee.client.options import Options
from aerobee.errors import NetworkError
from aerobee.protocol.bodies import MessageModel
from aerobee.protocol.headers.produce import SendBack, SendMessageV2
from tests.turning import until

OK = (0, None, b"")


@pytest.fixture
def loop(
    make_member: Any, own: Any, session: Any, hooks: Any, tasks: Any, make_message: Any, settle: Any
) -> Any:
    class Loop:
        def __init__(self, function: Any, **member: Any) -> None:
            self.member = make_member(**member)
            self.owned = own(self.member)
            options = session.options
            self.handler = Handler(function, options.consume_batch, options.concurrency, "g")
            self.loop = ConsumeLoop(self.member, self.handler, hooks, tasks)

        async def consume(self, *offsets: int, **more: Any) -> list[Any]:
            messages = [make_message(n, **more) for n in offsets]
            self.owned.inbox.put(messages)
            self.loop.submit(self.owned, messages)
            await settle()
            return messages

        @property
        def offset(self) -> int | None:
            return self.member.offsets.memory.get(self.owned.queue)

    return Loop


@pytest.mark.seed("S004-20", "S004-22", "S004-23", "S004-19")
async def test_consumed_messages_leave_the_inbox_and_move_the_offset(loop: Any) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)

    one = loop(handle)
    await one.consume(5, 6, 7)
    assert seen == [5, 6, 7]
    assert (one.owned.inbox.count, one.offset) == (0, 8)


@pytest.mark.parametrize("options", [Options(consume_batch=3)])
@pytest.mark.seed("S004-19")
async def test_what_is_fetched_is_cut_into_batches(loop: Any) -> None:
    sizes: list[int] = []

    async def handle(messages: Any) -> None:
        sizes.append(len(messages))

    await loop(handle).consume(*range(8))
    assert sizes == [3, 3, 2]


@pytest.mark.seed("S004-61", "S004-90")
async def test_handlers_run_side_by_side_and_the_slowest_holds_the_offset(loop: Any, settle: Any) -> None:
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        if message.queue_offset == 5:
            await gate.wait()

    one = loop(handle)
    await one.consume(5, 6, 7)
    assert (one.owned.inbox.offsets(), one.offset) == ([5], 5)
    gate.set()
    await settle()
    assert one.offset == 8


async def fail(message: Any) -> None:
    raise RuntimeError("no")


@pytest.mark.seed("S004-21", "S004-25", "S004-28", "S004-83")
async def test_a_failed_message_is_sent_back_and_then_counts_as_done(loop: Any, session: Any) -> None:
    session.answers[SendBack] = [OK]
    one = loop(fail)
    await one.consume(5)
    ((address, header, timeout_ms),) = session.asked
    assert (address, header.offset, header.group, header.delay_level) == ("a:1", 500, "g", 0)
    assert (header.max_reconsume_times, header.origin_topic, timeout_ms) == (16, "T", 5_000)
    assert (one.owned.inbox.count, one.offset) == (0, 6)


@pytest.mark.seed("S004-28", "S004-25")
async def test_the_handler_may_choose_the_delay_level(loop: Any, session: Any) -> None:
    session.answers[SendBack] = [OK, OK]

    async def handle(message: Any) -> Outcome:
        return Outcome(ConsumeResult.RETRY, delay_level=-1 if message.queue_offset == 5 else 3)

    await loop(handle).consume(5, 6)
    assert [header.delay_level for header in session.headers(SendBack)] == [-1, 3]


@pytest.mark.parametrize("options", [Options(max_reconsume=2)])
async def test_the_last_failure_is_told_with_where_the_message_went(
    loop: Any, session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session.answers[SendBack] = [OK, OK]
    one = loop(fail)
    await one.consume(5, reconsume_times=1)
    assert "no retries left" not in caplog.text
    await one.consume(6, reconsume_times=2)
    assert (
        "no retries left topic=T message_id=ID6 group=g attempts=3: it went to %DLQ%g; `aerobee groups dead g` shows it"
        in caplog.text
    )


@pytest.mark.parametrize("options", [Options(consume_batch=4)])
async def test_in_a_batch_the_ack_index_parts_good_from_failed(loop: Any, session: Any) -> None:
    session.answers[SendBack] = [OK, OK]

    async def handle(messages: Any) -> Outcome:
        return Outcome(ack_index=1)

    one = loop(handle)
    await one.consume(0, 1, 2, 3)
    assert [header.offset for header in session.headers(SendBack)] == [200, 300]
    assert one.offset == 4


@pytest.mark.seed("S004-21")
async def test_when_send_back_fails_the_message_goes_to_the_retry_topic_by_hand(
    loop: Any, session: Any
) -> None:
    session.know("%RETRY%g", queues=1)
    session.answers[SendBack] = [NetworkError("gone")]
    session.answers[SendMessageV2] = [OK]
    one = loop(fail)
    (message,) = await one.consume(5, reconsume_times=2)
    (header,) = session.headers(SendMessageV2)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 3, 16)
    assert "RETRY_TOPIC\x01T\x02" in header.properties
    assert "DELAY\x015\x02" in header.properties
    assert f"ORIGIN_MESSAGE_ID\x01{message.offset_id}\x02" in header.properties
    assert one.offset == 6


@pytest.mark.seed("S004-21")
async def test_when_everything_fails_the_message_is_tried_again_here_after_5_s(
    loop: Any, session: Any, settle: Any
) -> None:
    attempts: list[int] = []

    async def handle(message: Any) -> None:
        attempts.append(message.attempt)
        raise RuntimeError("no")

    session.answers[SendBack] = [NetworkError("gone"), OK]
    one = loop(handle)
    await one.consume(5, 6)
    assert attempts == [1, 1]
    assert one.owned.inbox.offsets() == [5], "6 was sent back, 5 could not be"
    session.answers[SendBack] = [OK]
    session.clock.advance(5_000)
    await settle()
    assert attempts == [1, 1, 2]
    assert one.offset == 7


async def test_broadcast_failures_are_dropped(loop: Any, session: Any) -> None:
    one = loop(fail, model=MessageModel.BROADCASTING)
    await one.consume(5)
    assert session.asked == []
    assert one.offset == 6


@pytest.mark.seed("S003-6", "S003-20")
async def test_a_dropped_queue_is_neither_consumed_nor_reported(loop: Any, settle: Any) -> None:
    gate, seen = asyncio.Event(), []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        await gate.wait()

    one = loop(handle)
    await one.consume(5)
    one.owned.inbox.dropped = True
    gate.set()
    await one.consume(6)
    assert (seen, one.offset) == ([5], None)


@pytest.mark.seed("S004-52")
async def test_a_retry_message_shows_its_own_topic(loop: Any) -> None:
    seen: list[str] = []

    async def handle(message: Any) -> None:
        seen.append(message.topic)

    await loop(handle).consume(5, topic="%RETRY%g", properties="RETRY_TOPIC\x01orders\x02")
    assert seen == ["orders"]


@pytest.mark.seed("S004-26", "S004-29", "S004-84")
async def test_a_handler_that_hangs_has_its_message_sent_back_at_level_3(
    loop: Any, session: Any, settle: Any
) -> None:
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        if message.queue_offset == 5:
            await gate.wait()

    one = loop(handle)
    await one.consume(5, 6)
    await one.loop.clean_overdue(one.owned)
    assert session.asked == [], "not yet"
    session.clock.advance(15 * 60_000 + 1)
    session.answers[SendBack] = [NetworkError("gone"), OK]
    await one.loop.clean_overdue(one.owned)
    assert one.owned.inbox.offsets() == [5], "a failed send-back keeps it for the next try"
    await one.loop.clean_overdue(one.owned)
    assert session.headers(SendBack)[-1].delay_level == 3
    assert (one.owned.inbox.count, one.offset) == (0, 7)


@pytest.mark.seed("S004-29")
async def test_cleaning_up_takes_sixteen_at_a_time_and_stops_at_one_in_time(loop: Any, session: Any) -> None:
    async def handle(message: Any) -> None:
        await asyncio.Event().wait()

    one = loop(handle)
    messages = await one.consume(*range(20))
    session.clock.advance(15 * 60_000 + 1)
    for message in messages:
        message.consume_started = 1
    messages[18].consume_started = session.clock.now()
    session.answers[SendBack] = lambda *_: OK
    await one.loop.clean_overdue(one.owned)
    assert one.owned.inbox.offsets() == [16, 17, 18, 19]
    assert len(session.headers(SendBack)) == 16
    await one.loop.clean_overdue(one.owned)
    assert one.owned.inbox.offsets() == [18, 19], "the first that is in time stops it"
    assert one.offset == 18


@pytest.mark.seed("S004-29")
@pytest.mark.parametrize("options", [Options(concurrency=30)])
async def test_a_cleaning_takes_sixteen_at_most_and_stops_at_the_first_that_is_in_time(
    loop: Any, session: Any, settle: Any
) -> None:
    async def handle(message: Any) -> None:
        await asyncio.Event().wait()

    session.answers[SendBack] = lambda *_: OK
    one = loop(handle)
    await one.consume(*range(18))
    session.clock.advance(1_000)
    await one.consume(*range(18, 22))
    session.clock.advance(15 * 60_000)
    await one.loop.clean_overdue(one.owned)
    assert one.owned.inbox.first_offset() == 16, "sixteen"
    await one.loop.clean_overdue(one.owned)
    assert one.owned.inbox.offsets() == [18, 19, 20, 21], "the others began a second later"
    assert [header.offset // 100 for header in session.headers(SendBack)] == list(range(18))
    assert one.offset == 18
    session.clock.advance(1)
    await one.loop.clean_overdue(one.owned)
    assert len(session.headers(SendBack)) == 22


@pytest.mark.seed("S004-27")
async def test_a_late_failure_of_a_cleaned_message_is_not_sent_back_twice(
    loop: Any, session: Any, settle: Any
) -> None:
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()
        raise RuntimeError("too late")

    one = loop(handle)
    await one.consume(5)
    session.clock.advance(15 * 60_000 + 1)
    session.answers[SendBack] = [OK]
    await one.loop.clean_overdue(one.owned)
    gate.set()
    await settle()
    assert len(session.headers(SendBack)) == 1


@pytest.mark.seed("S004-79", "S004-20", "S001-24")
async def test_hooks_see_every_call_and_a_failing_one_stops_nothing(
    loop: Any, session: Any, hooks: Any
) -> None:
    seen: list[Any] = []
    hooks.add(
        before=lambda messages: seen.append("before"), after=lambda m, kind, took: seen.append(str(kind))
    )
    hooks.add(before=lambda messages: 1 / 0, after=lambda m, kind, took: 1 / 0)
    hooks.add(before=lambda messages: seen.append("and"), after=lambda m, kind, took: seen.append("done"))

    def sent_back(*_: Any) -> Any:
        seen.append("sent back")
        return OK

    session.answers[SendBack] = sent_back

    async def handle(message: Any) -> ConsumeResult | None:
        seen.append(message.queue_offset)
        if message.queue_offset == 6:
            raise RuntimeError("no")
        return ConsumeResult.RETRY if message.queue_offset == 7 else None

    await loop(handle).consume(5, 6, 7)
    one, two, three = (
        ["before", "and", 5, "SUCCESS", "done"],
        ["before", "and", 6, "EXCEPTION", "done", "sent back"],
        ["before", "and", 7, "FAILED", "done", "sent back"],
    )
    assert seen == one + two + three, "the result is dealt with when the hooks have seen it"


@pytest.mark.slow
async def test_plain_functions_run_in_threads_and_off_the_loop(loop: Any, session: Any) -> None:
    names, done = set(), asyncio.Event()
    home = asyncio.get_running_loop()

    def handle(message: Any) -> None:
        names.add(threading.current_thread().name)
        if message.queue_offset == 9:
            home.call_soon_threadsafe(done.set)

    one = loop(handle)
    await one.consume(*range(10))
    await asyncio.wait_for(done.wait(), 30)
    await until(lambda: not one.owned.inbox.count)  # threads end when they end
    assert all(name.startswith("aerobee-g") for name in names)
    assert one.offset == 10
    one.handler.close()


@pytest.mark.slow
@pytest.mark.parametrize("options", [Options(concurrency=2)])
async def test_many_plain_calls_share_a_hand_over_and_failures_stay_their_own(
    loop: Any, session: Any
) -> None:
    session.answers[SendBack] = lambda *_: OK

    def handle(message: Any) -> None:
        if message.queue_offset % 50 == 7:
            raise RuntimeError("no")

    one = loop(handle)
    await one.consume(*range(500))
    await until(lambda: not one.owned.inbox.count)  # threads end when they end
    assert sorted(header.offset // 100 for header in session.headers(SendBack)) == list(range(7, 500, 50))
    assert one.offset == 500
    one.handler.close()


@pytest.mark.parametrize("options", [Options(concurrency=2)])
@pytest.mark.parametrize(("waiting", "first"), [(32, 1), (33, 1), (34, 2), (47, 15), (48, 16), (200, 16)])
async def test_a_thread_is_given_several_only_when_plenty_wait_and_never_more_than_sixteen(
    loop: Any, monkeypatch: pytest.MonkeyPatch, waiting: int, first: int
) -> None:
    handed: list[int] = []
    one = loop(lambda message: None)

    async def call(batch: Any) -> Any:
        handed.append(1)
        return SUCCESS

    async def call_each(batches: Any) -> Any:
        handed.append(len(batches))
        return [SUCCESS] * len(batches)

    monkeypatch.setattr(one.handler, "call", call)
    monkeypatch.setattr(one.handler, "call_each", call_each)
    await one.consume(*range(waiting))
    assert handed[0] == first
    assert max(handed) <= 16
    assert sum(handed) == waiting
    assert one.offset == waiting
    one.handler.close()


async def test_a_message_on_its_way_back_is_not_overdue(loop: Any, session: Any, settle: Any) -> None:
    """Its handler has ended; the broker may take as long as it likes to answer for the way back."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    session.answers[SendBack] = lambda *_: answer

    async def fail(message: Any) -> None:
        raise RuntimeError("no")

    one = loop(fail)
    await one.consume(5)
    session.clock.advance(hours=2)
    await one.loop.clean_overdue(one.owned)
    assert len(session.headers(SendBack)) == 1
    answer.set_result((0, None, b""))
    await settle()
    assert one.offset == 6


async def test_hanging_handlers_are_looked_for_every_quarter_of_an_hour(
    loop: Any, session: Any, settle: Any, tasks: Any
) -> None:
    async def handle(message: Any) -> None:
        await asyncio.Event().wait()

    session.answers[SendBack] = lambda *_: OK
    one = loop(handle)
    await one.consume(5, 6)
    tasks.start(one.loop.clean_forever(), "overdue")
    await settle()
    session.clock.advance(15 * 60_000)
    await settle()
    assert session.asked == [], "exactly so long is not too long"
    session.clock.advance(15 * 60_000)
    await settle()
    assert [header.delay_level for header in session.headers(SendBack)] == [3, 3]
    assert (one.owned.inbox.count, one.offset) == (0, 7)


@pytest.mark.parametrize("options", [Options(concurrency=1)])
async def test_a_thread_is_given_nothing_of_a_queue_that_was_dropped(
    loop: Any, own: Any, make_message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Any] = []
    one = loop(lambda message: None)

    async def call(batch: Any) -> Any:
        handed.append(batch)
        return SUCCESS

    monkeypatch.setattr(one.handler, "call", call)
    other = own(one.member, queue_id=1)
    other.inbox.dropped = True
    await one.loop._consume_some((other, [make_message(1)]))
    assert handed == []
    message = make_message(2)
    one.owned.inbox.put([message])
    await one.loop._consume_some((one.owned, [message]))
    assert handed == [[message]]
    one.handler.close()


@pytest.mark.parametrize("fails", [False, True], ids=["good", "failed"])
async def test_what_was_consumed_is_noted_for_operators(
    loop: Any, session: Any, settle: Any, fails: bool
) -> None:
    session.answers[SendBack] = lambda *_: OK
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()
        if fails and message.queue_offset == 5:
            raise RuntimeError("no")

    one = loop(handle)
    began = session.clock.now()
    await one.consume(5, 6, 7)
    session.clock.advance(2_000)
    gate.set()
    await settle()
    now = session.clock.now()
    assert one.owned.inbox.last_consume == now == began + 2_000
    status = one.member.figures.status("T", now)
    assert (status.consume_failed_msgs, status.consume_rt) == (1 if fails else 0, 2_000)
    seconds = max(1.0, now % 10_000 / 1000)
    assert status.consume_ok_tps == pytest.approx((2 if fails else 3) / seconds)


@pytest.mark.parametrize("options", [Options(consume_timeout_ms=900_000, send_back_timeout_ms=7_000)])
async def test_cleaning_begins_once_in_each_consume_timeout_and_looks_at_every_queue(
    loop: Any, own: Any, session: Any, settle: Any, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[int, int]] = []
    began = session.clock.now()

    async def clean(owned: Any) -> None:
        looked.append((session.clock.now() - began, owned.queue.queue_id))

    one = loop(fail)
    own(one.member, queue_id=1)
    monkeypatch.setattr(one.loop, "clean_overdue", clean)
    tasks.start(one.loop.clean_forever(), "overdue")
    for ms in (7_000, 892_999, 1, 899_999, 1):
        await settle()
        session.clock.advance(ms)
    await settle()
    assert looked == [(900_000, 0), (900_000, 1), (1_800_000, 0), (1_800_000, 1)]


async def test_a_group_stands_at_the_first_message_as_long_as_it_is_in_work(loop: Any, session: Any) -> None:
    session.answers[SendBack] = lambda *_: OK

    async def handle(message: Any) -> None:
        if message.queue_offset == 0:
            await asyncio.Event().wait()
        if message.queue_offset == 2:
            raise RuntimeError("no")

    one = loop(handle)
    await one.consume(0, 2)
    assert (one.owned.inbox.offsets(), one.offset) == ([0], 0), (
        "told from the start: nobody begins at the end"
    )


async def test_a_queue_that_is_lost_while_an_overdue_message_goes_back_is_not_reported(
    loop: Any, session: Any
) -> None:
    """Its next owner goes on from what was reported before; another offset would be kept and told with ours."""

    async def handle(message: Any) -> None:
        await asyncio.Event().wait()

    one = loop(handle)
    await one.consume(5, 6)
    session.clock.advance(15 * 60_000 + 1)

    def lost_meanwhile(*_: Any) -> Any:
        one.owned.inbox.dropped = True
        return OK

    session.answers[SendBack] = lost_meanwhile
    await one.loop.clean_overdue(one.owned)
    assert one.offset is None
