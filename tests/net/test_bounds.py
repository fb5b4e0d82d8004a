# SPDX-License-Identifier: Apache-2.0
"""What a peer may cost, to the byte: unfinished frames, unread answers, requests that wait, calls nobody answers,
lines in the log. Parts alone, with a transport that does as it is told."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, NetworkError, ProtocolError, StoreError, TopicNotFound
from aerobee.net.complaints import Complaints
from aerobee.net.connection import Answer, Connection, Large, Limits
from aerobee.net.pool import serves_nothing
from aerobee.net.reply import refusal
from aerobee.net.sending import Calls
from aerobee.net.unfinished import Unfinished
from aerobee.protocol import command as wire
from aerobee.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.clock import ManualClock
    from aerobee.net.connection import Run

    Until = Callable[[Callable[[], object]], Awaitable[None]]


class Transport:
    """`unread` is what the peer has not read yet."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.reading = True
        self.aborted = False
        self.closed = False
        self.high = 0
        self.unread = 0

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 7)

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: Any) -> None:
        self.written.append(b"".join(parts))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True


def connected(handler: Any = serves_nothing, **limits: Any) -> tuple[Connection, Transport]:
    connection, transport = Connection(handler, limits=Limits(**limits)), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def frame(opaque: int, body: bytes = b"") -> bytes:
    return wire.encode(Command(1, opaque, body=body))


# -- frames under way --------------------------------------------------------------------------------------


class Sender:
    def __init__(self, name: str) -> None:
        self.remote_text = name
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


def test_a_frame_that_grows_is_as_old_as_its_beginning() -> None:
    unfinished, old, young = Unfinished(100), Sender("old"), Sender("young")
    unfinished.hold(old, 40)
    unfinished.hold(young, 40)
    unfinished.hold(old, 60)
    assert (old.aborted, young.aborted, unfinished.total) == (0, 0, 100), "as much as there may be"
    unfinished.hold(old, 61)
    assert (old.aborted, young.aborted, unfinished.total) == (1, 0, 40)


def test_as_many_are_cut_off_as_it_takes(caplog: pytest.LogCaptureFixture) -> None:
    unfinished = Unfinished(100)
    senders = [Sender(name) for name in "abcd"]
    for sender in senders[:3]:
        unfinished.hold(sender, 30)
    unfinished.hold(senders[3], 60)
    assert [sender.aborted for sender in senders] == [1, 1, 0, 0]
    assert unfinished.total == 90
    assert "cutting off peer=b: its unfinished frame of 30 bytes is the oldest" in caplog.text
    unfinished.release(senders[0])
    assert unfinished.total == 90, "its connection is lost a little later; it counts once"
    unfinished.hold(senders[2], 101)
    assert ([sender.aborted for sender in senders], unfinished.total) == ([1, 1, 1, 0], 60)


def test_a_connection_that_is_lost_gives_back_what_its_frame_held() -> None:
    unfinished = Unfinished(1_000)
    connection = Connection(serves_nothing, unfinished=unfinished)
    connection.connection_made(Transport())  # type: ignore[arg-type]
    connection.data_received(frame(1, bytes(100))[:50])
    assert unfinished.total == 50
    connection.connection_lost(None)
    assert unfinished.total == 0


def test_a_frame_that_is_whole_gives_back_what_it_held() -> None:
    """Also when nothing came behind it: or those who speak in pieces are cut off in the end."""
    unfinished = Unfinished(1_000)
    connection = Connection(serves_nothing, unfinished=unfinished)
    connection.connection_made(Transport())  # type: ignore[arg-type]
    for opaque in range(3):
        whole = frame(opaque, bytes(400))
        connection.data_received(whole[:300])
        assert unfinished.total == 300
        connection.data_received(whole[300:])
        assert unfinished.total == 0


@pytest.mark.parametrize("run", [None, lambda data, at, connection: (at, b"")])
def test_a_frame_that_drips_is_no_sign_of_life_and_grows_no_younger(run: Run | None) -> None:
    """With somebody ahead of the handler too."""
    unfinished = Unfinished(1_000)
    links = [Connection(serves_nothing, unfinished=unfinished, run=run) for _ in range(2)]
    whole = frame(1, bytes(400))
    for link in links:
        link.connection_made(Transport())  # type: ignore[arg-type]
        link.data_received(whole[:10])
    for at in range(10, 15):
        links[0].data_received(whole[at : at + 1])
    assert [link.last_read_turns for link in links] == [0, 0]
    assert list(unfinished._held) == links
    links[0].data_received(whole[15:])
    assert [link.last_read_turns for link in links] == [1, 0], "it became whole"
    links[0].data_received(whole + whole[:9])
    assert [link.last_read_turns for link in links] == [2, 0]
    assert (list(unfinished._held), unfinished.total) == ([links[1], links[0]], 19)


# -- requests that are held --------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_held_request_that_was_answered_makes_room_for_another(ahead: bool) -> None:
    """However many there are in the life of a connection."""

    async def later() -> bytes:
        return b"answer"

    def run(data: bytes, at: int, connection: Connection) -> tuple[int, Any]:
        return len(data), later()

    connection = Connection(lambda *_: later(), limits=Limits(max_tasks=2), run=run if ahead else None)
    transport = Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    for opaque in range(3):
        connection.data_received(frame(opaque))
        held = connection.held
        assert len(held) == 1
        await asyncio.wait(held)
        await asyncio.sleep(0)
    assert (transport.written, transport.aborted) == ([b"answer"] * 3, False)
    assert connection.held == frozenset()


async def test_so_many_requests_are_held_and_one_more_ends_the_connection() -> None:
    connection, transport = connected(lambda *_: asyncio.Event().wait(), max_tasks=2)
    connection.data_received(frame(1) + frame(2))
    assert (len(connection.held), transport.closed) == (2, False)
    connection.data_received(frame(3))
    assert (len(connection.held), transport.closed) == (2, True)
    connection.connection_lost(None)
    await asyncio.wait(connection.held)


def test_who_wants_no_answer_gets_none_even_where_it_is_a_whole_frame() -> None:
    connection, transport = connected(lambda *_: b"answer")
    connection.data_received(wire.encode(Command(1, 1, wire.ONE_WAY)) + frame(2))
    assert transport.written == [b"answer"]


# -- peers that read slowly --------------------------------------------------------------------------------


def test_a_peer_has_so_much_to_read_before_its_requests_wait() -> None:
    _, transport = connected(pause_bytes=1_234)
    assert transport.high == 1_234


@pytest.mark.parametrize(("unread", "is_cut_off"), [(1_000, False), (1_001, True)])
@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize("is_large", [True, False])
async def test_a_peer_is_cut_off_past_what_it_may_leave_unread(
    unread: int, is_cut_off: bool, is_paused: bool, is_large: bool
) -> None:
    """Whether an answer is copied or sent from where it lies."""

    async def later() -> Answer:
        return Large(bytes(4), b"body") if is_large else b"answer"

    connection, transport = connected(lambda *_: later(), max_write_buffer=1_000, pause_bytes=500)
    connection.data_received(frame(1))
    if is_paused:
        connection.pause_writing()
    transport.unread = unread
    await asyncio.wait(connection.held)
    await asyncio.sleep(0)
    assert len(transport.written) == 1
    assert transport.aborted is (is_cut_off and is_paused)


async def test_a_full_backlog_stops_the_reading_until_all_of_it_was_served() -> None:
    served: list[int] = []

    def handle(connection: Connection, command: Command) -> Answer:
        served.append(command.opaque)
        if command.opaque == 3:
            connection.pause_writing()  # its answer was too much again
        return b"answer"

    connection, transport = connected(handle, pause_bytes=100, max_backlog=50)
    connection.pause_writing()
    connection.data_received(frame(1, bytes(60)))
    assert transport.reading
    connection.data_received(frame(2, bytes(39)))
    assert transport.reading, "99 bytes wait"
    connection.data_received(frame(3) + frame(4, bytes(1)))
    assert not transport.reading, "100 do"
    connection.resume_writing()
    await asyncio.sleep(0)
    assert (served, transport.reading) == ([1, 2, 3], False), "one waits again"
    connection.resume_writing()
    await asyncio.sleep(0)
    assert (served, transport.reading) == ([1, 2, 3, 4], True)
    connection.pause_writing()
    connection.data_received(frame(5, bytes(99)))
    assert transport.reading, "what was served is not counted again"


@pytest.mark.parametrize("ahead", [False, True])
async def test_what_comes_once_the_peer_has_read_does_not_overtake_what_waited(ahead: bool) -> None:
    """The loop may hand us both in one turn, before what waited is served."""
    served: list[int] = []

    def handle(connection: Connection, command: Command) -> Answer:
        served.append(command.opaque)
        return None

    def run(data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        served.append(-1)
        return len(data), b""

    connection = Connection(handle, run=run if ahead else None)
    connection.connection_made(Transport())  # type: ignore[arg-type]
    connection.pause_writing()
    connection.data_received(frame(1) + frame(2))
    connection.resume_writing()
    connection.data_received(frame(3))
    assert served == []
    await asyncio.sleep(0)
    assert served == [1, 2, 3]


async def test_what_waited_for_a_peer_that_left_is_not_served() -> None:
    served: list[int] = []
    connection, _ = connected(lambda connection, command: served.append(command.opaque))
    connection.pause_writing()
    connection.data_received(frame(1))
    connection.resume_writing()
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert served == []


async def test_so_many_requests_wait_and_no_more() -> None:
    connection, transport = connected(max_backlog=3)
    connection.pause_writing()
    connection.data_received(frame(1) + frame(2))
    assert transport.reading
    connection.data_received(frame(3))
    assert not transport.reading


async def test_a_connection_told_to_read_no_more_does_not_begin_again() -> None:
    """The server ends: what waits is answered, nothing is taken."""
    served: list[int] = []

    def handle(connection: Connection, command: Command) -> Answer:
        served.append(command.opaque)
        return b""

    connection, transport = connected(handle, max_backlog=1)
    connection.pause_writing()
    connection.data_received(frame(1))
    assert not transport.reading
    connection.stop_reading()
    connection.resume_writing()
    await asyncio.sleep(0)
    assert (served, transport.reading) == ([1], False)


async def test_the_first_request_served_late_begins_then() -> None:
    """Not when the last one before the pause was answered: that time is the peer's own."""
    begun: list[int] = []

    def handle(connection: Connection, command: Command) -> Answer:
        begun.append(connection.answered_ns)
        connection.answered_ns = command.opaque
        if command.opaque == 1:
            connection.pause_writing()
        return None

    connection, _ = connected(handle)
    connection.data_received(frame(1) + frame(2) + frame(3))
    connection.resume_writing()
    await asyncio.sleep(0)
    assert begun == [0, 0, 2]


async def test_callers_who_wait_for_a_slow_peer_go_on_when_it_has_read(until: Until) -> None:
    connection, transport = connected()
    connection.pause_writing()
    calls = [asyncio.ensure_future(connection.call(Command(1))) for _ in range(2)]
    await asyncio.sleep(0)
    assert transport.written == []
    connection.resume_writing()
    await until(lambda: len(transport.written) == 2)
    for opaque in (1, 2):
        connection.data_received(wire.encode(Command(0, opaque, wire.RESPONSE)))
    assert [answer.opaque for answer in await asyncio.gather(*calls)] == [1, 2]


async def test_a_caller_who_waits_for_a_slow_peer_hears_of_its_end_at_once() -> None:
    connection, _ = connected()
    connection.pause_writing()
    call = asyncio.ensure_future(connection.call(Command(1), timeout_ms=60_000))
    await asyncio.sleep(0)
    connection.connection_lost(None)
    async with asyncio.timeout(5):
        with pytest.raises(NetworkError, match="is closed"):
            await call


async def test_an_answered_call_leaves_no_timer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[Any] = []
    monkeypatch.setattr(Connection, "_time_out", lambda *what: rung.append(what))
    for timeout_ms in (1, 30, 1_000):  # a busy machine may need longer than the first for what stands here
        connection, _ = connected()
        call = asyncio.ensure_future(connection.call(Command(1), timeout_ms=timeout_ms))
        await asyncio.sleep(0)
        rung.clear()
        connection.data_received(wire.encode(Command(0, 1, wire.RESPONSE)))
        await call
        if not rung:
            break
    later = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.003 + timeout_ms / 1000, later.set_result, None)
    await later
    assert rung == []
    assert connection.awaits_nothing


async def test_nothing_is_written_after_the_goodbye() -> None:
    """An answer that is ready only then is nobody's."""

    async def later() -> bytes:
        return b"too late"

    connection, transport = connected(lambda *_: later())
    connection.data_received(frame(1))
    connection.close()
    assert not connection.is_open
    await asyncio.wait(connection.held)
    await asyncio.sleep(0)
    assert (transport.written, transport.closed) == ([], True)


# -- our requests ------------------------------------------------------------------------------------------


async def test_what_needs_no_answer_says_so() -> None:
    connection, transport = connected()
    connection.send(Command(7, body=b"news"))
    (written,) = transport.written
    told = wire.decode(written[4:])
    assert (told.code, told.body, told.is_one_way) == (7, b"news", True)
    assert connection.awaits_nothing


async def test_frames_of_one_turn_leave_together_in_the_order_they_were_asked_for() -> None:
    connection, transport = connected()
    for _ in range(2):
        for _ in range(3):
            connection.start_frame(lambda opaque: b"<%d>" % opaque)
        await asyncio.sleep(0)
    assert transport.written == [b"<1><2><3>", b"<4><5><6>"]


def test_numbers_of_requests_are_those_of_java_and_begin_anew() -> None:
    calls = Calls()
    calls._number = 0x7FFFFFFE
    assert [calls.number() for _ in range(3)] == [0x7FFFFFFF, 0, 1]


async def test_an_answer_that_nobody_waits_for_harms_nobody() -> None:
    """It came too late, or twice, or was never asked for."""
    connection, transport = connected()
    call, given_up = connection.start_call(Command(1)), connection.start_call(Command(1))
    given_up.cancel()
    for opaque in (99, 2, 1, 1, 2):
        connection.data_received(wire.encode(Command(0, opaque, wire.RESPONSE)))
    assert (await call).opaque == 1
    assert (connection.is_open, connection.awaits_nothing, transport.aborted) == (True, True, False)


class Caller:
    """Counts how often it is looked at."""

    looks = 0

    def done(self) -> bool:
        Caller.looks += 1
        return False


def test_many_who_wait_are_not_looked_through_for_every_request() -> None:
    Caller.looks, calls = 0, Calls()
    for _ in range(20_000):
        number = calls.number()
        calls.waiting[number] = Caller()  # type: ignore[assignment]
    assert len(calls.waiting) == 20_000
    assert Caller.looks < 2 * 20_000


async def test_a_call_that_is_lost_and_nobodys_any_more_is_no_error_of_the_loop() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    connection, _ = connected()
    kept, _given_up = connection.start_call(Command(1)), connection.start_call(Command(1))
    del _given_up
    connection.connection_lost(None)
    with pytest.raises(NetworkError, match=r"connection to 127\.0\.0\.1:7 was lost"):
        await kept
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "level", "level_if_nobody_hears"),
    [
        (TopicNotFound("no such topic"), 17, logging.DEBUG, logging.INFO),
        (ProtocolError("no such field"), 1, logging.DEBUG, logging.INFO),
        (DiskFull("no space left"), 14, logging.DEBUG, logging.INFO),
        (StoreError("broken"), 1, logging.ERROR, logging.ERROR),
        (ValueError("ours"), 1, logging.ERROR, logging.ERROR),
    ],
)
def test_a_refusal_is_told_to_its_peer_and_failures_of_ours_to_the_log(
    error: Exception, code: int, level: int, level_if_nobody_hears: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aerobee.net")
    for flag in (0, wire.ONE_WAY):
        assert refusal(Command(7, 1, flag), error, "somebody").code == code
    assert [record.levelno for record in caplog.records] == [level, level_if_nobody_hears]


# -- lines in the log --------------------------------------------------------------------------------------


def test_a_minute_of_complaints_is_one_line_and_their_number(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.net")
    complaints = Complaints(logging.getLogger("aerobee.net"), clock)

    def told() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    complaints.add("first")
    for _ in range(3):
        clock.advance(seconds=19)
        complaints.add("more")
    assert told() == ["first"]
    clock.advance(seconds=3)
    complaints.add("fifth")
    assert told() == ["fifth (and 3 like it since)"]
    clock.advance(ms=59_999)
    complaints.add("left out")
    assert told() == []
    clock.advance(ms=1)
    complaints.add("seventh")
    assert told() == ["seventh (and 1 like it since)"]
    clock.advance(seconds=60)
    complaints.add("eighth")
    assert told() == ["eighth"]
    clock.jump(clock.now() - 5)
    complaints.add("before the last one")
    assert told() == ["before the last one"], "a clock that was turned back keeps nobody quiet"
    caplog.set_level(logging.DEBUG, "aerobee.net")
    for _ in range(2):
        complaints.add("each")
    assert told() == ["each", "each"]
