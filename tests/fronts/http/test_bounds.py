# SPDX-License-Identifier: Apache-2.0
"""A slow or hostile HTTP client costs nobody else."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from aerobee.clock import ManualClock
from aerobee.fronts.http.app import make_app
from aerobee.fronts.http.connections import HttpLimits
from aerobee.fronts.http.front import HttpFront
from tests.fronts.http.asking import Answer, ask, read_answer
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.requests import Request

    from aerobee.server import Server
    from tests.fronts.http.conftest import Dial

LIMITS = HttpLimits(max_connections=8, idle_ms=15_000, busy_ms=60_000)
LARGE = 8 << 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def front(clock: ManualClock) -> AsyncIterator[HttpFront]:
    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    async def large(request: Request) -> PlainTextResponse:
        return PlainTextResponse("x" * LARGE)

    async def fails(request: Request) -> PlainTextResponse:
        raise ValueError("a bug")

    routes = [
        Route("/read", read, methods=["GET", "POST"]),
        Route("/large", large),
        Route("/fails", fails),
    ]
    app: Starlette = make_app(routes, None, max_body=1000, hosts=["broker.example"])
    running = HttpFront(app, ("127.0.0.1", 0), clock, limits=LIMITS)
    await running.start()
    yield running
    await running.stop()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Closed, politely or not, without a word."""
    async with asyncio.timeout(30):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


def pass_time(clock: ManualClock, ms: int) -> None:
    """In the steps in which connections are looked at."""
    for _ in range(ms // 500):
        clock.advance(500)


async def test_a_header_that_trickles_in_is_cut_however_steadily(
    front: HttpFront, dial: Dial, clock: ManualClock
) -> None:
    reader, writer = await dial(front.address)
    writer.write(b"GET /read HTTP/1.1\r\nhost: localhost\r\n")
    await until(lambda: len(front.connections) == 1)
    for _ in range(32):
        writer.write(b"x: y\r\n")
        await writer.drain()
        pass_time(clock, 500)
    assert await ended(reader)


async def test_a_connection_without_a_request_is_closed(
    dial: Dial, front: HttpFront, clock: ManualClock
) -> None:
    reader, _ = await dial(front.address)
    await until(lambda: len(front.connections) == 1)
    pass_time(clock, 14_000)
    assert len(front.connections) == 1
    pass_time(clock, 3_000)
    assert await ended(reader)
    assert len(front.connections) == 0


async def test_a_body_that_never_ends_is_refused_when_so_much_of_it_came(
    dial: Dial, front: HttpFront
) -> None:
    reader, writer = await dial(front.address)
    writer.write(b"POST /read HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(3):
        writer.write(b"190\r\n" + b"x" * 400 + b"\r\n")
    answer = await read_answer(reader)
    assert answer.status == 413
    assert answer.json == {"error": "a body of more than 1000 bytes"}
    assert await ended(reader), "what still comes is read by nobody"


async def test_a_body_is_refused_by_the_length_it_states(dial: Dial, front: HttpFront) -> None:
    reader, writer = await dial(front.address)
    writer.write(b"POST /read HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1001\r\n\r\n")
    assert (await read_answer(reader)).status == 413
    assert (await ask(front.address, "/read", method="POST", body=b"x" * 1000)).text == "1000"


async def test_a_body_that_stops_coming_is_cut(dial: Dial, front: HttpFront, clock: ManualClock) -> None:
    reader, writer = await dial(front.address)
    writer.write(b"POST /read HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nx")
    await until(lambda: any(each.busy for each in front.connections._since))
    pass_time(clock, 58_000)
    assert len(front.connections) == 1
    pass_time(clock, 4_000)
    assert await ended(reader)


async def test_an_answer_that_nobody_reads_is_cut(dial: Dial, front: HttpFront, clock: ManualClock) -> None:
    _, writer = await dial(front.address)
    writer.write(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await until(lambda: any(each.cycle is not None for each in front.connections._since))
    pass_time(clock, 63_000)
    await until(lambda: len(front.connections) == 0)


async def test_a_huge_header_is_refused(
    dial: Dial, front: HttpFront, caplog: pytest.LogCaptureFixture
) -> None:
    for header in (b"x: " + b"y" * 100_000, b"\r\n".join(b"x%d: y" % n for n in range(10_000))):
        reader, writer = await dial(front.address)
        writer.write(b"GET /read HTTP/1.1\r\nhost: localhost\r\n" + header)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()
    assert not caplog.records, "a flood of them must not fill the log too"


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"\x00" * 4096,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /read HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /read HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nabcde",
        b"GET /%ff%fe HTTP/1.1\r\nhost: localhost\r\n\r\nGARBAGE \x01\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nhost: [::1\r\n\r\n",
    ],
)
async def test_what_is_no_http_costs_its_connection_and_nothing_else(
    front: HttpFront, dial: Dial, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await dial(front.address)
    writer.write(said)
    writer.write_eof()
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            await reader.read()
    assert (await ask(front.address, "/read")).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_when_all_places_are_taken_the_longest_idle_makes_room(dial: Dial, front: HttpFront) -> None:
    held = [await dial(front.address) for _ in range(LIMITS.max_connections)]
    await until(lambda: len(front.connections) == LIMITS.max_connections)
    assert (await ask(front.address, "/read")).status == 200
    assert await ended(held[0][0]), "the first to come went"


async def test_when_all_places_are_busy_a_new_connection_is_turned_away(dial: Dial, front: HttpFront) -> None:
    held = []
    for _ in range(LIMITS.max_connections):
        _, writer = await dial(front.address)
        writer.write(b"POST /read HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nx")
        held.append(writer)
    await until(lambda: sum(each.busy for each in front.connections._since) == LIMITS.max_connections)
    reader, _ = await dial(front.address)
    assert await ended(reader)


@pytest.mark.slow
async def test_a_thousand_idle_connections_keep_nobody_out(dial: Dial, server: Server) -> None:
    for _ in range(1_000):
        await dial(server.http_address)
    assert (await ask(server.http_address, "/readyz")).status == 200


async def test_a_failing_page_is_told_as_such_and_the_port_goes_on(
    front: HttpFront, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await ask(front.address, "/fails")).status == 500
    assert (await ask(front.address, "/read")).status == 200
    assert any("a bug" in str(record.exc_info) for record in caplog.records)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("evil.example@127.0.0.1", 200),
        ("localhost:8088", 200),
        ("127.0.0.1:8088", 200),
        ("[::1]:8088", 200),
        ("[::1", 421),
        ("BROKER.example:8088", 200),
    ],
)
async def test_a_loopback_server_is_served_under_its_own_names_only(
    front: HttpFront, host: str, status: int
) -> None:
    answer: Answer = await ask(front.address, "/read", headers={"host": host})
    assert answer.status == status
