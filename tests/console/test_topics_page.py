# SPDX-License-Identifier: Apache-2.0
"""The list of topics: found, ordered, created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee import Admin, Message, Producer
from aerobee.errors import NetworkError

if TYPE_CHECKING:
    import pytest

    from aerobee import Server


async def test_an_empty_cluster_says_what_to_do_next(browser: Any) -> None:
    assert "There are no topics yet." in await browser.get("/topics")
    assert "There are no groups yet." in await browser.get("/groups")


async def test_topics_are_listed_with_their_figures(browser: Any, server: Server, admin: Admin) -> None:
    await admin.create_topic("orders", queues=3)
    async with Producer(server.namesrv, group="shop") as producer:
        for _ in range(7):
            await producer.send(Message("orders", b"x"))
    page = await browser.get("/topics")
    row = page[page.index(">orders</a>") :].split("</tr>")[0]
    assert '<td class="n">3</td>' in row and '<td class="n">7</td>' in row


async def test_a_list_is_searched_ordered_and_paged(browser: Any, server: Server, admin: Admin) -> None:
    for number in range(60):
        await admin.create_topic(f"t-{number:02d}", queues=1)
    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send(Message("t-33", b"x"))
    first = await browser.get("/topics")
    assert ">t-00</a>" in first and ">t-49</a>" in first and ">t-50</a>" not in first
    assert ">t-50</a>" in await browser.get("/topics?page=2")
    found = await browser.get("/topics?q=T-3+3")
    assert ">t-33</a>" in found and ">t-30</a>" in found and ">t-21</a>" not in found
    by_messages = await browser.get("/topics?sort=messages")
    assert by_messages.index(">t-33</a>") < by_messages.index(">t-00</a>")


async def test_a_topic_is_created_by_its_form(browser: Any, admin: Admin) -> None:
    page = await browser.send("/topics", "/topics", topic="made-here", queues="5")
    assert "Topic made-here was created." in page
    assert next(iter((await admin.topic_config("made-here")).values())).write_queue_nums == 5
    assert "was created" not in await browser.get("/topics")


async def test_a_wrong_name_is_refused_in_words_and_harms_nothing(browser: Any) -> None:
    page = await browser.send("/topics", "/topics", 400, topic="<script>alert(1)</script>", queues="5")
    assert "<script>alert" not in page and "&lt;script&gt;" in page


async def test_the_form_offers_as_many_queues_as_the_brokers_give(
    browser: Any, admin: Admin, server: Server
) -> None:
    await admin.update_broker_config(server.broker_address, {"default_queues": "5"})
    assert (await browser.form("/topics", "/topics"))["queues"] == "5"


async def test_a_broker_that_does_not_tell_its_queues_keeps_no_page_away(
    browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(self: Admin, cluster: str | None = None) -> int:
        raise NetworkError("lost")

    monkeypatch.setattr(Admin, "default_queues", lost)
    assert (await browser.form("/topics", "/topics"))["queues"] == "8"
