# SPDX-License-Identifier: Apache-2.0
"""A client's connection to the gRPC port in time: slow readers, silence, strangers, the end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.fronts.grpc.connection import KEEPALIVE_MS, KEEPALIVE_WAIT_MS, ConnectionLimits
from aerobee.fronts.grpc.port import GrpcPort
from aerobee.net.tls import TlsMode
from aerobee.net.unfinished import Unfinished
from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import PING, PREFACE, Reason, frame
from aerobee.protocol.http2.streams import StreamLimits
from tests.fronts.grpc.lines import ECHO, for_ever, held, line_of, pings, some_ms
from tests.grpc_line import Line
from tests.turning import until

if TYPE_CHECKING:
    from aerobee.fronts.grpc.exchange import Exchange, Method

# -- slow readers ----------------------------------------------------------------------------------------------


async def test_the_transport_says_when_so_much_is_unread() -> None:
    async with line_of(pause_bytes=123_456) as line:
        assert line.wire.high == 123_456


@pytest.mark.parametrize(
    ("paused", "unread", "cut"), [(True, 300_000, False), (True, 300_001, True), (False, 300_001, False)]
)
async def test_what_lies_in_the_socket_counts_while_the_client_does_not_read(
    paused: bool, unread: int, cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.grpc")
    async with line_of(max_unread=300_000) as line:
        if paused:
            line.connection.pause_writing()
        line.wire.unread = unread
        line.call("/x", b"q")
        assert line.wire.closed is cut
        told = ["cutting off peer=127.0.0.1:4711: unread_bytes=300001"]
        assert caplog.messages == (told if cut else [])


async def test_a_call_waits_for_what_another_call_of_its_client_has_not_taken() -> None:
    sent: list[int] = []

    async def many(exchange: Exchange) -> None:
        for at in range(3):
            exchange.write(b"x")
            sent.append(at)
            await exchange.room()
        exchange.finish()

    def by_path(path: str) -> Method:
        return held(many) if path == "/many" else ECHO

    line = Line(by_path, greets=False, pause_bytes=50_000)
    line.say(PREFACE, frames.settings({frames.INITIAL_WINDOW: 0}))
    large = line.call("/large", bytes(49_995))
    assert line.connection.streams.unsent_bytes == 50_000
    many_number = line.call("/many", b"q")
    line.say(frames.window_update(many_number, 100_000), frames.window_update(0, 100_000))
    await until(lambda: sent)
    for _ in range(5):
        await asyncio.sleep(0)
    assert sent == [0], "as much is unread as may be"
    line.say(frames.window_update(large, 1))
    await until(lambda: line.hear(many_number).ended)
    assert line.hear(many_number).messages == [b"x"] * 3
    await line.close()


async def test_a_call_waits_while_the_socket_is_full() -> None:
    sent: list[int] = []

    async def many(exchange: Exchange) -> None:
        for at in range(2):
            await exchange.room()
            exchange.write(b"x")
            sent.append(at)
        exchange.finish()

    async with line_of(held(many)) as line:
        line.connection.pause_writing()
        number = line.call("/x", b"q")
        assert not line.connection.streams.open[number].has_room  # type: ignore[attr-defined]
        for _ in range(5):
            await asyncio.sleep(0)
        assert sent == []
        line.connection.resume_writing()
        await until(lambda: line.hear(number).ended)
        assert line.hear(number).messages == [b"x"] * 2


async def test_a_connection_that_is_closing_is_neither_stopped_nor_read_again() -> None:
    async with line_of() as line:
        line.wire.closed = True
        line.connection.pause_writing()
        assert line.wire.reading
        line.wire.reading = False
        line.connection.resume_writing()
        assert not line.wire.reading
        line.connection.connection_lost(None)


async def test_nothing_is_written_to_a_connection_that_is_closing() -> None:
    async with line_of() as line:
        before = bytes(line.wire.written)
        line.wire.closed = True
        line.connection.data_received(frame(PING, 0, 0, bytes(8)))
        assert bytes(line.wire.written) == before
        assert not line.connection.streams.out
        line.connection.connection_lost(None)


# -- time ------------------------------------------------------------------------------------------------------


async def test_who_has_spoken_is_not_turned_away_later() -> None:
    async with line_of(handshake_ms=2) as line:
        await some_ms(10)
        assert not line.wire.closed


async def test_who_has_not_spoken_in_time_is_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aerobee.grpc")
    async with line_of(greets=False, handshake_ms=2) as line:
        line.say(PREFACE)
        await until(lambda: line.wire.closed)
        assert "turned away peer=127.0.0.1:4711: it said nothing in time" in caplog.text


async def test_who_leaves_before_it_has_spoken_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aerobee.grpc")
    async with line_of(greets=False, handshake_ms=2) as line:
        line.wire.abort()
        await some_ms(10)
        assert not caplog.records


async def test_small_frames_are_counted_by_the_second() -> None:
    async with line_of(streams=StreamLimits(max_trifles=50)) as line:
        for second in range(1, 4):
            line.say(frame(PING, 0, 0, bytes(8)) * 45)
            line.connection.tick(line.clock.now() + second * 1_000)
        assert not line.wire.closed


async def test_idle_is_counted_from_the_last_call() -> None:
    async with line_of(held(for_ever), idle_close_ms=10_000) as line:
        start = line.clock.now()
        number = line.call("/x", b"q")
        line.connection.tick(start + 9_000)
        line.connection.tick(start + 20_000)
        line.say(frames.reset(number, Reason.NO_ERROR))
        line.connection.tick(start + 29_999)
        assert not line.wire.closed
        line.connection.tick(start + 30_000)
        assert line.wire.closed


async def test_a_client_that_speaks_is_not_asked_whether_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aerobee.grpc")
    async with line_of(held(for_ever)) as line:
        line.call("/x", b"q")
        start = line.clock.now()
        line.connection.tick(start)
        line.say(frame(PING, 0, 0, bytes(8)))
        line.connection.tick(start + KEEPALIVE_MS - 1)
        line.connection.tick(start + 2 * KEEPALIVE_MS - 2)
        assert pings(line) == 0, "heard a moment before a minute was over"
        line.connection.tick(start + 2 * KEEPALIVE_MS - 1)
        assert pings(line) == 1
        line.connection.tick(start + 2 * KEEPALIVE_MS - 1 + KEEPALIVE_WAIT_MS - 1)
        assert not line.wire.closed
        assert pings(line) == 1, "asked once"
        line.connection.tick(start + 2 * KEEPALIVE_MS - 1 + KEEPALIVE_WAIT_MS)
        assert line.wire.closed
        assert caplog.messages == ["closing peer=127.0.0.1:4711: it does not answer"]


# -- strangers and the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + frame(PING, 0, 0, b"short")], ids=["http", "no settings"]
)
async def test_a_stranger_is_told_of_and_not_talked_to(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aerobee.grpc")
    async with line_of(greets=False) as line:
        line.say(said)
        assert line.wire.closed
        assert not line.wire.written
        (told,) = caplog.messages
        assert told.startswith("closing peer=127.0.0.1:4711: ")


async def test_a_farewell_that_nobody_reads_is_cut_short() -> None:
    async with line_of(handshake_ms=2) as line:
        closing: list[str] = []
        line.wire.close = lambda: closing.append("closing")  # type: ignore[method-assign]
        line.wire.unread = 1
        line.connection.close()
        assert (closing, line.wire.closed) == (["closing"], False), "what is written is written"
        await until(lambda: line.wire.closed)


async def test_a_farewell_that_is_written_needs_no_cut() -> None:
    async with line_of(handshake_ms=2) as line:
        line.wire.close = lambda: None  # type: ignore[method-assign]
        line.connection.close()
        await some_ms(10)
        assert not line.wire.closed


async def test_calls_that_never_end_are_cut_when_the_port_has_waited() -> None:
    async with line_of(held(for_ever)) as line:
        line.call("/x", b"q")
        await line.port.close(5)
        assert line.wire.closed
        assert line.goodbye() == (Reason.NO_ERROR, b"")
        assert not line.connection.held


async def test_a_closing_port_waits_for_every_call_not_only_the_first_that_ends() -> None:
    go_on = [asyncio.Event() for _ in range(3)]
    calls = iter(go_on)

    async def waits(exchange: Exchange) -> None:
        await next(calls).wait()
        exchange.answer(b"done")

    async with line_of(held(waits)) as line:
        numbers = [line.call("/x", b"q") for _ in go_on]
        closing = asyncio.ensure_future(line.port.close(10_000))
        await until(line.goodbye)
        for number, event in zip(numbers, go_on, strict=True):
            assert not line.wire.closed
            event.set()
            await until(lambda number=number: line.hear(number).ended)  # type: ignore[misc]
        await closing
        assert [line.hear(number).messages for number in numbers] == [[b"done"]] * 3


async def test_a_port_with_idle_connections_closes_at_once() -> None:
    async with line_of() as line:
        async with asyncio.timeout(10):
            await line.port.close(60_000)
        assert line.wire.closed
        assert line.goodbye() == (Reason.NO_ERROR, b"")


async def test_a_port_waits_for_connections_that_take_their_time_to_close() -> None:
    async with line_of() as line:
        loop, gone = asyncio.get_running_loop(), line.wire.abort
        cut: list[bool] = []
        line.wire.abort = lambda: cut.append(True) or gone()  # type: ignore[method-assign,func-returns-value]
        line.wire.close = lambda: loop.call_later(0.003, gone)  # type: ignore[method-assign,assignment]
        async with asyncio.timeout(10):
            await line.port.close(60_000)
        assert line.wire.closed
        assert not cut, "it was still being read"


async def test_the_port_looks_after_its_connections_every_second() -> None:
    async with line_of(idle_close_ms=3_000) as line:
        others = [Line(lambda path: ECHO, beside=line, idle_close_ms=3_000) for _ in range(2)]
        wires = [each.wire for each in (line, *others)]
        await line.port.start("127.0.0.1", 0)
        line.clock.advance(2_000)
        assert not any(wire.closed for wire in wires)
        line.clock.advance(1_000)
        assert all(wire.closed for wire in wires)
        await line.port.close(0)
        seen: list[int] = []
        line.port._connections = [SimpleNamespace(tick=seen.append)]  # type: ignore[assignment,list-item]
        line.clock.advance(5_000)
        assert seen == [], "and not when it is closed"


@pytest.mark.parametrize("speaks_tls", [False, True])
async def test_the_port_admits_so_many_and_lets_go_who_says_nothing(speaks_tls: bool) -> None:
    """Also before it is known whether TLS is spoken: who comes must begin within the time for it."""
    tls: Any = SimpleNamespace(mode=TlsMode.PERMISSIVE, context=None) if speaks_tls else None
    limits = ConnectionLimits(max_message=100, handshake_ms=20 if speaks_tls else 60_000)
    port = GrpcPort(
        lambda path: ECHO, ManualClock(), Unfinished(1_000), limits=limits, max_connections=1, tls=tls
    )
    number = await port.start("127.0.0.1", 0)
    readers = []
    async with asyncio.timeout(4):
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            readers.append((reader, writer))
            await until(lambda: port._door.waiting or port._connections)
        with suppress(ConnectionError):
            assert await readers[1][0].read() == b"", "one too many"
        if speaks_tls:
            with suppress(ConnectionError):
                assert await readers[0][0].read() == b""
        else:
            assert not readers[0][0].at_eof()
    for _, writer in readers:
        writer.transport.abort()
    await port.close(0)
