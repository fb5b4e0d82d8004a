# SPDX-License-Identifier: Apache-2.0
"""Accounts: the users of a broker, whether somebody may do something, and who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.console.pages.listing import page_of, sought
from aerobee.console.pages.one_broker import chosen, is_a_right, on_every
from aerobee.errors import AerobeeError, BrokerError
from aerobee.protocol.access import Action, UserType, named
from aerobee.protocol.bodies import UserInfo

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.client.admin.access import Answer
    from aerobee.console.pages.one_broker import Chosen
    from aerobee.console.visit import Visit

READ_OF_AUDIT = 1_000
RESULTS = ("allowed", "refused", "failed")


async def frame(visit: Visit, broker: Chosen) -> dict[str, Any]:
    """What every tab shows: the broker, and whether it asks who somebody is."""
    return {"broker": broker, "is_on": await _is_on(visit, broker.address)}


async def _is_on(visit: Visit, address: str) -> bool | None:
    """None: it does not tell its settings."""
    view = visit.desk.view
    try:
        settings = await view.once(("config", address), lambda: view.admin.broker_config(address))
    except AerobeeError:
        return None
    told = [settings.get(name) for name in ("authenticationEnabled", "aclEnable")]
    return None if told == [None, None] else "true" in told


# -- users -------------------------------------------------------------------------------------------------------


async def show(visit: Visit) -> Response:
    broker = await chosen(visit)
    users: list[UserInfo] = []
    rules: dict[str, int] = {}
    untold = ""
    try:
        users = await visit.desk.admin.users(broker.address)
        for acl in await visit.desk.admin.acls(broker.address):
            name = (acl.subject or "").partition(":")[2]
            rules[name] = sum(len(policy.entries) for policy in acl.policies)
    except BrokerError as error:
        if is_a_right(error):
            raise
        untold = str(error)
    found = {user.username or "": user for user in users}
    listing = page_of(visit, sought(sorted(found), visit.query("q")))
    return visit.render(
        "accounts.html",
        title=visit.words("Accounts"),
        tab="users",
        **await frame(visit, broker),
        untold=untold,
        known=len(found),
        listing=listing,
        rows=[(found[name], rules.get(name, 0)) for name in listing.rows],
    )


async def create(visit: Visit) -> Response:
    name, password = visit.field("name"), visit.form.get("password", [""])[0]
    if not name or not password:
        raise ValueError(visit.words("Give a name and a password."))
    kind = named(UserType, visit.field("type", UserType.NORMAL)) or UserType.NORMAL
    info = UserInfo(username=name, password=password, user_type=kind.value)
    said = visit.words("{user} was created. Without a rule it may do nothing yet.", user=name)
    if kind is UserType.SUPER:
        said = visit.words("{user} was created. It may do everything.", user=name)
    said = await on_every(visit, lambda address: visit.desk.admin.create_user(address, info), said)
    return visit.go(visit.link("accounts", "users", name), said)


# -- who may -----------------------------------------------------------------------------------------------------


async def may(visit: Visit) -> Response:
    broker = await chosen(visit)
    user, action, resource = (visit.query(name) for name in ("user", "action", "resource"))
    answer: Answer | None = None
    refused = ""
    if user and resource:
        source = visit.query("source") or "127.0.0.1"
        try:
            answer = await visit.desk.admin.may(broker.address, user, action, resource, source)
        except (BrokerError, ValueError) as error:
            refused = str(error)
    return visit.render(
        "accounts_may.html",
        title=visit.words("Who may what"),
        tab="may",
        **await frame(visit, broker),
        actions=[each.value for each in Action if each not in (Action.ALL, Action.ANY)],
        answer=answer,
        refused=refused,
    )


# -- who did what ------------------------------------------------------------------------------------------------


async def audit(visit: Visit) -> Response:
    broker = await chosen(visit)
    lines: list[dict[str, Any]] = []
    untold = ""
    try:
        lines = await visit.desk.admin.audit(broker.address, READ_OF_AUDIT)
    except BrokerError as error:
        if is_a_right(error):
            raise
        untold = str(error)
    result = visit.query("result")
    words = visit.query("q").lower().split()
    found = [
        line
        for line in reversed(lines)
        if result in ("", line.get("result")) and all(word in str(line).lower() for word in words)
    ]
    listing = page_of(visit, found)
    return visit.render(
        "accounts_audit.html",
        title=visit.words("Audit log"),
        tab="audit",
        **await frame(visit, broker),
        untold=untold,
        known=len(lines),
        limit=READ_OF_AUDIT,
        listing=listing,
        results=RESULTS,
    )
