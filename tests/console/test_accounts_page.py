# SPDX-License-Identifier: Apache-2.0
"""Accounts: users, what they may, who did what; and what is said where a broker keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Admin, BrokerConfig, Server
from aerobee.client.admin import acl_of
from aerobee.client.options import SessionOptions
from aerobee.errors import NoPermission
from aerobee.protocol.bodies import UserInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ROOT = SessionOptions(access_key="root", secret_key="secret-of-root")
SHOP = "/accounts/users/shop"


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Server]:
    config = BrokerConfig(
        authentication=True,
        authorization=True,
        init_user='{"username":"root","password":"secret-of-root"}',
        audit_log=str(tmp_path / "audit.jsonl"),
    )
    async with Server(ephemeral=True, grpc_port=-1, config=config) as server:
        yield server


@pytest.fixture
async def root(secured: Server) -> AsyncIterator[Admin]:
    async with Admin(secured.namesrv, options=ROOT) as admin:
        yield admin


@pytest.fixture
async def console(secured: Server, open_console: Any) -> AsyncIterator[Any]:
    async with open_console(secured.namesrv, options=ROOT) as browser:
        yield browser


@pytest.fixture
async def shop(secured: Server, root: Admin) -> UserInfo:
    user = UserInfo(username="shop", password="secret-of-shop")
    await root.create_user(secured.broker_address, user)
    await root.create_acl(secured.broker_address, acl_of("shop", ["Topic:orders"], ["Pub"]))
    return user


async def test_a_broker_without_users_says_so_and_that_access_control_is_off(browser: Any) -> None:
    page = await browser.get("/accounts")
    assert "Access control is off" in page
    assert "This broker tells of no users." in page and "authenticationMetadataProvider" in page
    assert 'name="password"' not in page
    assert "This broker tells of no audit log." in await browser.get("/accounts/audit")
    assert "authenticationMetadataProvider" in await browser.get("/accounts/may?user=a&action=Pub&resource=*")


async def test_a_user_is_made_and_no_password_is_ever_shown(
    console: Any, root: Admin, secured: Server
) -> None:
    page = await console.send("/accounts", "/accounts", name="shop", password="secret-of-shop")
    assert "shop was created. Without a rule it may do nothing yet." in page
    assert "It has no rules, so it may do nothing." in page
    assert await root.user(secured.broker_address, "shop") is not None
    for text in (page, await console.get("/accounts")):
        assert "secret-of-shop" not in text and "secret-of-root" not in text


async def test_a_rule_is_added_and_answers_who_may(console: Any, shop: UserInfo) -> None:
    ask = "/accounts/may?user=shop&action=Sub&resource=Group:billing&source="
    assert "it may not" in await console.get(f"{ask}10.1.2.3")
    page = await console.send(
        SHOP, f"{SHOP}/grant", resources="Group:billing", actions="Sub", sources="10.0.0.0/8"
    )
    assert "shop has a rule about Group:billing." in page and "10.0.0.0/8" in page
    assert "by the Custom rule: Allow Sub on Group:billing" in await console.get(f"{ask}10.1.2.3")
    assert "it may not" in await console.get(f"{ask}192.168.0.1")


async def test_a_rule_is_removed_after_it_was_shown(
    console: Any, shop: UserInfo, root: Admin, secured: Server
) -> None:
    step = f"{SHOP}/step?step=remove&resource=Topic:orders"
    assert "Allow Pub on Topic:orders from everywhere is looked at no more." in await console.get(step)
    assert "The rule about Topic:orders was removed." in await console.send(step, f"{SHOP}/step")
    assert not (await root.may(secured.broker_address, "shop", "Pub", "Topic:orders")).allowed
    await console.get(step, 404)


async def test_a_resource_that_cannot_be_read_removes_nothing(
    console: Any, shop: UserInfo, root: Admin, secured: Server
) -> None:
    step = f"{SHOP}/step?step=remove&resource=Topic:orders"
    await console.send(step, f"{SHOP}/step", 400, resource="nonsense")
    assert (await root.may(secured.broker_address, "shop", "Pub", "Topic:orders")).allowed


@pytest.mark.parametrize(
    ("step", "status", "kind"),
    [("disable", "disable", "Normal"), ("super", "enable", "Super")],
)
async def test_a_user_is_changed_after_it_was_asked(
    console: Any, shop: UserInfo, root: Admin, secured: Server, step: str, status: str, kind: str
) -> None:
    await console.send(f"{SHOP}/step?step={step}", f"{SHOP}/step")
    user = await root.user(secured.broker_address, "shop")
    assert user is not None
    assert (user.user_status, user.user_type) == (status, kind)


async def test_a_user_is_deleted_by_its_name_only(
    console: Any, shop: UserInfo, root: Admin, secured: Server
) -> None:
    step = f"{SHOP}/step?step=delete"
    assert "nothing was deleted" in await console.send(step, f"{SHOP}/step", 400, name="shops")
    assert await root.user(secured.broker_address, "shop") is not None
    assert "shop was deleted." in await console.send(step, f"{SHOP}/step", name="shop")
    assert await root.user(secured.broker_address, "shop") is None
    await console.get(SHOP, 404)


async def test_a_password_is_changed_when_it_is_typed_twice(
    console: Any, shop: UserInfo, secured: Server
) -> None:
    place = f"{SHOP}/password"
    await console.send(SHOP, place, 400, password="another-secret", again="an0ther-secret")
    await console.send(SHOP, place, password="another-secret", again="another-secret")
    own = SessionOptions(access_key="shop", secret_key="another-secret")
    async with Admin(secured.namesrv, options=own) as admin:
        with pytest.raises(NoPermission, match="shop"):  # known, and refused for want of a right
            await admin.users(secured.broker_address)


async def test_the_audit_log_is_read_newest_first_and_by_what_is_sought(console: Any, shop: UserInfo) -> None:
    page = await console.get("/accounts/audit")
    assert page.index("CreateAcl") < page.index("CreateUser")
    assert "CreateUser" not in await console.get("/accounts/audit?q=orders")
    assert "No line has that." in await console.get("/accounts/audit?result=refused")


async def test_who_may_not_look_is_told_so(
    secured: Server, shop: UserInfo, root: Admin, open_console: Any
) -> None:
    rights = acl_of("shop", ["Topic:*", "Group:*"], ["Get", "List"])
    await root.create_acl(secured.broker_address, rights)
    own = SessionOptions(access_key="shop", secret_key="secret-of-shop")
    async with open_console(secured.namesrv, options=own) as browser:
        assert "This account may not do that" in await browser.get("/accounts", 403)


async def test_read_only_changes_nothing_and_shows_no_form(
    secured: Server, shop: UserInfo, root: Admin, open_console: Any
) -> None:
    async with open_console(secured.namesrv, options=ROOT, read_only=True) as browser:
        for page in ("/accounts", SHOP, f"{SHOP}/step?step=delete"):
            assert 'type="password"' not in await browser.get(page)
        token = (await browser.form("/accounts", "/language"))["token"]
        answer = await browser.http.post(
            f"{SHOP}/step", data={"token": token, "step": "delete", "name": "shop"}
        )
        assert answer.status_code == 403
    assert await root.user(secured.broker_address, "shop") is not None


async def test_hostile_text_is_escaped_and_refused(console: Any, shop: UserInfo) -> None:
    evil = "<script>alert(1)</script>"
    for page in ("/accounts?q=", "/accounts/may?user=shop&action=Pub&resource=", "/accounts/audit?q="):
        assert evil not in await console.get(page + evil)
    assert evil not in await console.get("/accounts/users/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404)
    assert evil not in await console.send("/accounts", "/accounts", 409, name=evil, password="x")
    assert evil not in await console.send(SHOP, f"{SHOP}/grant", 400, resources=evil, actions="Pub")
    await console.get(f"{SHOP}/step?step=%3Cb%3E", 400)
