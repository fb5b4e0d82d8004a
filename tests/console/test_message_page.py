# SPDX-License-Identifier: Apache-2.0
"""One message: where it is for each group; sent again, handled by one consumer. And the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer, PushConsumer
from tests.turning import until

if TYPE_CHECKING:
    from aerobee import Admin, Server
    from aerobee.client.message import ReceivedMessage


@pytest.fixture
async def sent(server: Server, admin: Admin) -> Any:
    await admin.create_topic("orders", queues=1)
    for group in ("billing", "audit"):
        await admin.create_group(group)
    async with Producer(server.namesrv, group="shop") as producer:
        result = await producer.send(Message("orders", b'{"order": 1}', tags="paid", keys=["o-1"]))
    await admin.reset_offsets("billing", "orders", "last")
    await admin.reset_offsets("audit", "orders", "first")
    return result


async def test_a_message_tells_where_it_is_for_every_group(browser: Any, sent: Any) -> None:
    page = await browser.get(f"/messages/orders/{sent.message_id}")
    rows = {name: page.split(f"/groups/{name}")[1].split("</tr>")[0] for name in ("billing", "audit")}
    assert "finished, or filtered out" in rows["billing"] and "waits" in rows["audit"]
    assert "&#34;order&#34;: 1" in page
    whole = await browser.http.get(f"/messages/orders/{sent.message_id}/body")
    assert whole.content == b'{"order": 1}'
    assert whole.headers["content-disposition"].startswith("attachment")


async def test_search_goes_to_a_message_by_the_producers_id_and_the_brokers(browser: Any, sent: Any) -> None:
    for message_id in (sent.message_id, sent.offset_id):
        answer = await browser.http.get(f"/find?q= {message_id} ")
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/messages/orders/{message_id}"
        assert "&#34;order&#34;: 1" in await browser.get(answer.headers["location"])
    unknown = sent.message_id[:-8] + "FFFFFFFF"
    assert "No topic has a message of that id" in await browser.get(f"/find?q={unknown}")
    assert "Nothing has that in its name." in await browser.get("/find?q=o-1")


async def test_a_message_is_sent_again_as_a_new_one(browser: Any, admin: Admin, sent: Any) -> None:
    place = f"/messages/orders/{sent.message_id}"
    assert "Sent again to orders" in await browser.send(place, f"{place}/resend")
    copies = await admin.messages_by_key("orders", "o-1")
    assert [each.body for each in copies] == [b'{"order": 1}'] * 2
    assert copies[1].property("ORIGIN_MESSAGE_ID") == sent.message_id


async def test_one_consumer_handles_it_at_once(browser: Any, server: Server, sent: Any) -> None:
    handled: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message)

    async with PushConsumer(
        server.namesrv, group="billing", topics={"orders": "*"}, handler=handle
    ) as consumer:
        place = f"/messages/orders/{sent.message_id}"
        client = consumer.session.client_id
        page = await browser.send(place, f"{place}/consume", at=f"billing {client}")
        assert "answered CR_SUCCESS" in page
        await until(lambda: handled)
    assert handled[0].message_id == sent.message_id


async def test_an_id_nobody_knows_is_said_to_be(browser: Any, sent: Any) -> None:
    assert "Not there" in await browser.get("/messages/orders/nosuch", 404)


async def test_brokers_are_shown_with_their_figures_and_a_way_to_their_settings(browser: Any) -> None:
    assert "/brokers/broker-a" in await browser.get("/brokers")
    page = await browser.get("/brokers/broker-a")
    assert "msgPutTotalTodayNow" in page and "/settings?broker=broker-a" in page
    await browser.get("/brokers/nosuch", 404)


async def test_producers_are_sent_elsewhere_and_back(browser: Any, admin: Admin, sent: Any) -> None:
    await browser.send("/brokers/broker-a", "/brokers/broker-a/writes", writes="off")
    assert not (await admin.route("orders")).writable
    await browser.send("/brokers/broker-a", "/brokers/broker-a/writes", writes="on")
    assert (await admin.route("orders")).writable
