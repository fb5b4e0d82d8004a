# SPDX-License-Identifier: Apache-2.0
"""The console on a port of its own, in the loop that runs."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import uvicorn

from aerobee.errors import AerobeeError
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp

BACKLOG = 128
MAX_AT_ONCE = 256  # connections and requests; more are told to come again
STOP_WAIT_S = 2


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Whoever runs the loop has its own; ours must not take them away."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, host: str, port: int) -> AsyncIterator[str]:
    """Its address, from when it listens."""
    listening = _listening(host, port)
    config = uvicorn.Config(
        app,
        log_level="error",
        server_header=False,
        lifespan="on",
        limit_concurrency=MAX_AT_ONCE,
        timeout_graceful_shutdown=STOP_WAIT_S,
    )
    server = _Server(config)
    # Not in a task group: that would cancel it where it is to end by itself.
    running = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]), name="console")
    try:
        yield f"http://{format_address(*listening.getsockname()[:2])}"
    finally:
        server.should_exit = True
        await running


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise AerobeeError(f"cannot listen on {host} port {port}: {error}") from None
