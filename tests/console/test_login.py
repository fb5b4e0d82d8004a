# SPDX-License-Identifier: Apache-2.0
"""Where the cluster asks who it is, the console does; each account sees and does what it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Admin, BrokerConfig, Server
from aerobee.client.admin import acl_of
from aerobee.client.options import SessionOptions
from aerobee.clock import ManualClock
from aerobee.console.desk import IDLE_MS
from aerobee.console.security import COOKIE
from aerobee.protocol.bodies import UserInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = SessionOptions(access_key="root", secret_key="secret-of-root")


@pytest.fixture
async def secured() -> AsyncIterator[Server]:
    config = BrokerConfig(
        authentication=True, authorization=True, init_user='{"username":"root","password":"secret-of-root"}'
    )
    async with Server(ephemeral=True, grpc_port=-1, config=config) as server:
        yield server


async def log_in(browser: Any, name: str, password: str, status: int = 200) -> str:
    return await browser.send("/login", "/login", status, name=name, password=password)


async def test_nothing_is_shown_before_the_login_and_one_comes_back_to_the_page(
    secured: Server, open_console: Any
) -> None:
    async with open_console(secured.namesrv) as browser:
        answer = await browser.http.get("/topics?q=or")
        assert answer.status_code == 303
        login = answer.headers["location"]
        assert login.startswith("/login?next=")
        page = await browser.send(login, "/login", name="root", password="secret-of-root")
        assert "Topics" in page and 'value="or"' in page
        assert "Log out" in page


async def test_a_wrong_password_is_refused_and_nothing_is_kept(secured: Server, open_console: Any) -> None:
    async with open_console(secured.namesrv) as browser:
        await log_in(browser, "root", "wrong", 403)
        assert (await browser.http.get("/")).status_code == 303
        assert len(browser.app.state.console.desks._desks) == 1


async def test_the_browser_gets_another_id_at_the_login(secured: Server, open_console: Any) -> None:
    async with open_console(secured.namesrv) as browser:
        await browser.get("/login")
        before = browser.http.cookies[COOKIE]
        await log_in(browser, "root", "secret-of-root")
        after = browser.http.cookies[COOKIE]
        assert before != after
        browser.http.cookies.set(COOKIE, before)
        assert (await browser.http.get("/")).status_code == 303


async def test_an_account_does_what_it_may_and_no_more(secured: Server, open_console: Any) -> None:
    async with Admin(secured.namesrv, options=ROOT) as root:
        await root.create_topic("orders", queues=1)
        await root.create_user(
            secured.broker_address, UserInfo(username="looker", password="secret-of-looker")
        )
        rights = acl_of("looker", ["Topic:*", "Group:*", "Cluster:*"], ["Get", "List"])
        await root.create_acl(secured.broker_address, rights)
        async with open_console(secured.namesrv) as browser:
            await log_in(browser, "looker", "secret-of-looker")
            assert "orders" in await browser.get("/topics")
            refused = await browser.send("/topics", "/topics", 403, topic="forbidden", queues="1")
            assert "may not" in refused
        assert not await root.topic_exists("forbidden")


async def test_an_account_that_may_look_at_one_group_gets_in_and_sees_it(
    secured: Server, open_console: Any
) -> None:
    async with Admin(secured.namesrv, options=ROOT) as root:
        await root.create_topic("orders", queues=1)
        await root.create_group("billing")
        await root.create_user(secured.broker_address, UserInfo(username="team", password="secret-of-team"))
        await root.create_acl(secured.broker_address, acl_of("team", ["Group:billing"], ["Get"]))
    async with open_console(secured.namesrv) as browser:
        page = await log_in(browser, "team", "secret-of-team", 403)
        assert "Needs List on Group:*." in page, "of the overview, which is of everything"
        assert "Log out" in page
        assert "billing" in await browser.get("/groups/billing")
        assert "<h1>billing" in await browser.get("/find?q=billing", follow_redirects=True)
        assert "Needs Get on Group:shop." in await browser.get("/groups/shop", 403)
        assert "Needs List on Group:*." in await browser.get("/groups", 403)


async def test_who_logs_out_or_stays_away_is_asked_again(secured: Server, open_console: Any) -> None:
    clock = ManualClock()
    async with open_console(secured.namesrv, clock=clock) as browser:
        await log_in(browser, "root", "secret-of-root")
        await browser.send("/topics", "/logout")
        assert (await browser.http.get("/topics")).status_code == 303
        await log_in(browser, "root", "secret-of-root")
        clock.advance(IDLE_MS)
        assert (await browser.http.get("/topics")).status_code == 303


async def test_the_console_s_own_account_lets_everybody_in(secured: Server, open_console: Any) -> None:
    async with open_console(secured.namesrv, options=ROOT) as browser:
        await browser.get("/topics")


@pytest.mark.parametrize("link", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_the_login_leads_to_no_other_site(secured: Server, open_console: Any, link: str) -> None:
    async with open_console(secured.namesrv) as browser:
        form = await browser.form("/login", "/login")
        fields = {**form, "name": "root", "password": "secret-of-root", "next": link}
        answer = await browser.http.post("/login", data=fields)
        assert answer.headers["location"] == "/"
