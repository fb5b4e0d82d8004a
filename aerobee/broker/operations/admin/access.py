# SPDX-License-Identifier: Apache-2.0
"""Users and their policies, for operators: in RocketMQ's words, each change kept before it is answered.

`caller` is the user who asks; empty when nobody looked. Only super users make, change and delete super users, and only
they are told passwords: one is all that is needed to be that user.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.access.users import User, check_name
from aerobee.errors import InvalidParameter, NoPermission, SystemFailure
from aerobee.protocol.access import HIDDEN_PASSWORD, USER_PREFIX, UserStatus, UserType, named
from aerobee.protocol.bodies import AclInfo, UserInfo
from aerobee.protocol.policies import Policy
from aerobee.protocol.policy_infos import acl_of, entries_of, policy_type_of, resource_of

if TYPE_CHECKING:
    from aerobee.broker.access.access import Access

log = logging.getLogger("aerobee.access")

_ONLY_SUPER = "The super user can only be {} by super user"


def kept(access: Access) -> Access:
    """Where users are kept at all."""
    if not access.rules.keeps_users:
        raise SystemFailure(
            "The authenticationMetadataProvider is not configured: this broker keeps no users and no policies"
        )
    return access


# -- users -------------------------------------------------------------------------------------------------------


async def create_user(caller: str, name: str, info: UserInfo, access: Access) -> None:
    _check_given(name)
    kind = named(UserType, info.user_type) or UserType.NORMAL
    if kind is UserType.SUPER and not _is_super(caller, access):
        raise SystemFailure(_ONLY_SUPER.format("create"))
    _check_told(info.password)
    user = User(
        username=name,
        password=info.password or "",
        user_type=kind,
        user_status=named(UserStatus, info.user_status) or UserStatus.ENABLE,
    )
    if access.users.get(name) is not None:
        raise NoPermission("The user is existed")
    check_name(name)
    access.put_user(user)
    await access.saved()
    log.info("created user=%s type=%s by=%s", name, kind, caller)


async def update_user(caller: str, name: str, info: UserInfo, access: Access) -> None:
    """Only what is said changes."""
    _check_given(name)
    kind = named(UserType, info.user_type)
    if kind is UserType.SUPER and not _is_super(caller, access):
        raise SystemFailure(_ONLY_SUPER.format("update"))
    user = access.users.get(name)
    if user is None:
        raise NoPermission("The user is not exist")
    _check_may_change(caller, user, access)
    _check_told(info.password)
    password = info.password if (info.password or "").strip() else user.password
    changed = msgspec.structs.replace(
        user,
        password=password,
        user_type=kind or user.user_type,
        user_status=named(UserStatus, info.user_status) or user.user_status,
    )
    access.put_user(changed)
    await access.saved()
    log.info("changed user=%s type=%s status=%s by=%s", name, changed.user_type, changed.user_status, caller)


async def delete_user(caller: str, name: str, access: Access) -> None:
    """With its policies; one that is not there is no error."""
    if not name.strip():
        raise NoPermission("username can not be blank")
    user = access.users.get(name)
    if user is None:
        return
    _check_may_change(caller, user, access)
    access.delete_user(name)
    await access.saved()
    log.info("deleted user=%s by=%s", name, caller)


def get_user(caller: str, name: str, access: Access) -> UserInfo | None:
    _check_given(name)
    user = access.users.get(name)
    return None if user is None else _told(caller, user, access)


def list_users(caller: str, part_of_name: str, access: Access) -> list[UserInfo]:
    return [_told(caller, user, access) for user in access.users.all() if part_of_name in user.username]


def _told(caller: str, user: User, access: Access) -> UserInfo:
    """mqadmin copies users with their passwords and the dashboard compares them, so those are told, but not to those
    who may only look."""
    shown = caller and _is_super(caller, access) and not access.rules.hides_passwords
    return UserInfo(
        username=user.username,
        password=user.password if shown else HIDDEN_PASSWORD,
        user_type=user.user_type.value,
        user_status=user.user_status.value,
    )


def _check_given(name: str) -> None:
    if not name.strip():
        raise InvalidParameter("The username is blank")


def _check_told(password: str | None) -> None:
    """mqadmin's copyUser sends on what it was told: stars would be a password that everybody knows."""
    if password == HIDDEN_PASSWORD:
        raise InvalidParameter(
            f"{HIDDEN_PASSWORD} stands for a password that was not told, and is none: copy users as a super user, "
            "from a broker without hide_passwords"
        )


def _is_super(caller: str, access: Access) -> bool:
    """With authentication off nobody can be told from a super user."""
    return not access.rules.authentication or access.is_super(caller)


def _check_may_change(caller: str, user: User, access: Access) -> None:
    if user.is_super and not _is_super(caller, access):
        raise NoPermission(_ONLY_SUPER.format("update"))


# -- who did what ------------------------------------------------------------------------------------------------


def newest_audit(count: int, access: Access) -> bytes:
    """Lines of JSON."""
    if access.audit is None:
        raise SystemFailure("this broker keeps no audit log: name one by `audit_log`")
    try:
        return b"\n".join(access.audit.newest(count))
    except OSError as error:
        raise SystemFailure(f"the audit log cannot be read: {error.strerror}") from None


# -- policies ----------------------------------------------------------------------------------------------------


async def put_acl(caller: str, subject: str, info: AclInfo, access: Access) -> None:
    """Entries of the same resource are replaced, all others stay."""
    name = _user_of(info.subject or subject)
    added = [(policy_type_of(each.policy_type), entries_of(each)) for each in info.policies if each.entries]
    if not added:
        raise NoPermission("The policies is empty.")
    if access.users.get(name) is None:
        raise NoPermission(f"The subject of {USER_PREFIX}{name} is not exist.")
    policy = access.policies.get(name) or Policy()
    for kind, entries in added:
        policy = policy.merged(kind, entries)
    access.put_policy(name, policy)
    await access.saved()
    resources = sorted({entry.resource.text for _, entries in added for entry in entries})
    log.info("changed policy user=%s resources=%s by=%s", name, ",".join(resources), caller)


async def delete_acl(caller: str, subject: str, policy_type: str, resource: str, access: Access) -> None:
    """All policies of the user, or its entry about one resource."""
    name = _user_of(subject)
    wanted = resource_of(resource) if resource.strip() else None
    if access.users.get(name) is None:
        raise NoPermission("The subject is not exist.")
    policy = access.policies.get(name)
    if policy is None:
        raise NoPermission("The acl is not exist.")
    left = Policy() if wanted is None else policy.without(policy_type_of(policy_type), wanted)
    access.put_policy(name, left)
    await access.saved()
    log.info("deleted policy user=%s resource=%s by=%s", name, resource or "all", caller)


def get_acl(subject: str, access: Access) -> AclInfo | None:
    name = _user_of(subject)
    if access.users.get(name) is None:
        raise NoPermission("The subject is not exist.")
    policy = access.policies.get(name)
    return None if policy is None else acl_of(name, policy)


def list_acls(part_of_subject: str, part_of_resource: str, access: Access) -> list[AclInfo]:
    """Where the subject has the second text too, all its entries count."""
    found = []
    for name, policy in access.policies.all():
        subject = f"{USER_PREFIX}{name}"
        if part_of_subject in subject:
            wanted = "" if part_of_resource in subject else part_of_resource
            acl = acl_of(name, policy, wanted)
            if acl.policies:
                found.append(acl)
    return found


def _user_of(subject: str) -> str:
    word, _, name = subject.partition(":")
    if word.lower() != "user" or not name.strip():
        raise SystemFailure(f"subject {subject[:200]!r}: write User:name")
    return name
