# SPDX-License-Identifier: Apache-2.0
"""Looking through a topic: newest first, by tag, key, time and SQL; hostile bodies do no harm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer
from aerobee.console import browsing
from aerobee.console.bodies import body_of, glimpse
from aerobee.console.browsing import Sought, look_back, newest

if TYPE_CHECKING:
    from aerobee import Admin, Server


@pytest.fixture
async def orders(server: Server, admin: Admin) -> None:
    await admin.create_topic("orders", queues=3)
    async with Producer(server.namesrv, group="shop") as producer:
        for number in range(60):
            await producer.send(
                Message(
                    "orders",
                    b"order %d" % number,
                    tags="paid" if number % 3 else "void",
                    keys=[f"o-{number}"],
                    properties={"amount": str(number)},
                )
            )


def numbers(page: str) -> list[int]:
    return [int(found) for found in re.findall(r'class="line" dir="auto">order (\d+)<', page)]


async def test_messages_come_newest_first_page_by_page_each_once(browser: Any, orders: None) -> None:
    found: list[int] = []
    link = "/topics/orders/messages"
    for _ in range(3):
        page = await browser.get(link)
        found += numbers(page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        link = older[1].replace("&amp;", "&") if older else ""
    assert link == ""
    assert sorted(found) == list(range(60))
    assert found[0] >= 57 and found[-1] <= 2


async def test_messages_are_found_by_tag_key_queue_and_sql(browser: Any, orders: None) -> None:
    assert set(numbers(await browser.get("/topics/orders/messages?tag=void"))) == set(range(0, 60, 3))
    assert numbers(await browser.get("/topics/orders/messages?key=o-17")) == [17]
    by_sql = await browser.get("/topics/orders/messages", params={"sql": "amount > 55"})
    assert set(numbers(by_sql)) == {56, 57, 58, 59}
    one_queue = numbers(await browser.get("/topics/orders/messages?queue=broker-a/1"))
    assert len(one_queue) == 20


async def test_a_time_before_all_finds_nothing_and_says_so(browser: Any, orders: None) -> None:
    page = await browser.get("/topics/orders/messages?until=2020-01-01T00:00")
    assert "No message found." in page
    assert "is no time" in await browser.get("/topics/orders/messages?until=soon", 400)


async def test_a_wrong_expression_is_refused_in_words(browser: Any, orders: None) -> None:
    assert "That does not work" in await browser.get("/topics/orders/messages?sql=amount+%3E", 400)


async def test_a_look_ends_after_so_many_messages_and_goes_on_there(
    admin: Admin, orders: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browsing, "LOOKED_AT", 10)
    queues = sorted((await admin.route("orders")).readable)
    first = await look_back(admin, await newest(admin, queues, None), Sought(tag="never"))
    assert (first.found, first.looked_at, first.is_over) == ([], 10, False)
    monkeypatch.setattr(browsing, "LOOKED_AT", 1_000)
    rest = await look_back(admin, first.ends, Sought())
    assert first.looked_at + rest.looked_at >= 35


async def test_a_message_is_sent_by_its_form_and_consumers_see_it(
    browser: Any, admin: Admin, orders: None
) -> None:
    page = await browser.send(
        "/topics/orders/send", "/topics/orders/send",
        body='{"hello": "<b>you</b>"}', tags="test", keys="k-1 k-2", properties="colour=blue\nsize=7",
    )  # fmt: skip
    assert "Sent as" in page and "<b>you</b>" not in page
    (message,) = await admin.messages_by_key("orders", "k-2")
    assert (message.body, message.tags) == (b'{"hello": "<b>you</b>"}', "test")
    assert message.properties["colour"] == "blue"


async def test_what_cannot_be_sent_is_said(browser: Any, orders: None) -> None:
    assert "empty" in await browser.send("/topics/orders/send", "/topics/orders/send", 400, body="")
    wrong = await browser.send(
        "/topics/orders/send", "/topics/orders/send", 400, body="x", properties="novalue"
    )
    assert "name=value" in wrong


async def test_hostile_bodies_are_shown_as_they_are(browser: Any, server: Server, admin: Admin) -> None:
    await admin.create_topic("hostile", queues=1)
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("hostile", b"<script>alert(1)</script>", tags="<i>t</i>"))
        await producer.send(Message("hostile", "abc \u202egpj.exe".encode()))
        await producer.send(Message("hostile", bytes(range(256))))
        await producer.send(Message("hostile", b"y" * 4_000_000))
    page = await browser.get("/topics/hostile/messages")
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and "<i>t</i>" not in page
    assert "\u202e" not in page and "\\u202e" in page
    assert "000000  00 01 02 03" in page
    assert "only its beginning is shown" in page and len(page) < 100_000


# -- bodies ----------------------------------------------------------------------------------------------


def test_a_body_is_called_what_it_is() -> None:
    assert body_of(b'{"a":[1]}').kind == "json"
    assert body_of(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'
    assert body_of(b"{no json}").kind == "text"
    assert body_of(b"\x00\x01\xff").kind == "binary"
    assert body_of("日本".encode()).kind == "text"
    assert body_of(b"[" * 50_000, 100_000).kind == "text"


def test_a_sign_cut_in_two_does_not_make_a_text_binary() -> None:
    body = body_of("é".encode() * 600, 1_001)
    assert (body.kind, body.cut, len(body.text)) == ("text", True, 500)


def test_a_glimpse_is_one_short_line() -> None:
    assert glimpse(b"a\n  b\tc") == "a b c"
    assert len(glimpse(b"word " * 1_000)) == 100
    assert glimpse(b"\xff" * 100).endswith("…")
