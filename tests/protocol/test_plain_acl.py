# SPDX-License-Identifier: Apache-2.0
"""plain_acl.yml changed as mqadmin asks, and turned into users and policies of RocketMQ 5."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.errors import NoPermission
from aerobee.protocol.access import Action, Decision, PolicyType
from aerobee.protocol.bodies import AclInfo, DataVersion, PolicyEntryInfo, PolicyInfo
from aerobee.protocol.headers.accounts import UpdateAclConfig
from aerobee.protocol.plain_acl import (
    PlainAccount,
    as_policies,
    as_user,
    is_perm,
    parse_document,
    parse_plain_acl,
    perm_of,
)
from aerobee.protocol.plain_acl_changes import (
    render,
    split_addresses,
    version_of,
    with_account,
    with_white_addresses,
    without_account,
)
from aerobee.protocol.policy_infos import acl_of, entries_of, policy_of, policy_type_of, resource_of

ANN: dict[str, Any] = {"accessKey": "ann-key", "secretKey": "ann-secret", "topicPerms": ["orders=SUB"]}
BOB: dict[str, Any] = {"accessKey": "bob-key", "secretKey": "bob-secret"}
FILE: dict[str, Any] = {"globalWhiteRemoteAddresses": ["10.0.0.1"], "accounts": [ANN, BOB]}


def change(access_key: str = "ann-key", **said: Any) -> UpdateAclConfig:
    return UpdateAclConfig(access_key=access_key, **said)


# -- changes -------------------------------------------------------------------------------------------------


def test_a_known_account_keeps_its_place_and_what_is_not_said() -> None:
    after = with_account(FILE, change(admin=True, default_topic_perm="PUB", group_perms="g=SUB, h = PUB|SUB"))
    assert after == {
        "globalWhiteRemoteAddresses": ["10.0.0.1"],
        "accounts": [
            {**ANN, "admin": "true", "defaultTopicPerm": "PUB", "groupPerms": ["g=SUB", "h = PUB|SUB"]},
            BOB,
        ],
    }
    assert FILE["accounts"] == [ANN, BOB], "the document before is left as it was"


def test_a_new_account_is_the_last() -> None:
    said = change("cat-key", secret_key="cat-secret", white_remote_address="10.1.*.*", admin=False)
    assert with_account(FILE, said)["accounts"] == [
        ANN,
        BOB,
        {
            "accessKey": "cat-key",
            "secretKey": "cat-secret",
            "whiteRemoteAddress": "10.1.*.*",
            "admin": "false",
        },
    ]
    assert with_account({}, change("cat-key", secret_key="cat-secret"))["accounts"] == [
        {"accessKey": "cat-key", "secretKey": "cat-secret"}
    ]


def test_an_empty_list_takes_the_rights_away_and_an_empty_secret_changes_nothing() -> None:
    (ann, _) = with_account(FILE, change(secret_key="", topic_perms=""))["accounts"]
    assert (ann["secretKey"], ann["topicPerms"]) == ("ann-secret", [])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (change("new-key", secret_key="sixsix"), "length should longer than 6"),
        (change("newkey", secret_key="sevenor"), "The accessKey=newkey and secretKey=[*]{6} cannot be null"),
        (change("new-key"), "cannot be null"),
        (change(default_topic_perm="ALL"), "Parse resource permission error for ALL"),
        (change(default_group_perm="ALL"), "Parse resource permission error for ALL"),
        (change(topic_perms="orders"), "Parse Resource format error for orders"),
        (change(topic_perms="=SUB"), "Parse Resource format error for =SUB"),
        (change(group_perms="g=ALL"), "Parse resource permission error for g=ALL"),
    ],
)
def test_what_can_be_no_account_is_refused_in_rocketmqs_words(said: UpdateAclConfig, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        with_account(FILE, said)


def test_keys_of_seven_characters_are_long_enough() -> None:
    assert with_account({}, change("sevenor", secret_key="7654321"))["accounts"][0]["accessKey"] == "sevenor"


def test_an_account_that_is_deleted_is_gone_and_only_it() -> None:
    assert without_account(FILE, "ann-key") == {**FILE, "accounts": [BOB]}
    assert without_account(FILE, "nobody") == FILE
    assert with_white_addresses(FILE, ("10.0.0.*",))["globalWhiteRemoteAddresses"] == ["10.0.0.*"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" , ", []),
        ("10.0.0.1", ["10.0.0.1"]),
        ("10.0.0.1, 10.0.0.2 ,", ["10.0.0.1", "10.0.0.2"]),
        ("10.0.0.{1,2},10.1.*.*", ["10.0.0.{1,2}", "10.1.*.*"]),
        ("a{{b,c},d},e", ["a{{b,c},d}", "e"]),
        ("a},b,c", ["a}", "b", "c"]),
    ],
)
def test_addresses_are_parted_at_commas_outside_of_braces(text: str, parts: list[str]) -> None:
    assert split_addresses(text) == parts


# -- versions and text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "version"),
    [
        (None, (0, 0, 0)),
        ([], (0, 0, 0)),
        ("5", (0, 0, 0)),
        (["5"], (0, 0, 0)),
        ([{"counter": "5", "timestamp": "1700000000000", "stateVersion": "2"}], (5, 2, 1_700_000_000_000)),
        ([{"counter": "5"}, {"counter": "6"}], (5, 0, 0)),
        ([{"counter": "x", "timestamp": "-1", "stateVersion": "9" * 19}], (0, 0, 0)),
        ([{"counter": "9" * 18}], (10**18 - 1, 0, 0)),
    ],
)
def test_a_version_is_read_from_the_first_entry(listed: Any, version: tuple[int, int, int]) -> None:
    found = version_of({"dataVersion": listed})
    assert (found.counter, found.state_version, found.timestamp) == version
    assert version_of({}) == DataVersion(0, 0, 0)


def test_the_text_counts_its_changes_and_is_read_again_as_it_was() -> None:
    document = parse_document(
        "accounts:\n- {accessKey: ann-key, secretKey: '0777777777', admin: yes}\n- {accessKey: bob-key, "
        "secretKey: bob-secret, admin: 'no'}\ndataVersion:\n- {counter: 4, timestamp: 1}\n"
    )
    text = render(document, 1_700_000_000_123)
    assert text == (
        "accounts:\n- accessKey: ann-key\n  admin: true\n  secretKey: '0777777777'\n"
        "- accessKey: bob-key\n  admin: false\n  secretKey: bob-secret\n"
        "dataVersion:\n- counter: 5\n  timestamp: 1700000000123\n"
    )
    ann, bob = parse_plain_acl(text).accounts
    assert (ann.secret_key, ann.admin, bob.admin) == ("0777777777", True, False)


# -- RocketMQ 5's form ---------------------------------------------------------------------------------------


def test_words_of_rights() -> None:
    assert [is_perm(word) for word in ("PUB", " SUB ", "PUB|SUB", "SUB|PUB", "DENY", "ALL", "", "pub")] == (
        [True] * 5 + [False] * 3
    )
    account = PlainAccount(
        access_key="ann-key",
        secret_key="ann-secret",
        topic_perms={"orders": perm_of("SUB|PUB"), "bills": perm_of("PUB"), "old": perm_of("???")},
        group_perms={"g": perm_of("SUB")},
        default_topic_perm="DENY",
        default_group_perm="SUB",
    )
    acl = as_policies(account)
    assert acl is not None
    assert acl.subject == "User:ann-key"
    told = [
        (policy.policy_type, entry.resource, entry.actions, entry.decision)
        for policy in acl.policies
        for entry in policy.entries
    ]
    assert told == [
        ("Custom", "Topic:orders", ["Pub", "Sub"], "Allow"),
        ("Custom", "Topic:bills", ["Pub"], "Allow"),
        ("Custom", "Topic:old", ["All"], "Deny"),
        ("Custom", "Group:g", ["Sub"], "Allow"),
        ("Default", "Topic:*", ["All"], "Deny"),
        ("Default", "Group:*", ["Sub"], "Allow"),
    ]


@pytest.mark.parametrize(("admin", "kind"), [(True, "Super"), (False, "Normal")])
def test_an_account_is_a_user(admin: bool, kind: str) -> None:
    account = PlainAccount(access_key="ann-key", secret_key="ann-secret", admin=admin)
    user = as_user(account)
    assert (user.username, user.password, user.user_type) == ("ann-key", "ann-secret", kind)
    assert as_policies(account) is None, "with no rights of its own"
    assert repr(account) == "PlainAccount('ann-key')"


# -- policies as requests write them -------------------------------------------------------------------------


def info(**more: Any) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        **{"resource": "topic:a*", "actions": ["pub", "PUB", "sub"], "decision": "allow", **more}
    )


def test_an_entry_is_read_in_any_case_and_written_in_one() -> None:
    custom = PolicyInfo(policy_type="custom", entries=[info(source_ips=[" 10.0.0.0/8 "])])
    default = PolicyInfo(policy_type="DEFAULT", entries=[info(resource="Group:g", decision="DENY")])
    policy = policy_of(AclInfo(subject="User:ann", policies=[custom, default]))
    (entry,) = policy.custom.values()
    assert (entry.resource.text, entry.actions) == ("Topic:a*", (Action.PUB, Action.SUB))
    assert (entry.decision, entry.source_ips) == (Decision.ALLOW, ("10.0.0.0/8",))
    assert [each.decision for each in policy.default.values()] == [Decision.DENY]
    written = acl_of("ann", policy)
    assert written.subject == "User:ann"
    assert [(each.policy_type, len(each.entries)) for each in written.policies] == [
        ("Custom", 1),
        ("Default", 1),
    ]
    (first,), (second,) = (each.entries for each in written.policies)
    assert (first.resource, first.actions, first.source_ips, first.decision) == (
        "Topic:a*", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow",
    )  # fmt: skip
    assert second.source_ips is None
    assert [each.policy_type for each in acl_of("ann", policy, "Group").policies] == ["Default"]
    assert acl_of("ann", policy, "nothing").policies == []
    assert policy_of(None) == policy_of(AclInfo(subject="User:ann", policies=[]))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"resource": None}, "The resource is null."),
        ({"resource": "nonsense"}, "The resource is null."),
        ({"actions": []}, "The actions is empty."),
        ({"actions": ["fly"]}, "The actions is empty."),
        ({"actions": ["Pub", "Any"]}, "The actions can not be Any."),
        ({"source_ips": ["10.0.0.1", " "]}, "The source ip is empty."),
        ({"source_ips": ["10.0.0.*"]}, "The source ip is invalid."),
        ({"decision": None}, "The decision is null or illegal."),
        ({"decision": "maybe"}, "The decision is null or illegal."),
    ],
)
def test_what_can_be_no_entry_is_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(NoPermission) as refused:
        entries_of(PolicyInfo(policy_type=None, entries=[info(**more)]))
    assert refused.value.args[0].endswith(why)


def test_a_policy_without_a_type_is_custom() -> None:
    assert [policy_type_of(text) for text in (None, "", "odd", "default", " Custom ")] == [
        PolicyType.CUSTOM, PolicyType.CUSTOM, PolicyType.CUSTOM, PolicyType.DEFAULT, PolicyType.CUSTOM,
    ]  # fmt: skip
    assert resource_of("*").text == "*"
