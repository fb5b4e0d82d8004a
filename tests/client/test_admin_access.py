# SPDX-License-Identifier: Apache-2.0
"""What the admin client asks one broker: its figures and settings, its users and policies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.client.admin import brokers as admin_brokers
from aerobee.client.admin.access import Answer, acl_of, need_of
from aerobee.protocol import bodies
from aerobee.protocol.command import header_fields
from aerobee.protocol.headers import accounts as account_headers
from aerobee.protocol.headers.cluster import (
    BrokerRuntime,
    BrokerStats,
    GetBrokerConfig,
    UpdateBrokerConfig,
)
from tests.client.admin_parts import PATIENCE_MS, Parts


@pytest.fixture
def parts(session: Any) -> Parts:
    session.know("T", brokers=("a", "b"), queues=2)
    return Parts(session)


# -- brokers ---------------------------------------------------------------------------------------------------


async def test_a_broker_is_asked_and_told_about_itself(parts: Parts) -> None:
    parts.answer(BrokerRuntime, bodies.KVTable(table={"putTps": "3"}))
    assert await parts.brokers.broker_runtime("a:1") == {"putTps": "3"}
    parts.session.answers[GetBrokerConfig] = [(0, None, b"# a note=1\nbrokerName = a=b \nnothing\n x=1")]
    assert await parts.brokers.broker_config("a:1") == {"brokerName": "a=b", "x": "1"}
    parts.answer(UpdateBrokerConfig, None)
    await parts.brokers.update_broker_config("a:1", {"x": "1", "y": "2"})
    assert parts.session.bodies[-1] == b"x=1\ny=2\n"
    parts.answer(BrokerStats, bodies.BrokerStatsData())
    assert await parts.brokers.broker_stats("a:1", "TOPIC_PUT_NUMS", "T") == bodies.BrokerStatsData()
    header = parts.session.asked[-1][1]
    assert (header.stats_name, header.stats_key) == ("TOPIC_PUT_NUMS", "T")
    assert parts.asked() == [("a:1", PATIENCE_MS)] * 4
    await parts.brokers.forbid_writes("a")
    await parts.brokers.allow_writes("b")
    told = [(type(each).__name__, each.broker_name) for each in parts.told_name_server]
    assert told == [("WipeWritePerm", "a"), ("AddWritePerm", "b")]
    assert admin_brokers.parse_lines("") == {}


# -- users and policies ----------------------------------------------------------------------------------------

USER = bodies.UserInfo(username="shop", password="p", user_type="Normal", user_status="enable")


async def test_users_and_policies_are_asked_for_by_part_of_their_names(parts: Parts) -> None:
    access, session = parts.access, parts.session
    acl = acl_of("shop", ["Topic:orders"], ["Pub"], sources=["10.0.0.0/8"])
    parts.answer(account_headers.ListUsers, [USER], None)
    assert await access.users("a:1", "sh") == [USER]
    assert await access.users("a:1") == []
    assert [each.filter for each in session.headers(account_headers.ListUsers)] == ["sh", ""]
    parts.answer(account_headers.GetUser, USER, None)
    assert [await access.user("a:1", name) for name in ("shop", "none")] == [USER, None]
    parts.answer(account_headers.ListAcls, [acl], None)
    assert await access.acls("a:1", "sh", "or") == [acl]
    assert await access.acls("a:1") == []
    listed = session.headers(account_headers.ListAcls)
    assert [(each.subject_filter, each.resource_filter) for each in listed] == [("sh", "or"), ("", "")]
    parts.answer(account_headers.GetAcl, acl, None)
    assert [await access.acl("a:1", name) for name in ("shop", "User:none")] == [acl, None]
    subjects = [each.subject for each in session.headers(account_headers.GetAcl)]
    assert subjects == ["User:shop", "User:none"]
    assert {timeout_ms for _, _, timeout_ms in session.asked} == {PATIENCE_MS}


async def test_users_policies_and_plain_accounts_are_changed_by_name(parts: Parts) -> None:
    access, session = parts.access, parts.session
    acl = acl_of("shop", ["Topic:orders"], ["Pub"])
    account = account_headers.UpdateAclConfig(access_key="shop-key")
    session.answers.default_factory = lambda: lambda *_: (0, None, b"")
    await access.create_user("a:1", USER)
    await access.update_user("a:1", USER)
    await access.delete_user("a:1", "shop")
    await access.create_acl("a:1", acl)
    await access.update_acl("a:1", acl)
    await access.delete_acl("a:1", "shop")
    await access.delete_acl("a:1", "User:shop", "Topic:orders")
    await access.put_plain_account("a:1", account)
    await access.delete_plain_account("a:1", "shop-key")
    await access.replace_white_addresses("a:1", "10.0.0.*", "")
    await access.replace_white_addresses("a:1", "10.0.0.*", "/etc/plain_acl.yml")
    told = [(type(header).__name__, header_fields(header)) for _, header, _ in session.asked]
    assert told == [
        ("CreateUser", {"username": "shop"}),
        ("UpdateUser", {"username": "shop"}),
        ("DeleteUser", {"username": "shop"}),
        ("CreateAcl", {"subject": "User:shop"}),
        ("UpdateAcl", {"subject": "User:shop"}),
        ("DeleteAcl", {"subject": "User:shop"}),
        ("DeleteAcl", {"subject": "User:shop", "resource": "Topic:orders"}),
        ("UpdateAclConfig", header_fields(account)),
        ("DeleteAclConfig", {"accessKey": "shop-key"}),
        ("UpdateWhiteAddresses", {"globalWhiteAddrs": "10.0.0.*"}),
        (
            "UpdateWhiteAddresses",
            {"globalWhiteAddrs": "10.0.0.*", "aclFileFullPath": "/etc/plain_acl.yml"},
        ),
    ]
    assert [bodies.decode(body, bodies.UserInfo) for body in session.bodies[:2]] == [USER, USER]
    assert [bodies.decode(body, bodies.AclInfo) for body in session.bodies[3:5]] == [acl, acl]
    assert {timeout_ms for _, _, timeout_ms in session.asked} == {PATIENCE_MS}


@pytest.mark.parametrize(
    ("user", "acl", "answer"),
    [
        (None, None, Answer(False, "there is no such user")),
        ({"user_status": "disable"}, None, Answer(False, "the user is disabled")),
        (
            {"user_status": "disable", "user_type": "Super"},
            None,
            Answer(False, "the user is disabled"),
        ),
        ({"user_type": "Super"}, None, Answer(True, "a super user may do everything")),
        ({}, None, Answer(False, "no rule of shop is about Pub on Topic:orders from 10.0.0.7")),
        (
            {},
            acl_of("shop", ["Topic:orders"], ["Pub", "Sub"]),
            Answer(True, "by the Custom rule: Allow Pub,Sub on Topic:orders"),
        ),
        (
            {},
            acl_of("shop", ["Topic:orders"], ["Pub"], "Deny", ["10.0.0.7", "10.0.0.8"]),
            Answer(False, "by the Custom rule: Deny Pub on Topic:orders from 10.0.0.7,10.0.0.8"),
        ),
        (
            {},
            acl_of("shop", ["Topic:orders"], ["Pub"], sources=["10.0.0.8"]),
            Answer(False, "no rule of shop is about Pub on Topic:orders from 10.0.0.7"),
        ),
    ],
)
async def test_whether_somebody_may_is_told_with_the_rule_that_says_so(
    parts: Parts, user: dict[str, str] | None, acl: Any, answer: Answer
) -> None:
    parts.answer(account_headers.GetUser, None if user is None else msgspec.structs.replace(USER, **user))
    parts.answer(account_headers.GetAcl, acl)
    assert await parts.access.may("a:1", "shop", "Pub", "Topic:orders", "10.0.0.7") == answer


def test_what_is_no_action_is_said() -> None:
    with pytest.raises(ValueError, match=r"'Sing' is no action; there are .*Pub"):
        need_of("Sing", "Topic:orders")


async def test_the_audit_log_and_the_plain_files_are_read(parts: Parts) -> None:
    session = parts.session
    session.answers[account_headers.ReadAudit] = [(0, None, b'{"user": "a"}\n{"user": "b"}\n')]
    assert await parts.access.audit("a:1", 2) == [{"user": "a"}, {"user": "b"}]
    assert session.asked[-1][1].last == 2
    parts.answer(account_headers.GetAclConfig, bodies.AclConfig())
    assert await parts.access.plain_acl("a:1") == bodies.AclConfig()
    assert {timeout_ms for _, _, timeout_ms in session.asked} == {PATIENCE_MS}
