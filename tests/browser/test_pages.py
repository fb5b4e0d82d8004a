# SPDX-License-Identifier: Apache-2.0
"""Every page with data, at a desk and on a phone, light and dark: readable, without complaints, usable by all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.accessibility import violations
from tests.browser.conftest import AXE, DESK, PHONE
from tests.browser.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from aerobee.testing import TestServer

PATHS = [
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/send",
    "/topics/orders/settings",
    "/topics/orders/delete",
    "/topics/hostile/messages",
    "/messages/orders/{refused}",
    "/messages/%25DLQ%25billing/{refused}",
    "/messages/payments/{stuck}",
    "/groups",
    "/groups/billing",
    "/groups/shipping",
    "/groups/stuck",
    "/groups/mixed",
    "/groups/audit/reset?topic=orders&to=last",
    "/groups/billing/settings",
    "/groups/billing/dead",
    "/brokers",
    "/brokers/broker-a",
    "/groups/billing/delete",
    "/timers",
    "/timers/levels/18",
    "/timers/recall",
    "/transactions",
    "/clients",
    "/clients?q=billing",
    "/settings",
    "/settings/transaction_check_max?value=7",
    "/accounts",
    "/accounts/may?user=shop&action=Pub&resource=Topic:orders",
    "/accounts/audit",
    "/find?q=or",
    "/no/such/page",
    "/login",
]


@pytest.fixture(scope="module", autouse=True)
def scene(server: TestServer) -> Iterator[Scene]:
    made = Scene(server.namesrv)
    server.run(made.start())
    server.run(
        server.wait_for_dead_letter("billing", 60_000)
    )  # the page of what was refused shows all of its way
    yield made
    server.run(made.stop())


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_whole_at_a_desk_and_accessible(
    path: str, scene: Scene, address: str, open_page: Callable[..., Page], shot: Callable[[Page, str], None]
) -> None:
    page = open_page(bypass_csp=True)
    page.goto(address + path.format(**scene.ids))
    assert page.title() != "taken"
    assert page.locator("h1").count() == 1
    shot(page, f"desk{path}")
    assert violations(page, AXE) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_page_fits_a_phone_in_the_dark(
    path: str, scene: Scene, address: str, open_page: Callable[..., Page], shot: Callable[[Page, str], None]
) -> None:
    page = open_page(PHONE, color_scheme="dark", bypass_csp=True)
    page.goto(address + path.format(**scene.ids))
    shot(page, f"phone{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], (
        "the page itself scrolls sideways"
    )
    assert violations(page, AXE) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_whole_in_chinese(
    path: str, scene: Scene, address: str, open_page: Callable[..., Page], shot: Callable[[Page, str], None]
) -> None:
    page = open_page(locale="zh-CN", color_scheme="dark")
    page.goto(address + path.format(**scene.ids))
    shot(page, f"zh{path}")
    assert page.locator("html").get_attribute("lang") == "zh"
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]
