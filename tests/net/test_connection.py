# SPDX-License-Identifier: Apache-2.0
"""One socket: matching, one-way, order, back-pressure, cancellation and broken peers."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import NetworkError, RequestTimeout, TopicNotFound
from aerobee.net.connection import Answer, Connection, Large, Limits, Reply, reply_frame
from aerobee.net.listener import ListenLimits
from aerobee.net.sending import EARLY_BYTES
from aerobee.protocol import command as wire
from aerobee.protocol.command import Command, Header

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    Until = Callable[[Callable[[], object]], Awaitable[None]]

ECHO, HOLD, BAD, CRASH, FIELDS, LATER_BAD, BIG, LARGE, LATER_LARGE = 1, 2, 3, 4, 5, 6, 7, 8, 9


class Typed(Header):
    code = FIELDS
    queue_id: int


class Desk:
    """A handler that echoes, holds, refuses and fails."""

    def __init__(self) -> None:
        self.held: dict[bytes, asyncio.Future[Answer]] = {}
        self.cancelled: list[bytes] = []
        self.seen: list[bytes] = []

    def __call__(self, connection: Connection, command: Command) -> Answer | Coroutine[Any, Any, Answer]:
        self.seen.append(command.body)
        if command.code == HOLD:
            return self._hold(command.body)
        if command.code == BAD:
            raise TopicNotFound("topic 'x' does not exist")
        if command.code == LATER_BAD:
            return self._fail()
        if command.code == CRASH:
            raise RuntimeError("boom")
        if command.code == FIELDS:
            return Reply(remark=str(command.fields(Typed).queue_id))
        if command.code == BIG:
            return Reply(body=bytes(int(command.body)))
        if command.code == LARGE:
            return Large(reply_frame(command, Reply(remark="large")), memoryview(command.body * 1000))
        if command.code == LATER_LARGE:
            return self._large(command)
        return Reply(body=command.body)

    async def _large(self, command: Command) -> Answer:
        return Large(reply_frame(command, Reply()), command.body)

    async def _hold(self, body: bytes) -> Answer:
        self.held[body] = asyncio.get_running_loop().create_future()
        try:
            return await self.held[body]
        except asyncio.CancelledError:
            self.cancelled.append(body)
            raise

    async def _fail(self) -> Answer:
        raise TopicNotFound("gone meanwhile")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("serialize", [0, 1])
async def test_a_request_is_answered_in_the_serialize_type_of_the_peer(
    ends: Any, desk: Desk, serialize: int
) -> None:
    link = await ends.dial(await ends.listen(desk))
    answer = await link.call(Command(ECHO, body=b"hello", serialize=serialize))
    assert (answer.code, answer.body, answer.serialize, answer.is_response) == (0, b"hello", serialize, True)


async def test_many_requests_in_flight_are_answered_out_of_order(ends: Any, desk: Desk, until: Until) -> None:
    link = await ends.dial(await ends.listen(desk))
    calls = {n: asyncio.ensure_future(link.call(Command(HOLD, body=b"%d" % n))) for n in range(50)}
    await until(lambda: len(desk.held) == 50)
    assert (await link.call(Command(ECHO, body=b"not held"))).body == b"not held"
    for n in reversed(range(50)):
        desk.held[b"%d" % n].set_result(Reply(body=b"answer %d" % n))
        assert (await calls[n]).body == b"answer %d" % n


async def test_a_one_way_request_is_never_answered(ends: Any, desk: Desk) -> None:
    reader, writer = await ends.raw(await ends.listen(desk))
    for code in (ECHO, BAD, CRASH, LATER_BAD, 99):
        writer.write(wire.encode(Command(code, opaque=code, flag=wire.ONE_WAY)))
    writer.write(wire.encode(Command(ECHO, opaque=77)))
    size = struct.unpack(">I", await reader.readexactly(4))[0]
    assert wire.decode(await reader.readexactly(size)).opaque == 77
    assert len(desk.seen) == 6


async def test_a_refusal_keeps_its_code_and_the_connection(ends: Any, desk: Desk) -> None:
    link = await ends.dial(await ends.listen(desk))
    refused = await link.call(Command(BAD))
    assert (refused.code, refused.remark) == (17, "topic 'x' does not exist")
    assert (await link.call(Command(LATER_BAD))).code == 17
    assert (await link.call(Command(ECHO, body=b"ok"))).body == b"ok"


async def test_a_failing_handler_is_logged_and_answered_with_system_error(
    ends: Any, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    link = await ends.dial(await ends.listen(desk))
    answer = await link.call(Command(CRASH))
    assert (answer.code, answer.remark) == (1, "RuntimeError: boom")
    assert "refused code=4" in caplog.text
    assert "Traceback" in caplog.text


async def test_fields_that_do_not_decode_are_answered_not_fatal(
    ends: Any, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    link = await ends.dial(await ends.listen(desk))
    answer = await link.call(Command(FIELDS, ext={"queueId": "nine"}))
    assert answer.code == 1
    assert "Typed" in (answer.remark or "")
    assert (await link.call(Command(FIELDS, ext={"queueId": "9"}))).remark == "9"
    assert not caplog.records, "a peer's mistake is no error of ours"


async def test_the_server_may_ask_its_client_on_the_same_connection(
    ends: Any, desk: Desk, until: Until
) -> None:
    listener = await ends.listen(desk)
    await ends.dial(listener, lambda connection, command: Reply(body=b"client says " + command.body))
    await until(lambda: listener.connections)
    answer = await listener.connections[0].call(Command(ECHO, body=b"hi"))
    assert answer.body == b"client says hi"


async def test_held_requests_are_cancelled_when_the_peer_leaves(ends: Any, desk: Desk, until: Until) -> None:
    link = await ends.dial(await ends.listen(desk))
    calls = [link.start_call(Command(HOLD, body=b"%d" % n)) for n in range(3)]
    await until(lambda: len(desk.held) == 3)
    link.abort()
    await until(lambda: len(desk.cancelled) == 3)
    for call in calls:
        with pytest.raises(NetworkError, match=r"127\.0\.0\.1"):
            await call


async def test_a_request_that_came_with_the_goodbye_leaves_no_trace(
    ends: Any, desk: Desk, until: Until
) -> None:
    listener = await ends.listen(desk)
    _, writer = await ends.raw(listener)
    writer.write(wire.encode(Command(HOLD, body=b"x")))
    writer.close()
    await until(lambda: desk.seen and not listener.connections)


async def test_a_call_times_out_and_its_late_answer_is_dropped(ends: Any, desk: Desk, until: Until) -> None:
    link = await ends.dial(await ends.listen(desk))
    with pytest.raises(RequestTimeout, match="request 2 within 1 ms"):
        await link.call(Command(HOLD, body=b"x"), timeout_ms=1)
    await until(lambda: b"x" in desk.held)
    desk.held[b"x"].set_result(Reply(body=b"late"))
    assert (await link.call(Command(ECHO, body=b"next"))).body == b"next"
    assert not link._calls.waiting


async def test_calls_given_up_by_their_callers_are_forgotten(ends: Any, desk: Desk) -> None:
    link = await ends.dial(await ends.listen(desk))
    for _ in range(5000):
        link.start_call(Command(HOLD)).cancel()
    assert len(link._calls.waiting) <= 1024


async def test_a_closed_connection_says_so(ends: Any, desk: Desk) -> None:
    link = await ends.dial(await ends.listen(desk))
    link.close()
    assert not link.is_open
    with pytest.raises(NetworkError, match="closed"):
        link.start_call(Command(ECHO))
    link.send(Command(ECHO))  # one-way: nobody is told


async def test_a_frame_above_the_limit_is_refused_before_it_is_buffered(ends: Any, desk: Desk) -> None:
    listener = await ends.listen(desk, limits=ListenLimits(connection=Limits(max_frame=1000)))
    reader, writer = await ends.raw(listener)
    writer.write(struct.pack(">I", 997))
    assert await reader.read() == b""
    assert desk.seen == []


async def test_requests_before_a_broken_frame_are_answered(
    ends: Any, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await ends.raw(await ends.listen(desk))
    writer.write(wire.encode(Command(ECHO, body=b"first")) + struct.pack(">II", 4, 0x00FFFFFF))
    answered = await reader.read()
    assert wire.decode(answered[4:]).body == b"first"
    assert "closing peer=127.0.0.1" in caplog.text


async def test_an_answer_sent_from_where_it_lies_keeps_its_place(ends: Any, desk: Desk) -> None:
    reader, writer = await ends.raw(await ends.listen(desk))
    one_way = Command(LARGE, flag=wire.ONE_WAY, body=b"never answered")
    asked = [Command(code, opaque=n, body=b"%d" % n) for n, code in enumerate([ECHO, LARGE, LARGE, ECHO])]
    writer.write(b"".join(map(wire.encode, [one_way, *asked])))
    found = []
    for _ in asked:
        length = struct.unpack(">I", await reader.readexactly(4))[0]
        answer = wire.decode(await reader.readexactly(length))
        found.append((answer.opaque, answer.remark, answer.body))
    assert found == [(0, None, b"0"), (1, "large", b"1" * 1000), (2, "large", b"2" * 1000), (3, None, b"3")]
    writer.write(wire.encode(Command(LATER_LARGE, opaque=4, body=b"later")))
    length = struct.unpack(">I", await reader.readexactly(4))[0]
    assert wire.decode(await reader.readexactly(length)).body == b"later"


async def test_a_slow_reader_is_served_no_more_until_it_reads_and_then_loses_nothing(
    ends: Any, desk: Desk, until: Until
) -> None:
    limits = ListenLimits(connection=Limits(pause_bytes=100_000, max_backlog=8))
    reader, writer = await ends.raw(await ends.listen(desk, limits=limits))
    size = b"1000000"
    for n in range(64):
        writer.write(wire.encode(Command(BIG, opaque=n, body=size)))
    await until(lambda: len(desk.seen) > 0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(desk.seen) < 40, "64 MB must not be answered into memory"
    for n in range(64):  # in order: one client's sends must not overtake each other
        length = struct.unpack(">I", await reader.readexactly(4))[0]
        answer = wire.decode(await reader.readexactly(length))
        assert (answer.opaque, len(answer.body)) == (n, 1_000_000)


async def test_a_reader_that_lets_held_answers_pile_up_is_cut_off_at_the_bound(
    ends: Any, desk: Desk, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ListenLimits(connection=Limits(pause_bytes=100_000, max_write_buffer=1_000_000))
    listener = await ends.listen(desk, limits=limits)
    _, writer = await ends.raw(listener)
    writer.transport.pause_reading()
    for n in range(100):
        writer.write(wire.encode(Command(HOLD, opaque=n, body=b"%d" % n)))
    await until(lambda: len(desk.held) == 100)
    with caplog.at_level(logging.WARNING):
        for answer in desk.held.values():
            answer.set_result(Reply(body=bytes(500_000)))
        await until(lambda: not listener.connections)
    assert "it reads too slowly" in caplog.text


async def test_too_many_held_requests_on_one_connection_end_it(ends: Any, desk: Desk, until: Until) -> None:
    listener = await ends.listen(desk, limits=ListenLimits(connection=Limits(max_tasks=10)))
    reader, writer = await ends.raw(listener)
    for n in range(11):
        writer.write(wire.encode(Command(HOLD, body=b"%d" % n)))
    assert await reader.read() == b""
    await until(lambda: len(desk.cancelled) >= len(desk.held))


async def test_a_caller_waits_for_a_peer_that_does_not_read(ends: Any, desk: Desk) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await release.wait()
        writer.transport.abort()

    release = asyncio.Event()
    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    link = await ends.pool(limits=Limits(pause_bytes=100_000)).get(
        f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    )
    while not link._paused:
        link.send(Command(ECHO, body=bytes(1_000_000)))
    with pytest.raises(RequestTimeout, match="reads nothing"):
        await link.call(Command(ECHO), timeout_ms=5)
    waiting = asyncio.ensure_future(link.call(Command(ECHO), timeout_ms=5000))
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(NetworkError):
        await waiting
    server.close()
    await server.wait_closed()


def test_requests_read_together_begin_where_the_one_before_them_ended() -> None:
    begun: list[int] = []

    def handle(connection: Connection, command: Command) -> Answer:
        begun.append(connection.answered_ns)
        connection.answered_ns = command.opaque
        return None

    def frames(*opaques: int) -> bytes:
        return b"".join(wire.encode(Command(ECHO, opaque)) for opaque in opaques)

    connection = Connection(handle)
    connection.data_received(frames(7, 8, 9))
    connection.data_received(frames(10))
    assert begun == [0, 7, 8, 0], "time between two reads is nobody's"


def test_a_request_after_a_run_does_not_begin_before_it() -> None:
    begun: list[int] = []

    def handle(connection: Connection, command: Command) -> Answer:
        begun.append(connection.answered_ns)
        connection.answered_ns = command.opaque
        return None

    frame = wire.encode(Command(ECHO, 7))

    def run(data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        """Takes the second frame."""
        return (at + len(frame) if at == len(frame) else at), b""

    connection = Connection(handle, run=run)
    connection.data_received(frame * 3)
    assert begun == [0, 0]


@pytest.mark.parametrize(("size", "writes"), [(10, 1), (EARLY_BYTES // 2, 2), (EARLY_BYTES, 4)])
def test_much_that_is_answered_leaves_before_the_rest_of_the_read_is_served(size: int, writes: int) -> None:
    """The peer works on it meanwhile; what is little leaves in one write."""
    happened: list[str] = []

    class Transport:
        def get_extra_info(self, name: str) -> object:
            return ("127.0.0.1", 1)

        def set_write_buffer_limits(self, high: int) -> None: ...

        def write(self, data: bytes) -> None:
            happened.append("wrote")

    def handler(connection: Connection, command: Command) -> bytes:
        happened.append("served")
        return bytes(size)

    connection = Connection(handler)
    connection.connection_made(Transport())  # type: ignore[arg-type]
    connection.data_received(wire.encode(Command(ECHO)) * 4)
    assert happened.count("wrote") == writes
    assert happened == (["served"] * (4 // writes) + ["wrote"]) * writes
