# SPDX-License-Identifier: Apache-2.0
"""Connections of the HTTP port told the time: who is cut and when, who makes room, and how the port ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from aerobee.clock import ManualClock
from aerobee.fronts.http import front as front_module
from aerobee.fronts.http.app import make_app
from aerobee.fronts.http.connections import HttpConnections, HttpLimits
from aerobee.fronts.http.front import HttpFront
from tests.fronts.http.asking import ask, read_answer
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from tests.fronts.http.conftest import Dial

LIMITS = HttpLimits(max_connections=2, idle_ms=15_000, busy_ms=60_000)
ASKED = b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Held:
    """A handler that answers when it is told to, and says when it was cancelled."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.became: list[str] = []

    async def __call__(self, request: Request) -> PlainTextResponse:
        self.became.append("asked")
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.became.append("cancelled")
            raise
        return PlainTextResponse("held")


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def front(clock: ManualClock, held: Held) -> AsyncIterator[HttpFront]:
    async def quick(request: Request) -> PlainTextResponse:
        return PlainTextResponse("quick")

    async def waits(request: Request) -> PlainTextResponse:
        return await held(request)

    app = make_app([Route("/quick", quick), Route("/held", waits)], None, max_body=10, hosts=None)
    running = HttpFront(app, ("127.0.0.1", 0), clock, limits=LIMITS)
    await running.start()
    yield running
    await running.stop()


def swept(front: HttpFront, now: int) -> int:
    """How many are left at that time."""
    front.connections.sweep(now)
    return sum(not each.transport.is_closing() for each in front.connections._since)


# -- time ----------------------------------------------------------------------------------------------------


async def test_an_idle_connection_has_its_time_to_the_millisecond(
    front: HttpFront, dial: Dial, clock: ManualClock
) -> None:
    await dial(front.address)
    await until(lambda: len(front.connections) == 1)
    came = clock.now()
    assert swept(front, came + 14_999) == 1
    assert swept(front, came + 15_000) == 0


async def test_time_begins_again_with_each_request(front: HttpFront, dial: Dial, clock: ManualClock) -> None:
    reader, writer = await dial(front.address)
    await until(lambda: len(front.connections) == 1)
    came = clock.now()
    for seconds in (10, 20, 30):
        writer.write(ASKED % b"quick")
        assert (await read_answer(reader)).text == "quick"
        assert swept(front, came + seconds * 1_000) == 1
    assert swept(front, came + 44_999) == 1
    assert swept(front, came + 45_000) == 0


async def test_a_busy_connection_has_longer_and_is_idle_from_its_answer_on(
    front: HttpFront, dial: Dial, clock: ManualClock, held: Held
) -> None:
    reader, writer = await dial(front.address)
    writer.write(ASKED % b"held")
    await until(lambda: held.became)
    came = clock.now()
    assert swept(front, came + 1_000) == 1
    assert swept(front, came + 60_999) == 1
    held.go_on.set()
    assert (await read_answer(reader)).text == "held"
    assert swept(front, came + 61_000) == 1, "it was answered in time"
    assert swept(front, came + 75_999) == 1
    assert swept(front, came + 76_000) == 0


async def test_a_request_that_is_not_answered_in_a_minute_is_cut(
    front: HttpFront, dial: Dial, clock: ManualClock, held: Held
) -> None:
    _, writer = await dial(front.address)
    writer.write(ASKED % b"held")
    await until(lambda: held.became)
    came = clock.now()
    assert swept(front, came) == 1
    assert swept(front, came + 59_999) == 1
    assert swept(front, came + 60_000) == 0


async def test_connections_are_looked_at_every_second(
    front: HttpFront, dial: Dial, clock: ManualClock
) -> None:
    seen: list[int] = []
    front.connections.sweep = seen.append  # type: ignore[method-assign,assignment]
    start = clock.now()
    for _ in range(6):
        clock.advance(500)
    assert seen == [start + 1_000, start + 2_000, start + 3_000]
    await front.stop()
    clock.advance(5_000)
    assert len(seen) == 3, "and not when the port is closed"


# -- places --------------------------------------------------------------------------------------------------


async def test_who_asked_last_is_the_last_to_make_room(
    front: HttpFront, dial: Dial, clock: ManualClock
) -> None:
    first, asks = await dial(front.address)
    await until(lambda: len(front.connections) == 1)
    second, _ = await dial(front.address)
    await until(lambda: len(front.connections) == 2)
    asks.write(ASKED % b"quick")
    assert (await read_answer(first)).text == "quick"
    front.connections.sweep(clock.now())
    third, third_asks = await dial(front.address)
    assert await second.read() == b"", "it has said nothing since it came"
    assert len(front.connections) == 2
    third_asks.write(ASKED % b"quick")
    assert (await read_answer(third)).text == "quick"
    asks.write(ASKED % b"quick")
    assert (await read_answer(first)).text == "quick"


async def test_who_is_busy_makes_no_room(front: HttpFront, dial: Dial, held: Held) -> None:
    busy, writer = await dial(front.address)
    writer.write(ASKED % b"held")
    await until(lambda: held.became)
    idle, _ = await dial(front.address)
    await until(lambda: len(front.connections) == 2)
    assert (await ask(front.address, "/quick")).text == "quick"
    assert await idle.read() == b""
    held.go_on.set()
    assert (await read_answer(busy)).text == "held"


async def test_who_was_turned_away_takes_no_place(front: HttpFront, dial: Dial, held: Held) -> None:
    writers = []
    for _ in range(2):
        _, writer = await dial(front.address)
        writer.write(ASKED % b"held")
        writers.append(writer)
    await until(lambda: len(held.became) == 2)
    late, _ = await dial(front.address)
    assert await late.read() == b""
    assert len(front.connections) == 2


async def test_who_breaks_its_request_while_it_is_answered_costs_its_connection_alone(
    dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"the first"
        await asyncio.Event().wait()

    async def streams(request: Request) -> StreamingResponse:
        return StreamingResponse(pieces())

    app = make_app([Route("/streams", streams, methods=["POST"])], None, max_body=10, hosts=None)
    running = HttpFront(app, ("127.0.0.1", 0), ManualClock())
    await running.start()
    reader, writer = await dial(running.address)
    writer.write(b"POST /streams HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    await reader.readuntil(b"the first")
    writer.write(b"zz\r\n")
    await until(lambda: len(running.connections) == 0)
    with suppress(ConnectionResetError):
        assert b"HTTP/1.1" not in await reader.read()
    assert (await ask(running.address, "/")).status == 200
    assert not caplog.records
    await running.stop()


# -- the end -------------------------------------------------------------------------------------------------


async def test_an_answer_under_way_is_written_and_then_the_port_closes_at_once(
    front: HttpFront, dial: Dial, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "GRACE_MS", 3_600_000)
    busy, writer = await dial(front.address)
    idle, _ = await dial(front.address)
    writer.write(ASKED % b"held")
    await until(lambda: held.became and len(front.connections) == 2)
    stopping = asyncio.ensure_future(front.stop())
    assert await idle.read() == b"", "idle ones at once"
    held.go_on.set()
    assert (await read_answer(busy)).text == "held"
    assert await busy.read() == b""
    async with asyncio.timeout(10):
        await stopping
    assert held.became == ["asked"]
    assert len(front.connections) == 0


async def test_work_that_does_not_end_in_time_is_cut(
    front: HttpFront, dial: Dial, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "GRACE_MS", 5)
    busy, writer = await dial(front.address)
    writer.write(ASKED % b"held")
    await until(lambda: held.became)
    await front.stop()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await read_answer(busy)
    await until(lambda: held.became == ["asked", "cancelled"])


async def test_a_port_without_connections_closes_at_once(
    front: HttpFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "GRACE_MS", 3_600_000)
    async with asyncio.timeout(10):
        await front.stop()


async def test_an_application_that_does_not_start_keeps_the_port_closed(clock: ManualClock) -> None:
    def fails(app: Starlette) -> Any:
        raise RuntimeError("no templates")

    running = HttpFront(Starlette(lifespan=fails), ("127.0.0.1", 0), clock)
    with pytest.raises(RuntimeError, match="no templates"):
        await running.start()
    with pytest.raises(RuntimeError, match="no templates"):
        await running.stop()


async def test_what_was_never_started_is_stopped_without_a_word(clock: ManualClock) -> None:
    await HttpFront(make_app([], None, max_body=0, hosts=None), ("127.0.0.1", 0), clock).stop()


# -- what uvicorn is told --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idle_ms", "seconds"), [(15_000, 15), (2_500, 2), (1_000, 1), (300, 1)])
def test_uvicorn_keeps_a_connection_as_long_as_we_do(idle_ms: int, seconds: int) -> None:
    app = make_app([], None, max_body=0, hosts=None)
    made = HttpConnections(app, ManualClock(), HttpLimits(idle_ms=idle_ms, max_header_bytes=777))
    assert made._config.timeout_keep_alive == seconds
    assert made._config.h11_max_incomplete_event_size == 777


async def test_a_header_may_be_as_large_as_the_limit(dial: Dial) -> None:
    app = make_app([], None, max_body=0, hosts=None)
    running = HttpFront(app, ("127.0.0.1", 0), ManualClock(), limits=HttpLimits(max_header_bytes=1_000))
    await running.start()
    head = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: "
    reader, writer = await dial(running.address)
    writer.write(head + b"y" * (1_000 - len(head)))
    await until(lambda: len(running.connections) == 1)
    writer.write(b"\r\n\r\n")
    assert (await read_answer(reader)).status == 200
    writer.write(head + b"y" * (1_001 - len(head)))
    assert (await read_answer(reader)).status == 400, "before it has come to its end"
    await running.stop()
