# SPDX-License-Identifier: Apache-2.0
"""Policies: what a user may do to which resource, from where; and which of several entries decides.

Custom entries go before default ones. Of those that fit, the one about the narrower resource decides: a kind before any
kind, a name before a prefix, a long prefix before a short one, a prefix before all; between equals Deny. Where none fits
the answer is no.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.protocol.access import Action, Decision, Kind, Need, Pattern, PolicyType, Resource

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Network

# Decisions; a scan of names, or of very long ones, must not grow this for ever.
_MAX_REMEMBERED = 10_000
_MAX_NAME = 255
_PATTERN_RANK = {Pattern.ANY: 0, Pattern.PREFIXED: 1, Pattern.LITERAL: 2}


class Entry(msgspec.Struct, frozen=True):
    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()  # addresses and networks; none = from everywhere

    def fits(self, need: Need, source: str) -> bool:
        if not self.resource.covers(need.resource):
            return False
        if Action.ALL not in self.actions and not any(action in self.actions for action in need.actions):
            return False
        return not self.source_ips or _is_in(source, self.source_ips)

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """The highest decides."""
        resource = self.resource
        return (
            resource.kind is not Kind.ANY,
            _PATTERN_RANK[resource.pattern],
            len(resource.name),
            self.decision is Decision.DENY,
        )


class Policy(msgspec.Struct, frozen=True):
    """All of one user; the entries of each type by resource, one each."""

    custom: dict[Resource, Entry] = {}
    default: dict[Resource, Entry] = {}

    def entries(self, kind: PolicyType) -> dict[Resource, Entry]:
        return self.custom if kind is PolicyType.CUSTOM else self.default

    def verdict(self, need: Need, source: str) -> Verdict:
        """`source` is the peer's address."""
        for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
            fitting = [entry for entry in self.entries(kind).values() if entry.fits(need, source)]
            if fitting:
                return Verdict(max(fitting, key=lambda entry: entry.rank), kind)
        return Verdict()

    def merged(self, kind: PolicyType, entries: Iterable[Entry]) -> Policy:
        """With the entries, each in the place of one of the same resource."""
        return self._with(kind, self.entries(kind) | {each.resource: each for each in entries})

    def without(self, kind: PolicyType, resource: Resource) -> Policy:
        return self._with(kind, {key: each for key, each in self.entries(kind).items() if key != resource})

    def _with(self, kind: PolicyType, entries: dict[Resource, Entry]) -> Policy:
        return Policy(entries, self.default) if kind is PolicyType.CUSTOM else Policy(self.custom, entries)


class Verdict(NamedTuple):
    """`entry` is the one that decided; None where none fits."""

    entry: Entry | None = None
    policy_type: PolicyType = PolicyType.CUSTOM

    @property
    def allowed(self) -> bool:
        return self.entry is not None and self.entry.decision is Decision.ALLOW


class Policies:
    def __init__(self) -> None:
        self._table: dict[str, Policy] = {}
        self._known: dict[tuple[str, Need, str], Verdict] = {}  # decisions so far, until anything changes

    def get(self, user: str) -> Policy | None:
        return self._table.get(user)

    def all(self) -> list[tuple[str, Policy]]:
        return [(name, self._table[name]) for name in sorted(self._table, key=str.encode)]

    def put(self, user: str, policy: Policy) -> None:
        self._known.clear()
        if policy.custom or policy.default:
            self._table[user] = policy
        else:
            self._table.pop(user, None)

    def delete(self, user: str) -> None:
        self.put(user, Policy())

    def verdict(self, user: str, need: Need, source: str) -> Verdict:
        """`source` is the peer's address."""
        asked = (user, need, source)
        found = self._known.get(asked)
        if found is None:
            found = self._table.get(user, Policy()).verdict(need, source)
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            if len(need.resource.name) <= _MAX_NAME:
                self._known[asked] = found
        return found


# -- where from --------------------------------------------------------------------------------------------------


def check_source(text: str) -> None:
    """ValueError for what is neither an address nor a network."""
    ip_network(text.strip(), strict=False)


def _is_in(source: str, allowed: tuple[str, ...]) -> bool:
    address = parse_ip(source)
    return address is not None and any(address in _network(each) for each in allowed)


@lru_cache(maxsize=4096)
def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """A peer's address; IPv4 that came by an IPv6 socket is IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(maxsize=4096)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text.strip(), strict=False)
