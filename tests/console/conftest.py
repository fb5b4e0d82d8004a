# SPDX-License-Identifier: Apache-2.0
"""The console as a browser sees it, over a server in this process: `page = await browser.get("/topics")`."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from aerobee import Admin, Server, StoreConfig
from aerobee.console.app import make_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ADDRESS = "http://127.0.0.1:8088"


class Browser:
    """Keeps cookies, and sends a form as it stands on a page, its hidden fields with it."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=ADDRESS)

    async def get(self, path: str, status: int = 200, **more: Any) -> str:
        answer = await self.http.get(path, **more)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[-800:]}"
        return answer.text

    async def send(self, page: str, action: str, status: int = 200, **fields: Any) -> str:
        """The form of the page that goes to `action`; afterwards the page it led to."""
        form = await self.form(page, action)
        answer = await self.http.post(action, data={**form, **fields}, follow_redirects=True)
        assert answer.status_code == status, f"{action}: {answer.status_code} {answer.text[-800:]}"
        return answer.text

    async def form(self, page: str, action: str) -> dict[str, str]:
        text = await self.get(page)
        for attributes, inside in re.findall(r"<form([^>]*)>(.*?)</form>", text, re.S):
            if f'action="{action}"' in unescape(attributes):
                return _fields(inside)
        raise AssertionError(f"{page} has no form that goes to {action}")


def _fields(form: str) -> dict[str, str]:
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        said = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if "name" in said and said.get("type") not in ("checkbox", "radio"):
            found[said["name"]] = unescape(said.get("value", ""))
    return found


@asynccontextmanager
async def console_of(namesrv: str, **settings: Any) -> AsyncIterator[Browser]:
    app = make_app(namesrv, **settings)
    browser = Browser(app)
    try:
        yield browser
    finally:
        await browser.http.aclose()
        await app.state.console.desks.stop()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    store = StoreConfig(delay_levels=" ".join(["1s"] * 18))
    async with Server(ephemeral=True, grpc_port=-1, store=store) as running:
        yield running


@pytest.fixture
async def admin(server: Server) -> AsyncIterator[Admin]:
    async with Admin(server.namesrv) as client:
        yield client


@pytest.fixture
async def browser(server: Server) -> AsyncIterator[Browser]:
    async with console_of(server.namesrv) as opened:
        yield opened


@pytest.fixture
def open_console() -> Callable[..., Any]:
    """A console of another kind: `async with open_console(namesrv, read_only=True) as browser`."""
    return console_of
