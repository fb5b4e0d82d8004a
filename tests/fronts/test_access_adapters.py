# SPDX-License-Identifier: Apache-2.0
"""Requests about users and policies, adapter by adapter: each field goes where it belongs, and none is None."""

from __future__ import annotations

import inspect
from types import SimpleNamespace as Thing
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations.admin import access as op
from aerobee.fronts.remoting import access
from aerobee.protocol import bodies
from aerobee.protocol.bodies import AclInfo, UserInfo
from aerobee.protocol.headers import accounts as h

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.protocol.command import Header

USER, ACL = UserInfo(username="ann", password="secret"), AclInfo(subject="User:ann")
KEPT = object()
# Adapter -> its operation, a header with every field, its body, and what the operation is told of both.
TOLD: dict[str, tuple[str, Header, Any, tuple[Any, ...]]] = {
    "create_user": ("create_user", h.CreateUser(username="ann"), USER, ("me", "ann", USER, KEPT)),
    "update_user": ("update_user", h.UpdateUser(username="ann"), USER, ("me", "ann", USER, KEPT)),
    "delete_user": ("delete_user", h.DeleteUser(username="ann"), None, ("me", "ann", KEPT)),
    "get_user": ("get_user", h.GetUser(username="ann"), None, ("me", "ann", KEPT)),
    "list_users": ("list_users", h.ListUsers(filter="an"), None, ("me", "an", KEPT)),
    "put_acl": ("put_acl", h.CreateAcl(subject="User:ann"), ACL, ("me", "User:ann", ACL, KEPT)),
    "delete_acl": (
        "delete_acl",
        h.DeleteAcl(subject="User:ann", policy_type="Custom", resource="Topic:t"),
        None,
        ("me", "User:ann", "Custom", "Topic:t", KEPT),
    ),
    "get_acl": ("get_acl", h.GetAcl(subject="User:ann"), None, ("User:ann", KEPT)),
    "list_acls": (
        "list_acls",
        h.ListAcls(subject_filter="User:a", resource_filter="Topic:t"),
        None,
        ("User:a", "Topic:t", KEPT),
    ),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What operations are told; each answers None."""
    found: list[tuple[Any, ...]] = []

    def noted(name: str) -> Callable[..., Any]:
        original = getattr(op, name)

        def operation(*arguments: Any) -> Any:
            found.append(arguments)
            return nothing() if inspect.iscoroutinefunction(original) else None

        return operation

    async def nothing() -> None:
        pass

    monkeypatch.setattr(op, "kept", lambda given: KEPT)
    for name, *_ in TOLD.values():
        monkeypatch.setattr(op, name, noted(name))
    return found


async def ask(name: str, header: Header, body: Any, user: str | None) -> Any:
    written = b"{}" if body is None else bodies.encode(body)
    request: Any = Thing(user=user, command=Thing(body=written))
    answer = getattr(access, name)(request, header, Thing(access=object()))
    return await answer if inspect.isawaitable(answer) else answer


@pytest.mark.parametrize("name", TOLD)
async def test_every_field_goes_where_it_belongs(told: list[tuple[Any, ...]], name: str) -> None:
    _, header, body, expected = TOLD[name]
    answer = await ask(name, header, body, "me")
    assert told == [expected]
    assert (answer.code, answer.body) == (0, b"")


@pytest.mark.parametrize("name", TOLD)
async def test_what_is_left_out_is_an_empty_text(told: list[tuple[Any, ...]], name: str) -> None:
    _, header, body, expected = TOLD[name]
    await ask(name, type(header)(), type(body)() if body is not None else None, None)
    (arguments,) = told
    assert len(arguments) == len(expected)
    for given, usual in zip(arguments, expected, strict=True):
        if isinstance(usual, str):
            assert given == "", name


async def test_what_is_found_is_told_as_json(
    told: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(op, "get_user", lambda *_: USER)
    monkeypatch.setattr(op, "list_acls", lambda *_: [ACL])
    found = await ask("get_user", h.GetUser(username="ann"), None, "me")
    assert bodies.decode(found.body, UserInfo) == USER
    listed = await ask("list_acls", h.ListAcls(), None, "me")
    assert bodies.decode(listed.body, list[AclInfo]) == [ACL]


async def test_the_audit_is_told_as_many_lines_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(op, "newest_audit", lambda *given: asked.append(given) or b"lines")
    answer = await ask("read_audit", h.ReadAudit(last=7), None, "me")
    assert answer.body == b"lines"
    assert asked[0][0] == 7
