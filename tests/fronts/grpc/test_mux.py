# SPDX-License-Identifier: Apache-2.0
"""The gRPC port without grpc: who gets a pipe, who is turned away, and what is freed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aerobee.fronts.grpc.mux import PREFACE, Mux, MuxLimits, _Back

from aerobee.clock import ManualClock
from aerobee.net.tls import TlsMode, client_tls, server_tls
from aerobee.net.unfinished import Unfinished
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENT_MS, HASTY_MS = 60_000, 30


class Port:
    """A mux before a listener that echoes and remembers its peers by name."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mux-"))
        self.peers: list[str] = []
        self.inside: set[asyncio.StreamWriter] = set()
        self.clock = ManualClock()
        self.mux: Mux | None = None
        self.number = 0
        self.unfinished = Unfinished(50_000_000)

    async def start(self, handshake_ms: int = PATIENT_MS, host: str = "127.0.0.1", tls: Any = None) -> None:
        self._server = await asyncio.start_unix_server(self._echo, self.folder / "listener")
        limits = MuxLimits(
            handshake_ms=handshake_ms, first_byte_ms=handshake_ms, max_message=30_000_000, max_streams=10
        )
        self.mux = Mux(
            self.folder,
            self.folder / "listener",
            self.clock,
            tls=tls,
            limits=limits,
            unfinished=self.unfinished,
        )
        self.number = await self.mux.start(host, 0)

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(f"unix:{writer.get_extra_info('peername')}")
        self.inside.add(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.inside.discard(writer)

    async def dial(self, host: str = "127.0.0.1", **more: Any) -> tuple[Any, Any]:
        return await asyncio.open_connection(host, self.number, **more)

    async def close(self) -> None:
        if self.mux is not None:
            await self.mux.close()
            self._server.close()
            for writer in self.inside:
                writer.transport.abort()
            await until(lambda: not self.inside)


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    port = Port()
    yield port
    await port.close()


async def hears_nothing(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):  # a reset says the same as an end
        assert await reader.read() == b""


async def hears_nothing_more(reader: asyncio.StreamReader) -> None:
    """Its connection ends, whatever came before."""
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass


def has_ipv6() -> bool:
    return Path("/proc/net/if_inet6").exists()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "said",
    [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n", PREFACE[:9], PREFACE],
)
async def test_hundreds_who_come_and_go_leave_no_descriptor(
    port: Port, certificate: tuple[Path, Path], said: bytes
) -> None:
    cert, key = map(str, certificate)
    await port.start(tls=server_tls(cert, key))
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    before = descriptors()
    for n in range(200):
        with socket.socket() as one:
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", port.number))
            if said:
                await loop.sock_sendall(one, said)
            if n % 2:  # a reset instead of a goodbye
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await until(lambda: descriptors() <= before + 1)  # uvloop keeps one of its own


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01", PREFACE[:9]])
async def test_who_stays_but_says_no_more_is_cut_off(
    port: Port, certificate: tuple[Path, Path], said: bytes
) -> None:
    cert, key = map(str, certificate)
    await port.start(HASTY_MS, tls=server_tls(cert, key))
    reader, writer = await port.dial()
    writer.write(said)
    async with asyncio.timeout(10):
        await hears_nothing(reader)
    writer.close()
    assert not port.peers, "nothing was opened for it"


async def test_a_client_that_went_by_tls_but_never_speaks_is_cut_off(
    port: Port, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    await port.start(200, tls=server_tls(cert, key))
    reader, writer = await port.dial(ssl=client_tls())
    async with asyncio.timeout(10):
        await hears_nothing(reader)
    writer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_pipe_carries_both_ways_and_knows_its_client(port: Port, host: str) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("no IPv6 on this machine")
    await port.start(host=host)
    body = bytes(range(256)) * 20_000
    clients = [await port.dial(host) for _ in range(3)]
    for n, (reader, writer) in enumerate(clients):
        writer.write(PREFACE[:5])
        writer.write(PREFACE[5:] + body)
        assert await reader.readexactly(len(PREFACE) + len(body)) == PREFACE + body
        mine = writer.get_extra_info("sockname")[:2]
        assert port.mux is not None
        assert port.mux.address_of(port.peers[n]) == tuple(mine)
    for _, writer in clients:
        writer.close()
    await until(lambda: not port.mux._pipes.clients)  # type: ignore[union-attr]
    assert not [file for file in port.folder.iterdir() if file.name != "listener"]


async def test_plain_clients_are_turned_away_where_tls_is_required(
    port: Port, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    await port.start(tls=server_tls(cert, key, TlsMode.REQUIRED))
    reader, writer = await port.dial()
    writer.write(PREFACE)
    await hears_nothing(reader)
    writer.close()
    reader, writer = await port.dial(ssl=client_tls(cert))
    writer.write(PREFACE)
    assert await reader.readexactly(len(PREFACE)) == PREFACE
    writer.close()


async def test_a_client_that_never_reads_does_not_keep_its_pipe(port: Port) -> None:
    await port.start(HASTY_MS)
    _, writer = await port.dial()
    writer.transport.pause_reading()
    writer.write(PREFACE + bytes(20_000_000))
    assert port.mux is not None
    sides = port.mux._pipes.open_sides
    await until(lambda: any(side.transport.get_write_buffer_size() for side in sides if side.transport))
    next(side for side in sides if isinstance(side, _Back)).abort()
    await until(lambda: not sides)
    writer.close()


async def test_garbage_is_one_line_a_minute_that_counts_the_rest(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.grpc")
    await port.start()

    async def intrude(times: int) -> None:
        for _ in range(times):
            reader, writer = await port.dial()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await hears_nothing(reader)
            writer.close()

    await intrude(5)
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    assert "b'GET / HTTP/1.1" in caplog.text
    port.clock.advance(seconds=60)
    await intrude(1)
    assert len(caplog.records) == 2
    assert "(and 4 like it since)" in caplog.text
    caplog.set_level(logging.DEBUG, "aerobee.grpc")
    await intrude(3)
    assert [r.levelno for r in caplog.records[2:] if r.name == "aerobee.grpc"] == [logging.DEBUG] * 3
    assert not any(record.exc_info for record in caplog.records)


async def test_messages_that_never_get_whole_are_bounded_over_all_clients(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    port.unfinished = Unfinished(250_000)
    await port.start()
    begun = struct.pack(">IBI", 80_000 << 8, 0, 1) + struct.pack(">xI", 90_000) + bytes(79_995)
    clients = []
    for n in range(1, 4):
        clients.append(await port.dial())
        clients[-1][1].write(PREFACE + begun)
        await until(lambda n=n: port.unfinished.total == n * 79_995)  # type: ignore[misc]
    clients[2][1].write(begun.replace(b"\0\0\0\1", b"\0\0\0\3", 1))  # on another stream
    await hears_nothing_more(clients[0][0])
    assert caplog.text.count("cutting off") == 1
    assert port.unfinished.total == 3 * 79_995
    for _, writer in clients:
        writer.close()
    await until(lambda: port.unfinished.total == 0)
