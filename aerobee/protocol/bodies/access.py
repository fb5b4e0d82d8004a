# SPDX-License-Identifier: Apache-2.0
"""Users and policies (codes 3001 to 3010)."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.bodies.values import Body


class UserInfo(Body):
    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type!r}, {self.user_status!r})"


class PolicyEntryInfo(Body):
    actions: list[str] = field(default_factory=list)
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None  # of everywhere


class PolicyInfo(Body):
    entries: list[PolicyEntryInfo] = field(default_factory=list)
    policy_type: str | None = None


class AclInfo(Body):
    policies: list[PolicyInfo] = field(default_factory=list)
    subject: str | None = None
