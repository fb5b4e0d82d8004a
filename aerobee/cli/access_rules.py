# SPDX-License-Identifier: Apache-2.0
"""A rule that is given while there is one about the same resource: what stands is kept, and said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.access import Action, Decision, PolicyType, Resource, named
from aerobee.protocol.policy_infos import policy_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.bodies import AclInfo, PolicyEntryInfo


def standing(acl: AclInfo | None, resource: str) -> PolicyEntryInfo | None:
    """The user's own rule about a resource."""
    wanted = Resource.parse(resource)
    entries = (
        entry
        for policy in (acl.policies if acl is not None else ())
        if policy_type_of(policy.policy_type) is PolicyType.CUSTOM
        for entry in policy.entries
    )
    return next((each for each in entries if Resource.parse(each.resource or "") == wanted), None)


def added(rule: PolicyEntryInfo, before: PolicyEntryInfo | None) -> PolicyEntryInfo:
    """The rule with what stands besides. ValueError where the two cannot be one: it takes another decision, or is for
    other addresses."""
    if before is None:
        return rule
    same_decision = named(Decision, rule.decision) is named(Decision, before.decision)
    if not same_decision or set(rule.source_ips or ()) != set(before.source_ips or ()):
        raise ValueError(
            f"there is a rule about {before.resource} already: {in_words(before)}; "
            "--replace puts the new one in its place"
        )
    return msgspec.structs.replace(rule, actions=_united([*before.actions, *rule.actions]))


def _united(actions: Sequence[str]) -> list[str]:
    found = dict.fromkeys(named(Action, each) or each for each in actions)
    return [Action.ALL] if Action.ALL in found else list(found)


def in_words(rule: PolicyEntryInfo) -> str:
    source = f" from {','.join(rule.source_ips)}" if rule.source_ips else ""
    return f"{rule.decision} {','.join(rule.actions)}{source}"
