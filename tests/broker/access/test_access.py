# SPDX-License-Identifier: Apache-2.0
"""Users and policies are kept: acknowledged is on disk, refused is not in force, secrets are for their owner alone."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.access.access import Access, Rules, Stored
from aerobee.broker.access.may import may
from aerobee.broker.access.opening import open_access, rules_of
from aerobee.broker.access.plain_acl import PlainAcl
from aerobee.broker.access.users import User, check_name
from aerobee.errors import AccessDenied, AerobeeError, InvalidParameter, NoPermission, StoreError
from aerobee.protocol.access import Action, Decision, PolicyType, Resource, UserStatus, UserType, topic
from aerobee.protocol.policies import Entry, Policy
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    from pathlib import Path

RULES = Rules(cluster="c", authentication=True, authorization=True)
PUB = topic("orders", Action.PUB)
ENTRY = Entry(Resource.parse("Topic:ord*"), (Action.PUB, Action.SUB), Decision.ALLOW, ("10.0.0.0/8",))
SEE = Entry(Resource.parse("Topic:*"), (Action.GET,), Decision.ALLOW)
POLICY = Policy().merged(PolicyType.CUSTOM, [ENTRY]).merged(PolicyType.DEFAULT, [ENTRY, SEE])
ANN = User(username="ann", password="s3cret-word")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.json"


async def test_what_was_saved_is_there_after_a_restart(file: Path) -> None:
    access = Access(file, RULES)
    root = User(username="root", password="r", user_type=UserType.SUPER, user_status=UserStatus.DISABLE)
    access.put_user(ANN)
    access.put_user(root)
    access.put_policy("ann", POLICY)
    await access.saved()
    again = Access(file, RULES)
    assert again.users.all() == [ANN, root]
    assert again.policies.all() == [("ann", POLICY)]
    again.delete_user("ann")
    await again.saved()
    third = Access(file, RULES)
    assert (third.users.get("ann"), third.policies.get("ann")) == (None, None)


async def test_the_file_is_its_owners_even_where_the_store_is_the_groups(file: Path) -> None:
    file.parent.chmod(0o750)  # group_access = "read"
    access = Access(file, RULES)
    for password in ("one", "two"):
        access.put_user(User(username="ann", password=password))
        await access.saved()
    for path in (file, file.with_name("access.json.bak")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_what_cannot_be_saved_is_not_in_force(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(file, RULES)
    access.put_user(ANN)
    access.put_policy("ann", POLICY)
    await access.saved()

    def refuse(data: bytes) -> None:
        raise StoreError("no space")

    monkeypatch.setattr(access._file, "save", refuse)
    for change in (
        lambda: access.put_user(User(username="bob", password="p")),
        lambda: access.put_user(User(username="ann", password="other")),
        lambda: access.put_policy("ann", Policy()),
        lambda: access.delete_user("ann"),
    ):
        change()
        with pytest.raises(StoreError):
            await access.saved()
        assert access.users.all() == [ANN]
        assert access.policies.get("ann") == POLICY


@pytest.mark.parametrize("more", ["", ', "actions": ["Pub"], "decision": "Allow"'])
def test_a_damaged_file_opens_nothing(file: Path, more: str) -> None:
    entry = f'{{"resource": "Foo:x"{more}}}'
    file.write_text(f'{{"users": [], "policies": {{"ann": {{"custom": [{entry}]}}}}}}')
    access = Access(file, RULES)
    assert access.users.all() == []
    with pytest.raises(AccessDenied):
        access.secret_of("ann", "10.0.0.1")


def test_who_comes_in() -> None:
    access = Access(None, RULES)
    assert (access.refused_logins, access.passed) == (0, set()), "nobody was there yet"
    access.put_user(ANN)
    access.put_user(User(username="bob", password="p", user_status=UserStatus.DISABLE))
    assert access.secret_of("ann", "") == "s3cret-word"
    for name, why in (
        ("", "username cannot be null."),
        ("eve", "User:eve is not found."),
        ("Ann", "User:Ann is not found."),
        ("bob", "User:bob is disabled."),
    ):
        with pytest.raises(AccessDenied) as refused:
            access.secret_of(name, "")
        assert refused.value.remark == why
    assert (access.badly_signed("ann").code, access.badly_signed("ann").remark) == (
        16,
        "check signature failed.",
    )


def test_what_they_may() -> None:
    access = Access(None, RULES)
    access.put_user(ANN)
    access.put_user(User(username="root", password="r", user_type=UserType.SUPER))
    access.put_policy("ann", POLICY)
    access.check("ann", [PUB], "10.1.1.1", 10)
    access.check("ann", [], "10.1.1.1", 34)
    assert [access.may_everything(name) for name in ("root", "ann", "", "nobody")] == [
        True,
        False,
        False,
        False,
    ]
    denied = Entry(Resource.parse("Topic:orders"), (Action.SUB,), Decision.DENY)
    access.put_policy("ann", POLICY.merged(PolicyType.CUSTOM, [denied]))
    for user, needs, source, why in (
        (
            "ann", [PUB], "11.1.1.1",
            "User:ann has no permission to access Topic:orders from 11.1.1.1, no matched policies. "
            "Needs Pub on Topic:orders.",
        ),
        (
            "ann", [PUB, topic("orders", Action.SUB)], "10.1.1.1",
            "User:ann has no permission to access Topic:orders from 10.1.1.1, the decision is deny. "
            "Needs Sub on Topic:orders.",
        ),
        ("ann", None, "10.1.1.1", "authorization context is empty."),
        ("", [], "10.1.1.1", "username cannot be null."),
    ):  # fmt: skip
        with pytest.raises(AccessDenied) as refused:
            access.check(user, needs, source, 10)
        assert refused.value.remark == why


def test_users_of_the_settings_are_made_once_and_never_changed(tmp_path: Path) -> None:
    def config(password: str) -> BrokerConfig:
        return BrokerConfig(
            authentication=True,
            init_user=f'{{"username":"root","password":"{password}"}}',
            inner_credentials='{"accessKey":"inner","secretKey":"k"}',
        )

    open_access(config("one"), tmp_path)
    access = open_access(config("two"), tmp_path)
    assert [(user.username, user.user_type) for user in access.users.all()] == [
        ("inner", "Super"),
        ("root", "Super"),
    ]
    assert access.secret_of("root", "") == "one"
    with pytest.raises(AerobeeError, match="letters, digits"):
        open_access(BrokerConfig(init_user='{"username":"a/b","password":"p"}'), tmp_path)


def test_switches_and_white_lists() -> None:
    off = Access(None, rules_of(BrokerConfig()))
    assert (off.guard, off.rules.keeps_users) == (None, False)
    assert rules_of(BrokerConfig(authentication_metadata_provider="x")).keeps_users
    access = Access(
        None,
        rules_of(
            BrokerConfig(
                authentication=True,
                authorization=True,
                authentication_whitelist="105, 38",
                authorization_whitelist="10",
            )
        ),
    )
    assert access.guard is access
    assert [access.needs_signature(each) for each in ("105", "38", "10", "1", "")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert [access.needs_right(each) for each in ("105", "10")] == [True, False]


@pytest.mark.parametrize("name", ["", " ", "a/b", "a,b", "a b", "ü", "a" * 129, "a=b"])
def test_a_name_that_a_client_cannot_send_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter):
        check_name(name)


def test_no_user_without_a_secret_and_no_secret_in_a_repr() -> None:
    for blank in ("", " \t"):
        with pytest.raises(NoPermission, match="password can not be blank"):
            User(username="ann", password=blank)
    assert "s3cret-word" not in repr(ANN) + str([ANN])


def test_who_is_not_asking_is_looked_at_by_the_address_it_came_from() -> None:
    access = Access(None, Rules(cluster="c", authentication=True, authorization=True))
    access.put_user(User(username="ann", password="p"))
    near = Entry(Resource.parse("Topic:t"), (Action.PUB,), Decision.ALLOW, ("10.0.0.0/8",))
    access.put_policy("ann", Policy().merged(PolicyType.CUSTOM, [near]))
    need = topic("t", Action.PUB)
    assert may(access, "ann", need, "10.1.2.3:5000")
    assert not may(access, "ann", need, "11.1.2.3:5000")
    assert not may(access, "bob", need, "10.1.2.3:5000")


def test_a_disabled_user_does_not_come_in_however_much_it_may() -> None:
    access = Access(None, RULES)
    boss = User(username="boss", password="p", user_type=UserType.SUPER, user_status=UserStatus.DISABLE)
    access.put_user(boss)
    with pytest.raises(AccessDenied, match="User:boss is disabled"):
        access.secret_of("boss", "")


def test_what_was_let_through_is_asked_again_after_every_change() -> None:
    access = Access(None, RULES)
    for change in (
        lambda: access.put_user(ANN),
        lambda: access.put_policy("ann", POLICY),
        lambda: access.delete_user("ann"),
        lambda: access.replace_all(Stored([ANN], {})),
    ):
        access.passed.add(("ann", "10"))
        change()
        assert access.passed == set()


def test_a_refusal_says_which_actions_would_do() -> None:
    access = Access(None, RULES)
    access.put_user(ANN)
    with pytest.raises(AccessDenied) as refused:
        access.check("ann", [PUB], "10.1.1.1", 10)
    assert refused.value.lacks == PUB.actions_text


def test_where_users_are_asked_a_list_of_accounts_is_not(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text("accounts: [{accessKey: RocketMQ, secretKey: 12345678}]")
    plain = PlainAcl(tmp_path / "plain_acl.yml", "c")
    for rules, asked in ((RULES, "users"), (Rules(cluster="c"), "accounts")):
        access = Access(None, rules)
        access.plain = plain
        assert access.guard is (access if asked == "users" else plain)


def test_where_rights_are_not_checked_everybody_is_told() -> None:
    access = Access(None, Rules(cluster="c", authentication=True))
    access.put_user(ANN)
    assert may(access, "ann", PUB, "10.1.2.3:5000")
