# SPDX-License-Identifier: Apache-2.0
"""The page of brokers, and what the overview says of them: one that is gone, one that refuses messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.errors import DiskFull
from tests.namesrv.test_route_table import Link, body, who

if TYPE_CHECKING:
    import pytest

    from aerobee import Server


async def test_a_broker_that_went_without_a_goodbye_is_missed_until_it_is_back(
    server: Server, browser: Any
) -> None:
    assert server._name_server is not None
    routes, link, now = server._name_server.routes, Link(), server._name_server._clock.now()
    routes.register(who("broker-b"), body("t", "u"), now, link)
    routes.closed(link, now)
    for path in ("/", "/brokers"):
        page = await browser.get(path)
        assert "Broker broker-b at broker-b0:1 has been gone since " in page
        assert "It went without a goodbye: connection closed." in page
    chinese = await browser.get("/", headers={"accept-language": "zh"})
    assert "Broker broker-b 自" in chinese
    routes.register(who("broker-b", address=server.broker_address), body("t", "u"), now, link)
    (await browser.app.state.console.desks.of("")).view.forget()
    assert "has been gone" not in await browser.get("/brokers")


async def test_a_broker_that_refuses_messages_says_so_and_why(
    server: Server, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(server.broker.store), "refusal", DiskFull("disk 91% full (disk_full_ratio)"))
    assert "refuses messages" in await browser.get("/brokers")
    page = await browser.get("/")
    assert "Broker broker-a refuses messages." in page
    assert "It says: disk 91% full (disk_full_ratio). Consumers go on." in page
