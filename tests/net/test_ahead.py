# SPDX-License-Identifier: Apache-2.0
"""Somebody reads answers ahead of the connection: what he takes, and what is left to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import ConnectionLost
from aerobee.net.connection import Connection
from aerobee.net.pool import serves_nothing
from aerobee.protocol import command as wire
from aerobee.protocol.command import Command

if TYPE_CHECKING:
    from aerobee.net.sending import Waiting


class Reader:
    """Takes every read, or none; keeps what it was shown."""

    def __init__(self, takes: bool) -> None:
        self._takes = takes
        self.shown: list[tuple[bytes, list[int]]] = []

    def __call__(self, data: bytes, waiting: dict[int, Waiting]) -> bool:
        self.shown.append((data, list(waiting)))
        return self._takes


def answer(opaque: int) -> bytes:
    return wire.encode(Command(0, opaque, wire.RESPONSE, ext={}))


def asked(connection: Connection, frames: list[tuple[int, int, str]]) -> asyncio.Future[Any]:
    """A request that waits for its answer; how it was rendered is kept."""
    call: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def render(opaque: int, queue_id: int, what: str) -> bytes:
        frames.append((opaque, queue_id, what))
        return b"frame"

    connection.ask_at_once(render, 3, "what", call)
    return call


async def test_what_is_taken_ahead_is_a_sign_of_life_and_nothing_more() -> None:
    connection, frames = Connection(serves_nothing), list[tuple[int, int, str]]()
    call = asked(connection, frames)
    connection.ahead = reader = Reader(takes=True)
    connection.data_received(answer(1))
    assert frames == [(1, 3, "what")]
    assert reader.shown == [(answer(1), [1])]
    assert connection.last_read_turns == 1
    assert not call.done()


async def test_what_is_left_goes_the_usual_way() -> None:
    connection = Connection(serves_nothing)
    call = asked(connection, [])
    connection.ahead = Reader(takes=False)
    connection.data_received(answer(1))
    assert call.result().opaque == 1
    assert connection.awaits_nothing
    assert connection.last_read_turns == 1


async def test_the_rest_of_a_frame_is_not_shown() -> None:
    connection = Connection(serves_nothing)
    call = asked(connection, [])
    connection.ahead = reader = Reader(takes=False)
    connection.data_received(answer(1)[:9])
    connection.data_received(answer(1)[9:])
    assert [data for data, _ in reader.shown] == [answer(1)[:9]]
    assert call.result().opaque == 1


class Transport:
    """Open, until it is told that the peer is gone."""

    gone = False

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 7)

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return self.gone


async def test_who_asks_hears_at_once_that_the_write_failed_and_not_otherwise() -> None:
    connection, transport = Connection(serves_nothing), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    first = asked(connection, [])
    assert not first.done()
    assert not connection.tell_if_lost()
    transport.gone = True
    second = asked(connection, [])
    for call in (first, second):
        assert isinstance(call.exception(), ConnectionLost)
    assert connection.awaits_nothing
    assert not connection.tell_if_lost(), "nobody waits any more"


async def test_nothing_is_rendered_for_a_connection_that_is_closed() -> None:
    connection, transport = Connection(serves_nothing), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    transport.gone = True
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:7 is closed"):
        connection.start_frame(lambda opaque: b"frame")
    assert connection.awaits_nothing


async def test_nobody_waits_for_a_request_that_could_not_be_rendered() -> None:
    connection = Connection(serves_nothing)

    def render(opaque: int, queue_id: int, what: str) -> bytes:
        raise ValueError("no text")

    with pytest.raises(ValueError, match="no text"):
        connection.ask_at_once(render, 0, "", asyncio.get_running_loop().create_future())
    assert connection.awaits_nothing
