# SPDX-License-Identifier: Apache-2.0
"""The door of access control: users and policies in one file, and what the gates ask of them.

One file, so that a user and its rights go in one step; readable by its owner only, for the secrets in it are the keys of
signatures. It is never made smaller than what was acknowledged: see `store/saved_table.py`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.access.pointed import Nothing
from aerobee.broker.access.users import User, Users, check_name
from aerobee.errors import AccessDenied
from aerobee.protocol.access import (
    NO_ACCOUNT,
    WRONG_SECRET,
    Action,
    Decision,
    PolicyType,
    Resource,
    UserType,
)
from aerobee.protocol.policies import Entry, Policies, Policy, Verdict
from aerobee.store.metadata import PrivateFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.broker.access.audit import Audit
    from aerobee.broker.access.plain_acl import PlainAcl
    from aerobee.broker.access.pointed import LookUp
    from aerobee.protocol.access import Need
    from aerobee.protocol.accounts import Credentials

log = logging.getLogger("aerobee.access")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say of access control."""

    cluster: str
    authentication: bool = False
    authorization: bool = False
    # Remoting codes, as text, and full names of gRPC's requests.
    unauthenticated: frozenset[str] = frozenset()
    unauthorized: frozenset[str] = frozenset()
    keeps_users: bool = False  # also while authentication is off
    hides_passwords: bool = False


class Access(SavedTable):
    def __init__(self, file: Path | None, rules: Rules, look_up: LookUp | None = None) -> None:
        stored = None if file is None else PrivateFile(file, decode_stored)
        super().__init__(stored)
        self.rules = rules
        self.look_up = look_up or Nothing()
        self.audit: Audit | None = None
        self.plain: PlainAcl | None = None  # the list of RocketMQ 4, where that decides
        self.refused_logins = 0
        self.users = Users()
        self.policies = Policies()
        self.passed: set[tuple[str, ...]] = set()  # of the gates: what was let through since the last change
        data = None if stored is None else stored.load()
        if data is not None:
            self.replace_all(decode_stored(data))

    def replace_all(self, found: Stored) -> None:
        """What a file has takes the place of what was known."""
        self.users, self.policies = Users(), Policies()
        self.passed.clear()
        for user in found.users:
            self.users.put(user)
        for name, written in found.policies.items():
            self.policies.put(name, written.read())

    # -- who is it -------------------------------------------------------------------------------------------

    @property
    def guard(self) -> Access | PlainAcl | None:
        """What the gates ask; None leaves every port open."""
        return self if self.rules.authentication else self.plain

    @property
    def cluster(self) -> str:
        return self.rules.cluster

    def needs_signature(self, request: str) -> bool:
        return request not in self.rules.unauthenticated

    def secret_of(self, user: str, source: str) -> str:
        return self.users.allowed_in(user).password

    def badly_signed(self, user: str) -> AccessDenied:
        return AccessDenied(WRONG_SECRET)

    def is_super(self, name: str) -> bool:
        user = self.users.get(name)
        return user is not None and user.is_super

    # -- may they ----------------------------------------------------------------------------------------------

    @property
    def checks_rights(self) -> bool:
        return self.rules.authorization

    def needs_right(self, request: str) -> bool:
        return request not in self.rules.unauthorized

    def may_everything(self, user: str) -> bool:
        return self.is_super(user)

    def check(self, user: str, needs: Sequence[Need] | None, source: str, code: int | None) -> None:
        """AccessDenied, in RocketMQ's words and the action after them, for the first need that is not met."""
        if not user:
            raise AccessDenied(NO_ACCOUNT)
        if needs is None:
            raise AccessDenied("authorization context is empty.")
        for need in needs:
            verdict = self.policies.verdict(user, need, source)
            if not verdict.allowed:
                raise AccessDenied(refusal(user, need, source, verdict), need.actions_text)

    def unreadable(self, user: str) -> AccessDenied:
        return AccessDenied("parse authorization context error.")

    # -- changes -----------------------------------------------------------------------------------------------

    def put_user(self, user: User) -> None:
        before = self.users.get(user.username)
        self._set_user(user.username, user)
        self.changed(user.username, partial(self._set_user, user.username, before))

    def delete_user(self, name: str) -> None:
        """With all its rights."""
        before, policy = self.users.get(name), self.policies.get(name)
        self._set_both(name, None, None)
        self.changed(name, partial(self._set_both, name, before, policy))

    def put_policy(self, name: str, policy: Policy) -> None:
        before = self.policies.get(name)
        self._set_policy(name, policy)
        self.changed(name, partial(self._set_policy, name, before))

    def ensure_super(self, account: Credentials) -> None:
        """A user of the settings: made where there is none of the name, never changed afterwards."""
        name = account.access_key
        if name and self.users.get(name) is None:
            check_name(name)
            self.put_user(User(username=name, password=account.secret_key, user_type=UserType.SUPER))
            log.info("created super user=%s, which the settings name", name)

    # Also back, when a change could not be kept. What was let through before is asked again after each of them.

    def _set_user(self, name: str, user: User | None) -> None:
        self.passed.clear()
        if user is None:
            self.users.delete(name)
        else:
            self.users.put(user)

    def _set_policy(self, name: str, policy: Policy | None) -> None:
        self.passed.clear()
        self.policies.put(name, policy or Policy())

    def _set_both(self, name: str, user: User | None, policy: Policy | None) -> None:
        self._set_user(name, user)
        self._set_policy(name, policy)

    def text(self) -> bytes:
        stored = Stored(self.users.all(), {name: _Written.of(each) for name, each in self.policies.all()})
        return msgspec.json.format(msgspec.json.encode(stored), indent=1)


def refusal(user: str, need: Need, source: str, verdict: Verdict) -> str:
    why = "no matched policies" if verdict.entry is None else "the decision is deny"
    what = need.resource.text
    return f"User:{user} has no permission to access {what} from {source}, {why}. Needs {need.actions_text} on {what}."


# -- the file ----------------------------------------------------------------------------------------------------


class _WrittenEntry(msgspec.Struct, rename="camel"):
    resource: str
    actions: tuple[Action, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()


class _Written(msgspec.Struct, rename="camel"):
    custom: list[_WrittenEntry] = []
    default: list[_WrittenEntry] = []

    @classmethod
    def of(cls, policy: Policy) -> _Written:
        lists = (
            [
                _WrittenEntry(each.resource.text, each.actions, each.decision, each.source_ips)
                for each in policy.entries(kind).values()
            ]
            for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT)
        )
        return cls(*lists)

    def read(self) -> Policy:
        custom, default = (
            {
                resource: Entry(resource, each.actions, each.decision, each.source_ips)
                for each in entries
                for resource in (Resource.parse(each.resource),)
            }
            for entries in (self.custom, self.default)
        )
        return Policy(custom, default)


class Stored(msgspec.Struct):
    users: list[User]
    policies: dict[str, _Written]


def decode_stored(data: bytes) -> Stored:
    found = msgspec.json.decode(data, type=Stored)
    for written in found.policies.values():
        written.read()  # a policy that cannot be read makes the file unusable, not its user powerful
    return found
