# SPDX-License-Identifier: Apache-2.0
"""/healthz and /readyz: open to everybody, and the second says what is wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aerobee.errors import DiskFull
from aerobee.server import Server
from aerobee.settings import BrokerConfig
from tests.fronts.http.asking import ask

if TYPE_CHECKING:
    import pytest


async def test_a_running_server_lives_and_is_ready(server: Server) -> None:
    assert (await ask(server.http_address, "/healthz")).json == {"status": "ok"}
    ready = await ask(server.http_address, "/readyz")
    assert (ready.status, ready.json["status"]) == (200, "ready")
    assert ready.json["checks"] == {"store": "ok", "disk": "ok", "registration": "ok"}
    assert ready.headers["cache-control"] == "no-store"


async def test_a_full_disk_is_not_ready_and_says_why(server: Server) -> None:
    server.broker.store._appender.refused = lambda: DiskFull("store x: disk at 96 %")
    ready = await ask(server.http_address, "/readyz")
    assert (ready.status, ready.json["status"]) == (503, "not ready")
    assert ready.json["checks"]["disk"] == "store x: disk at 96 %"
    assert (await ask(server.http_address, "/healthz")).status == 200, "restarting it would not help"


async def test_a_store_that_cannot_be_written_is_not_ready(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    ready = await ask(server.http_address, "/readyz")
    assert ready.status == 503
    assert "cannot be written" in ready.json["checks"]["disk"]


async def test_a_broker_that_no_name_server_knows_is_not_ready() -> None:
    gone = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    address = f"127.0.0.1:{gone.sockets[0].getsockname()[1]}"
    async with (
        gone,
        Server(ephemeral=True, http_port=0, namesrv_port=-1, config=BrokerConfig(namesrv=address)) as server,
    ):
        ready = await ask(server.http_address, "/readyz")
    assert ready.status == 503
    assert address in ready.json["checks"]["registration"]


async def test_health_is_told_under_any_name(server: Server) -> None:
    """Probes name a server as they like; a page of a stranger that gets at these has learned nothing."""
    assert (await ask(server.http_address, "/readyz", headers={"host": "broker-a.example"})).status == 200
