# SPDX-License-Identifier: Apache-2.0
"""One message in a browser: held, given back, dead, and what was done by clicking on its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aerobee import Admin, Message, Producer, PushConsumer, SimpleConsumer
from aerobee.client.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from aerobee.client.message import ReceivedMessage
    from aerobee.testing import TestServer

SOON_MS = 30_000  # the page renews itself every five seconds


class Shop:
    """A topic, a consumer by hand and one with a handler, in the loop of the server."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.handled: list[str] = []
        self.held: list[ReceivedMessage] = []

    async def start(self) -> None:
        async with Admin(self.namesrv) as admin:
            await admin.create_topic("parcels", queues=1)
            await admin.create_group("by-hand", retry_max_times=0)
            await admin.create_group("handles")
        options = Options(trace=True, persist_offsets_ms=200)
        async with Producer(self.namesrv, group="shop", options=options) as producer:
            self.sent = (await producer.send(Message("parcels", b"a parcel", keys=["p-1"]))).message_id
        self.by_hand = SimpleConsumer(self.namesrv, group="by-hand", topics={"parcels": "*"}, start="first")
        self.handles = PushConsumer(
            self.namesrv, group="handles", topics={"parcels": "*"}, handler=self._handle, start="first", options=options
        )  # fmt: skip
        await self.by_hand.start()
        await self.handles.start()
        self.held = await self.by_hand.receive(invisible_ms=120_000)

    async def stop(self) -> None:
        await self.by_hand.stop()
        await self.handles.stop()

    async def give_back(self) -> None:
        await self.held[0].nack(0, ValueError("too heavy"))

    async def _handle(self, message: ReceivedMessage) -> None:
        self.handled.append(message.message_id)


@pytest.fixture(scope="module")
def shop(server: TestServer) -> Iterator[Shop]:
    made = Shop(server.namesrv)
    server.run(made.start())
    yield made
    server.run(made.stop())


def row(page: Page, group: str) -> Any:
    return page.locator("#where table").first.locator("tbody tr").filter(has_text=group)


def test_a_lease_shows_its_end_and_a_dead_letter_its_reason_as_it_happens(
    server: TestServer, shop: Shop, address: str, open_page: Callable[..., Page]
) -> None:
    page = open_page()
    page.goto(f"{address}/messages/parcels/{shop.sent}")
    expect(row(page, "by-hand")).to_contain_text("leased until")
    expect(row(page, "by-hand")).to_contain_text("from now")
    server.run(shop.give_back())
    expect(row(page, "by-hand")).to_contain_text("dead", timeout=SOON_MS)
    expect(row(page, "by-hand")).to_contain_text("ValueError: too heavy")
    row(page, "by-hand").get_by_role("link", name="its copy").click()
    page.wait_for_url("**/messages/%25DLQ%25by-hand/*")
    assert "AEROBEE_LAST_ERROR" in page.locator("main").inner_text()


def test_the_timeline_has_every_attempt_with_its_client_and_outcome(
    shop: Shop, address: str, open_page: Callable[..., Page]
) -> None:
    page = open_page()
    page.goto(f"{address}/messages/parcels/{shop.sent}")
    line = page.locator("table.happened tbody tr")
    expect(line.filter(has_text="handled")).to_contain_text("handles", timeout=SOON_MS)
    expect(line.filter(has_text="handled")).to_contain_text("well")
    expect(line.filter(has_text="sent").first).to_contain_text("shop")
    assert "no trace" not in page.locator("main").inner_text()


def test_one_client_handles_it_and_it_is_sent_again_by_clicking(
    server: TestServer, shop: Shop, address: str, open_page: Callable[..., Page]
) -> None:
    page = open_page()
    page.goto(f"{address}/messages/parcels/{shop.sent}")
    page.get_by_label("client").select_option(f"handles {shop.handles.session.client_id}")
    before = len(shop.handled)
    page.get_by_role("button", name="Have it handled there now").click()
    assert "answered CR_SUCCESS" in page.get_by_role("status").inner_text()
    assert shop.handled[before:] == [shop.sent]
    page.get_by_role("button", name="Send it again").click()
    assert page.get_by_role("status").inner_text().startswith("Sent again to parcels as ")
    assert shop.sent in page.locator("main").inner_text(), "the new one names the old one"
