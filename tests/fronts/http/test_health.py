# SPDX-License-Identifier: Apache-2.0
"""/healthz and /readyz: open to everybody, and the second says what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from aerobee.errors import DiskFull
from aerobee.fronts.http.health import checks_of, routes
from aerobee.server import Server
from aerobee.settings import BrokerConfig
from tests.fronts.http.asking import ask


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


# -- each check alone ------------------------------------------------------------------------------------------------


class Store:
    readable, refusal, root = True, None, "/data/store"


def checked(**store: Any) -> dict[str, str]:
    told = Store()
    for name, value in store.items():
        setattr(told, name, value)
    broker: Any = SimpleNamespace(store=told)
    return {name: check() for name, check in checks_of(broker, lambda: "nobody knows it").items()}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the system says of the store's disk."""
    says, real = SimpleNamespace(flag=0, writable=True, failure=None), os.statvfs

    def statvfs(root: Any) -> Any:
        if root != "/data/store":  # of another test's server
            return real(root)
        if says.failure is not None:
            raise says.failure
        return SimpleNamespace(f_flag=says.flag)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(os, "access", lambda root, mode: says.writable and mode == os.W_OK)
    return says


def test_each_check_has_its_own_word(disk: SimpleNamespace) -> None:
    assert checked() == {"store": "", "disk": "", "registration": "nobody knows it"}
    assert checked(readable=False)["store"] == "the store is closed"
    assert checked(refusal=DiskFull("disk 96% full"))["disk"] == "disk 96% full"


def test_a_disk_that_cannot_be_written_is_told_however_it_shows(disk: SimpleNamespace) -> None:
    cannot = "/data/store cannot be written"
    disk.flag = os.ST_RDONLY
    assert checked()["disk"] == cannot
    disk.flag, disk.writable = os.ST_NOSUID, False
    assert checked()["disk"] == cannot
    disk.writable = True
    assert checked()["disk"] == ""


def test_a_disk_that_is_gone_is_told_and_a_system_that_cannot_say_is_believed(disk: SimpleNamespace) -> None:
    disk.failure = OSError(5, "Input/output error")
    assert checked()["disk"] == "/data/store: Input/output error"
    disk.failure = AttributeError("statvfs")
    assert checked()["disk"] == ""


async def test_all_that_is_wrong_is_told_at_once() -> None:
    app = Starlette(routes=routes({"a": lambda: "", "b": lambda: "broken", "c": lambda: "worse"}))
    ready = [route for route in app.routes if getattr(route, "path", "") == "/readyz"]
    answer = await ready[0].endpoint(None)  # type: ignore[attr-defined]
    assert (answer.status_code, json.loads(bytes(answer.body))) == (
        503,
        {"status": "not ready", "checks": {"a": "ok", "b": "broken", "c": "worse"}},
    )
    assert answer.headers["cache-control"] == "no-store"
