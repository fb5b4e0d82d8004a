# SPDX-License-Identifier: Apache-2.0
"""Users: their names, secrets and standing."""

from __future__ import annotations

import re

import msgspec

from aerobee.errors import AccessDenied, InvalidParameter, NoPermission
from aerobee.protocol.access import NO_ACCOUNT, UserStatus, UserType

# What every client can write into its header: gRPC's is ASCII and ends a name at / and ,
_name = re.compile(r"[A-Za-z0-9._@-]{1,128}").fullmatch


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    username: str
    password: str  # the key of its signatures, so it cannot be kept as a hash
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE

    def __post_init__(self) -> None:
        if not self.password.strip():
            raise NoPermission("password can not be blank")  # an empty key signs for everybody

    def __repr__(self) -> str:
        return f"User({self.username!r}, {self.user_type}, {self.user_status})"

    @property
    def is_super(self) -> bool:
        return self.user_type is UserType.SUPER


def check_name(name: str) -> None:
    if not _name(name):
        raise InvalidParameter(
            f"user name {name[:128]!r}: up to 128 letters, digits and . _ @ - which every client can send"
        )


class Users:
    def __init__(self) -> None:
        self._table: dict[str, User] = {}

    def get(self, name: str) -> User | None:
        return self._table.get(name)

    def all(self) -> list[User]:
        """By name, in order of its bytes."""
        return [self._table[name] for name in sorted(self._table, key=str.encode)]

    def put(self, user: User) -> None:
        self._table[user.username] = user

    def delete(self, name: str) -> None:
        self._table.pop(name, None)

    def allowed_in(self, name: str) -> User:
        """The user whose secret a request must be signed with; AccessDenied, in RocketMQ's words, when there is none."""
        if not name:
            raise AccessDenied(NO_ACCOUNT)
        user = self._table.get(name)
        if user is None:
            raise AccessDenied(f"User:{name[:128]} is not found.")
        if user.user_status is UserStatus.DISABLE:
            raise AccessDenied(f"User:{name} is disabled.")
        return user
