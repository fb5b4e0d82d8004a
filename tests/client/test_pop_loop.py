# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aerobee.client.consume.handler import ConsumeResult, Handler, Outcome
from aerobee.client.consume.membership import PoppedQueue
from aerobee.client.consume.pop_loop import PopLoop
from aerobee.client.consume.popped import Lease, PopAnswer, add_receipts
from aerobee.client.options import Options
from aerobee.client.session.ack_turns import may_join
from aerobee.errors import NetworkError, NoPermission
from aerobee.protocol import command as wire
from aerobee.protocol.bodies import MessageQueue, decode_batch_ack
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.consume import (
    AckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
    PopMessage,
    PopResult,
)
from aerobee.protocol.receipt import Receipt, parse_bits

OK = (0, None, b"")


@pytest.fixture
def loop(make_member: Any, session: Any, hooks: Any, tasks: Any, settle: Any) -> Any:
    session.answers[AckMessage] = lambda *_: OK
    session.answers[ChangeInvisible] = lambda a, header, b: (
        0, ChangeInvisibleResult(pop_time=session.clock.now(), invisible_time=header.invisible_time, revive_qid=5), b""
    )  # fmt: skip

    class Loop:
        def __init__(self, function: Any, **member: Any) -> None:
            self.member = make_member(**member)
            self.popped = PoppedQueue(MessageQueue("a", -1, "T"), session.clock.now())
            self.member.popped[self.popped.queue] = self.popped
            options = session.options
            handler = Handler(function, options.consume_batch, options.concurrency, "g")
            self.loop = PopLoop(self.member, handler, hooks, tasks)

        async def pop(self, *answers: Any) -> int | None:
            session.answers[PopMessage] += answers
            wait_ms = await self.loop.pop_once(self.popped)
            await settle()
            return wait_ms

        def found(
            self, body: bytes, offsets: str = "0,1,2,3", start: int = 0, invisible_ms: int = 60_000
        ) -> Any:
            result = PopResult(
                pop_time=session.clock.now(),
                invisible_time=invisible_ms,
                revive_qid=3,
                rest_num=0,
                start_offset_info=f"0 0 {start}",
                msg_offset_info=f"0 0 {offsets}",
            )
            return 0, result, body

    return Loop


async def succeed(message: Any) -> None:
    pass


@pytest.mark.seed("S000-15", "S000-16", "S000-23", "S000-25", "S000-9")
async def test_messages_are_popped_handled_and_acked(loop: Any, session: Any, encode_messages: Any) -> None:
    seen: list[str] = []

    async def handle(message: Any) -> None:
        seen.append(message.property("POP_CK"))

    one = loop(handle)
    now = session.clock.now()
    assert await one.pop(one.found(encode_messages(0, 1), "0,1")) == 0
    assert seen == [f"0 {now} 60000 3 0 a 0 0", f"0 {now} 60000 3 0 a 0 1"]
    acks = session.headers(AckMessage)
    assert [(ack.topic, ack.queue_id, ack.offset, ack.extra_info) for ack in acks] == [
        ("T", 0, 0, seen[0]), ("T", 0, 1, seen[1])
    ]  # fmt: skip
    assert one.popped.unacked == 0
    assert session.story == ["PopMessage", "AckMessage", "AckMessage"], "no offsets, no locks, nothing else"


async def test_the_request_asks_as_java_does(loop: Any, session: Any) -> None:
    one = loop(succeed, topics={"T": "A||B"}, start="first")
    assert await one.pop((210, PopResult(), b"")) == 0
    (address, request, timeout_ms) = session.asked[0]
    assert (address, timeout_ms) == ("a:1", 25_000)
    assert (request.queue_id, request.max_msg_nums, request.invisible_time) == (-1, 32, 60_000)
    assert (request.poll_time, request.init_mode, request.exp, request.order) == (15_000, 0, "A||B", False)
    assert request.born_time == session.clock.now()


@pytest.mark.parametrize(
    ("answer", "wait_ms"),
    [
        ((209, PopResult(), b""), 3_000),
        ((210, PopResult(), b""), 0),
        ((19, PopResult(), b""), 0),
        ((215, None, b""), 20),
        ((1, None, b""), 3_000),
        (NetworkError("gone"), 3_000),
    ],
)
async def test_what_follows_an_answer(loop: Any, answer: Any, wait_ms: int) -> None:
    assert await loop(succeed).pop(answer) == wait_ms


async def test_the_checks_before_a_pop(loop: Any, session: Any) -> None:
    one = loop(succeed)
    one.popped.unacked = 97
    assert await one.pop() == 50
    one.popped.unacked = 96
    one.member.suspended = True
    assert await one.pop() == 1_000
    one.member.suspended, one.member.running = False, False
    assert await one.pop() == 3_000
    one.popped.dropped = True
    assert await one.pop() is None
    assert session.asked == []


@pytest.mark.parametrize("options", [Options(pop_unacked=2)])
async def test_as_many_as_the_limit_may_be_unacked_and_each_pop_is_stamped(loop: Any, session: Any) -> None:
    one = loop(succeed)
    one.popped.unacked = 2
    session.clock.advance(5_000)
    assert await one.pop((210, PopResult(), b"")) == 0
    assert one.popped.last_pop == session.clock.now()
    one.popped.unacked = 3
    session.clock.advance(5_000)
    assert await one.pop() == 50
    assert one.popped.last_pop == session.clock.now(), "a consumer that is slow is not idle"
    assert len(session.headers(PopMessage)) == 1


async def test_too_many_unacked_are_told_once(loop: Any, caplog: Any) -> None:
    one = loop(succeed)
    one.popped.unacked = 97
    for _ in range(3):
        await one.pop()
    assert [record.getMessage() for record in caplog.records] == ["not popping queue=T/a/-1: unacked=97"]


async def test_a_topic_that_is_popped_again_is_refused_no_longer(loop: Any, session: Any) -> None:
    one = loop(succeed)
    one.member.refusals.met("T", NoPermission("not yours"), session.clock.now())
    await one.pop(NoPermission("still not"))
    assert one.member.refusals.any is not None
    await one.pop((210, PopResult(), b""))
    assert one.member.refusals.any is None


@pytest.mark.parametrize("options", [Options(max_reconsume=3)])
async def test_the_last_try_is_made_and_what_is_past_it_is_acked_unseen(
    loop: Any, session: Any, make_message: Any, settle: Any
) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.reconsume_times)

    one = loop(handle)
    messages = [make_message(n, reconsume_times=n + 2) for n in range(3)]
    lease = {"session": session, "group": "g", "topic": "T", "until": session.clock.now() + 60_000}
    for message in messages:
        message.lease = Lease(receipt=f"0 1 60000 3 0 a 0 {message.queue_offset}", **lease)
    subscription = one.member.subscriptions.get("T")
    one.loop._answered(one.popped, subscription, PopAnswer(messages, 0, False, lease["until"]))
    assert one.popped.unacked == 3
    await settle()
    assert seen == [2, 3]
    assert sorted(header.offset for header in session.headers(AckMessage)) == [0, 1, 2]
    assert one.popped.unacked == 0


@pytest.mark.parametrize("options", [Options(consume_batch=3)])
async def test_what_was_popped_and_consumed_is_noted_for_operators(
    loop: Any, session: Any, encode_messages: Any
) -> None:
    async def handle(messages: Any) -> Outcome:
        session.clock.advance(1_000)
        return Outcome(ack_index=1)

    one = loop(handle)
    await one.pop(one.found(encode_messages(0, 1, 2), "0,1,2"))
    status = one.member.figures.status("T", session.clock.now())
    assert (status.consume_failed_msgs, status.consume_rt) == (1, 1_000)
    assert status.consume_ok_tps == pytest.approx(2 * status.consume_failed_tps)
    assert one.popped.unacked == 0


@pytest.mark.seed("S000-9", "S000-19", "S000-20", "S000-21", "S000-25")
async def test_a_failed_message_is_hidden_longer_with_every_attempt(
    loop: Any, session: Any, encode_messages: Any
) -> None:
    async def handle(message: Any) -> None:
        message.reconsume_times = message.queue_offset
        raise RuntimeError("no")

    one = loop(handle)
    await one.pop(one.found(encode_messages(0, 1, 2)))
    changes = session.headers(ChangeInvisible)
    assert [change.invisible_time for change in changes] == [10_000, 30_000, 60_000]
    assert [change.failure for change in changes] == ["RuntimeError: no"] * 3, "why, for the dead letter"
    assert session.headers(AckMessage) == []
    assert session.story == ["PopMessage", *["ChangeInvisible"] * 3], "nothing is sent back"
    assert one.popped.unacked == 0


@pytest.mark.seed("S000-25")
@pytest.mark.parametrize("options", [Options(consume_batch=4)])
@pytest.mark.parametrize(
    ("outcome", "acked"),
    [
        (Outcome(), [0, 1, 2, 3]),
        (Outcome(ack_index=2), [0, 1, 2]),
        (Outcome(ack_index=0), [0]),
        (Outcome(ack_index=-1), []),
        (Outcome(ConsumeResult.RETRY), []),
        (Outcome(ConsumeResult.RETRY, ack_index=2), []),
    ],
)
async def test_of_a_batch_what_was_handled_is_acked_and_the_rest_is_hidden(
    loop: Any, session: Any, encode_messages: Any, outcome: Outcome, acked: list[int]
) -> None:
    async def handle(messages: Any) -> Outcome:
        return outcome

    one = loop(handle)
    await one.pop(one.found(encode_messages(0, 1, 2, 3)))
    assert sorted(header.offset for header in session.headers(AckMessage)) == acked
    hidden = sorted(header.offset for header in session.headers(ChangeInvisible))
    assert hidden == [offset for offset in range(4) if offset not in acked]
    assert one.popped.unacked == 0


@pytest.mark.seed("S000-21")
async def test_the_handler_may_choose_the_delay(loop: Any, session: Any, encode_messages: Any) -> None:
    async def handle(message: Any) -> Outcome:
        return Outcome(ConsumeResult.RETRY, delay_level=2)

    one = loop(handle)
    await one.pop(one.found(encode_messages(0)))
    assert session.headers(ChangeInvisible)[0].invisible_time == 60_000
    assert session.headers(ChangeInvisible)[0].failure is None


@pytest.mark.seed("S000-22")
async def test_what_took_longer_than_the_invisible_time_is_not_answered_for(
    loop: Any, session: Any, encode_messages: Any, settle: Any
) -> None:
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()

    one = loop(handle)
    await one.pop(one.found(encode_messages(0), "0"))
    assert one.popped.unacked == 1
    session.clock.advance(60_000)
    gate.set()
    await settle()
    assert (session.headers(AckMessage), one.popped.unacked) == ([], 0)


@pytest.mark.seed("S000-22")
@pytest.mark.parametrize("options", [Options(concurrency=1)])
async def test_what_waited_too_long_is_not_even_handled(
    loop: Any, session: Any, encode_messages: Any, settle: Any
) -> None:
    gate, seen = asyncio.Event(), []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        await gate.wait()

    one = loop(handle)
    await one.pop(one.found(encode_messages(0, 1), "0,1"))
    session.clock.advance(60_000)
    gate.set()
    await settle()
    assert (seen, one.popped.unacked) == ([0], 0)


@pytest.mark.parametrize("hours", [-2, 2])
async def test_a_lease_is_measured_here_not_by_the_brokers_clock(
    loop: Any, session: Any, encode_messages: Any, settle: Any, hours: int
) -> None:
    """Theirs may be another's, and either may be set at any time."""
    gate = asyncio.Event()

    async def handle(message: Any) -> None:
        await gate.wait()

    one = loop(handle)
    code, result, body = one.found(encode_messages(0), "0", invisible_ms=5_000)
    result = msgspec.structs.replace(result, pop_time=result.pop_time + hours * 3_600_000)
    await one.pop((code, result, body))
    session.clock.set_wall(session.clock.wall() + hours * 3_600_000)
    session.clock.advance(4_900)
    gate.set()
    await settle()
    assert len(session.headers(AckMessage)) == 1


async def test_foreign_tags_and_hopeless_messages_are_acked_unseen(
    loop: Any, session: Any, encode_messages: Any
) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)

    one = loop(handle, topics={"T": "AaAa"})
    await one.pop(one.found(encode_messages(0, tags="BBBB") + encode_messages(1, tags="AaAa"), "0,1"))
    assert seen == [1]
    assert sorted(ack.offset for ack in session.headers(AckMessage)) == [0, 1]


async def test_a_failed_ack_is_only_logged_for_the_message_comes_again(
    loop: Any, session: Any, encode_messages: Any, caplog: Any
) -> None:
    session.answers[AckMessage] = lambda *_: NetworkError("gone")
    one = loop(succeed)
    await one.pop(one.found(encode_messages(0), "0"))
    assert one.popped.unacked == 0
    assert "will come again" in caplog.text


class Open:
    """A connection on which acks start at once; the test says how they end."""

    def __init__(self, session: Any) -> None:
        self.waiting: list[Any] = []
        self.frames: list[Command] = []
        self.deadlines: list[int] = []
        self.writes = 0
        self.remote_text = "127.0.0.1:1"
        session.open_connection = lambda address: self if address == "a:1" else None
        session.deadlines = self

    def watch(self, waiting: Any, deadline: int) -> None:
        self.deadlines.append(deadline)

    def rendered(self, render: Any, waiting: Any) -> bytes:
        if self.writes < 0:
            raise NetworkError("closed")
        self.waiting.append(waiting)
        self.frames.append(wire.decode(render(7)[4:]))
        return b"frame"

    def write(self, data: bytes) -> None:
        self.writes += 1

    def acks(self) -> list[Any]:
        return [each.fields(AckMessage) for each in self.frames if each.code == AckMessage.code]


ACCOUNTS = [Options(), Options(access_key="me", secret_key="secret")]


@pytest.mark.parametrize("options", ACCOUNTS)
async def test_acks_of_one_turn_leave_as_one_batch(
    loop: Any, session: Any, encode_messages: Any, settle: Any
) -> None:
    one, line = loop(succeed), Open(session)
    pop_time = session.clock.now()
    await one.pop(one.found(encode_messages(0, 1, 2, 9), "0,1,2,9"))
    assert session.headers(AckMessage) == []
    (frame,) = line.frames
    (entry,) = decode_batch_ack(frame.body).acks
    assert (frame.code, parse_bits(entry.bits)) == (RequestCode.BATCH_ACK_MESSAGE, [0, 1, 2, 9])
    assert (entry.consumer_group, entry.topic, entry.retry, entry.queue_id) == ("g", "T", "0", 0)
    assert (entry.start_offset, entry.pop_time, entry.invisible_time, entry.revive_queue_id) == (
        0, pop_time, 60_000, 3
    )  # fmt: skip
    assert ("Signature" in frame.ext_dict()) == bool(session.options.access_key)
    assert (line.writes, line.deadlines) == (1, [session.clock.now() + 3_000])
    assert one.popped.unacked == 4
    line.waiting[0].set_result(Command(0))
    await settle()
    assert one.popped.unacked == 0


@pytest.mark.parametrize("options", ACCOUNTS)
async def test_a_batch_of_acks_that_is_refused_is_acked_one_by_one(
    loop: Any, session: Any, encode_messages: Any, settle: Any, caplog: Any
) -> None:
    one, line = loop(succeed), Open(session)
    await one.pop(one.found(encode_messages(0, 1, 2, 3)))
    batch = line.waiting.pop()
    batch.set_result(Command(1, remark="the whole batch"))
    assert [ack.offset for ack in line.acks()] == [0, 1, 2, 3]
    assert (line.writes, len(line.deadlines)) == (2, 5)
    caplog.clear()
    line.waiting[0].set_result(Command(0))
    line.waiting[1].set_result(Command(0))
    await settle()
    assert (one.popped.unacked, caplog.text) == (2, "")
    assert not batch.done()
    line.waiting[2].set_result(Command(1, remark="the broker is busy"))
    line.waiting[3].set_exception(NetworkError("cut"))
    await settle()
    assert "it will come again: the broker is busy" in caplog.text
    assert "it will come again: cut" in caplog.text
    assert "the whole batch" not in caplog.text
    assert (one.popped.unacked, batch.done()) == (0, True)


async def test_a_broker_that_knows_no_batch_acks_is_asked_for_one_only_once(
    loop: Any, session: Any, encode_messages: Any, settle: Any
) -> None:
    one, line = loop(succeed), Open(session)
    await one.pop(one.found(encode_messages(0, 1)))
    line.waiting[0].set_result(Command(3, remark="request type 200151 not supported"))
    await one.pop(one.found(encode_messages(2, 3), "2,3", 2))
    assert [frame.code for frame in line.frames] == [RequestCode.BATCH_ACK_MESSAGE] + [AckMessage.code] * 4
    assert (line.writes, one.popped.unacked) == (3, 4)
    for waiting in line.waiting[1:]:
        waiting.set_result(Command(0))
    await settle()
    assert one.popped.unacked == 0


async def test_a_batch_of_acks_that_gets_no_answer_fails_for_each(
    loop: Any, session: Any, encode_messages: Any, settle: Any, caplog: Any
) -> None:
    one, line = loop(succeed), Open(session)
    await one.pop(one.found(encode_messages(0, 1, 2)))
    line.waiting[0].set_exception(NetworkError("cut"))
    await settle()
    assert (one.popped.unacked, caplog.text.count("it will come again: cut")) == (0, 3)


async def test_acks_on_a_connection_lost_within_the_turn_fail(
    loop: Any, session: Any, encode_messages: Any, settle: Any, caplog: Any
) -> None:
    one, line = loop(succeed), Open(session)
    line.writes = -9
    await one.pop(one.found(encode_messages(0, 1, 2)))
    assert (one.popped.unacked, caplog.text.count("it will come again: closed")) == (0, 3)


@pytest.mark.parametrize(
    ("receipt", "joins"),
    [
        ("5 1700 60000 3 0 a 0 7", True),
        ("5 1700 60000 3 2 a 0 7", True),
        ("5 1700 60000 999 0 a 0 7", False),  # of an ordered group, whose refusals mean something
        ("5 1700 60000 3 0 a 0 5000", False),  # a bit set of five thousand bits for one ack
        ("5 1700 60000 3 0 a 0 4", False),
        ("5 1700 60000 3 7 a 0 7", False),
        ("5 1700 60000 3 0 a 0 7 1234", False),
    ],
)
def test_what_a_batch_ack_can_hold(receipt: str, joins: bool) -> None:
    assert may_join(receipt) is joins


async def test_an_ack_that_comes_too_late_for_its_lease_goes_alone(session: Any, settle: Any) -> None:
    line, receipt = Open(session), "5 1700 60000 3 0 a 0 {}"
    now = session.clock.now()
    leases = [Lease(session, "g", "T", receipt.format(5 + n), now + n) for n in range(4)]
    session.clock.advance(1)
    for lease in leases:
        assert lease.ack_soon(asyncio.get_running_loop().create_future())
    await settle()
    assert [ack.offset for ack in line.acks()] == [5, 6]
    batch = decode_batch_ack(line.frames[0].body)
    assert [parse_bits(entry.bits) for entry in batch.acks] == [[2, 3]]


async def test_a_change_that_fails_is_only_logged_for_the_message_comes_again(
    loop: Any, session: Any, encode_messages: Any, caplog: Any
) -> None:
    async def handle(message: Any) -> None:
        raise RuntimeError("no")

    session.answers[ChangeInvisible] = lambda *_: NetworkError("gone")
    one = loop(handle)
    await one.pop(one.found(encode_messages(0), "0"))
    assert "invisible time not changed" in caplog.text
    assert one.popped.unacked == 0


@pytest.mark.parametrize("options", [Options(max_reconsume=2)])
async def test_a_message_tried_often_enough_is_given_up(
    loop: Any, session: Any, encode_messages: Any, caplog: Any
) -> None:
    seen: list[int] = []

    async def handle(message: Any) -> None:
        seen.append(message.queue_offset)
        message.reconsume_times = message.queue_offset
        message.born_timestamp = 0
        message.store_timestamp = session.clock.wall()  # each attempt is stored anew
        raise RuntimeError("no")

    one = loop(handle)
    await one.pop(one.found(encode_messages(0, 1, 2, 3)))
    hidden = [change.offset for change in session.headers(ChangeInvisible)]
    given_up = [ack.offset for ack in session.headers(AckMessage)]
    assert sorted(hidden + given_up) == seen == [0, 1, 2, 3]
    assert given_up == [2, 3]
    assert caplog.text.count("giving up message_id") == 2


async def test_whatever_goes_wrong_the_queue_is_popped_again_until_it_is_dropped(
    loop: Any, session: Any, tasks: Any, settle: Any
) -> None:
    one = loop(succeed)
    answers: list[Any] = [RuntimeError("a bug"), (210, PopResult(), b"")]
    held = asyncio.get_running_loop().create_future()
    session.answers[PopMessage] = lambda *_: answers.pop(0) if answers else held
    task = tasks.start(one.loop.run(one.popped, 5_000), "pop")
    await settle()
    assert session.asked == [], "not before its time"
    session.clock.advance(5_000)
    await settle()
    assert len(session.asked) == 1
    session.clock.advance(3_000)
    await settle()
    assert len(session.asked) == 3, "after the bug it waits, after an empty answer it does not"
    one.popped.dropped = True
    held.set_result((210, PopResult(), b""))
    await settle()
    assert task.done()


async def test_a_pop_without_a_subscription_waits(loop: Any, session: Any) -> None:
    one = loop(succeed)
    one.member.subscriptions.remove("T")
    assert await one.pop() == 3_000
    assert session.asked == []


@pytest.mark.seed("S000-20")
async def test_after_a_change_the_new_handle_counts(loop: Any, session: Any, encode_messages: Any) -> None:
    kept: list[Any] = []

    async def handle(message: Any) -> None:
        session.clock.advance(1_000)
        await message.extend(120_000)
        kept.append(message)

    one = loop(handle)
    await one.pop(one.found(encode_messages(2), "2", start=1))
    receipt = Receipt.parse(kept[0].receipt)
    assert (receipt.start_offset, receipt.offset, receipt.invisible_time, receipt.revive_qid) == (
        2,
        2,
        120_000,
        5,
    )
    assert session.headers(AckMessage)[0].extra_info == kept[0].receipt


class TestReceipts:
    def test_retry_messages_keep_the_handle_the_broker_gave(self, make_message: Any) -> None:
        handle = "7 1000 60000 2 1 a 0 9"
        message = make_message(9, topic="T", properties=f"POP_CK\x01{handle}\x02")
        add_receipts(
            [message], PopResult(pop_time=5, start_offset_info="1 0 7", msg_offset_info="1 0 9"), "a", "T"
        )
        assert message.property("POP_CK") == handle
        assert message.property("1ST_POP_TIME") == "5"

    def test_without_info_strings_the_first_message_of_a_queue_is_the_start(self, make_message: Any) -> None:
        messages = [make_message(4), make_message(5)]
        add_receipts(messages, PopResult(pop_time=1, invisible_time=2, revive_qid=3), "b", "T")
        assert [m.property("POP_CK") for m in messages] == ["4 1 2 3 0 b 0 4", "4 1 2 3 0 b 0 5"]

    def test_ordered_redeliveries_carry_their_count(self, make_message: Any) -> None:
        messages = [make_message(4), make_message(5)]
        result = PopResult(
            start_offset_info="0 0 4", msg_offset_info="0 0 4,5", order_count_info="0 qo0%4 2;0 0 0"
        )
        add_receipts(messages, result, "a", "T")
        assert [m.reconsume_times for m in messages] == [2, 0]

    def test_a_retry_topic_by_name_gets_its_flag_and_the_normal_topic(self, make_message: Any) -> None:
        message = make_message(4, topic="%RETRY%g_T")
        add_receipts([message], PopResult(start_offset_info="1 0 4", msg_offset_info="1 0 4"), "a", "T")
        assert (message.topic, message.property("POP_CK").split()[4]) == ("T", "1")


async def test_a_handle_that_was_changed_has_no_place_in_the_log(session: Any) -> None:
    """The broker keeps the message elsewhere from then on."""
    session.answers[ChangeInvisible] = [
        (0, ChangeInvisibleResult(pop_time=77, invisible_time=88, revive_qid=5), b"")
    ]
    lease = Lease(session, "g", "T", "5 1000 9000 3 0 a 2 7 4096", session.clock.now() + 9_000)
    await lease.hide(30_000)
    assert lease.receipt == "7 77 88 5 0 a 2 7"
    assert not lease.expired(session.clock.now() + 29_999)
    assert lease.expired(session.clock.now() + 30_000)


@pytest.mark.parametrize("extended", [False, True])
async def test_a_handler_that_has_its_message_kept_longer_is_in_time(
    loop: Any, session: Any, encode_messages: Any, extended: bool
) -> None:
    async def handle(message: Any) -> None:
        if extended:
            await message.extend(90_000)
        session.clock.advance(60_000)

    one = loop(handle)
    await one.pop(one.found(encode_messages(0), "0"))
    assert len(session.headers(AckMessage)) == extended
    assert one.popped.unacked == 0
