# SPDX-License-Identifier: Apache-2.0
"""Other sites cannot act through an operator's browser; who may not change anything cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from aerobee.console import security
from aerobee.console.app import make_app
from aerobee.console.security import COOKIE, host_is_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee import Admin, Server


async def test_every_answer_forbids_scripts_and_frames_of_others(browser: Any) -> None:
    for path in ("/", "/topics", "/no/such/page", "/static/console.js"):
        answer = await browser.http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_no_page_holds_a_script_or_a_style_that_the_policy_would_stop(browser: Any) -> None:
    for path in ("/", "/topics", "/groups", "/login"):
        page = await browser.get(path)
        assert " style=" not in page and "<style" not in page and " onclick=" not in page
        assert page.count("<script") == page.count("<script src=")


async def test_the_cookie_is_hidden_from_scripts_and_other_sites(browser: Any) -> None:
    answer = await browser.http.get("/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie


async def test_a_form_without_the_token_of_its_browser_changes_nothing(browser: Any, admin: Admin) -> None:
    form = await browser.form("/topics", "/topics")
    assert form["token"]
    fields = {"topic": "stolen", "queues": "1"}
    for token in ("", "0" * 64):
        answer = await browser.http.post("/topics", data={**fields, "token": token})
        assert answer.status_code == 403
    browser.http.cookies.delete(COOKIE)
    answer = await browser.http.post("/topics", data={**fields, "token": form["token"]})
    assert answer.status_code == 403
    assert not await admin.topic_exists("stolen")


async def test_a_form_of_another_site_changes_nothing(browser: Any, admin: Admin) -> None:
    form = await browser.form("/topics", "/topics")
    answer = await browser.http.post(
        "/topics", data={**form, "topic": "stolen"}, headers={"origin": "http://evil.example"}
    )
    assert answer.status_code == 403
    assert not await admin.topic_exists("stolen")


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8088", True),
        ("localhost:8088", True),
        ("[::1]:8088", True),
        ("10.0.0.7", True),
        ("console.shop.example", True),
        ("evil.example", False),
        ("evil.example:8088", False),
        ("", False),
    ],
)
def test_only_addresses_and_names_given_are_ours(host: str, ours: bool) -> None:
    assert host_is_ours(host, frozenset({"console.shop.example"})) is ours


async def test_a_name_made_to_point_here_gets_no_page(browser: Any) -> None:
    answer = await browser.http.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "orders" not in answer.text


async def test_strangers_who_come_and_go_log_no_one_out(
    monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setattr(security, "MAX_BROWSERS", 3)
    await browser.get("/")
    known = browser.app.state.console.browsers._known
    known[browser.http.cookies[COOKIE]].account = "somebody"
    for _ in range(5):
        await httpx.AsyncClient(transport=browser.http._transport, base_url="http://127.0.0.1").get("/login")
    assert len(known) == 3
    assert browser.http.cookies[COOKIE] in known


async def test_mounted_under_a_path_every_link_has_it(server: Server) -> None:
    app = make_app(server.namesrv)
    outer = Starlette(routes=[Mount("/console", app)])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=outer), base_url="http://127.0.0.1"
    ) as http:
        page = await http.get("/console/topics?q=or")
        assert 'href="/console/groups"' in page.text and 'href="/console/static/console.css"' in page.text
        assert 'aria-current="page"' in page.text
        assert 'value="/console/topics?q=or"' in page.text, "the language comes back to the same page"
        assert "path=/console" in page.headers["set-cookie"].lower()
        assert (await http.get("/console/static/console.css")).status_code == 200
    await app.state.console.desks.stop()


async def test_a_read_only_console_offers_no_change_and_refuses_one(
    server: Server, admin: Admin, open_console: Callable[..., Any]
) -> None:
    async with open_console(server.namesrv, read_only=True) as browser:
        page = await browser.get("/topics")
        assert "read-only" in page and 'action="/topics"' not in page
        token = (await browser.form("/topics", "/language"))["token"]
        answer = await browser.http.post("/topics", data={"token": token, "topic": "t1", "queues": "1"})
        assert answer.status_code == 403
    assert not await admin.topic_exists("t1")
