# SPDX-License-Identifier: Apache-2.0
"""Lines to a port whose calls a test serves, and what is said and heard on them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aerobee.fronts.grpc.exchange import Exchange, Method
from aerobee.protocol.http2.frames import ACK, DATA, PING, frame
from tests.grpc_line import Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ECHO = Method(Exchange.answer)


@asynccontextmanager
async def line_of(method: Method = ECHO, **limits: Any) -> AsyncIterator[Line]:
    line = Line(lambda path: method, **limits)
    yield line
    await line.close()


def held(work: Callable[[Exchange], Any]) -> Method:
    return Method(lambda exchange, data: exchange.hold(work(exchange)))


async def for_ever(exchange: Exchange) -> None:
    await asyncio.Event().wait()


def begun(line: Line, data: bytes) -> int:
    """A call of which so much has come."""
    number, headers = line.open("/x", {})
    line.say(headers, frame(DATA, 0, number, data))
    return number


async def some_ms(ms: int) -> None:
    """So long on the loop's own clock, which timers of the connection go by."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(ms / 1000, done.set)
    await done.wait()


def pings(line: Line) -> int:
    line.hear(0)
    return sum(kind == PING and not flags & ACK for kind, flags, _, _ in line.others)
