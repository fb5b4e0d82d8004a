# SPDX-License-Identifier: Apache-2.0
"""Users and policies of a broker; each broker keeps its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.protocol import bodies
from aerobee.protocol.access import USER_PREFIX, Action, Need, Resource, UserStatus, UserType, named
from aerobee.protocol.headers.accounts import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteAclConfig,
    DeleteUser,
    GetAcl,
    GetAclConfig,
    GetAclVersion,
    GetAclVersionResult,
    GetUser,
    ListAcls,
    ListUsers,
    ReadAudit,
    UpdateAcl,
    UpdateAclConfig,
    UpdateUser,
    UpdateWhiteAddresses,
)
from aerobee.protocol.policy_infos import policy_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.admin.asking import Asking
    from aerobee.protocol.command import Header


class Answer(NamedTuple):
    """Whether somebody may, and what says so."""

    allowed: bool
    why: str


class Access:
    def __init__(self, asking: Asking) -> None:
        self._session = asking.session

    async def _ask(self, address: str, header: Header, body: bytes = b"") -> bytes:
        return (await self._session.call(address, header, body, timeout_ms=TIMEOUT_MS)).body

    # -- users -------------------------------------------------------------------------------------------------

    async def users(self, address: str, part_of_name: str = "") -> list[bodies.UserInfo]:
        found = await self._ask(address, ListUsers(filter=part_of_name))
        return bodies.decode(found, list[bodies.UserInfo]) if found else []

    async def user(self, address: str, name: str) -> bodies.UserInfo | None:
        found = await self._ask(address, GetUser(username=name))
        return bodies.decode(found, bodies.UserInfo) if found else None

    async def create_user(self, address: str, info: bodies.UserInfo) -> None:
        await self._ask(address, CreateUser(username=info.username), bodies.encode(info))

    async def update_user(self, address: str, info: bodies.UserInfo) -> None:
        await self._ask(address, UpdateUser(username=info.username), bodies.encode(info))

    async def delete_user(self, address: str, name: str) -> None:
        await self._ask(address, DeleteUser(username=name))

    # -- policies ------------------------------------------------------------------------------------------------

    async def acls(
        self, address: str, part_of_subject: str = "", part_of_resource: str = ""
    ) -> list[bodies.AclInfo]:
        header = ListAcls(subject_filter=part_of_subject, resource_filter=part_of_resource)
        found = await self._ask(address, header)
        return bodies.decode(found, list[bodies.AclInfo]) if found else []

    async def acl(self, address: str, subject: str) -> bodies.AclInfo | None:
        found = await self._ask(address, GetAcl(subject=_subject(subject)))
        return bodies.decode(found, bodies.AclInfo) if found else None

    async def create_acl(self, address: str, acl: bodies.AclInfo) -> None:
        await self._ask(address, CreateAcl(subject=acl.subject), bodies.encode(acl))

    async def update_acl(self, address: str, acl: bodies.AclInfo) -> None:
        await self._ask(address, UpdateAcl(subject=acl.subject), bodies.encode(acl))

    async def delete_acl(self, address: str, subject: str, resource: str = "") -> None:
        header = DeleteAcl(subject=_subject(subject), resource=resource or None)
        await self._ask(address, header)

    async def may(self, address: str, user: str, action: str, resource: str, source: str) -> Answer:
        need = need_of(action, resource)
        found = await self.user(address, user)
        if found is None:
            return Answer(allowed=False, why="there is no such user")
        if named(UserStatus, found.user_status) is UserStatus.DISABLE:
            return Answer(allowed=False, why="the user is disabled")
        if named(UserType, found.user_type) is UserType.SUPER:
            return Answer(allowed=True, why="a super user may do everything")
        verdict = policy_of(await self.acl(address, user)).verdict(need, source)
        if verdict.entry is None:
            asked = f"{need.actions[0]} on {need.resource.text} from {source}"
            return Answer(allowed=False, why=f"no rule of {user} is about {asked}")
        entry = verdict.entry
        rule = f"{entry.decision} {','.join(entry.actions)} on {entry.resource.text}"
        where = f" from {','.join(entry.source_ips)}" if entry.source_ips else ""
        return Answer(verdict.allowed, f"by the {verdict.policy_type} rule: {rule}{where}")

    async def audit(self, address: str, last: int) -> list[dict[str, Any]]:
        lines = (await self._ask(address, ReadAudit(last=last))).splitlines()
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]

    # -- plain_acl.yml -------------------------------------------------------------------------------------------

    async def put_plain_account(self, address: str, account: UpdateAclConfig) -> None:
        await self._ask(address, account)

    async def delete_plain_account(self, address: str, access_key: str) -> None:
        await self._ask(address, DeleteAclConfig(access_key=access_key))

    async def replace_white_addresses(self, address: str, addresses: str, file: str) -> None:
        header = UpdateWhiteAddresses(global_white_addrs=addresses, acl_file_full_path=file or None)
        await self._ask(address, header)

    async def plain_acl(self, address: str) -> bodies.AclConfig:
        return bodies.decode(await self._ask(address, GetAclConfig()), bodies.AclConfig)

    async def plain_acl_version(self, address: str) -> GetAclVersionResult:
        answer = await self._session.call(address, GetAclVersion(), timeout_ms=TIMEOUT_MS)
        return answer.fields(GetAclVersionResult)


def need_of(action: str, resource: str) -> Need:
    """ValueError says what is no action, or no resource."""
    wanted = named(Action, action)
    if wanted is None:
        raise ValueError(f"{action!r} is no action; there are {', '.join(Action)}")
    return Need(Resource.parse(resource), (wanted,))


def _subject(name: str) -> str:
    return name if ":" in name else f"{USER_PREFIX}{name}"


def acl_of(
    subject: str,
    resources: Sequence[str],
    actions: Sequence[str],
    decision: str = "Allow",
    sources: Sequence[str] = (),
) -> bodies.AclInfo:
    """One custom entry for each resource."""
    entries = [
        bodies.PolicyEntryInfo(
            resource=resource, actions=list(actions), decision=decision, source_ips=list(sources) or None
        )
        for resource in resources
    ]
    return bodies.AclInfo(
        subject=_subject(subject), policies=[bodies.PolicyInfo(policy_type="Custom", entries=entries)]
    )
