# SPDX-License-Identifier: Apache-2.0
"""Users and policies of a broker; each broker keeps its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.protocol import bodies
from aerobee.protocol.access import USER_PREFIX
from aerobee.protocol.headers.accounts import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.admin.asking import Asking
    from aerobee.protocol.command import Header


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
