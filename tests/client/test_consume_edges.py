# SPDX-License-Identifier: Apache-2.0
"""Edges of consuming: the very first offset, a handler that takes just as long as it may, workers that are idle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.consume.concurrent_loop import ConsumeLoop, failed_part
from aerobee.client.consume.failed_fetch import tell_moved, wait_after
from aerobee.client.consume.fetch_loop import FetchLoop
from aerobee.client.consume.handler import ConsumeResult, Handler, Outcome
from aerobee.client.consume.hooks import Hooks, ReturnType
from aerobee.client.consume.inbox import Full
from aerobee.client.consume.membership import PoppedQueue
from aerobee.client.consume.queue_locks import QueueLocks
from aerobee.client.consume.refusals import Refusals
from aerobee.client.consume.simple_consumer import SimpleConsumer
from aerobee.client.consume.slots import Slots
from aerobee.client.consume.start_offset import StartPoint
from aerobee.client.options import Options
from aerobee.client.produce.producer import UnderWay
from aerobee.errors import FlowControl, NetworkError, NoPermission, SystemFailure
from aerobee.protocol import bodies
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.headers.consume import LockQueues, UnlockQueues
from aerobee.protocol.headers.produce import SendBack

if TYPE_CHECKING:
    from collections import deque

QUEUE = MessageQueue("a", 0, "T")


def fails(*_: Any) -> None:
    raise ValueError("no")


async def test_a_message_done_before_the_first_of_all_reports_that_one(
    make_member: Any, own: Any, hooks: Any, tasks: Any, make_message: Any, settle: Any
) -> None:
    member = make_member()
    owned = own(member)
    loop = ConsumeLoop(member, Handler(lambda message: None, 1, 2, "g"), hooks, tasks)
    first, second = make_message(0), make_message(1)
    owned.inbox.put([first, second])
    loop._settle({owned: [second]})
    assert member.offsets.memory.get(owned.queue) == 0, "nothing is done up to there, and that is known"
    loop._settle({owned: [first]})
    assert member.offsets.memory.get(owned.queue) == 2
    loop._settle({owned: [first]})
    assert member.offsets.memory.get(owned.queue) == 2, "nothing was inside"
    owned.inbox.put([third := make_message(2)])
    owned.inbox.dropped = True
    loop._settle({owned: [third]})
    assert member.offsets.memory.get(owned.queue) == 2, "somebody else has the queue now"


@pytest.mark.parametrize(
    ("outcome", "took_ms", "kind"),
    [
        (Outcome(), 0, ReturnType.SUCCESS),
        (Outcome(), 99, ReturnType.SUCCESS),
        (Outcome(), 100, ReturnType.TIME_OUT),
        (Outcome(ConsumeResult.COMMIT), 99, ReturnType.SUCCESS),
        (Outcome(ConsumeResult.RETRY), 99, ReturnType.FAILED),
        (Outcome(ConsumeResult.RETRY), 100, ReturnType.TIME_OUT),
        (Outcome(error=ValueError("no")), 500, ReturnType.EXCEPTION),
    ],
)
def test_hooks_are_told_how_it_ended(
    outcome: Outcome, took_ms: int, kind: ReturnType, make_message: Any
) -> None:
    hooks, told = Hooks(100), []
    assert not hooks.active
    hooks.add()
    assert not hooks.active
    hooks.add(after=fails)
    hooks.add(after=lambda messages, kind, took: told.append((len(messages), kind, took)))
    assert hooks.active
    message = make_message(0)
    message.consume_started = 1_000
    hooks.after([message], outcome, 1_000 + took_ms)
    assert told == [(1, kind, took_ms)], "one that fails keeps no other from hearing"


def test_a_hook_before_is_reason_enough_to_call_them() -> None:
    hooks, told = Hooks(100), list[Any]()
    hooks.add(before=fails)
    hooks.add(before=told.append)
    assert hooks.active
    hooks.before(["messages"], 0)  # type: ignore[list-item]
    assert told == [["messages"]]


def test_what_failed_of_a_batch_is_what_lies_behind_the_last_good_one() -> None:
    batch: Any = ["a", "b", "c"]
    assert failed_part(batch, Outcome()) == []
    assert failed_part(batch, Outcome(ack_index=0)) == ["b", "c"]
    assert failed_part(batch, Outcome(ack_index=-1)) == batch
    assert failed_part(batch, Outcome(ack_index=2)) == []
    assert failed_part(batch, Outcome(ConsumeResult.COMMIT, ack_index=1)) == ["c"]
    assert failed_part(batch, Outcome(ConsumeResult.RETRY, ack_index=2)) == batch


async def test_who_is_idle_is_woken_before_another_is_begun(tasks: Any, settle: Any) -> None:
    done: list[int] = []

    async def work_off(ready: deque[int]) -> None:
        while ready:
            done.append(ready.popleft())
            await asyncio.sleep(0)

    slots: Slots[int] = Slots(tasks, 3, work_off, "work")
    for n in range(4):
        slots.add(n)
        await settle()
        assert len(tasks._tasks) == 1, "one is enough"
    slots.add_all(range(4, 12))
    await settle()
    assert sorted(done) == list(range(12))
    assert len(tasks._tasks) == 3
    slots.add_all([])
    await settle()
    assert slots.busy == 0


async def test_a_handler_on_a_lost_queue_is_waited_for_as_long_as_the_option_says(
    make_member: Any, own: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = make_member(ordered=True)
    owned, locks = own(member), QueueLocks(member)
    waited: list[float] = []

    async def wait(waiting: Any, timeout: float) -> None:
        waited.append(timeout)

    monkeypatch.setattr(asyncio, "wait", wait)
    assert await locks.handler_ended(owned)
    owned.handling = asyncio.get_running_loop().create_future()
    assert not await locks.handler_ended(owned)
    assert waited == [session.options.unlock_wait_ms / 1000]
    session.clock.advance(session.options.forced_unlock_ms)
    assert not await locks.handler_ended(owned)
    session.clock.advance(1)
    assert await locks.handler_ended(owned)
    assert len(waited) == 2


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (FlowControl("slow"), 20),
        (NetworkError("gone"), 777),
        (SystemFailure("no"), 777),
        (NoPermission("no"), 30_000),
    ],
)
def test_a_queue_is_left_alone_after_an_error_as_long_as_that_asks_for(
    make_member: Any, error: Any, waits: int
) -> None:
    assert wait_after(error, make_member(), QUEUE, 777) == waits


def test_an_error_of_a_retry_topic_is_not_told(make_member: Any, caplog: pytest.LogCaptureFixture) -> None:
    member = make_member()
    wait_after(SystemFailure("no"), member, MessageQueue("a", 0, "%RETRY%g"), 1)
    assert caplog.records == []
    wait_after(SystemFailure("no"), member, QUEUE, 1)
    assert [each.levelname for each in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(("asked", "level"), [(1, "WARNING"), (2, "INFO"), (9, "INFO"), (10, "WARNING")])
def test_a_place_that_is_there_was_reset_and_one_that_is_not_is_odd(
    caplog: pytest.LogCaptureFixture, asked: int, level: str
) -> None:
    with caplog.at_level("INFO"):
        tell_moved(QUEUE, asked, (2, 9), 5)
    assert [each.levelname for each in caplog.records] == [level]


def test_a_refusal_is_told_once_a_minute_and_taken_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    refusals, heard = Refusals("g"), []
    refusals.heard = lambda: heard.append(len(refusals.standing))
    first, second = NoPermission("first"), NoPermission("second")
    assert refusals.met("T", first, 1_000) == 30_000
    assert (len(caplog.records), heard, refusals.any) == (1, [1], first)
    assert (refusals.take(), refusals.take()) == (first, None)
    refusals.met("T", second, 60_999)
    assert (len(caplog.records), len(heard)) == (1, 2)
    assert (refusals.take(), refusals.take()) == (second, None)
    refusals.met("T", second, 61_000)
    assert len(caplog.records) == 2
    refusals.met("T", second, 61_001)
    assert len(caplog.records) == 2
    assert refusals.met("%RETRY%g", first, 99_000) == 30_000
    assert list(refusals.standing) == ["T"]
    refusals.over("T")
    assert (refusals.any, len(caplog.records)) == (None, 3)
    refusals.over("T")
    assert len(caplog.records) == 3


def test_a_popped_queue_is_idle_after_its_time_and_not_at_it() -> None:
    popped = PoppedQueue(QUEUE, 1_000)
    assert [popped.expired(now, 500) for now in (1_000, 1_500, 1_501)] == [False, False, True]


async def test_locks_are_renewed_a_second_after_the_start_and_then_at_the_interval(
    make_member: Any, session: Any, tasks: Any, settle: Any
) -> None:
    locks = QueueLocks(make_member(ordered=True))
    renewed: list[int] = []

    async def renew() -> None:
        renewed.append(session.clock.now() - began)

    began = session.clock.now()
    locks.renew = renew  # type: ignore[method-assign]
    tasks.start(locks.renew_forever(), "renew")
    for passes in (999, 1, 19_999, 1, 20_000):
        await settle()
        session.clock.advance(passes)
        await settle()
    assert renewed == [1_000, 21_000, 41_000]


@pytest.mark.parametrize(
    ("held", "then", "unlocked"),
    [
        (True, "given up", True),
        (False, "given up", False),  # it is not ours
        (True, "taken anew", False),  # whoever took it has the lock
        (True, "kept", False),
    ],
)
async def test_a_lock_renewed_while_its_queue_went_is_given_back(
    make_member: Any, own: Any, session: Any, held: bool, then: str, unlocked: bool
) -> None:
    member = make_member(ordered=True)
    owned = own(member)

    def lock(*_: Any) -> Any:
        if then != "kept":
            del member.pulled[owned.queue]
        if then == "taken anew":
            own(member)
        return 0, None, bodies.encode(bodies.LockedQueues(lock_ok_mq_set=[owned.queue] if held else []))

    session.answers[LockQueues] = lock
    session.answers[UnlockQueues] = lambda *_: (0, None, b"")
    await QueueLocks(member).renew()
    assert len(session.headers(UnlockQueues)) == unlocked
    assert owned.inbox.locked


async def test_a_full_inbox_is_told_the_first_time_and_then_seldom(
    make_member: Any, own: Any, caplog: pytest.LogCaptureFixture
) -> None:
    member = make_member()
    owned = own(member)
    loop = FetchLoop(member, lambda *_: None, lambda _queue, _offset: None)
    for _ in range(1_000):
        loop._warn_full(owned, Full.COUNT)
    assert len(caplog.records) == 1
    loop._warn_full(owned, Full.SIZE)
    assert len(caplog.records) == 2, "count and size are told together"
    loop._warn_full(owned, Full.SPAN)
    assert len(caplog.records) == 3, "the span by itself"
    assert "too many unfinished messages" in caplog.records[0].message


@pytest.mark.parametrize("start", [0, 1, 1_700_000_000_000])
def test_a_start_may_be_any_moment_from_the_first_on(start: int) -> None:
    assert StartPoint.of(start).timestamp == start


@pytest.mark.parametrize("start", [-1, True, 1.5, "soon", None])
def test_a_start_that_is_no_moment_is_refused(start: Any) -> None:
    with pytest.raises(ValueError, match="give 'first', 'last', a datetime or epoch milliseconds"):
        StartPoint.of(start)


async def test_a_queue_lost_while_a_message_is_sent_back_is_not_reported(
    make_member: Any, own: Any, hooks: Any, tasks: Any, make_message: Any, session: Any
) -> None:
    member = make_member()
    owned = own(member)
    loop = ConsumeLoop(member, Handler(lambda message: None, 1, 2, "g"), hooks, tasks)
    message = make_message(7)
    owned.inbox.put([message])

    def lost(*_: Any) -> Any:
        owned.inbox.dropped = True
        return 0, None, b""

    session.answers[SendBack] = lost
    await loop._finish(owned, [message], Outcome(ConsumeResult.RETRY))
    assert member.offsets.memory.get(owned.queue) is None, "its next owner gets the message again"
    owned.inbox.dropped = False
    owned.inbox.put([other := make_message(8)])
    session.answers[SendBack] = lambda *_: (0, None, b"")
    await loop._finish(owned, [other], Outcome(ConsumeResult.RETRY))
    assert member.offsets.memory.get(owned.queue) == 9
    await loop._finish(owned, [other], Outcome())
    assert member.offsets.memory.get(owned.queue) == 9, "nothing was inside"


async def test_what_ends_on_a_queue_that_was_lost_is_nobodys_matter(
    make_member: Any, own: Any, hooks: Any, tasks: Any, make_message: Any, session: Any
) -> None:
    member = make_member()
    owned = own(member)
    loop = ConsumeLoop(member, Handler(lambda message: None, 1, 2, "g"), hooks, tasks)
    message = make_message(7)
    owned.inbox.put([message])
    owned.inbox.dropped = True
    before = owned.inbox.last_consume
    session.clock.advance(5)
    await loop._finish(owned, [message], Outcome(ConsumeResult.RETRY))
    assert session.asked == [], "it is not sent back: its next owner has it"
    assert (message in owned.inbox, owned.inbox.last_consume) == (True, before)


async def test_waits_are_as_long_as_they_are_asked_to_be(
    session: Any, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milliseconds of ours are seconds of asyncio's."""
    waited: list[float | None] = []

    async def wait(waiting: Any, *, timeout: float | None = None, return_when: str = "") -> Any:
        waited.append(timeout)
        return set(), set()

    slots: Slots[int] = Slots(tasks, 1, lambda ready: asyncio.sleep(0), "work")
    gate = UnderWay(1, 1)
    gate.try_enter(1)
    consumer = SimpleConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, clock=session.clock)
    monkeypatch.setattr(asyncio, "wait", wait)
    slots.busy = 1
    assert not await slots.drained(2_500)
    assert not await gate.empty(3_500)
    await consumer._notified([], 4_500)
    tasks.start(asyncio.sleep(0), "one")
    await tasks.finish(5_500)
    monkeypatch.undo()
    assert waited == [2.5, 3.5, 4.5, 5.5]


async def test_how_long_a_handler_may_keep_a_lost_queue_counts_from_its_lock(
    make_member: Any, own: Any, session: Any
) -> None:
    """Not from its last pull, which may be long after."""
    session.options = Options(unlock_wait_ms=1)
    member = make_member(ordered=True)
    owned, locks = own(member), QueueLocks(member)
    owned.handling = asyncio.get_running_loop().create_future()
    session.clock.advance(session.options.forced_unlock_ms + 1)
    owned.inbox.last_pull = owned.inbox.last_consume = session.clock.now()
    assert await locks.handler_ended(owned)
    owned.inbox.last_lock = session.clock.now()
    owned.inbox.last_pull = owned.inbox.last_consume = 0
    assert not await locks.handler_ended(owned)
