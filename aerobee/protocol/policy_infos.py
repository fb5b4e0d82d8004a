# SPDX-License-Identifier: Apache-2.0
"""Policies as requests write them, and back; what cannot be one is refused in RocketMQ's words."""

from __future__ import annotations

from aerobee.errors import NoPermission
from aerobee.protocol.access import USER_PREFIX, Action, Decision, PolicyType, Resource, named
from aerobee.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from aerobee.protocol.policies import Entry, Policy, check_source


def policy_type_of(text: str | None) -> PolicyType:
    return named(PolicyType, text) or PolicyType.CUSTOM


def entries_of(policy: PolicyInfo) -> list[Entry]:
    return [_entry(each) for each in policy.entries]


def _entry(info: PolicyEntryInfo) -> Entry:
    resource = resource_of(info.resource or "")
    actions = [action for each in info.actions if (action := named(Action, each)) is not None]
    if not actions:
        raise NoPermission("The actions is empty.")
    if Action.ANY in actions:
        raise NoPermission("The actions can not be Any.")
    sources = info.source_ips or []
    for source in sources:
        _check_source(source)
    decision = named(Decision, info.decision)
    if decision is None:
        raise NoPermission("The decision is null or illegal.")
    return Entry(resource, tuple(dict.fromkeys(actions)), decision, tuple(each.strip() for each in sources))


def _check_source(text: str) -> None:
    if not text.strip():
        raise NoPermission("The source ip is empty.")
    try:
        check_source(text)
    except ValueError:
        raise NoPermission("The source ip is invalid.") from None


def resource_of(text: str) -> Resource:
    """Also where it is to be deleted: RocketMQ takes one it cannot read for all of them there."""
    try:
        return Resource.parse(text)
    except ValueError:
        raise NoPermission("The resource is null.") from None


def acl_of(name: str, policy: Policy, part_of_resource: str = "") -> AclInfo:
    policies = []
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        entries = [
            PolicyEntryInfo(
                resource=each.resource.text,
                actions=[action.value for action in each.actions],
                source_ips=list(each.source_ips) or None,
                decision=each.decision.value,
            )
            for each in policy.entries(kind).values()
            if part_of_resource in each.resource.text
        ]
        if entries:
            policies.append(PolicyInfo(policy_type=kind.value, entries=entries))
    return AclInfo(subject=f"{USER_PREFIX}{name}", policies=policies)


def policy_of(acl: AclInfo | None) -> Policy:
    policy = Policy()
    for each in acl.policies if acl is not None else ():
        policy = policy.merged(policy_type_of(each.policy_type), entries_of(each))
    return policy
