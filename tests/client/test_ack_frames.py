# SPDX-License-Identifier: Apache-2.0
"""Acks of one turn as they stand on the wire: each in a frame of its own, or all of them in one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.options import Options
from aerobee.client.session.ack_turns import Ack, AckBatch, AckTurns, ack_header, as_batch, may_join
from aerobee.errors import NetworkError, ProtocolError, RequestTimeout
from aerobee.protocol import command as wire
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.consume import AckMessage
from aerobee.protocol.receipt import parse_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.protocol.command import Command


class Line:
    def __init__(self, address: str) -> None:
        self.remote_text = address
        self.written: list[bytes] = []
        self.waiting: list[Any] = []

    def rendered(self, render: Callable[[int], bytes], waiting: Any) -> bytes:
        self.waiting.append(waiting)
        return render(len(self.waiting))

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def frames(self) -> list[Command]:
        found, data = [], b"".join(self.written)
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(wire.decode(memoryview(data)[4 : 4 + size]))
            data = data[4 + size :]
        return found


@pytest.fixture(params=[Options(), Options(access_key="me", secret_key="secret")], ids=["plain", "signed"])
def options(request: pytest.FixtureRequest) -> Options:
    found: Options = request.param
    return found


@pytest.fixture
def lines(session: Any) -> dict[str, Line]:
    session.know("T", brokers=("a", "b"))
    found = {address: Line(address) for address in ("a:1", "b:1")}
    session.open_connection = found.get
    session.deadlines = type("Watched", (), {"watch": staticmethod(lambda *_: None)})
    return found


def ack(receipt: str) -> Ack:
    return Ack("g", "T", receipt, asyncio.get_running_loop().create_future())


def told(command: Command) -> tuple[Any, ...]:
    header = command.fields(AckMessage)
    return (
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.extra_info,
        header.offset,
        header.broker_name,
    )


ORDERED = ["5 1000 9000 999 0 a 3 5", "5 1000 9000 999 1 a 4 6", "5 1000 9000 999 0 a 3 7"]


async def test_acks_that_need_an_answer_each_leave_in_one_write_a_frame_each(
    session: Any, lines: dict[str, Line], settle: Any
) -> None:
    turns = AckTurns(session)
    acks = [ack(receipt) for receipt in ORDERED]
    assert all(turns.add(each) for each in acks)
    assert lines["a:1"].written == [], "at the end of the turn"
    await settle()
    (_,) = lines["a:1"].written
    assert [told(each) for each in lines["a:1"].frames()] == [
        ("g", "T", 3, ORDERED[0], 5, "a"),
        ("g", "%RETRY%g_T", 4, ORDERED[1], 6, "a"),
        ("g", "T", 3, ORDERED[2], 7, "a"),
    ]
    assert [each.opaque for each in lines["a:1"].frames()] == [1, 2, 3]
    assert lines["a:1"].waiting == [each.waiting for each in acks]
    assert told(lines["a:1"].frames()[1])[1:5] == (
        ack_header("g", "T", ORDERED[1]).topic, 4, ORDERED[1], 6,
    )  # fmt: skip


async def test_each_broker_has_its_own_and_a_lone_ack_is_no_batch(
    session: Any, lines: dict[str, Line], settle: Any
) -> None:
    turns = AckTurns(session)
    for receipt in ("5 1000 9000 2 0 a 3 5", "5 1000 9000 2 0 b 3 5", "5 1000 9000 2 0 b 3 9", ORDERED[0]):
        turns.add(ack(receipt))
    await settle()
    assert [each.code for each in lines["a:1"].frames()] == [RequestCode.ACK_MESSAGE] * 2
    assert [told(each)[3] for each in lines["a:1"].frames()] == ["5 1000 9000 2 0 a 3 5", ORDERED[0]]
    (batch,) = lines["b:1"].frames()
    assert batch.code == RequestCode.BATCH_ACK_MESSAGE
    assert len(lines["b:1"].written) == 1
    turns.add(ack("5 1000 9000 2 0 a 3 6"))
    await settle()
    assert len(lines["a:1"].frames()) == 3, "the next turn ends too"


async def test_a_broker_that_takes_no_batches_gets_single_ones_in_their_order(
    session: Any, lines: dict[str, Line], settle: Any
) -> None:
    turns = AckTurns(session)
    turns.takes_no_batches(lines["a:1"])  # type: ignore[arg-type]
    receipts = [f"5 1000 9000 2 0 a 3 {offset}" for offset in (7, 5, 6)]
    for receipt in receipts:
        turns.add(ack(receipt))
    await settle()
    assert [told(each)[3] for each in lines["a:1"].frames()] == receipts


async def test_a_thousand_acks_are_one_request_and_the_next_begins_another(
    session: Any, lines: dict[str, Line], settle: Any
) -> None:
    turns = AckTurns(session)
    for offset in range(1_001):
        turns.add(ack(f"0 1000 9000 2 0 a 3 {offset}"))
    await settle()
    frames = lines["a:1"].frames()
    assert [each.code for each in frames] == [RequestCode.BATCH_ACK_MESSAGE] * 2
    assert [len(waiting._acks) for waiting in lines["a:1"].waiting] == [1_000, 1]


async def test_a_batch_has_an_entry_for_each_pop_and_queue() -> None:
    receipts = [
        "5 1000 9000 2 0 a 3 5",
        "5 1000 9000 2 0 a 3 9",
        "0 2000 8000 4 1 a 6 0",
        "5 1000 9000 2 0 a 4 5",
    ]
    found = as_batch([ack(receipt) for receipt in receipts])
    assert found.broker_name == "a"
    assert [
        (
            e.start_offset,
            e.pop_time,
            e.invisible_time,
            e.revive_queue_id,
            e.retry,
            e.queue_id,
            parse_bits(e.bits),
        )
        for e in found.acks
    ] == [
        (5, 1_000, 9_000, 2, "0", 3, [0, 4]),
        (0, 2_000, 8_000, 4, "1", 6, [0]),
        (5, 1_000, 9_000, 2, "0", 4, [0]),
    ]
    assert {(e.consumer_group, e.topic) for e in found.acks} == {("g", "T")}


async def test_an_ack_that_nobody_waits_for_any_more_is_left_alone_when_the_batch_is_answered() -> None:
    loop = asyncio.get_running_loop()
    acks: Any = [Ack("g", "T", ORDERED[0], loop.create_future()) for _ in range(3)]
    acks[0].waiting.set_exception(RequestTimeout("no answer in time"))
    acks[0].waiting.exception()
    batch = AckBatch(None, None, acks)  # type: ignore[arg-type]
    assert not batch.done()
    answer = wire.Command(0)
    batch.set_result(answer)
    assert [ack.waiting.result() for ack in acks[1:]] == [answer, answer]
    assert batch.done()
    batch.set_exception(RequestTimeout("late"))
    assert acks[1].waiting.result() is answer
    assert batch.exception() is None


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
async def test_only_who_still_waits_is_sent_alone_after_a_batch_was_refused(code: ResponseCode) -> None:
    loop = asyncio.get_running_loop()
    acks: Any = [Ack("g", "T", ORDERED[0], loop.create_future()) for _ in range(3)]
    acks[1].waiting.cancel()
    told: list[Any] = []
    turns = SimpleNamespace(
        send_each=lambda *sent: told.append(sent), takes_no_batches=lambda line: told.append(line)
    )
    AckBatch(turns, "line", acks).set_result(wire.Command(code))  # type: ignore[arg-type]
    unknown = ["line"] if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else []
    assert told == [*unknown, ("line", [acks[0], acks[2]])]


async def test_a_lost_batch_is_told_to_each_with_an_error_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    acks: Any = [Ack("g", "T", ORDERED[0], loop.create_future()) for _ in range(2)]
    AckBatch(None, None, acks).set_exception(NetworkError("gone"))  # type: ignore[arg-type]
    errors = [ack.waiting.exception() for ack in acks]
    assert [str(error) for error in errors] == ["gone", "gone"]
    assert errors[0] is not errors[1]


@pytest.mark.parametrize(
    ("receipt", "may"),
    [
        ("100 1 60000 3 0 a 2 100", True),
        ("100 1 60000 3 0 a 2 4195", True),
        ("100 1 60000 3 0 a 2 4196", False),
        ("100 1 60000 3 0 a 2 99", False),
        ("100 1 60000 999 0 a 2 100", False),
        ("100 1 60000 3 2 a 2 100", True),
        ("100 1 60000 3 3 a 2 100", False),
        ("100 1 60000 3 0 a 2 100 5", False),
        ("100 1 60000 3 0 a 2", False),
    ],
)
def test_a_batch_holds_acks_without_order_near_the_start_of_their_pop(receipt: str, may: bool) -> None:
    assert may_join(receipt) is may


async def test_a_receipt_that_is_none_takes_no_other_ack_along(
    session: Any, lines: dict[str, Line], settle: Any, options: Options
) -> None:
    turns = AckTurns(session)
    good, odd = [ack(f"5 1000 9000 2 0 a 3 {offset}") for offset in (5, 6)], ack("5 then 9000 2 0 a 3 7")
    elsewhere = [ack(f"5 1000 9000 2 0 b 3 {offset}") for offset in (5, 6)]
    for each in (good[0], odd, good[1], *elsewhere):
        assert turns.add(each)
    await settle()
    sent = lines["a:1"].frames()
    assert {each.code for each in sent} == {RequestCode.ACK_MESSAGE}, "each alone"
    receipts = [told(each)[3] for each in sent]
    if options.access_key:  # what is signed is read first, so that its sender hears of it here
        assert receipts == [each.receipt for each in good]
        error = odd.waiting.exception()
        assert isinstance(error, ProtocolError)
        assert "receipt handle '5 then" in str(error)
    else:
        assert receipts == [good[0].receipt, odd.receipt, good[1].receipt]
        assert not odd.waiting.done(), "its broker tells"
    (batch,) = lines["b:1"].frames()
    assert batch.code == RequestCode.BATCH_ACK_MESSAGE
