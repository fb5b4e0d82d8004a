# SPDX-License-Identifier: Apache-2.0
"""Clients: who is connected, in which groups, and what one says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from aerobee import Message, Producer, PushConsumer
from aerobee.client.options import Options
from aerobee.console import connected
from aerobee.errors import RequestCodeNotSupported
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee import Admin, Server
    from aerobee.client.message import ReceivedMessage


@pytest.fixture
async def consumer(server: Server, admin: Admin) -> AsyncIterator[PushConsumer]:
    """It has consumed one message of its topic."""
    await admin.create_topic("orders", queues=1)
    seen: list[ReceivedMessage] = []

    async def take(message: ReceivedMessage) -> None:
        seen.append(message)

    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("orders", b"an order", tags="paid"))
        async with PushConsumer(
            server.namesrv,
            group="billing",
            topics={"orders": "paid || void"},
            handler=take,
            start="first",
            options=Options(stop_wait_ms=1_000),
        ) as running:
            await until(lambda: seen)
            yield running


async def test_with_nobody_there_it_says_how_to_start_one(browser: Any) -> None:
    assert "Nobody is connected." in await browser.get("/clients")


async def test_every_client_is_there_with_its_groups_and_subscriptions(
    browser: Any, consumer: PushConsumer
) -> None:
    page = await browser.get("/clients")
    assert "paid || void" in page and 'href="/groups/billing"' in page and "shop" in page
    assert "%RETRY%" not in page
    assert "shop" not in await browser.get("/clients?kind=consumers&q=billing")
    assert "No client has that." in await browser.get("/clients?q=nowhere")


async def test_one_tells_its_queues_and_how_it_was_started(browser: Any, consumer: PushConsumer) -> None:
    page = await browser.get(f"/clients/one?id={quote(consumer.session.client_id, safe='')}")
    assert 'href="/topics/orders"' in page
    assert "last fetch" in page and "What it was started with" in page


async def test_members_that_differ_each_show_their_own_subscription(
    browser: Any, server: Server, consumer: PushConsumer
) -> None:
    async def take(message: ReceivedMessage) -> None:
        return None

    other = PushConsumer(server.namesrv, group="billing", topics={"orders": "refused"}, handler=take)
    async with other:
        for client, own in ((consumer, "paid || void"), (other, "refused")):
            page = await browser.get(f"/clients/one?id={quote(client.session.client_id, safe='')}")
            assert f"<dd>{own} " in page


async def test_one_that_does_not_answer_is_shown_without_what_it_would_say(
    browser: Any, consumer: PushConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise RequestCodeNotSupported("request type 307 not supported")

    await browser.get("/clients")
    desk = await browser.app.state.console.desks.of("")
    monkeypatch.setattr(desk.admin, "running_info", refuse)
    page = await browser.get(f"/clients/one?id={quote(consumer.session.client_id, safe='')}")
    assert "It says nothing of itself" in page and "not supported" in page


async def test_a_broker_that_does_not_tell_producers_says_so(
    browser: Any, consumer: PushConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        raise RequestCodeNotSupported("request type 328 not supported")

    await browser.get("/topics")
    desk = await browser.app.state.console.desks.of("")
    monkeypatch.setattr(desk.admin, "all_producers", refuse)
    page = await browser.get("/clients")
    assert "does not tell who is connected as a producer" in page and "billing" in page


async def test_more_groups_than_are_asked_are_said(
    browser: Any, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected, "GROUPS_ASKED", 1)
    for group in ("one", "two", "three"):
        await admin.create_group(group)
    assert "2 were not" in await browser.get("/clients")


async def test_a_hostile_id_is_escaped_and_leads_to_its_page(browser: Any, server: Server) -> None:
    evil = "<script>a/b?c=d</script>"
    options = Options(instance=evil)
    async with Producer(server.namesrv, group="shop", options=options) as producer:
        await producer.send(Message("orders", b"an order"))
        page = await browser.get("/clients")
        assert evil not in page and "&lt;script&gt;" in page
        one = await browser.get(f"/clients/one?id={quote(producer.session.client_id, safe='')}")
        assert evil not in one and "shop" in one
    gone = await browser.get(f"/clients/one?id={quote(evil)}", 404)
    assert evil not in gone
