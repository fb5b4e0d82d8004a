# SPDX-License-Identifier: Apache-2.0
"""Users and policies as operators change them: only what is said changes, and lists show what they are asked for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.access.access import Access, Rules
from aerobee.broker.access.users import User
from aerobee.broker.operations.admin import access as operations
from aerobee.errors import InvalidParameter, NoPermission, SystemFailure
from aerobee.protocol.access import (
    HIDDEN_PASSWORD,
    Action,
    Decision,
    PolicyType,
    Resource,
    UserStatus,
    UserType,
)
from aerobee.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.policies import Entry, Policy

if TYPE_CHECKING:
    from pathlib import Path

ON = Rules(cluster="c", authentication=True, authorization=True, keeps_users=True)


def access_with(*users: User, rules: Rules = ON) -> Access:
    made = Access(None, rules)
    for user in (User(username="root", password="r", user_type=UserType.SUPER), *users):
        made.put_user(user)
    return made


@pytest.mark.parametrize(
    ("password", "kind", "status"),
    list(itertools.product([None, "new"], [None, "Normal", "Super"], [None, "disable", "enable"])),
)
@pytest.mark.parametrize("before", [UserStatus.ENABLE, UserStatus.DISABLE])
async def test_only_what_is_said_of_a_user_changes(
    password: str | None, kind: str | None, status: str | None, before: UserStatus
) -> None:
    access = access_with(User(username="ann", password="old", user_status=before))
    info = UserInfo(password=password, user_type=kind, user_status=status)
    await operations.update_user("root", "ann", info, access)
    user = access.users.get("ann")
    assert user is not None
    assert user.password == (password or "old")
    assert user.user_type is (UserType.SUPER if kind == "Super" else UserType.NORMAL)
    expected = {None: before, "disable": UserStatus.DISABLE, "enable": UserStatus.ENABLE}[status]
    assert user.user_status is expected


async def test_a_changed_user_is_told_as_it_is_now(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aerobee")
    info = UserInfo(password="new", user_type="Super", user_status="disable")
    await operations.update_user("root", "ann", info, access_with(User(username="ann", password="old")))
    assert caplog.messages == ["changed user=ann type=Super status=disable by=root"]


@pytest.mark.parametrize(
    ("info", "kind", "status"),
    [
        (UserInfo(password="p"), UserType.NORMAL, UserStatus.ENABLE),
        (UserInfo(password="p", user_type="Super"), UserType.SUPER, UserStatus.ENABLE),
        (UserInfo(password="p", user_status="disable"), UserType.NORMAL, UserStatus.DISABLE),
        (UserInfo(password="p", user_type="what", user_status="what"), UserType.NORMAL, UserStatus.ENABLE),
    ],
)
async def test_a_new_user_is_normal_and_enabled_unless_it_is_said(
    info: UserInfo, kind: UserType, status: UserStatus
) -> None:
    access = access_with()
    await operations.create_user("root", "ann", info, access)
    user = access.users.get("ann")
    assert user is not None
    assert (user.password, user.user_type, user.user_status) == ("p", kind, status)


@pytest.mark.parametrize(
    ("caller", "rules", "shown"),
    [
        # To whom a normal user's password is told, and a super user's.
        ("root", ON, (True, True)),
        ("ann", ON, (False, False)),
        ("", ON, (False, False)),
        ("ann", Rules(cluster="c", authentication=True, keeps_users=True), (False, False)),
        ("root", Rules(cluster="c", authentication=True, keeps_users=True), (True, True)),
        ("ann", Rules(cluster="c", keeps_users=True), (True, True)),
        (
            "root",
            Rules(
                cluster="c", authentication=True, authorization=True, keeps_users=True, hides_passwords=True
            ),
            (False, False),
        ),
    ],
)
def test_who_is_told_which_password(caller: str, rules: Rules, shown: tuple[bool, bool]) -> None:
    access = access_with(User(username="ann", password="a"), rules=rules)
    told = {each.username: each.password for each in operations.list_users(caller, "", access)}
    assert told == {"ann": "a" if shown[0] else "******", "root": "r" if shown[1] else "******"}
    one = operations.get_user(caller, "ann", access)
    assert one is not None
    assert (one.password, one.user_type, one.user_status) == (told["ann"], "Normal", "enable")
    assert operations.get_user(caller, "nobody", access) is None
    assert [each.username for each in operations.list_users(caller, "nn", access)] == ["ann"]


async def test_stars_that_stand_for_a_password_become_nobodys() -> None:
    access = access_with(User(username="ann", password="a"))
    copied = UserInfo(password=HIDDEN_PASSWORD)
    with pytest.raises(InvalidParameter, match="copy users as a super user"):
        await operations.create_user("root", "bob", copied, access)
    with pytest.raises(InvalidParameter, match="hide_passwords"):
        await operations.update_user("root", "ann", copied, access)
    ann = access.users.get("ann")
    assert access.users.get("bob") is None and ann is not None and ann.password == "a"


def entry(resource: str, *actions: Action, decision: Decision = Decision.ALLOW) -> Entry:
    return Entry(Resource.parse(resource), actions or (Action.PUB,), decision)


@pytest.fixture
def access() -> Access:
    made = access_with(User(username="ann", password="a"), User(username="bob", password="b"))
    orders, bills = entry("Topic:orders"), entry("Topic:bills", Action.SUB, decision=Decision.DENY)
    made.put_policy(
        "ann", Policy({each.resource: each for each in (orders, bills)}, {orders.resource: orders})
    )
    made.put_policy("bob", Policy({orders.resource: orders}))
    return made


def shown(found: list[AclInfo]) -> dict[str, list[str]]:
    return {
        each.subject or "": [
            f"{policy.policy_type} {one.resource}" for policy in each.policies for one in policy.entries
        ]
        for each in found
    }


@pytest.mark.parametrize(
    ("subject", "resource", "expected"),
    [
        (
            "",
            "",
            {
                "User:ann": ["Custom Topic:orders", "Custom Topic:bills", "Default Topic:orders"],
                "User:bob": ["Custom Topic:orders"],
            },
        ),
        ("ann", "bills", {"User:ann": ["Custom Topic:bills"]}),
        ("", "bills", {"User:ann": ["Custom Topic:bills"]}),
        ("bob", "", {"User:bob": ["Custom Topic:orders"]}),
        ("bob", "bills", {}),
        # A text that is in the subject asks for all of it.
        ("User:b", "bob", {"User:bob": ["Custom Topic:orders"]}),
        ("nobody", "", {}),
    ],
)
def test_lists_of_policies(
    access: Access, subject: str, resource: str, expected: dict[str, list[str]]
) -> None:
    assert shown(operations.list_acls(subject, resource, access)) == expected


@pytest.mark.parametrize(
    ("policy_type", "resource", "left"),
    [
        ("Custom", "Topic:bills", ["Custom Topic:orders", "Default Topic:orders"]),
        ("", "Topic:orders", ["Custom Topic:bills", "Default Topic:orders"]),
        ("Default", "Topic:orders", ["Custom Topic:orders", "Custom Topic:bills"]),
        ("Default", "Topic:bills", ["Custom Topic:orders", "Custom Topic:bills", "Default Topic:orders"]),
        ("", "", None),
    ],
)
async def test_one_entry_is_deleted_or_all(
    access: Access, policy_type: str, resource: str, left: list[str] | None
) -> None:
    await operations.delete_acl("root", "User:ann", policy_type, resource, access)
    found = operations.get_acl("User:ann", access)
    assert (None if found is None else shown([found])["User:ann"]) == left
    assert shown(operations.list_acls("bob", "", access)) == {"User:bob": ["Custom Topic:orders"]}


async def test_entries_are_added_and_replaced_by_resource_each_in_its_kind(access: Access) -> None:
    told = PolicyEntryInfo(
        resource="Topic:orders", actions=["sub", "Pub", "Sub"], decision="deny", source_ips=[" 10.0.0.1 "]
    )
    info = AclInfo(
        policies=[
            PolicyInfo(policy_type="Default", entries=[told]),
            PolicyInfo(entries=[]),
            PolicyInfo(
                policy_type="Custom",
                entries=[PolicyEntryInfo(resource="Group:g", actions=["Sub"], decision="Allow")],
            ),
        ]
    )
    await operations.put_acl("root", "user:ann", info, access)
    policy = access.policies.get("ann")
    assert policy is not None
    assert [each.text for each in policy.custom] == ["Topic:orders", "Topic:bills", "Group:g"]
    (replaced,) = policy.entries(PolicyType.DEFAULT).values()
    assert (replaced.actions, replaced.decision, replaced.source_ips) == (
        (Action.SUB, Action.PUB),
        Decision.DENY,
        ("10.0.0.1",),
    )


@pytest.mark.parametrize("subject", ["ann", "Role:ann", "User:", "User: ", ""])
def test_a_subject_is_a_user_with_a_name(access: Access, subject: str) -> None:
    with pytest.raises(SystemFailure, match="write User:name"):
        operations.get_acl(subject, access)


def test_where_no_users_are_kept_nothing_can_be_asked() -> None:
    with pytest.raises(SystemFailure, match="keeps no users"):
        operations.kept(Access(None, Rules(cluster="c")))
    access = access_with()
    assert operations.kept(access) is access


async def test_a_password_of_blanks_is_none_that_was_said() -> None:
    access = access_with(User(username="ann", password="old"))
    await operations.update_user("root", "ann", UserInfo(password="  "), access)
    assert access.users.get("ann") == User(username="ann", password="old")


@pytest.mark.parametrize("name", ["ann", "root"])
async def test_who_is_no_super_user_makes_changes_and_deletes_none(name: str) -> None:
    access = access_with(User(username="ann", password="old"))
    before = access.users.all()
    for attempt in (
        operations.create_user("ann", "bob", UserInfo(password="p", user_type="Super"), access),
        operations.update_user("ann", name, UserInfo(user_type="Super"), access),
        operations.update_user("ann", "root", UserInfo(password="mine"), access),
        operations.delete_user("ann", "root", access),
    ):
        with pytest.raises((SystemFailure, NoPermission), match=r"only be .* by super user"):
            await attempt
    assert access.users.all() == before


async def test_what_operators_change_is_on_disk_when_they_are_answered(tmp_path: Path) -> None:
    access = Access(tmp_path / "access.json", ON)

    def kept() -> list[str]:
        return [user.username for user in Access(tmp_path / "access.json", ON).users.all()]

    await operations.create_user("", "ann", UserInfo(password="p"), access)
    assert kept() == ["ann"]
    await operations.update_user("", "ann", UserInfo(user_status="disable"), access)
    assert Access(tmp_path / "access.json", ON).users.get("ann") == access.users.get("ann")
    await operations.delete_user("", "ann", access)
    assert kept() == []


async def test_policies_are_kept_before_a_change_of_them_is_answered(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    access = Access(file, ON)
    for name in ("ann", "bob"):
        await operations.create_user("root", name, UserInfo(password="p"), access)
    given = AclInfo(
        policies=[
            PolicyInfo(entries=[PolicyEntryInfo(resource="Topic:t", actions=["Pub"], decision="Allow")])
        ]
    )
    await operations.put_acl("root", "User:ann", given, access)
    assert Access(file, ON).policies.get("ann") is not None
    given.subject = "User:bob"  # the body's word counts
    await operations.put_acl("root", "User:ann", given, access)
    assert Access(file, ON).policies.get("bob") is not None
    await operations.delete_acl("root", "User:ann", "", "", access)
    assert [name for name, _ in Access(file, ON).policies.all()] == ["bob"]
