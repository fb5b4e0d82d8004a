# SPDX-License-Identifier: Apache-2.0
"""The HTTP port: opened and closed with the server, plain and by TLS, and the console mounted on it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from aerobee.errors import NetworkError
from aerobee.server import Server
from aerobee.settings import BrokerConfig
from tests.fronts.http.asking import ask, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request

    from tests.fronts.http.conftest import Dial


async def test_an_embedded_server_has_no_http_port_unless_asked() -> None:
    async with Server(ephemeral=True) as server:
        assert server.http_address == ""


async def test_one_connection_serves_one_request_after_the_other(dial: Dial, server: Server) -> None:
    reader, writer = await dial(server.http_address)
    for _ in range(3):
        writer.write(f"GET /healthz HTTP/1.1\r\nhost: {server.http_address}\r\n\r\n".encode())
        assert (await read_answer(reader)).json == {"status": "ok"}


async def test_after_the_end_nobody_listens(dial: Dial) -> None:
    async with Server(ephemeral=True, http_port=0) as server:
        address = server.http_address
        reader, _ = await dial(address)
    assert await reader.read() == b"", "an idle connection is closed with the port"
    with pytest.raises(ConnectionRefusedError):
        await dial(address)


async def test_the_port_speaks_tls_and_offers_no_http2(dial: Dial, certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    config = BrokerConfig(tls_cert=cert, tls_key=key, tls_required=True)
    context = ssl.create_default_context(cafile=cert)
    context.set_alpn_protocols(["h2", "http/1.1"])  # as browsers do
    async with Server(ephemeral=True, http_port=0, config=config) as server:
        answer = await ask(server.http_address, "/healthz", tls=context)
        assert answer.status == 200
        _, writer = await dial(server.http_address, context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask(server.http_address, "/healthz")


async def test_a_port_that_was_asked_for_and_is_taken_fails_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(NetworkError, match="cannot listen"):
        await Server(ephemeral=True, http_port=taken.getsockname()[1]).start()


async def test_the_usual_port_that_is_taken_is_told_and_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = BrokerConfig(http_port=taken.getsockname()[1])
        monkeypatch.setattr("aerobee.watching.BrokerConfig", lambda **given: usual)
        async with Server(ephemeral=True, http_port=usual.http_port, config=usual) as server:
            assert server.http_address == ""
            assert server.broker_address
    assert any("HTTP is off" in line and "http_port" in line for line in caplog.messages)


async def test_without_the_extra_there_is_one_line_and_all_else_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [each for each in sys.modules if each.startswith("aerobee.fronts.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.responses", None)
    async with Server(ephemeral=True, http_port=0) as server:
        assert server.http_address == ""
        assert server.broker_address
    assert len([line for line in caplog.messages if "aerobee[console]" in line]) == 1


# -- the console -----------------------------------------------------------------------------------------------


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A console in the place of the real one, which says what became of it."""
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.current_task()
        told.append("started")
        yield
        told.append("stopped" if asyncio.current_task() is task else "stopped in another task")

    async def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"page {request.url.path}")

    def make_app(namesrv: str, **more: object) -> Starlette:
        told.append(f"of {namesrv}")
        return Starlette(routes=[Route("/{path:path}", page)], lifespan=lifespan)

    module = ModuleType("aerobee.console.app")
    module.make_app = make_app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aerobee.console.app", module)
    return told


async def test_everything_else_is_the_consoles_which_lives_as_long_as_the_port(life: list[str]) -> None:
    async with Server(ephemeral=True, http_port=0) as server:
        assert life == [f"of {server.namesrv}", "started"]
        assert (await ask(server.http_address, "/topics/orders")).text == "page /topics/orders"
        assert (await ask(server.http_address, "/")).text == "page /"
        assert (await ask(server.http_address, "/healthz")).json == {"status": "ok"}
    assert life[2:] == ["stopped"]
