# SPDX-License-Identifier: Apache-2.0
"""A real browser (Debian's chromium, driven by Playwright) on the console of a server in this process.

`make browser` installs what it needs. Pages are looked at by a person too: screenshots go where AEROBEE_SHOTS says.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, sync_playwright

from aerobee import StoreConfig
from aerobee.console.app import make_app
from aerobee.console.serving import serving
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, ViewportSize

CHROMIUM = os.environ.get("AEROBEE_CHROMIUM", "/usr/bin/chromium")
AXE = Path(os.environ.get("AEROBEE_AXE", ".browser/node_modules/axe-core/axe.min.js"))
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1280, "height": 900}


@contextmanager
def console_at(server: TestServer, namesrv: str = "", **settings: Any) -> Iterator[str]:
    """The console's address, served in the loop of the server."""
    stack = AsyncExitStack()

    async def start() -> str:
        app = make_app(namesrv or server.namesrv, **settings)
        return await stack.enter_async_context(serving(app, "127.0.0.1", 0))

    address = server.run(start())
    try:
        yield address
    finally:
        server.run(stack.aclose())


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as home:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, env={"HOME": home, "PATH": os.environ["PATH"]}
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """`open_page(width=..., dark=True)`; what the page's console or its scripts complain of fails the test."""
    opened, complaints = [], []

    def opening(viewport: ViewportSize | None = None, locale: str = "en-GB", **more: Any) -> Page:
        context = chromium.new_context(viewport=viewport or DESK, locale=locale, **more)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        opened.append(context)
        return page

    yield opening
    for context in opened:
        context.close()
    # A page that says 404 or 403 is meant; the browser calls it an error of the network.
    wrong = [text for text in complaints if "Failed to load resource" not in text]
    assert not wrong, wrong


@pytest.fixture
def shot(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    """For who looks at them: `AEROBEE_SHOTS=/tmp/shots make browser`."""

    def take(page: Page, name: str) -> None:
        if place := os.environ.get("AEROBEE_SHOTS"):
            Path(place).mkdir(parents=True, exist_ok=True)
            clean = re.sub(r"[^\w-]", "_", name)
            page.screenshot(path=f"{place}/{clean}.png", full_page=True)

    return take


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer(store=StoreConfig(delay_levels=" ".join(["1s"] * 18))) as running:
        yield running


@pytest.fixture(scope="module")
def address(server: TestServer) -> Iterator[str]:
    with console_at(server) as where:
        yield where
