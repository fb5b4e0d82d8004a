# SPDX-License-Identifier: Apache-2.0
"""The gRPC port and those who come to it for something else: they are cut off, and all they held is freed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.fronts.grpc.connection import ConnectionLimits
from aerobee.fronts.grpc.exchange import Exchange, Method
from aerobee.fronts.grpc.port import GrpcPort
from aerobee.net.tls import TlsMode, client_tls, server_tls
from aerobee.net.unfinished import Unfinished
from aerobee.protocol.http2.frames import DATA, END_HEADERS, HEADERS, frame
from aerobee.protocol.http2.hpack import written
from tests.grpc_line import CALLED, PREFACE, WELCOME
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PATIENT_MS, HASTY_MS = 60_000, 30
OPEN = frame(HEADERS, END_HEADERS, 1, written(*CALLED.items()))


class Port:
    """One that answers what it is asked."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.grpc: GrpcPort | None = None
        self.number = 0
        self.unfinished = Unfinished(50_000_000)

    async def start(self, handshake_ms: int = PATIENT_MS, host: str = "127.0.0.1", tls: Any = None) -> None:
        limits = ConnectionLimits(handshake_ms=handshake_ms, max_message=30_000_000)
        self.grpc = GrpcPort(
            lambda path: Method(Exchange.answer), self.clock, self.unfinished, limits=limits, tls=tls
        )
        self.number = await self.grpc.start(host, 0)

    @property
    def inside(self) -> int:
        return len(self.grpc._connections) if self.grpc else 0

    async def dial(self, host: str = "127.0.0.1", **more: Any) -> tuple[Any, Any]:
        return await asyncio.open_connection(host, self.number, **more)

    async def close(self) -> None:
        if self.grpc is not None:
            await self.grpc.close(0)


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
    await until(lambda: not port.inside)


async def test_a_client_that_went_by_tls_but_never_speaks_is_cut_off(
    port: Port, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    await port.start(200, tls=server_tls(cert, key))
    reader, writer = await port.dial(ssl=client_tls())
    async with asyncio.timeout(10):
        await hears_nothing(reader)
    writer.close()


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
    writer.write(WELCOME)
    assert await reader.readexactly(5), "settings"
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
    part = bytes(16_000)
    clients = []
    for n in range(1, 4):
        clients.append(await port.dial())
        clients[-1][1].write(WELCOME + OPEN + frame(DATA, 0, 1, b"\0" + (90_000).to_bytes(4, "big")))
        clients[-1][1].write(frame(DATA, 0, 1, part) * 5)
        await until(lambda n=n: port.unfinished.total == n * 80_005)  # type: ignore[misc]
    clients[2][1].write(OPEN.replace(b"\0\0\0\1", b"\0\0\0\3", 1))  # on another stream
    clients[2][1].write(frame(DATA, 0, 3, b"\0" + (90_000).to_bytes(4, "big")) + frame(DATA, 0, 3, part))
    await hears_nothing_more(clients[0][0])
    assert caplog.text.count("cutting off") == 1
    assert port.unfinished.total == 2 * 80_005 + 16_005
    for _, writer in clients:
        writer.close()
    await until(lambda: port.unfinished.total == 0)
