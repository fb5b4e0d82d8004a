# SPDX-License-Identifier: Apache-2.0
"""Ten thousand topics: lists stay lists that one can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee import Admin
from aerobee.protocol import bodies
from aerobee.protocol.headers.topics import CreateTopicList

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from aerobee.testing import TestServer

MANY = 10_000


@pytest.fixture(scope="module", autouse=True)
def many(server: TestServer) -> None:
    async def create() -> None:
        async with Admin(server.namesrv) as admin:
            for first in range(0, MANY, 1_000):
                configs = [
                    bodies.TopicConfig(topic_name=f"many-{n:05d}", read_queue_nums=1, write_queue_nums=1)
                    for n in range(first, first + 1_000)
                ]
                body = bodies.encode(bodies.TopicConfigList(topic_config_list=configs))
                await admin.session.call(server.broker_address, CreateTopicList(), body, timeout_ms=60_000)

    server.run(create())


def test_lists_of_ten_thousand_are_searched_and_paged(address: str, open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.goto(f"{address}/topics")
    assert page.locator(".count").inner_text() == "10,000"
    assert page.locator("tbody tr").count() == 50
    page.get_by_role("link", name="Next").click()
    assert "many-00050" in page.locator("tbody").inner_text()
    page.get_by_placeholder("Find a topic").fill("many-0999")
    page.get_by_role("button", name="Search").click()
    assert page.locator("tbody tr").count() == 10
    page.get_by_role("link", name="messages").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("messages")
    page.goto(f"{address}/topics?sort=messages")
    assert "narrow the search first" in page.locator(".hint").inner_text()


def test_the_overview_of_ten_thousand_is_short(address: str, open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.goto(address)
    assert "Topics: 10,000." in page.locator("main").inner_text()
    assert page.locator(".problems li").count() <= 12
