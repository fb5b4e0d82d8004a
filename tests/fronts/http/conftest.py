# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.server import Server
from tests.fronts.http.asking import connect

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    Dial = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(ephemeral=True, http_port=0) as running:
        yield running


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connections that are closed with the test, whatever it did to them."""
    opened: list[asyncio.StreamWriter] = []

    async def dialled(
        address: str, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connect(address, tls)
        opened.append(writer)
        return reader, writer

    yield dialled
    for writer in opened:
        writer.transport.abort()
