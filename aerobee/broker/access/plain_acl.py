# SPDX-License-Identifier: Apache-2.0
"""Access control by plain_acl.yml, in the order and words of RocketMQ 4.

What a request needs is read from the same table as for RocketMQ 5: Pub and Sub are the list's PUB and SUB, whatever
creates, changes or deletes is for admins, and what only looks needs a signature, no more. So the requests that RocketMQ
forgot (POP, locks, users, settings, raw reads) are looked at here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.access.pointed import Nothing
from aerobee.errors import AclDenied
from aerobee.protocol.access import Action, Kind, Pattern
from aerobee.protocol.address_patterns import Matches, parse_pattern
from aerobee.protocol.plain_acl import Perm, PlainAccount, PlainAclFile, parse_plain_acl, perm_of
from aerobee.protocol.policies import parse_ip

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.broker.access.audit import Audit
    from aerobee.broker.access.pointed import LookUp
    from aerobee.protocol.access import Need

log = logging.getLogger("aerobee.access")

POLL_MS = 5_000
_SAID_BY = "org.apache.rocketmq.acl.common.AclException: "
_LOOKING = {Action.GET, Action.LIST}


def denied(why: str) -> AclDenied:
    """Users look for the words behind the name of Java's class."""
    return AclDenied(_SAID_BY + why)


class _Known(NamedTuple):
    """One reading of all files: it takes the place of the one before at once."""

    white: tuple[Matches, ...]
    accounts: dict[str, PlainAccount]
    white_of: dict[str, Matches]


def _files(file: Path) -> list[Path]:
    """Those of the directory `acl` beside it go before it."""
    further = [path for path in (file.parent / "acl").rglob("*.y*ml") if path.suffix in (".yml", ".yaml")]
    return [*sorted(further), *([file] if file.exists() else [])]


def read_files(file: Path) -> PlainAclFile:
    """All of them as one; the first that has an account owns it. ValueError names the file that cannot be used."""
    white: list[str] = []
    accounts: dict[str, PlainAccount] = {}
    for path in _files(file):
        try:
            read = parse_plain_acl(path.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None
        white += read.white_addresses
        for account in read.accounts:
            if account.access_key in accounts:
                log.warning("account=%s of %s is in an earlier file already", account.access_key, path)
            accounts.setdefault(account.access_key, account)
    return PlainAclFile(tuple(white), tuple(accounts.values()))


class PlainAcl:
    """`file` is plain_acl.yml; the directory `acl` beside it has further files."""

    def __init__(self, file: Path, cluster: str, look_up: LookUp | None = None) -> None:
        self.file = file
        self.cluster = cluster
        self.look_up = look_up or Nothing()
        self.checks_rights = True
        self.refused_logins = 0
        self.audit: Audit | None = None
        self.passed: set[tuple[str, ...]] = set()  # of the gates: what was let through since the last reading
        self._seen = self._state()
        self._known = self._read()  # raises: a server that shall check accounts does not start without them

    # -- files -------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Read again what changed. A file that cannot be used leaves everything as it is."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            self._known = self._read()
            self.passed.clear()
        except ValueError as error:
            log.error("%s; accounts stay as they were", error)
        else:
            log.info("read accounts=%d from %s", len(self._known.accounts), self.file.parent)

    @property
    def files(self) -> list[Path]:
        """In the order in which they are read."""
        return _files(self.file)

    def _state(self) -> list[tuple[Path, int, int]]:
        found = ((path, path.stat()) for path in self.files)
        return [(path, stat.st_mtime_ns, stat.st_size) for path, stat in found]

    def _read(self) -> _Known:
        read = read_files(self.file)
        if not read.accounts:
            log.warning("no account in %s: nobody can come in", self.file)
        accounts = {each.access_key: each for each in read.accounts}
        white_of = {name: parse_pattern(each.white_remote_address) for name, each in accounts.items()}
        return _Known(tuple(map(parse_pattern, read.white_addresses)), accounts, white_of)

    # -- what the gates ask ------------------------------------------------------------------------------------

    def needs_signature(self, request: str) -> bool:
        return True

    def needs_right(self, request: str) -> bool:
        return True

    def secret_of(self, user: str, source: str) -> str | None:
        address, known = parse_ip(source), self._known
        if address is not None and any(matches(address) for matches in known.white):
            return None
        if not user:
            raise denied("No accessKey is configured")
        account = known.accounts.get(user)
        if account is None:
            raise denied(f"No acl config for {user[:128]}")
        if address is not None and known.white_of[user](address):
            return None
        return account.secret_key

    def badly_signed(self, user: str) -> AclDenied:
        return denied(f"Check signature failed for accessKey={user}")

    def unreadable(self, user: str) -> AclDenied:
        return denied("the request cannot be read, so nobody can say whether it is allowed")

    def may_everything(self, user: str) -> bool:
        account = self._known.accounts.get(user)
        return account is not None and account.admin

    def check(self, user: str, needs: Sequence[Need] | None, source: str, code: int | None) -> None:
        account = self._known.accounts.get(user)
        if account is None:
            raise denied(f"No acl config for {user[:128]}")
        if needs is None or any(_is_for_admins(need) for need in needs):
            raise denied(f"Need admin permission for request code={code}, but accessKey={user} is not")
        for need in needs:
            _check_perm(account, need)


def _is_for_admins(need: Need) -> bool:
    if Action.PUB in need.actions or Action.SUB in need.actions:
        return need.resource.pattern is Pattern.ANY  # all topics at once: the log itself
    return not _LOOKING.issuperset(need.actions)


def _check_perm(account: PlainAccount, need: Need) -> None:
    wanted = _perm(need)
    if wanted is None:
        return
    is_topic, name = need.resource.kind is Kind.TOPIC, need.resource.name
    kind = "topic" if is_topic else "group"
    listed = (account.topic_perms if is_topic else account.group_perms).get(name)
    if listed is None:
        default = account.default_topic_perm if is_topic else account.default_group_perm
        if not _allows(perm_of(default), wanted):
            raise denied(f"No default permission for {kind}:{name}")
    elif not _allows(listed, wanted):
        raise denied(f"No permission for {kind}:{name}")


def _perm(need: Need) -> Perm | None:
    """None where looking is all that is asked for."""
    if Action.PUB in need.actions:
        return Perm.ANY if Action.SUB in need.actions else Perm.PUB
    return Perm.SUB if Action.SUB in need.actions else None


def _allows(owned: Perm, wanted: Perm) -> bool:
    if owned & Perm.DENY:
        return False
    if wanted is Perm.ANY:
        return bool(owned & (Perm.PUB | Perm.SUB))
    return bool(owned & wanted)
