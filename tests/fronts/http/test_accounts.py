# SPDX-License-Identifier: Apache-2.0
"""With access control on, the API and metrics need an account with the right; health needs none."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.access.users import User
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.server import Server
from aerobee.settings import BrokerConfig
from tests.fronts.http.asking import act, ask

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def basic(user: str, secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()}


ADMIN, READER = basic("admin", "geheim:1"), basic("reader", "12345678")


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Server]:
    config = BrokerConfig(
        authentication=True,
        authorization=True,
        init_user='{"username":"admin","password":"geheim:1"}',
        inner_credentials='{"accessKey":"inner","secretKey":"inner-secret"}',
        audit_log=str(tmp_path / "audit.jsonl"),
    )
    async with Server(ephemeral=True, http_port=0, config=config) as running:
        running.broker.access.put_user(User(username="reader", password="12345678"))
        yield running


async def test_health_is_open(secured: Server) -> None:
    assert (await ask(secured.http_address, "/healthz")).status == 200
    assert (await ask(secured.http_address, "/readyz")).status == 200


@pytest.mark.parametrize("path", ["/metrics", "/api/cluster", "/api/topics", "/api/settings"])
async def test_strangers_are_asked_who_they_are(secured: Server, path: str) -> None:
    for headers in ({}, basic("admin", "wrong"), basic("nobody", ""), {"authorization": "Basic %%%"}):
        answer = await ask(secured.http_address, path, headers=headers)
        assert answer.status == 401, headers
        assert answer.headers["www-authenticate"].startswith("Basic")
    assert (await ask(secured.http_address, path, headers=ADMIN)).status == 200


async def test_a_user_without_the_right_is_known_and_refused(secured: Server) -> None:
    for path in ("/metrics", "/api/topics"):
        assert (await ask(secured.http_address, path, headers=READER)).status == 403
    refused = await act(secured.http_address, "/api/topics/orders", {}, **READER)
    assert refused.status == 403
    assert secured.broker.topics.get("orders") is None
    assert (await act(secured.http_address, "/api/topics/orders", {}, **ADMIN)).status == 200


async def test_metrics_may_be_opened_while_it_runs(secured: Server) -> None:
    change_settings("open_metrics=true", secured.broker)
    assert (await ask(secured.http_address, "/metrics")).status == 200
    assert (await ask(secured.http_address, "/api/cluster")).status == 401


async def test_refused_logins_are_counted(secured: Server) -> None:
    for _ in range(3):
        await ask(secured.http_address, "/api/cluster", headers=basic("admin", "wrong"))
    text = (await ask(secured.http_address, "/metrics", headers=ADMIN)).text
    (line,) = [line for line in text.splitlines() if line.startswith("aerobee_refused_logins_total")]
    assert line.endswith(" 3")


async def test_who_needs_no_signature_is_not_counted_for_having_none(tmp_path: Path) -> None:
    config = BrokerConfig(
        authentication=True,
        init_user='{"username":"admin","password":"geheim:1"}',
        inner_credentials='{"accessKey":"inner","secretKey":"inner-secret"}',
        authentication_whitelist="28",  # what the broker does
    )
    async with Server(ephemeral=True, http_port=0, config=config) as server:
        assert (await ask(server.http_address, "/metrics")).status == 200
        assert server.broker.access.refused_logins == 0


async def test_what_was_changed_and_refused_is_in_the_audit_log(secured: Server, tmp_path: Path) -> None:
    await act(secured.http_address, "/api/topics/orders", {}, **ADMIN)
    await act(secured.http_address, "/api/topics/orders/delete", {}, **READER)
    log = (tmp_path / "audit.jsonl").read_text()
    assert '"port":"http"' in log.replace(" ", "")
    assert "CreateTopic" in log and "DeleteTopic" in log
    assert "geheim" not in log


async def test_the_audit_log_says_where_a_group_was_moved(secured: Server, tmp_path: Path) -> None:
    await act(secured.http_address, "/api/topics/orders", {"queues": 1}, **ADMIN)
    await act(secured.http_address, "/api/groups/billing", {}, **ADMIN)
    for given in ({"timestamp": 0}, {"timestamp": 1_700_000_000_123}, {}):
        moved = {"topic": "orders", **given}
        assert (await act(secured.http_address, "/api/groups/billing/reset", moved, **ADMIN)).status == 200
    said = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [each["change"] for each in said if each["request"] == "ResetOffset"] == [
        "billing on orders to the first message",
        "billing on orders to 2023-11-14T22:13:20.123+00:00",
        "billing on orders to the end",
    ]


async def test_the_console_asks_who_comes_and_the_broker_nothing(secured: Server) -> None:
    """It knows that accounts are wanted: a page for a stranger costs no refused request, and no line of the audit."""
    page = await ask(secured.http_address, "/topics")
    assert (page.status, page.headers["location"]) == (303, "/login?next=%2Ftopics")
    assert secured.broker.guard is not None
    assert secured.broker.guard.refused_logins == 0


async def test_the_console_of_an_open_broker_shows_its_topics() -> None:
    async with Server(ephemeral=True, http_port=0) as server:
        await act(server.http_address, "/api/topics/orders", {})
        assert "orders" in (await ask(server.http_address, "/topics")).text
