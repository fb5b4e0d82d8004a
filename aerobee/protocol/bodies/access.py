# SPDX-License-Identifier: Apache-2.0
"""Users and policies (codes 3001 to 3010), and what a plain_acl.yml has (code 54)."""

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


class PlainAccessConfig(Body):
    access_key: str | None = None
    admin: bool = False
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    secret_key: str | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None

    def __repr__(self) -> str:
        return f"PlainAccessConfig({self.access_key!r})"


class AclConfig(Body):
    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = field(default_factory=list)
