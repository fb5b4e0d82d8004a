# SPDX-License-Identifier: Apache-2.0
"""One account: what it may, and changing that. What takes something away is shown first, and asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from aerobee.client.admin.access import acl_of
from aerobee.console.pages.accounts import frame
from aerobee.console.pages.one_broker import chosen, on_every
from aerobee.errors import QueryNotFound
from aerobee.protocol.access import Action, Decision, PolicyType, Resource, UserStatus, UserType, named
from aerobee.protocol.bodies import UserInfo

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.client.admin import Admin
    from aerobee.console.visit import Visit
    from aerobee.protocol.bodies import PolicyEntryInfo

_separators = re.compile(r"[\s,]+").split


class Rule(NamedTuple):
    kind: str  # Custom or Default
    entry: PolicyEntryInfo
    may_be_removed: bool


async def show(visit: Visit) -> Response:
    broker = await chosen(visit)
    user = await _user(visit, broker.address)
    return visit.render(
        "account.html",
        title=visit.name("user"),
        tab="users",
        **await frame(visit, broker),
        user=user,
        is_super=named(UserType, user.user_type) is UserType.SUPER,
        is_disabled=named(UserStatus, user.user_status) is UserStatus.DISABLE,
        rules=await _rules(visit, broker.address),
        actions=[each.value for each in Action if each is not Action.ANY],
        decisions=[each.value for each in Decision],
    )


async def _user(visit: Visit, address: str) -> UserInfo:
    name = visit.name("user")
    user = await visit.desk.admin.user(address, name)
    if user is None:
        raise QueryNotFound(visit.words("This broker has no user {user}.", user=name))
    return user


async def _rules(visit: Visit, address: str) -> list[Rule]:
    acl = await visit.desk.admin.acl(address, visit.name("user"))
    return [
        Rule(policy.policy_type or "", entry, named(PolicyType, policy.policy_type) is PolicyType.CUSTOM)
        for policy in (acl.policies if acl else [])
        for entry in policy.entries
    ]


# -- giving ------------------------------------------------------------------------------------------------------


async def grant(visit: Visit) -> Response:
    """A rule for each resource; those there are on the same resources are replaced."""
    name, t = visit.name("user"), visit.words
    resources = [Resource.parse(each).text for each in _separators(visit.field("resources")) if each]
    wanted = [named(Action, each) for each in visit.form.get("actions", [])]
    actions = [each.value for each in wanted if each]
    decision = named(Decision, visit.field("decision", Decision.ALLOW))
    if not resources or not actions or decision is None:
        raise ValueError(t("say which resources and which actions; nothing was changed"))
    sources = [each for each in _separators(visit.field("sources")) if each]
    acl = acl_of(name, resources, actions, decision.value, sources)
    said = t("{user} has a rule about {resources}.", user=name, resources=", ".join(resources))
    said = await on_every(visit, lambda address: visit.desk.admin.update_acl(address, acl), said)
    return visit.go(visit.link("accounts", "users", name), said)


async def set_password(visit: Visit) -> Response:
    name, t = visit.name("user"), visit.words
    password, again = (visit.form.get(field, [""])[0] for field in ("password", "again"))
    if not password.strip() or password != again:
        raise ValueError(t("type the new password twice, the same both times; nothing was changed"))
    info = UserInfo(username=name, password=password)
    said = t("{user} has another password.", user=name)
    said = await on_every(visit, lambda address: visit.desk.admin.update_user(address, info), said)
    return visit.go(visit.link("accounts", "users", name), said)


# -- what is asked about first -----------------------------------------------------------------------------------

STEPS = ("disable", "enable", "super", "normal", "remove", "delete")


async def ask(visit: Visit) -> Response:
    broker = await chosen(visit)
    step, resource = _step(visit.query("step")), visit.query("resource")
    user, rules = await _user(visit, broker.address), await _rules(visit, broker.address)
    about = [rule for rule in rules if step == "remove" and rule.entry.resource == resource]
    if step == "remove" and not about:
        raise QueryNotFound(visit.words("It has no rule about {resource}.", resource=resource))
    return visit.render(
        "account_step.html",
        title=visit.name("user"),
        tab="users",
        **await frame(visit, broker),
        user=user,
        step=step,
        resource=resource,
        about=about,
        rules=rules,
    )


async def do(visit: Visit) -> Response:
    name, t = visit.name("user"), visit.words
    step, resource = _step(visit.field("step")), visit.field("resource")
    admin = visit.desk.admin
    if step == "delete":
        if visit.field("name") != name:
            raise ValueError(t("the name typed is not {user}; nothing was deleted", user=name))
        said = t("{user} was deleted.", user=name)
        said = await on_every(visit, lambda address: admin.delete_user(address, name), said)
        return visit.go(visit.link("accounts"), said)
    if step == "remove":
        resource = Resource.parse(resource).text  # Apache takes one that it cannot read for all of them
        said = t("The rule about {resource} was removed.", resource=resource)
        said = await on_every(visit, lambda address: admin.delete_acl(address, name, resource), said)
    else:
        said = await on_every(
            visit, lambda address: _change(admin, address, name, step), t("{user} was changed.", user=name)
        )
    return visit.go(visit.link("accounts", "users", name), said)


async def _change(admin: Admin, address: str, name: str, step: str) -> None:
    status = named(UserStatus, step)
    kind = named(UserType, step)
    info = UserInfo(
        username=name, user_status=status.value if status else None, user_type=kind.value if kind else None
    )
    await admin.update_user(address, info)


def _step(text: str) -> str:
    if text not in STEPS:
        raise ValueError(f"{text[:40]!r} is nothing that can be done; there are {', '.join(STEPS)}")
    return text
