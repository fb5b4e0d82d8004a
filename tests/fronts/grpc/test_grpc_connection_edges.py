# SPDX-License-Identifier: Apache-2.0
"""A client's connection to the gRPC port where limits, times and ends meet: the last byte that is let through, the
first that is not, and what is left behind."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.fronts.grpc.codes import Code
from aerobee.fronts.grpc.exchange import Exchange, Method
from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import DATA, END_STREAM, Reason, frame
from tests.fronts.grpc.lines import ECHO, begun, for_ever, held, line_of
from tests.grpc_line import Line, as_message
from tests.turning import until

# -- messages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_message_may_be_as_long_as_the_limit_and_no_longer(pieces: int) -> None:
    for size, status in ((1_024, 0), (1_025, Code.RESOURCE_EXHAUSTED)):
        async with line_of(max_message=1_024) as line:
            data = as_message(b"x" * size)
            cut = len(data) // pieces
            number = begun(line, data[:cut])
            line.say(frame(DATA, END_STREAM, number, data[cut:]))
            heard = line.hear(number)
            assert (heard.status, heard.messages) == (status, [] if status else [b"x" * size])


async def test_what_follows_a_refusal_is_neither_read_nor_kept() -> None:
    async with line_of(max_message=1_024) as line:
        number = begun(line, b"\1" + as_message(b"abc")[1:])
        assert line.hear(number).status == Code.UNIMPLEMENTED
        line.say(frame(DATA, 0, number, as_message(b"abc")[:6]), frame(DATA, END_STREAM, number, b""))
        heard = line.hear(number)
        assert (len(heard.headers), heard.messages) == (1, [])
        assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)


async def test_a_refusal_in_the_middle_of_a_read_leaves_what_comes_after_it_alone() -> None:
    told: list[bytes] = []

    def heard(exchange: Exchange, data: bytes) -> None:
        told.append(data)
        exchange.fail(Code.INVALID_ARGUMENT, "one was too many")

    def opened(exchange: Exchange) -> None:
        exchange.hears(heard, Exchange.finish)

    async with line_of(Method(Exchange.answer, opened)) as line:
        number = begun(line, as_message(b"one") + as_message(b"two") + b"\0\0")
        assert told == [b"one"]
        assert line.hear(number).status == Code.INVALID_ARGUMENT
        assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)


async def test_what_comes_while_an_answer_waits_for_its_window_is_neither_served_nor_kept() -> None:
    told: list[bytes] = []

    def heard(exchange: Exchange, data: bytes) -> None:
        told.append(data)
        exchange.answer(b"enough")

    def opened(exchange: Exchange) -> None:
        exchange.hears(heard, Exchange.finish)

    async with line_of(Method(Exchange.answer, opened)) as line:
        line.say(frames.settings({frames.INITIAL_WINDOW: 0}))
        number = begun(line, as_message(b"one"))
        line.say(frame(DATA, 0, number, as_message(b"two")), frame(DATA, 0, number, as_message(b"three")[:6]))
        assert told == [b"one"]
        assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)
        line.say(frames.window_update(number, 100))
        heard_last = line.hear(number)
        assert (heard_last.messages, heard_last.status) == ([b"enough"], 0)


@pytest.mark.parametrize("more", [b"\0", as_message(b"abc")[:6]])
async def test_a_call_that_ends_within_a_message_is_not_served_with_the_one_before(more: bytes) -> None:
    async with line_of() as line:
        number = begun(line, as_message(b"one"))
        line.say(frame(DATA, END_STREAM, number, more))
        heard = line.hear(number)
        assert (heard.status, heard.messages) == (Code.INTERNAL, [])


async def test_a_second_message_is_not_served_in_the_place_of_the_first() -> None:
    async with line_of() as line:
        number = begun(line, as_message(b"one"))
        line.say(frame(DATA, END_STREAM, number, as_message(b"two")))
        heard = line.hear(number)
        assert (heard.status, heard.messages) == (Code.INTERNAL, [])
        assert heard.headers[0]["grpc-message"] == "more than one message where a call takes one"


async def test_of_two_answers_the_first_counts() -> None:
    def twice(exchange: Exchange, data: bytes) -> None:
        exchange.answer(b"one")
        exchange.answer(b"two")
        exchange.write(b"three")
        exchange.fail(Code.INTERNAL, "four")

    async with line_of(Method(twice)) as line:
        heard = line.hear(line.call("/x", b"q"))
        assert (heard.messages, len(heard.headers), heard.status) == ([b"one"], 2, 0)


async def test_a_failure_after_some_messages_comes_as_trailers() -> None:
    def some(exchange: Exchange, data: bytes) -> None:
        exchange.write(b"one")
        exchange.fail(Code.INTERNAL, "no more")

    async with line_of(Method(some)) as line:
        heard = line.hear(line.call("/x", b"q"))
        assert heard.messages == [b"one"]
        assert heard.headers[1] == {"grpc-status": "13", "grpc-message": "no more"}


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto"])
async def test_every_form_of_grpc_is_served(kind: str) -> None:
    async with line_of() as line:
        number, headers = line.open("/x", {"content-type": kind})
        line.say(headers, frame(DATA, END_STREAM, number, as_message(b"x")))
        assert line.hear(number).messages == [b"x"]


async def test_a_call_is_served_by_what_its_path_names() -> None:
    asked: list[str] = []

    def method(path: str) -> Method:
        asked.append(path)
        return ECHO

    line = Line(method)
    line.call("/a.Service/Call", b"q")
    assert asked == ["/a.Service/Call"]
    await line.close()


# -- who is told of an end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["finish", "fail", "reset", "lost"])
async def test_whoever_wants_to_know_is_told_once_that_a_call_is_over(how: str) -> None:
    told: list[str] = []
    exchanges: list[Exchange] = []

    def opened(exchange: Exchange) -> None:
        exchanges.append(exchange)
        exchange.on_stop = lambda: told.append(how)

    async with line_of(Method(Exchange.answer, opened)) as line:
        number = begun(line, b"")
        if how == "finish":
            exchanges[0].finish()
        elif how == "fail":
            exchanges[0].fail(Code.INTERNAL, "x")
        elif how == "reset":
            line.say(frames.reset(number, Reason.NO_ERROR))
        assert told == ([] if how == "lost" else [how])
        line.wire.abort()
        assert told == [how]


async def test_who_was_told_of_an_end_that_waits_for_its_window_is_not_told_again_when_the_client_goes() -> (
    None
):
    told: list[str] = []

    def opened(exchange: Exchange) -> None:
        exchange.on_stop = lambda: told.append("over")
        exchange.answer(b"waits")

    async with line_of(Method(Exchange.answer, opened)) as line:
        line.say(frames.settings({frames.INITIAL_WINDOW: 0}))
        begun(line, b"")
        assert told == ["over"]
        line.wire.abort()
        assert told == ["over"]


async def test_the_answer_to_the_last_message_of_a_stream_ends_it_and_keeps_nothing() -> None:
    """Headers once, whatever was said before; whoever wants to know is told, and bytes behind it are let go."""
    told: list[bytes | str] = []

    def heard(exchange: Exchange, data: bytes) -> None:
        told.append(data)
        if data == b"last":
            exchange.answer(b"two")

    def opened(exchange: Exchange) -> None:
        exchange.on_stop = lambda: told.append("over")
        exchange.hears(heard, Exchange.finish)

    for speaks_first in (False, True):
        told.clear()
        async with line_of(Method(Exchange.answer, opened)) as line:
            number = begun(line, b"")
            if speaks_first:
                line.connection.streams.open[number].write(b"one")  # type: ignore[attr-defined]
            line.say(frame(DATA, END_STREAM, number, as_message(b"last") + b"\0\0"))
            answered = line.hear(number)
            assert answered.messages == ([b"one", b"two"] if speaks_first else [b"two"])
            assert (len(answered.headers), answered.status) == (2, 0)
            assert told == [b"last", "over"]
            assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)


async def test_work_whose_call_is_ended_by_another_hand_ends() -> None:
    steps: list[str] = []
    exchanges: list[Exchange] = []

    async def works(exchange: Exchange) -> None:
        steps.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")

    def opened(exchange: Exchange) -> None:
        exchanges.append(exchange)
        exchange.hold(works(exchange))

    async with line_of(Method(Exchange.answer, opened)) as line:
        begun(line, b"")
        exchanges[0].fail(Code.INTERNAL, "over")
        await until(lambda: not line.connection.held)
        assert steps == ["begun", "ended"], "also where it had not begun yet"


async def test_work_that_ends_its_own_call_is_not_cut_short() -> None:
    steps: list[str] = []

    async def works(exchange: Exchange) -> None:
        exchange.answer(b"done")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        steps.append("tidied up")

    async with line_of(held(works)) as line:
        assert await line.ask("/x", b"q") == [b"done"]
        await until(lambda: not line.connection.held)
        assert steps == ["tidied up"]


# -- what is not whole, over all clients -----------------------------------------------------------------------


async def test_what_a_lost_connection_did_not_finish_does_not_count_any_more() -> None:
    async with line_of() as line:
        begun(line, as_message(bytes(1_000))[:400])
        assert line.port.unfinished.total == 400
        line.wire.abort()
        assert line.port.unfinished.total == 0


async def test_a_message_that_is_being_served_is_no_unfinished_one() -> None:
    async with line_of(held(for_ever)) as line:
        line.call("/x", bytes(1_000))
        assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)
        number = begun(line, as_message(bytes(1_000)))
        assert line.port.unfinished.total == 1_000, "it may say that there is more"
        line.say(frame(DATA, END_STREAM, number, b""))
        assert (line.connection.kept_bytes, line.port.unfinished.total) == (0, 0)


async def test_whose_message_was_begun_first_is_cut_off_first() -> None:
    async with line_of(max_unfinished=1_000) as first:
        second, third = (Line(lambda path: ECHO, beside=first) for _ in range(2))
        begun(first, as_message(bytes(900))[:400])
        begun(second, as_message(bytes(900))[:400])
        begun(third, as_message(bytes(900))[:400])
        assert (first.wire.closed, second.wire.closed, third.wire.closed) == (True, False, False)
        assert first.port.unfinished.total == 800
        await second.close()
        await third.close()


async def test_who_completes_one_message_and_begins_another_is_last_in_line() -> None:
    async with line_of(max_unfinished=1_000) as first:
        second, third = (Line(lambda path: ECHO, beside=first) for _ in range(2))
        number = begun(first, as_message(bytes(900))[:400])
        begun(second, as_message(bytes(900))[:400])
        rest, headers = first.open("/x", {})
        first.say(
            frame(DATA, END_STREAM, number, as_message(bytes(900))[400:]),
            headers,
            frame(DATA, 0, rest, as_message(bytes(900))[:300]),
        )
        begun(third, as_message(bytes(900))[:400])
        assert (first.wire.closed, second.wire.closed) == (False, True)
        await second.close()
        await third.close()


async def test_a_message_that_came_whole_makes_the_one_under_way_younger() -> None:
    async with line_of(max_unfinished=1_000) as first:
        second, third = (Line(lambda path: ECHO, beside=first) for _ in range(2))
        begun(first, as_message(bytes(900))[:400])
        begun(second, as_message(bytes(900))[:400])
        first.call("/x", b"whole")
        begun(third, as_message(bytes(900))[:400])
        assert (first.wire.closed, second.wire.closed) == (False, True)
        await second.close()
        await third.close()
