# SPDX-License-Identifier: Apache-2.0
"""What goes into one batch, and what becomes of its members. No network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.message import SendStatus
from aerobee.client.produce import merging
from aerobee.client.produce.merging import MOST_BYTES, MOST_MEMBERS, Merged, Merging, results_of, write
from aerobee.errors import NetworkError
from aerobee.protocol.batch import OVERHEAD
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.headers.produce import SendResult as SendResultHeader

QUEUE, OTHER = MessageQueue("a", 1, "T"), MessageQueue("a", 2, "T")


def sending(born: int = 100, body: bytes = b"body", text: str = "p", name: str = "M") -> Sending:
    return Sending("T", body, text, name, born, may_merge=True)


def alone(sending: Sending, queue: MessageQueue, waiting: Any) -> Any:
    return f"line of {queue.queue_id}", sending.body


async def test_members_are_as_old_as_the_first() -> None:
    merged = Merged(QUEUE, alone)
    first, second = sending(100), sending(104)
    merged.begin(first)
    assert merged.add(second) is not None
    assert (first.born, second.born) == (100, 100)


@pytest.mark.parametrize(("born", "joins"), [(99, False), (100, True), (105, True), (106, False)])
async def test_who_was_born_more_than_five_milliseconds_later_or_before_goes_alone(
    born: int, joins: bool
) -> None:
    merged = Merged(QUEUE, alone)
    merged.begin(sending(100))
    assert (merged.add(sending(born)) is not None) is joins


@pytest.mark.parametrize(("more", "joins"), [(0, True), (1, False)])
async def test_a_batch_is_of_so_many_bytes_at_most(more: int, joins: bool) -> None:
    merged = Merged(QUEUE, alone)
    merged.begin(sending(body=bytes(1_000), text="p" * 10))
    merged.add(sending(body=bytes(500), text="p" * 20))
    left = MOST_BYTES - 3 * OVERHEAD - 1_530
    assert (merged.add(sending(body=bytes(left - 30 + more), text="p" * 30)) is not None) is joins


async def test_a_batch_has_so_many_members_at_most() -> None:
    merged = Merged(QUEUE, alone)
    merged.begin(sending(body=b"", text=""))
    joined = [merged.add(sending(body=b"", text="")) is not None for _ in range(MOST_MEMBERS)]
    assert joined == [True] * (MOST_MEMBERS - 1) + [False]


async def test_the_first_may_be_however_large() -> None:
    merged = Merged(QUEUE, alone)
    merged.begin(sending(body=bytes(MOST_BYTES)))
    assert merged.add(sending(body=b"")) is None


async def test_a_turn_is_written_in_its_order_at_its_end(
    monkeypatch: pytest.MonkeyPatch, settle: Any
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(merging, "write", written.extend)
    batches: list[Any] = []

    def batched(sending: Sending, queue: MessageQueue, waiting: Any) -> Any:
        batches.append((queue, waiting))
        return f"line of {queue.queue_id}", b"batch"

    turn = Merging(batched, alone)
    assert turn.join(sending(), QUEUE) is None, "there is none to join"
    turn.add(sending(body=b"1"), QUEUE)
    assert turn.join(sending(), OTHER) is None
    turn.add(sending(body=b"2"), OTHER)
    assert turn.join(sending(body=b"3"), QUEUE) is not None
    turn.add_alone(sending(body=b"4"), QUEUE)
    assert turn.join(sending(body=b"5"), QUEUE) is None, "nobody overtakes the one that goes alone"
    turn.add(sending(body=b"5"), QUEUE)
    assert written == []
    await settle()
    assert written == [
        ("line of 1", b"batch"), ("line of 2", b"2"), ("line of 1", b"4"), ("line of 1", b"5")
    ]  # fmt: skip
    assert [(queue, len(waiting.calls)) for queue, waiting in batches] == [(QUEUE, 2)]
    assert turn.turn == []
    assert turn.join(sending(), QUEUE) is None, "a turn that is over takes no more"
    turn.add(sending(body=b"6"), QUEUE)
    await settle()
    assert written[-1] == ("line of 1", b"6")


async def test_a_batch_that_cannot_be_rendered_is_sent_one_by_one_and_fails_for_its_own_members_only(
    settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(merging, "write", written.extend)

    def one(sending: Sending, queue: MessageQueue, waiting: Any) -> Any:
        if sending.body == b"bad":
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "no")
        return "line", sending.body

    turn = Merging(lambda *_: 1 // 0, one)  # type: ignore[arg-type, return-value]
    calls: list[Any] = [turn.add(sending(body=b"1"), QUEUE)]
    calls += [turn.join(sending(body=body), QUEUE) for body in (b"bad", b"3")]
    await settle()
    assert written == [("line", b"1"), ("line", b"3")]
    assert [call.done() for call in calls] == [False, True, False]
    assert isinstance(calls[1].exception(), UnicodeEncodeError)


async def test_a_refused_batch_is_sent_one_by_one_but_for_those_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[Any] = []
    monkeypatch.setattr(merging, "write", written.extend)
    merged = Merged(QUEUE, alone)
    merged.begin(sending(body=b"1"))
    gone = merged.add(sending(body=b"2"))
    merged.add(sending(body=b"3"))
    assert gone is not None
    gone.cancel()
    merged.set_result(Command(13, remark="no"))
    assert written == [("line of 1", b"1"), ("line of 1", b"3")]
    assert not merged.done()


def answer(code: int = 0, places: str = "A,B", queue_id: int = 1) -> Command:
    return Command(
        code, ext=header_fields(SendResultHeader(msg_id=places, queue_id=queue_id, queue_offset=7))
    )


async def test_each_member_is_told_its_own_place() -> None:
    merged = Merged(QUEUE, alone)
    calls = [merged.begin(sending(name="M1")), merged.add(sending(name="M2"))]
    merged.set_result(answer(10))
    results: list[Any] = [call.result() for call in calls if call is not None]
    assert [(each.message_id, each.offset_id, each.queue_offset, each.queue) for each in results] == [
        ("M1", "A", 7, QUEUE), ("M2", "B", 8, QUEUE)
    ]  # fmt: skip
    assert {each.status for each in results} == {SendStatus.FLUSH_DISK_TIMEOUT}
    assert merged.done()


def test_a_batch_topic_has_one_place_for_all_and_a_broker_may_choose_another_queue() -> None:
    found = results_of(answer(places="A", queue_id=2), [sending(name="M1"), sending(name="M2")], QUEUE)
    assert [(each.offset_id, each.queue_offset, each.queue) for each in found] == [
        ("A", 7, OTHER),
        ("A", 8, OTHER),
    ]
    assert [each.transaction_id for each in found] == ["M1", "M2"]


async def test_an_answer_that_makes_no_sense_fails_all_who_wait() -> None:
    merged = Merged(QUEUE, alone)
    call = merged.begin(sending())
    merged.set_result(Command(0, ext={"msgId": "A"}))
    assert call.exception() is not None


async def test_what_fails_a_batch_fails_each_member_with_an_error_of_its_own() -> None:
    merged = Merged(QUEUE, alone)
    calls = [merged.begin(sending()), merged.add(sending())]
    merged.set_exception(NetworkError("gone"))
    errors = [call.exception() for call in calls if call is not None]
    assert [str(error) for error in errors] == ["gone", "gone"]
    assert errors[0] is not errors[1]
    assert merged.exception() is None


def test_what_goes_to_one_connection_is_written_in_one_piece() -> None:
    class Line:
        def __init__(self) -> None:
            self.written: list[bytes] = []

        def write(self, data: bytes) -> None:
            self.written.append(data)

    one, two = Line(), Line()
    write([(one, b"1"), None, (two, b"2"), (one, b"3")])  # type: ignore[list-item]
    assert (one.written, two.written) == ([b"13"], [b"2"])


async def test_a_turn_ends_once() -> None:
    loop, ends = asyncio.get_running_loop(), []
    turn = Merging(alone, alone)
    turn._end_turn = lambda: ends.append(loop.time())  # type: ignore[method-assign]
    for _ in range(3):
        turn.add(sending(), QUEUE)
    await asyncio.sleep(0)
    assert len(ends) == 1
