# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.consume.handler import ConsumeResult, Handler, Outcome
from aerobee.client.consume.ordered_loop import OrderedLoop
from aerobee.client.consume.queue_locks import QueueLocks
from aerobee.client.options import Options
from aerobee.errors import NetworkError
from aerobee.protocol.bodies import MessageModel
from aerobee.protocol.headers.produce import SendMessageV2


@pytest.fixture
def loop(
    make_member: Any, own: Any, session: Any, hooks: Any, tasks: Any, make_message: Any, settle: Any
) -> Any:
    class Loop:
        def __init__(self, function: Any, **member: Any) -> None:
            self.member = make_member(ordered=True, **member)
            self.owned = own(self.member)
            self.relocked = 0
            self.lockable = True
            handler = Handler(function, session.options.consume_batch, session.options.concurrency, "g")
            self.loop = OrderedLoop(self.member, handler, hooks, tasks, self._lock)

        async def _lock(self, owned: Any) -> bool:
            self.relocked += 1
            owned.inbox.locked = self.lockable
            owned.inbox.last_lock = session.clock.now()
            return self.lockable

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


class Recorder:
    """Fails the offsets given, as many times."""

    def __init__(self, **fails: int) -> None:
        self.seen: list[int] = []
        self.fails = {int(name[1:]): times for name, times in fails.items()}

    async def __call__(self, message: Any) -> None:
        self.seen.append(message.queue_offset)
        if self.fails.get(message.queue_offset, 0) > 0:
            self.fails[message.queue_offset] -= 1
            raise RuntimeError("no")


@pytest.mark.seed("S004-67", "S004-60")
async def test_one_message_at_a_time_in_order(loop: Any) -> None:
    handle = Recorder()
    one = loop(handle)
    await one.consume(3, 4, 5)
    assert (handle.seen, one.offset, one.owned.inbox.count) == ([3, 4, 5], 6, 0)


@pytest.mark.seed("S004-67")
async def test_a_failing_message_holds_its_queue_until_it_succeeds(
    loop: Any, session: Any, settle: Any
) -> None:
    handle = Recorder(o4=2)
    one = loop(handle)
    await one.consume(3, 4, 5)
    assert (handle.seen, one.offset) == ([3, 4], 4)
    for _ in range(2):
        session.clock.advance(1_000)
        await settle()
    assert handle.seen == [3, 4, 4, 4, 5]
    assert one.offset == 6


async def test_the_handler_says_how_long_to_rest(loop: Any, session: Any, settle: Any) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> Outcome | None:
        seen.append(message.attempt)
        return Outcome(ConsumeResult.SUSPEND, suspend_ms=5_000) if len(seen) == 1 else None

    await loop(handle).consume(1)
    session.clock.advance(4_999)
    await settle()
    assert seen == [1]
    session.clock.advance(1)
    await settle()
    assert seen == [1, 2]


@pytest.mark.parametrize("options", [Options(max_reconsume=2)])
async def test_past_the_limit_it_goes_to_the_dead_letters_and_the_queue_goes_on(
    loop: Any, session: Any, settle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session.know("%RETRY%g", queues=1)
    session.answers[SendMessageV2] = [(0, None, b"")]
    handle = Recorder(o1=99)
    one = loop(handle)
    await one.consume(1, 2)
    for _ in range(2):
        session.clock.advance(1_000)
        await settle()
    assert handle.seen == [1, 1, 1, 2]
    (header,) = session.headers(SendMessageV2)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 3, 2)
    assert one.offset == 3
    assert "no retries left topic=T message_id=ID1 group=g attempts=3: it went to %DLQ%g" in caplog.text


@pytest.mark.parametrize("options", [Options(max_reconsume=0)])
async def test_a_dead_letter_that_cannot_be_sent_keeps_the_queue(loop: Any, session: Any) -> None:
    session.know("%RETRY%g", queues=1)
    session.answers[SendMessageV2] = [NetworkError("gone")]
    one = loop(Recorder(o1=9))
    (message,) = await one.consume(1)
    assert (one.offset, message.reconsume_times) == (None, 1)
    assert len(session.headers(SendMessageV2)) == 1, "no try is allowed, so the first failure is the last"


@pytest.mark.seed("S001-14")
async def test_without_the_lock_nothing_is_consumed_and_it_is_asked_for_again(
    loop: Any, session: Any, settle: Any
) -> None:
    handle = Recorder()
    one = loop(handle)
    one.owned.inbox.locked = False
    one.lockable = False
    await one.consume(1)
    session.clock.advance(100)
    await settle()
    assert (handle.seen, one.relocked) == ([], 1)
    one.lockable = True
    session.clock.advance(3_000)
    await settle()
    session.clock.advance(100)
    await settle()
    session.clock.advance(10)
    await settle()
    assert handle.seen == [1]


async def test_an_expired_lock_counts_as_lost(loop: Any, session: Any, settle: Any) -> None:
    handle = Recorder()
    one = loop(handle)
    session.clock.advance(30_001)
    await one.consume(1)
    assert handle.seen == []
    session.clock.advance(100)
    await settle()
    session.clock.advance(10)
    await settle()
    assert (handle.seen, one.relocked) == ([1], 1)


async def test_broadcast_needs_no_lock(loop: Any) -> None:
    handle = Recorder()
    one = loop(handle, model=MessageModel.BROADCASTING)
    one.owned.inbox.locked = False
    await one.consume(1)
    assert handle.seen == [1]


async def test_a_long_run_yields_its_worker(loop: Any, session: Any, settle: Any) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        session.clock.advance(20_000)
        one.owned.inbox.last_lock = session.clock.now()

    one = loop(handle)
    await one.consume(*range(10))
    assert seen == [0, 1, 2, 3], "after 60 s the others have a turn"
    session.clock.advance(10)
    await settle()
    assert len(seen) > 4


@pytest.mark.parametrize("options", [Options(ordered_auto_commit=False)])
async def test_without_auto_commit_the_handler_commits_and_rolls_back(
    loop: Any, session: Any, settle: Any
) -> None:
    results = [ConsumeResult.SUCCESS, ConsumeResult.ROLLBACK, None, ConsumeResult.COMMIT]
    seen: list[int] = []

    async def handle(message: Any) -> Any:
        seen.append(message.queue_offset)
        return results.pop(0)

    one = loop(handle)
    await one.consume(1, 2)
    assert (seen, one.offset) == ([1, 2], None)
    session.clock.advance(1_000)
    await settle()
    assert (seen, one.offset) == ([1, 2, 1, 2], 3)


@pytest.mark.parametrize("result", [ConsumeResult.COMMIT, ConsumeResult.ROLLBACK])
async def test_with_auto_commit_these_results_just_commit(
    loop: Any, result: ConsumeResult, caplog: Any
) -> None:
    async def handle(message: Any) -> ConsumeResult:
        return result

    one = loop(handle)
    await one.consume(1)
    assert one.offset == 2
    assert "ordered_auto_commit" in caplog.text


async def test_a_dropped_queue_stops_after_the_running_message(loop: Any) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        one.owned.inbox.dropped = True

    one = loop(handle)
    await one.consume(1, 2)
    assert (seen, one.offset) == ([1], None)


async def test_a_worker_leaves_its_slot_to_others_after_its_slice(
    loop: Any, session: Any, settle: Any
) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        session.clock.advance(30_000)
        one.owned.inbox.last_lock = session.clock.now()  # renewed meanwhile

    one = loop(handle)
    await one.consume(1, 2, 3, 4)
    assert seen == [1, 2, 3], "a minute, and what began within it"
    session.clock.advance(10)
    await settle()
    assert seen == [1, 2, 3, 4]


async def test_a_lock_that_ran_out_between_two_messages_is_asked_for_again(
    loop: Any, session: Any, settle: Any
) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        if len(seen) == 1:
            one.owned.inbox.locked = False

    one = loop(handle)
    await one.consume(1, 2)
    assert (seen, one.relocked) == ([1], 0)
    session.clock.advance(10)
    await settle()
    assert one.relocked == 1
    session.clock.advance(10)
    await settle()
    assert seen == [1, 2]


async def test_a_dropped_queue_is_not_worked_on(loop: Any, session: Any) -> None:
    handle = Recorder()
    one = loop(handle)
    one.owned.inbox.dropped = True
    await one.consume(1)
    assert (handle.seen, one.relocked, one.offset) == ([], 0, None)


async def test_a_retry_message_shows_the_topic_it_was_sent_to(loop: Any) -> None:
    seen: list[str] = []

    async def handle(message: Any) -> None:
        seen.append(message.topic)

    one = loop(handle)
    await one.consume(1, topic="%RETRY%g", properties="RETRY_TOPIC\x01orders\x02")
    await one.consume(2, topic="%RETRY%g")
    await one.consume(3, topic="T", properties="RETRY_TOPIC\x01orders\x02")
    assert seen == ["orders", "%RETRY%g", "T"]


async def test_a_commit_of_nothing_says_nothing(loop: Any) -> None:
    """An operator moved the group while the handler ran: what it had taken is gone."""
    one = loop(Recorder())
    one.member.offsets.memory.set(one.owned.queue, 40)
    one.loop._commit(one.owned)
    assert one.offset == 40


async def test_what_was_consumed_in_order_is_noted_for_operators(
    loop: Any, session: Any, settle: Any
) -> None:
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()
        if message.queue_offset == 4:
            raise RuntimeError("no")

    one = loop(handle)
    await one.consume(3, 4)
    session.clock.advance(2_000)
    gate.set()
    await settle()
    now = session.clock.now()
    assert one.owned.inbox.last_consume == now
    status = one.member.figures.status("T", now)
    assert (status.consume_failed_msgs, status.consume_rt) == (1, 1_000), "2 s, and none"
    assert status.consume_ok_tps == status.consume_failed_tps


@pytest.mark.parametrize("handle", [Recorder(), Recorder(_5=1)], ids=["good", "failed"])
async def test_a_queue_whose_handler_has_ended_may_go_to_another_at_once(loop: Any, handle: Recorder) -> None:
    one = loop(handle)
    await one.consume(5)
    assert handle.seen == [5]
    assert await QueueLocks(one.member).handler_ended(one.owned)
