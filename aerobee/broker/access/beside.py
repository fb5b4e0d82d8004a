# SPDX-License-Identifier: Apache-2.0
"""Users and policies of a broker in another process, for the name server of `serve --brokers N`.

Nobody makes users at such a name server: it goes by the file of the first broker, which is written before a change is
answered. So it is looked at when somebody has to be known, which at a name server is seldom, and a change counts at
once. It is only read: the file is the broker's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.broker.access.access import Access, decode_stored
from aerobee.broker.access.users import User
from aerobee.errors import BrokerError
from aerobee.protocol.access import UserType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.broker.access.access import Rules
    from aerobee.protocol.accounts import Credentials

log = logging.getLogger("aerobee.access")


class _State(NamedTuple):
    """Of a file that is replaced whole: another one has another place, time or size."""

    inode: int
    changed_ns: int
    size_bytes: int


class UsersOfBroker(Access):
    """`always` are super users whom the file need not have: the brokers' own account."""

    def __init__(self, file: Path, rules: Rules, always: Sequence[Credentials]) -> None:
        super().__init__(None, rules)
        self._always = always
        self._read_from = (file, file.with_name(f"{file.name}.bak"))  # the second between the steps of a save
        self._seen: _State | None = None
        self._look()

    @property
    def was_read(self) -> bool:
        return self._seen is not None

    def secret_of(self, user: str, source: str) -> str:
        self._look()
        return super().secret_of(user, source)

    def _look(self) -> None:
        found = next(((file, state) for file in self._read_from if (state := _state_of(file))), None)
        if found is None or found[1] == self._seen:
            return
        file, self._seen = found
        try:
            self.replace_all(decode_stored(file.read_bytes()))
        except (OSError, ValueError, BrokerError, msgspec.MsgspecError) as error:
            log.error("users of %s cannot be read: %s; they stay as they were", file, error)
        for account in self._always:
            if account.access_key and self.users.get(account.access_key) is None:
                self.users.put(_super_user(account))


def _super_user(account: Credentials) -> User:
    return User(username=account.access_key, password=account.secret_key, user_type=UserType.SUPER)


def _state_of(file: Path) -> _State | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return _State(stat.st_ino, stat.st_mtime_ns, stat.st_size)
