# SPDX-License-Identifier: Apache-2.0
"""Codes 3001 to 3010 on the wire: what they do, and what they answer, as RocketMQ 5.3.3 answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol import bodies
from aerobee.protocol.access import UserType
from aerobee.protocol.accounts import Credentials
from aerobee.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.headers import accounts as h
from aerobee.protocol.headers.produce import SendMessageV2
from tests.access.ports import ANN, NOBODY, ROOT, Ports, running

if TYPE_CHECKING:
    from aerobee.protocol.command import Command, Header

SEND = SendMessageV2(topic="orders", queue_id=0)
SHOP = Credentials("shop", "shop-secret")


def user(**fields: str) -> bytes:
    return bodies.encode(UserInfo(**fields))


def acl(
    resource: str | None = "Topic:orders",
    *,
    actions: Any = ("Pub",),
    policy: str | None = None,
    **fields: Any,
) -> bytes:
    entry = PolicyEntryInfo(resource=resource, actions=list(actions), **{"decision": "Allow", **fields})
    return bodies.encode(AclInfo(policies=[PolicyInfo(policy_type=policy, entries=[entry])]))


def said(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


async def test_a_users_life(ports: Ports) -> None:
    made = await ports.ask(ROOT, h.CreateUser(username="shop"), user(password="shop-secret"))
    assert made.code == 0
    found = await ports.ask(ROOT, h.GetUser(username="shop"))
    assert found.body == (
        b'{"password":"shop-secret","userStatus":"enable","userType":"Normal","username":"shop"}'
    )
    assert said(await ports.ask(SHOP, SEND, b"x"))[0] == 16
    assert (await ports.ask(ROOT, h.CreateAcl(subject="User:shop"), acl())).code == 0
    assert (await ports.ask(SHOP, SEND, b"x")).code == 0, "in force at once"
    changed = await ports.ask(ROOT, h.UpdateUser(username="shop"), user(user_status="DISABLE"))
    assert changed.code == 0
    assert said(await ports.ask(SHOP, SEND, b"x")) == (16, "User:shop is disabled.")
    await ports.ask(ROOT, h.UpdateUser(username="shop"), user(user_status="enable", password=" "))
    assert (await ports.ask(SHOP, SEND, b"x")).code == 0, "a blank password keeps the old one"
    await ports.ask(ROOT, h.UpdateUser(username="shop"), user(password="other"))
    assert said(await ports.ask(SHOP, SEND, b"x")) == (16, "check signature failed.")
    assert (await ports.ask(Credentials("shop", "other"), SEND, b"x")).code == 0
    for _ in range(2):
        assert (await ports.ask(ROOT, h.DeleteUser(username="shop"))).code == 0
    access = ports.server.broker.access
    assert (access.users.get("shop"), access.policies.get("shop")) == (None, None)
    await ports.ask(ROOT, h.CreateUser(username="shop"), user(password="other"))
    assert (await ports.ask(Credentials("shop", "other"), SEND, b"x")).code == 16, (
        "no rights of the one before"
    )


@pytest.mark.parametrize(
    ("header", "body", "answer"),
    [
        (h.CreateUser(), user(password="p"), (29, "The username is blank")),
        (h.CreateUser(username=" "), user(password="p"), (29, "The username is blank")),
        (h.CreateUser(username="x"), user(), (16, "password can not be blank")),
        (h.CreateUser(username="x"), user(password=" "), (16, "password can not be blank")),
        (h.CreateUser(username="ann"), user(password="p"), (16, "The user is existed")),
        (h.UpdateUser(), user(password="p"), (29, "The username is blank")),
        (h.UpdateUser(username="x"), user(password="p"), (16, "The user is not exist")),
        (h.DeleteUser(), b"", (16, "username can not be blank")),
        (h.GetUser(), b"", (29, "The username is blank")),
        (h.GetUser(username="x"), b"", (0, None)),
        (h.CreateAcl(subject="User:x"), acl(), (16, "The subject of User:x is not exist.")),
        (h.CreateAcl(subject="User:ann"), bodies.encode(AclInfo()), (16, "The policies is empty.")),
        (
            h.CreateAcl(subject="User:ann"), bodies.encode(AclInfo(policies=[PolicyInfo()])),
            (16, "The policies is empty."),
        ),
        (h.CreateAcl(subject="User:ann"), acl(None), (16, "The resource is null.")),
        (h.CreateAcl(subject="User:ann"), acl("Foo:x"), (16, "The resource is null.")),
        (h.CreateAcl(subject="User:ann"), acl(actions=["Fly"]), (16, "The actions is empty.")),
        (h.CreateAcl(subject="User:ann"), acl(actions=["Pub", "any"]), (16, "The actions can not be Any.")),
        (h.UpdateAcl(subject="User:ann"), acl(source_ips=["10.0.0.*"]), (16, "The source ip is invalid.")),
        (h.UpdateAcl(subject="User:ann"), acl(source_ips=[" "]), (16, "The source ip is empty.")),
        (h.UpdateAcl(subject="User:ann"), acl(decision="Perhaps"), (16, "The decision is null or illegal.")),
        (h.UpdateAcl(subject="User:ann"), acl(decision=None), (16, "The decision is null or illegal.")),
        (h.DeleteAcl(subject="User:x"), b"", (16, "The subject is not exist.")),
        (h.DeleteAcl(subject="User:ann"), b"", (16, "The acl is not exist.")),
        (h.DeleteAcl(subject="User:ann", resource="Foo:x"), b"", (16, "The resource is null.")),
        (h.GetAcl(subject="User:x"), b"", (16, "The subject is not exist.")),
        (h.GetAcl(subject="User:ann"), b"", (0, None)),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_is_answered_as_rocketmq_does(
    ports: Ports, header: Header, body: bytes, answer: tuple[int, str | None]
) -> None:
    assert said(await ports.ask(ROOT, header, body)) == answer


@pytest.mark.parametrize("header", [h.CreateAcl(subject="ann"), h.CreateAcl(subject="Role:ann"), h.GetAcl()])
async def test_a_subject_is_a_user(ports: Ports, header: Header) -> None:
    assert (await ports.ask(ROOT, header, acl())).code == 1


async def test_a_name_that_clients_cannot_send_is_refused(ports: Ports) -> None:
    assert (await ports.ask(ROOT, h.CreateUser(username="a/b"), user(password="p"))).code == 29


async def test_only_super_users_touch_super_users(ports: Ports) -> None:
    ports.grant("* All")
    only = "The super user can only be {} by super user"
    boss = user(password="p", user_type="super")
    assert said(await ports.ask(ANN, h.CreateUser(username="boss"), boss)) == (1, only.format("create"))
    assert said(await ports.ask(ANN, h.UpdateUser(username="ann"), user(user_type="Super"))) == (
        1,
        only.format("update"),
    )
    assert said(await ports.ask(ANN, h.UpdateUser(username="root"), user(password="mine"))) == (
        16,
        only.format("update"),
    )
    assert said(await ports.ask(ANN, h.DeleteUser(username="root"))) == (16, only.format("update"))
    assert (await ports.ask(ANN, h.CreateUser(username="bob"), user(password="p"))).code == 0
    assert (await ports.ask(ROOT, h.CreateUser(username="boss"), boss)).code == 0
    assert ports.server.broker.access.is_super("boss")


async def test_passwords_are_told_to_super_users_only(ports: Ports) -> None:
    ports.grant("Cluster:DefaultCluster Get")

    async def told(who: Credentials) -> dict[str | None, str | None]:
        answer = await ports.ask(who, h.ListUsers())
        return {each.username: each.password for each in bodies.decode(answer.body, list[UserInfo])}

    assert await told(ROOT) == {"ann": "ann-secret", "root": "root-secret"}
    assert await told(ANN) == {"ann": "******", "root": "******"}
    async with running(authorization=False) as open_to_users:
        ports = open_to_users
        assert await told(ANN) == {"ann": "******", "root": "******"}
        assert await told(ROOT) == {"ann": "ann-secret", "root": "root-secret"}
    async with running(hide_passwords=True) as hiding:
        ports = hiding
        assert await told(ROOT) == {"ann": "******", "root": "******"}
    white = "3005"
    async with running(authentication_whitelist=white, authorization_whitelist=white) as unasked:
        ports = unasked
        assert await told(NOBODY) == {"ann": "******", "root": "******"}


async def test_lists(ports: Ports) -> None:
    for name in ("b", "Z", "a2"):
        ports.add(Credentials(name, "p"))
    listed = bodies.decode((await ports.ask(ROOT, h.ListUsers(filter=""))).body, list[UserInfo])
    assert [each.username for each in listed] == ["Z", "a2", "ann", "b", "root"]
    found = bodies.decode((await ports.ask(ROOT, h.ListUsers(filter="a"))).body, list[UserInfo])
    assert [each.username for each in found] == ["a2", "ann"]
    assert (await ports.ask(ROOT, h.ListUsers(filter="nobody"))).body == b"[]"
    assert (await ports.ask(ROOT, h.ListAcls())).body == b"[]"
    ports.grant("Topic:orders Pub", "Group:billing Sub")
    ports.grant("Topic:ann Pub", who=Credentials("b", "p"))

    async def acls(subject: str, resource: str) -> dict[str | None, list[str | None]]:
        header = h.ListAcls(subject_filter=subject, resource_filter=resource)
        infos = bodies.decode((await ports.ask(ROOT, header)).body, list[AclInfo])
        return {each.subject: [entry.resource for entry in each.policies[0].entries] for each in infos}

    assert await acls("ann", "") == {"User:ann": ["Topic:orders", "Group:billing"]}
    assert await acls("", "billing") == {"User:ann": ["Group:billing"]}
    assert await acls("", "ann") == {"User:ann": ["Topic:orders", "Group:billing"], "User:b": ["Topic:ann"]}


async def test_policies_are_merged_by_resource(ports: Ports) -> None:
    for body in (
        acl("topic:orders", actions=["pub", "SUB"], source_ips=["10.0.0.0/8"]),
        acl("Group:g*", actions=["Sub", "Fly"]),
        acl("Topic:orders", actions=["Sub"], decision="deny"),
        acl("*", actions=["Get"], policy="default"),
    ):
        assert (await ports.ask(ROOT, h.UpdateAcl(subject="User:ann"), body)).code == 0
    found = await ports.ask(ROOT, h.GetAcl(subject="User:ann"))
    assert found.body == (
        b'{"policies":[{"entries":[{"actions":["Sub"],"decision":"Deny","resource":"Topic:orders"},'
        b'{"actions":["Sub"],"decision":"Allow","resource":"Group:g*"}],"policyType":"Custom"},'
        b'{"entries":[{"actions":["Get"],"decision":"Allow","resource":"*"}],"policyType":"Default"}],'
        b'"subject":"User:ann"}'
    )
    await ports.ask(ROOT, h.DeleteAcl(subject="User:ann", resource="Topic:orders"))
    left = bodies.decode((await ports.ask(ROOT, h.GetAcl(subject="User:ann"))).body, AclInfo)
    assert [entry.resource for policy in left.policies for entry in policy.entries] == ["Group:g*", "*"]
    await ports.ask(ROOT, h.DeleteAcl(subject="User:ann", resource="*", policy_type="Default"))
    await ports.ask(ROOT, h.DeleteAcl(subject="User:ann"))
    assert (await ports.ask(ROOT, h.GetAcl(subject="User:ann"))).body == b""


async def test_users_can_be_made_before_authentication_is_turned_on() -> None:
    async with running(authentication=False, authorization=False) as ports:
        answer = await ports.ask(NOBODY, h.CreateUser(username="x"), user(password="p"))
        assert answer.code == 1
        assert str(answer.remark).startswith("The authenticationMetadataProvider is not configured")
    provider = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    off: dict[str, Any] = {"authentication": False, "authorization": False}
    async with running(**off, authentication_metadata_provider=provider) as ports:
        made = await ports.ask(NOBODY, h.CreateUser(username="boss"), user(password="p", user_type="Super"))
        assert made.code == 0
        assert ports.server.broker.access.is_super("boss")
        found = bodies.decode((await ports.ask(NOBODY, h.GetUser(username="boss"))).body, UserInfo)
        assert found.password == "******"


async def test_no_secret_is_logged(ports: Ports, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        await ports.ask(ROOT, h.CreateUser(username="shop"), user(password="s3cret-word"))
        await ports.ask(
            ROOT, h.UpdateUser(username="shop"), user(password="s3cret-word-2", user_type="Super")
        )
        await ports.ask(Credentials("shop", "s3cret-word"), SEND, b"x")
        await ports.ask(ROOT, h.ListUsers())
    assert "created user=shop type=Normal by=root" in caplog.text
    assert "s3cret-word" not in caplog.text
    assert UserType.SUPER in caplog.text
