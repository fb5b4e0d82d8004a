# SPDX-License-Identifier: Apache-2.0
"""Things done by clicking, and seen by a client of the cluster afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from aerobee import Admin, Message, Producer
from tests.browser.conftest import console_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from aerobee.testing import TestServer


def ask(server: TestServer, question: Callable[[Admin], Any]) -> Any:
    async def asked() -> Any:
        async with Admin(server.namesrv) as admin:
            return await question(admin)

    return server.run(asked())


def send(server: TestServer, *messages: Message) -> None:
    async def sent() -> None:
        async with Producer(server.namesrv, group="shop") as producer:
            for message in messages:
                await producer.send(message)

    server.run(sent())


def test_a_topic_is_created_sent_to_and_deleted_by_clicking(
    server: TestServer, address: str, open_page: Callable[..., Page]
) -> None:
    page = open_page()
    page.goto(f"{address}/topics")
    page.get_by_text("Create a topic").first.click()
    page.get_by_label("Name").fill("clicked")
    page.get_by_label("Queues on each broker").fill("3")
    page.get_by_role("button", name="Create a topic").click()
    assert page.get_by_role("status").inner_text() == "Topic clicked was created."
    page.get_by_role("link", name="Send").click()
    page.get_by_label("Body").fill('{"by": "hand"}')
    page.get_by_label("Keys, a space between them").fill("k-1")
    page.get_by_role("button", name="Send").click()
    (message,) = ask(server, lambda admin: admin.messages_by_key("clicked", "k-1"))
    assert message.body == b'{"by": "hand"}'
    page.locator("details.message summary").first.click()
    assert '"by": "hand"' in page.locator("details.message pre").first.inner_text()
    tabs = page.get_by_role("navigation", name="clicked")  # the menu has settings too, of the broker
    tabs.get_by_role("link", name="Settings").click()
    page.get_by_role("link", name="Delete it").click()
    page.get_by_label("Type its name to delete it").fill("clicked")
    page.get_by_role("button", name="Delete it").click()
    assert page.get_by_role("status").inner_text() == "Topic clicked was deleted."
    assert not ask(server, lambda admin: admin.topic_exists("clicked"))


def test_a_group_is_moved_after_its_plan_was_seen(
    server: TestServer, address: str, open_page: Callable[..., Page]
) -> None:
    server.create_topic("moved", queues=2)
    send(server, *(Message("moved", b"x") for _ in range(9)))
    ask(server, lambda admin: admin.create_group("mover"))
    ask(server, lambda admin: admin.reset_offsets("mover", "moved", "first"))
    page = open_page()
    page.goto(f"{address}/groups/mover")
    page.get_by_role("link", name="Move", exact=True).click()
    page.get_by_label("Go to").select_option("last")
    page.get_by_role("button", name="Show what it would do").click()
    page.get_by_role("button", name="Move it: 0 come again, 9 are skipped").click()
    assert "was moved" in page.get_by_role("status").inner_text()
    assert ask(server, lambda admin: admin.lag("mover")).ready == 0


def test_the_slash_key_finds_a_topic(
    server: TestServer, address: str, open_page: Callable[..., Page]
) -> None:
    server.create_topic("found-by-key", queues=1)
    page = open_page()
    page.goto(f"{address}/groups")
    page.keyboard.press("/")
    page.keyboard.type("found-by-key")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/found-by-key")


def test_a_page_keeps_itself_fresh(server: TestServer, address: str, open_page: Callable[..., Page]) -> None:
    server.create_topic("fresh", queues=1)
    page = open_page()
    page.goto(f"{address}/topics/fresh")
    assert page.locator("#figures .tile b").first.inner_text() == "0"
    send(server, Message("fresh", b"x"))
    expect(page.locator("#figures .tile b").first).to_have_text("1", timeout=30_000)


def test_the_language_is_changed_by_a_click(address: str, open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.goto(f"{address}/topics")
    page.get_by_role("button", name="中文").click()
    assert page.locator("h1").inner_text().startswith("主题")
    assert page.locator("html").get_attribute("lang") == "zh"


def test_a_script_that_somebody_gets_into_a_page_does_not_run(address: str, chromium: Browser) -> None:
    page = chromium.new_page()
    page.goto(f"{address}/topics")
    page.evaluate("""() => {
        const added = document.createElement("script");
        added.textContent = "document.title = 'taken'";
        document.body.append(added);
    }""")
    assert page.title() == "Topics · Aerobee"
    page.close()


@pytest.mark.parametrize("path", ["/", "/topics", "/groups", "/topics?all=1", "/find"])
def test_an_empty_cluster_is_shown_as_one(
    path: str, open_page: Callable[..., Page], shot: Callable[[Page, str], None]
) -> None:
    from aerobee.testing import TestServer

    with TestServer() as empty, console_at(empty) as where:
        page = open_page()
        page.goto(where + path)
        shot(page, f"empty{path}")
        assert page.locator("h1").count() == 1
