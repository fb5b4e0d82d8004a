# SPDX-License-Identifier: Apache-2.0
"""A message's page: where it is for every group, through retries to the dead letters, and what happened to it."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer, ProducerOptions, PushConsumer, PushOptions, SimpleConsumer
from aerobee.client.admin.messages import Messages
from aerobee.client.admin.progress import Progress
from aerobee.errors import NoPermission
from tests.turning import until

if TYPE_CHECKING:
    from aerobee import Admin, Server
    from aerobee.client.message import ReceivedMessage

pytestmark = pytest.mark.slow


def row(page: str, group: str) -> str:
    """The line of a group under "Where it is", as text."""
    table = page.split("Where it is")[1].split("What happened")[0]
    return _text(table.split(f'/groups/{group}"')[1].split("</tr>")[0])


def line(page: str) -> list[str]:
    table = page.split('class="happened"')[1].split("<tbody>")[1].split("</tbody>")[0]
    return [_text(each) for each in table.split("</tr>")[:-1]]


def _text(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", f"<{html}" if html[:1] != "<" else html)).split())


async def send(server: Server, admin: Admin, *groups: str, **options: Any) -> str:
    await admin.create_topic("orders", queues=1)
    for group in groups:
        await admin.create_group(group, retry_max_times=1)
    async with Producer(server.namesrv, group="shop", options=ProducerOptions(**options)) as producer:
        return (await producer.send(Message("orders", b"x"))).message_id


async def test_a_popped_message_is_leased_until_a_time_and_comes_back_with_its_reason(
    browser: Any, server: Server, admin: Admin
) -> None:
    sent = await send(server, admin, "shipping", "audit")
    await admin.reset_offsets("audit", "orders", "first")
    place = f"/messages/orders/{sent}"
    async with SimpleConsumer(
        server.namesrv, group="shipping", topics={"orders": "*"}, start="first"
    ) as consumer:
        (message,) = await consumer.receive(invisible_ms=60_000)
        page = await browser.get(place)
        assert "leased until" in row(page, "shipping") and re.search(
            r"59(\.\d)? s from now", row(page, "shipping")
        )
        assert "waits nobody consumes" in row(page, "audit")
        await message.nack(0, KeyError("card"))
        (again,) = await consumer.receive(invisible_ms=60_000)
        assert again.message_id == sent
        page = await browser.get(place)
        assert "leased until" in row(page, "shipping") and "2 – KeyError: 'card'" in row(page, "shipping")
        await again.nack(0, ValueError("no stock"))
        await until(lambda: server.broker.store.max_offset("%DLQ%shipping", 0))
    page = await browser.get(place)
    assert "dead its copy 2 – ValueError: no stock" in row(page, "shipping")
    what = " | ".join(line(page))
    assert re.search(
        r"sent – .*stored – .*came back for a retry shipping 1 .*died shipping 2 .*no stock", what
    )
    assert "There is no trace of it" in page


async def test_a_trace_tells_who_handled_it_how_long_and_how_it_ended(
    browser: Any, server: Server, admin: Admin
) -> None:
    sent = await send(server, admin, "billing", trace=True)
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.attempt)
        if len(tries) == 1:
            raise ValueError("no such card")

    async with PushConsumer(
        server.namesrv,
        group="billing",
        topics={"orders": "*"},
        start="first",
        handler=handle,
        options=PushOptions(trace=True, persist_offsets_ms=50),
    ):
        await until(lambda: len(tries) == 2)
    page = await browser.get(f"/messages/orders/{sent}")
    assert "finished after a retry" in row(page, "billing")
    what = [each for each in line(page) if "stored" not in each]
    assert re.search(r"sent shop – 127.0.0.1:\d+ \d+ ms well", what[0])
    assert re.search(r"handled billing 1 127.0.0.1:\d+ \d+ ms failed", " ".join(what))
    assert re.search(r"handled billing 2 127.0.0.1:\d+ \d+ ms well", " ".join(what))
    assert any("sent back, to wait billing 1" in each and "ValueError: no such card" in each for each in what)
    assert "There is no trace" not in page


async def test_a_retry_that_waits_says_until_when(browser: Any, server: Server, admin: Admin) -> None:
    sent = await send(server, admin, "billing")

    async def refuse(message: ReceivedMessage) -> None:
        raise ValueError("no such card")

    async with PushConsumer(
        server.namesrv,
        group="billing",
        topics={"orders": "*"},
        start="first",
        handler=refuse,
    ):
        await until(lambda: server.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 2))
        said = row(await browser.get(f"/messages/orders/{sent}"), "billing")
    assert "waits for its next attempt until" in said and "ValueError: no such card" in said


async def test_what_a_broker_cannot_tell_is_said(
    browser: Any, server: Server, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's has no such request."""

    async def cannot(self: Progress, *_: object) -> None:
        return None

    monkeypatch.setattr(Progress, "message_state", cannot)
    sent = await send(server, admin, "billing")
    await admin.reset_offsets("billing", "orders", "first")
    page = await browser.get(f"/messages/orders/{sent}")
    assert "waits" in row(page, "billing")
    assert "This broker tells offsets only" in page


async def test_the_consumer_that_holds_it_is_named(browser: Any, server: Server, admin: Admin) -> None:
    sent = await send(server, admin, "billing")
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hang(message: ReceivedMessage) -> None:
        begun.set()
        await go_on.wait()

    async with PushConsumer(
        server.namesrv, group="billing", topics={"orders": "*"}, start="first", handler=hang
    ) as consumer:
        await begun.wait()
        said = row(await browser.get(f"/messages/orders/{sent}"), "billing")
        go_on.set()
    assert "handed out, and not passed yet" in said
    assert consumer.session.client_id in said


@pytest.mark.parametrize(("to", "said"), [("first", "waits"), ("last", "not told")])
async def test_an_account_that_may_not_look_for_retries_is_told_no_more_than_is_known(
    browser: Any, server: Server, admin: Admin, monkeypatch: pytest.MonkeyPatch, to: str, said: str
) -> None:
    async def refused(self: Messages, *_: object) -> None:
        raise NoPermission("no right to look at %RETRY%billing")

    monkeypatch.setattr(Messages, "copies", refused)
    sent = await send(server, admin, "billing")
    await admin.reset_offsets("billing", "orders", to)
    assert said in row(await browser.get(f"/messages/orders/{sent}"), "billing")
