# SPDX-License-Identifier: Apache-2.0
"""Writing at once: the same bytes in the same order as by the transport, only earlier."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from aerobee.net.connection import Connection
from aerobee.net.pool import serves_nothing
from aerobee.net.sending import fd_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LARGE = 4 * 1024 * 1024  # more than a socket takes


class Peer:
    """The other end of a connection's socket, read by hand."""

    def __init__(self, connection: Connection, end: socket.socket) -> None:
        self.connection = connection
        self.end = end

    async def read(self, size: int) -> bytes:
        loop, parts = asyncio.get_running_loop(), b""
        while len(parts) < size:
            part = await loop.sock_recv(self.end, size - len(parts))
            assert part, "closed before all was there"
            parts += part
        return parts

    def there(self) -> bytes:
        """What has arrived, without a turn of the loop."""
        try:
            return self.end.recv(1 << 16)
        except BlockingIOError:
            return b""


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        end, _ = server.accept()
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(serves_nothing), sock=ours)
    with end:
        yield Peer(connection, end)
        connection.abort()
        await asyncio.sleep(0)


async def test_the_peer_has_it_before_the_turn_ends(peer: Peer) -> None:
    peer.connection.write_at_once(b"now")
    assert peer.there() == b"now"


async def test_it_does_not_overtake_what_was_written_before(peer: Peer) -> None:
    peer.connection.write(b"first ")
    peer.connection.write_at_once(b"second ")
    peer.connection.write(b"third")
    assert await peer.read(18) == b"first second third"


async def test_what_a_socket_does_not_take_follows_in_order(peer: Peer) -> None:
    peer.connection.write_at_once(b"a" * LARGE)
    peer.connection.write_at_once(b"b" * LARGE)
    peer.connection.write(b"c")
    assert await peer.read(2 * LARGE + 1) == b"a" * LARGE + b"b" * LARGE + b"c"


async def test_what_the_transport_still_holds_is_not_overtaken_when_there_is_room_again(peer: Peer) -> None:
    peer.connection.write_at_once(b"a" * LARGE)
    came = b""
    while there := peer.there():  # the socket takes more now, and the transport has had no turn to give it
        came += there
    peer.connection.write_at_once(b"b")
    came += await peer.read(LARGE + 1 - len(came))
    assert came == b"a" * LARGE + b"b"


async def test_answers_that_are_being_collected_go_first(peer: Peer) -> None:
    peer.connection._out = [b"first "]  # as within a read
    peer.connection.write_at_once(b"second")
    assert peer.there() == b""
    peer.connection._flush()
    assert await peer.read(12) == b"first second"


async def test_a_connection_that_closes_writes_nothing_more(peer: Peer) -> None:
    transport = peer.connection._transport
    assert transport is not None
    transport.close()  # as the loop does when the peer has gone; nobody has told the connection yet
    peer.connection.write_at_once(b"late")
    await asyncio.sleep(0)
    assert peer.connection._transport is None
    peer.connection.write_at_once(b"later")
    peer.end.setblocking(True)
    peer.end.settimeout(5)
    assert peer.end.recv(10) == b"", "the end, and nothing before it"


async def test_a_peer_that_has_gone_is_found_out_by_the_transport(peer: Peer) -> None:
    peer.end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    peer.end.close()  # a reset
    peer.connection.write_at_once(b"x")
    peer.connection.write_at_once(b"y")
    for _ in range(1_000):
        if not peer.connection.is_open:
            break
        await asyncio.sleep(0)
    assert not peer.connection.is_open


async def test_only_transports_that_put_writing_off_are_passed_by(peer: Peer) -> None:
    transport = peer.connection._transport
    assert transport is not None
    assert (fd_of(transport) >= 0) == (type(transport).__module__ == "uvloop.loop")
