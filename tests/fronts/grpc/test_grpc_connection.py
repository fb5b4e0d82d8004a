# SPDX-License-Identifier: Apache-2.0
"""A client's connection to the gRPC port, byte by byte: messages, deadlines, slow readers, silence."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.fronts.grpc.codes import MAX_TEXT, Code, trailers
from aerobee.fronts.grpc.connection import KEEPALIVE_MS, KEEPALIVE_WAIT_MS
from aerobee.fronts.grpc.exchange import Exchange, Method
from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import ACK, DATA, END_STREAM, GOAWAY, PING, PREFACE, Reason, frame
from aerobee.protocol.http2.hpack import HeaderBlocks
from aerobee.protocol.http2.streams import StreamLimits
from tests.fronts.grpc.lines import for_ever, held, line_of
from tests.grpc_line import Ended, Line, as_message
from tests.turning import until

# -- messages ----------------------------------------------------------------------------------------------


async def test_a_call_is_answered_by_headers_message_and_trailers() -> None:
    async with line_of() as line:
        number = line.call("/x", b"hello")
        heard = line.hear(number)
        assert heard.messages == [b"hello"]
        assert heard.headers == [
            {":status": "200", "content-type": "application/grpc"},
            {"grpc-status": "0"},
        ]
        assert heard.ended
        assert not line.connection.streams.open


async def test_calls_that_come_together_are_answered_in_one_write() -> None:
    async with line_of() as line:
        written: list[bytes] = []
        line.wire.write = written.append  # type: ignore[method-assign,assignment]
        asked = []
        for _ in range(3):
            number, headers = line.open("/x", {})
            asked += [headers, frame(DATA, END_STREAM, number, as_message(b"x"))]
        line.say(*asked)
        assert len(written) == 1


async def test_a_large_message_in_many_frames_is_one_message_and_leaves_nothing_behind() -> None:
    body = bytes(range(256)) * 2_000
    async with line_of() as line:
        assert await line.ask("/x", body) == [body]
        assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)


@pytest.mark.parametrize("cut", range(1, 8))
async def test_a_message_may_be_cut_anywhere(cut: int) -> None:
    async with line_of() as line:
        number, headers = line.open("/x", {})
        data = as_message(b"abc")
        line.say(headers, frame(DATA, 0, number, data[:cut]))
        assert line.port.unfinished.total == cut
        line.say(frame(DATA, END_STREAM, number, data[cut:]))
        assert line.hear(number).messages == [b"abc"]
        assert line.port.unfinished.total == 0


async def test_a_stream_of_messages_is_told_one_by_one() -> None:
    told: list[bytes] = []

    def opened(exchange: Exchange) -> None:
        exchange.hears(lambda _, data: told.append(data), Exchange.finish)

    async with line_of(Method(Exchange.answer, opened)) as line:
        number, headers = line.open("/x", {})
        both = as_message(b"one") + as_message(b"") + as_message(b"three")
        line.say(headers, frame(DATA, 0, number, both[:-2]))
        assert told == [b"one", b""]
        assert line.connection.kept_bytes == len(as_message(b"three")) - 2, "what was told is not kept"
        line.say(frame(DATA, END_STREAM, number, both[-2:]))
        assert told == [b"one", b"", b"three"]
        assert line.hear(number).status == 0


async def test_a_stream_whose_only_message_is_its_last_is_told_of_its_end_too() -> None:
    told: list[bytes] = []

    def opened(exchange: Exchange) -> None:
        exchange.hears(lambda _, data: told.append(data), Exchange.finish)

    async with line_of(Method(Exchange.answer, opened)) as line:
        number, headers = line.open("/x", {})
        line.say(headers, frame(DATA, END_STREAM, number, as_message(b"all")))
        heard = line.hear(number)
        assert (told, heard.status, heard.ended) == ([b"all"], 0, True)
        assert not line.connection.streams.open


async def test_an_answer_without_a_message_is_a_whole_answer() -> None:
    def opened(exchange: Exchange) -> None:
        exchange.hears(Exchange.answer, Exchange.finish)

    async with line_of(Method(Exchange.answer, opened)) as line:
        number, headers = line.open("/x", {})
        line.say(headers, frame(DATA, END_STREAM, number, b""))
        heard = line.hear(number)
        assert heard.headers == [
            {":status": "200", "content-type": "application/grpc", "grpc-status": "0"},
        ]
        assert heard.ended


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"", Code.INTERNAL, "ended before its message"),
        (as_message(b"abc")[:-1], Code.INTERNAL, "ended before its message"),
        (as_message(b"a") * 2, Code.INTERNAL, "more than one message"),
        (b"\1" + as_message(b"abc")[1:], Code.UNIMPLEMENTED, "compressed messages are not served"),
        (b"\0\0\0\4\1", Code.RESOURCE_EXHAUSTED, "a message of 1025 bytes, limit 1024"),
    ],
)
async def test_what_is_no_request_is_told_so(data: bytes, code: Code, text: str) -> None:
    async with line_of(max_message=1024) as line:
        number, headers = line.open("/x", {})
        line.say(headers, frame(DATA, END_STREAM, number, data))
        heard = line.hear(number)
        assert heard.status == code
        assert text in heard.headers[-1]["grpc-message"]
        assert heard.headers[-1]["grpc-accept-encoding"] == "identity"
        assert line.connection.kept_bytes == 0
        assert not line.connection.streams.open


@pytest.mark.parametrize("fields", [{"content-type": "text/html"}, {":method": "GET"}])
async def test_who_speaks_http_but_not_grpc_is_told_so(fields: dict[str, str]) -> None:
    async with line_of() as line:
        number, headers = line.open("/", fields)
        line.say(headers)
        assert line.hear(number).headers == [{":status": "415"}]
        assert not line.connection.streams.open


async def test_messages_that_wait_for_their_end_are_bounded_over_all_clients() -> None:
    async with line_of(max_unfinished=10_000) as line:
        for _ in range(3):
            number, headers = line.open("/x", {})
            line.say(headers, frame(DATA, 0, number, as_message(bytes(4_000))))
        assert line.wire.closed
        assert line.port.unfinished.total == 0


async def test_what_a_client_takes_back_does_not_count_any_more() -> None:
    async with line_of() as line:
        number, headers = line.open("/x", {})
        line.say(headers, frame(DATA, 0, number, as_message(bytes(1_000))[:500]))
        assert line.port.unfinished.total == 500
        line.say(frames.reset(number, Reason.NO_ERROR))
        assert line.port.unfinished.total == 0


def test_the_text_of_a_status_is_escaped_and_bounded() -> None:
    block = trailers(Code.INTERNAL, "50 % of\nä" + "x" * 5_000)
    fields = HeaderBlocks(1 << 20).read(block)
    assert fields["grpc-message"].startswith("50 %25 of%0A%C3%A4x")
    assert len(fields["grpc-message"]) < MAX_TEXT + 20


# -- calls that wait ---------------------------------------------------------------------------------------


async def test_a_caller_is_told_when_its_deadline_passes() -> None:
    async with line_of(held(for_ever)) as line:
        with pytest.raises(Ended, match="not answered within 5 ms") as ended:
            await line.ask("/x", b"q", grpc_timeout="5m")
        assert ended.value.code == Code.DEADLINE_EXCEEDED
        await until(lambda: not line.connection.held)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("3S", 3_000), ("2M", 120_000), ("1H", 3_600_000), ("250m", 250), ("1500u", 1), ("99n", 0),
        ("99999999H", None), ("", None), ("S", None), ("3", None), ("-1S", None), ("123456789m", None),
    ],
)  # fmt: skip
async def test_deadlines_are_read_in_every_unit(text: str, ms: int | None) -> None:
    found: list[int | None] = []
    async with line_of(Method(lambda exchange, data: found.append(exchange.remaining_ms))) as line:
        line.call("/x", b"q", grpc_timeout=text)
        assert found == [ms]


@pytest.mark.parametrize("leaves", ["reset", "connection"])
async def test_the_work_for_a_caller_that_leaves_ends(leaves: str) -> None:
    async with line_of(held(for_ever)) as line:
        number = line.call("/x", b"q")
        if leaves == "reset":
            line.say(frames.reset(number, Reason.NO_ERROR))
        else:
            line.wire.abort()
        await until(lambda: not line.connection.held)


async def test_work_that_fails_is_told_as_the_brokers_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(exchange: Exchange) -> None:
        raise RuntimeError("why")

    async with line_of(held(fails)) as line:
        with pytest.raises(Ended) as ended:
            await line.ask("/x", b"q")
        assert ended.value.code == Code.INTERNAL
        assert "RuntimeError: why" in caplog.text


# -- slow readers ------------------------------------------------------------------------------------------


async def test_many_answers_wait_until_the_client_has_taken_what_was_written() -> None:
    sent: list[int] = []

    async def many(exchange: Exchange) -> None:
        for at in range(5):
            exchange.write(bytes(40_000))
            sent.append(at)
            await exchange.room()
        exchange.finish()

    async with line_of(held(many), greets=False) as line:
        line.say(PREFACE, frames.settings({}))
        number = line.call("/x", b"q")
        await until(lambda: len(sent) == 2)
        assert len(line.hear(number).data) == frames.USUAL_WINDOW
        for _ in range(3):
            line.say(frames.window_update(0, 100_000), frames.window_update(number, 100_000))
            await asyncio.sleep(0)
        await until(lambda: line.hear(number).ended)
        assert len(line.hear(number).data) == 5 * 40_005


async def test_a_client_that_does_not_read_is_not_read_either() -> None:
    async with line_of() as line:
        line.connection.pause_writing()
        assert not line.wire.reading
        line.connection.resume_writing()
        assert line.wire.reading


async def test_one_that_takes_nothing_and_asks_on_is_cut_off() -> None:
    async with line_of(greets=False, max_unread=300_000) as line:
        line.say(PREFACE, frames.settings({frames.INITIAL_WINDOW: 0}))
        for _ in range(10):
            line.call("/x", bytes(40_000))
        assert line.wire.closed


# -- silence and the end -----------------------------------------------------------------------------------


def pings(line: Line) -> int:
    line.hear(0)
    return sum(kind == PING and not flags & ACK for kind, flags, _, _ in line.others)


async def test_a_silent_client_is_asked_and_one_that_does_not_answer_is_closed() -> None:
    async with line_of(held(for_ever)) as line:
        line.call("/x", b"q")
        now = 0
        line.connection.tick(now)
        line.connection.tick(now + KEEPALIVE_MS - 1)
        assert pings(line) == 0
        line.connection.tick(now := KEEPALIVE_MS)
        line.connection.tick(now + 1)
        assert pings(line) == 1
        line.say(frame(PING, ACK, 0, bytes(8)))
        line.connection.tick(now := now + KEEPALIVE_WAIT_MS)
        assert not line.wire.closed
        line.connection.tick(now := now + KEEPALIVE_MS)
        line.connection.tick(now + KEEPALIVE_WAIT_MS)
        assert line.wire.closed


async def test_a_client_without_calls_is_let_go_with_a_goodbye() -> None:
    async with line_of(idle_close_ms=10_000) as line:
        begun = line.clock.now()
        line.connection.tick(begun + 9_999)
        assert not line.wire.closed
        line.connection.tick(begun + 10_000)
        assert line.wire.closed
        assert line.goodbye() == (Reason.NO_ERROR, b"")


async def test_who_breaks_the_rules_is_told_why_before_it_is_closed() -> None:
    async with line_of(streams=StreamLimits(max_trifles=50)) as line:
        line.say(frame(PING, 0, 0, bytes(8)) * 60)
        assert line.wire.closed
        reason, text = line.goodbye() or (0, b"")
        assert reason == Reason.ENHANCE_YOUR_CALM
        assert b"more than 50 frames a second" in text


async def test_when_the_port_closes_calls_under_way_are_answered_and_new_ones_refused() -> None:
    go_on = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        await go_on.wait()
        exchange.answer(b"done")

    async with line_of(held(waits)) as line:
        number = line.call("/x", b"q")
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(line.port.close(10_000))
        await until(line.goodbye)
        late = line.call("/x", b"q")
        assert line.hear(late).reset == Reason.REFUSED_STREAM
        go_on.set()
        await closing
        assert line.hear(number).messages == [b"done"]
        assert [kind for kind, _, _, _ in line.others].count(GOAWAY) == 1
