# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: what waits until when, and taking one back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from aerobee import Message, Producer, Server
from aerobee.client.admin import waiting
from aerobee.client.admin.waiting import Level, levels_of
from aerobee.errors import RequestCodeNotSupported
from aerobee.protocol.recall_handle import recall_handle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee import Admin

HOUR_MS = 3_600_000


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """With RocketMQ's own levels: what waits at one still does when it is looked at."""
    async with Server(ephemeral=True, grpc_port=-1) as running:
        yield running


@pytest.fixture
async def producer(server: Server, admin: Admin) -> AsyncIterator[Producer]:
    for topic in ("orders", "letters"):
        await admin.create_topic(topic, queues=1)
    async with Producer(server.namesrv, group="shop") as running:
        yield running


async def test_with_nothing_delayed_it_says_how_to_send_one(browser: Any, server: Server) -> None:
    page = await browser.get("/timers")
    assert "Nothing waits for a time of its own." in page
    assert page.count("/timers/levels/") == 18
    assert "Nothing waits at this level." in await browser.get("/timers/levels/5")
    await browser.get("/timers/levels/99", 404)
    await browser.get("/timers?broker=nowhere", 404)


async def test_a_level_tells_what_waits_and_until_when(browser: Any, producer: Producer) -> None:
    for number in range(30):
        await producer.send(Message("orders", b"order %d" % number, delay_level=18))
    page = await browser.get("/timers")
    assert "2 h 0 m" in page and '<td class="n">30</td></tr>' in page
    first = await browser.get("/timers/levels/18")
    assert "for orders" in first and "order 0" in first and "order 29" not in first
    assert "order 29" in await browser.get("/timers/levels/18?from=25")


async def test_those_of_the_timer_stand_by_the_time_they_are_due(browser: Any, producer: Producer) -> None:
    for topic, hours in (("letters", 30), ("orders", 1)):
        await producer.send(Message(topic, f"in {hours} hours".encode(), delay_ms=hours * HOUR_MS))
    page = await browser.get("/timers")
    assert page.index("for orders") < page.index("for letters")
    only = await browser.get("/timers?topic=letters")
    assert "for orders" not in only and "for letters" in only


async def test_older_ones_are_on_the_next_page(
    browser: Any, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOKED_AT", 1)
    monkeypatch.setattr(waiting, "STEP", 1)
    for topic in ("letters", "orders"):
        await producer.send(Message(topic, b"x", delay_ms=HOUR_MS))
    page = await browser.get("/timers")
    assert "for orders" in page and "for letters" not in page and "before=1" in page
    older = await browser.get("/timers?before=1")
    assert "for letters" in older and "for orders" not in older


async def test_one_is_taken_back_after_it_was_shown(browser: Any, producer: Producer) -> None:
    sent = await producer.send(Message("orders", b"regretted", delay_ms=HOUR_MS))
    handle = quote(sent.recall_handle or "")
    assert f"handle={handle}" in await browser.get("/timers")
    assert sent.message_id in await browser.get(f"/timers/recall?handle={handle}")
    page = await browser.send(f"/timers/recall?handle={handle}", "/timers/recall")
    assert "is taken back" in page and "· for orders" not in page


async def test_a_wrong_handle_and_one_whose_time_has_come_are_said(browser: Any) -> None:
    assert "is invalid" in await browser.get("/timers/recall?handle=%3Cscript%3E", 409)
    passed = recall_handle("orders", "broker-a", 1_000, "key")
    page = await browser.get(f"/timers/recall?handle={passed}")
    assert "it is delivered already" in page and 'class="danger"' not in page


async def test_read_only_takes_nothing_back(server: Server, producer: Producer, open_console: Any) -> None:
    sent = await producer.send(Message("orders", b"kept", delay_ms=HOUR_MS))
    async with open_console(server.namesrv, read_only=True) as browser:
        assert "Take it back" not in await browser.get("/timers")
        page = f"/timers/recall?handle={sent.recall_handle}"
        assert 'class="danger"' not in await browser.get(page)
        token = (await browser.form("/timers", "/language"))["token"]
        answer = await browser.http.post(
            "/timers/recall", data={"token": token, "handle": sent.recall_handle}
        )
        assert answer.status_code == 403
        assert "for orders" in await browser.get("/timers")


async def test_a_hostile_body_is_escaped(browser: Any, producer: Producer) -> None:
    evil = b"<script>alert(1)</script>"
    await producer.send(Message("orders", evil, delay_ms=HOUR_MS))
    await producer.send(Message("orders", evil, delay_level=18))
    for page in ("/timers", "/timers/levels/18"):
        text = await browser.get(page)
        assert evil.decode() not in text and "&lt;script&gt;" in text


async def test_a_timer_that_cannot_be_read_is_said_and_the_levels_are_shown(
    browser: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise RequestCodeNotSupported("the timer is off")

    await browser.get("/timers")
    desk = await browser.app.state.console.desks.of("")
    monkeypatch.setattr(desk.admin, "offset_range", refuse)
    page = await browser.get("/timers")
    assert "cannot be looked into: " in page and "/timers/levels/18" in page


async def test_a_level_without_a_figure_is_read_off_its_queue(
    browser: Any, producer: Producer, admin: Admin, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Apache's broker, which tells none before the first delivery of a level."""
    await producer.send(Message("orders", b"the first of its level", delay_level=18))
    told = await admin.broker_runtime(server.broker_address)
    del told["scheduleMessageOffset_18"]

    async def runtime(_: str) -> dict[str, str]:
        return told

    await browser.get("/topics")
    desk = await browser.app.state.console.desks.of("")
    monkeypatch.setattr(desk.admin, "broker_runtime", runtime)
    desk.view.forget()
    assert "/timers/levels/18" in await browser.get("/timers")
    assert "the first of its level" in await browser.get("/timers/levels/18")


def test_levels_are_read_of_any_broker_s_figures() -> None:
    runtime = {
        "scheduleMessageOffset_10": "3,5",
        "scheduleMessageOffset_2": "7,7",
        "scheduleMessageOffset_x": "-",
    }
    found = levels_of(runtime, {"messageDelayLevel": "1s 5s"})
    assert found == [Level(2, 5_000, 7, 7), Level(10, None, 3, 5)]
    assert [level.waiting for level in found] == [0, 2]
    assert levels_of({}, {}) == []
