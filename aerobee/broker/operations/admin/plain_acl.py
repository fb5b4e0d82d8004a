# SPDX-License-Identifier: Apache-2.0
"""Accounts of plain_acl.yml, changed over the wire (50 to 54), as long as that file decides.

A change is one turn of the loop, the file's sync included: two of them must not begin with the same file. The file is
replaced whole, so that whoever reads it finds the old or the new one; the old one stays beside it, with the comments
that the new one has no place for.
"""

from __future__ import annotations

import logging
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import (
    AclDeleteFailed,
    AclUpdateFailed,
    BrokerError,
    RequestCodeNotSupported,
    WhiteAddressesUpdateFailed,
)
from aerobee.protocol import plain_acl_changes as changes
from aerobee.protocol.access import HIDDEN_PASSWORD
from aerobee.protocol.bodies import AclConfig, PlainAccessConfig
from aerobee.protocol.plain_acl import accounts_of, parse_document, parse_plain_acl

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.access.access import Access
    from aerobee.broker.access.plain_acl import PlainAcl
    from aerobee.protocol.bodies import DataVersion
    from aerobee.protocol.headers.accounts import UpdateAclConfig
    from aerobee.protocol.plain_acl_changes import Document

log = logging.getLogger("aerobee.access")


class Versions(NamedTuple):
    main: DataVersion
    by_file: dict[str, DataVersion]


def in_force(access: Access, code: int) -> PlainAcl:
    """The list; where there is none the request is refused as by RocketMQ from 5.3.3 on, which has none at all."""
    if access.plain is None:
        raise RequestCodeNotSupported(f" request type {code} not supported")
    return access.plain


# -- changes -----------------------------------------------------------------------------------------------------


def put_account(caller: str, change: UpdateAclConfig, acl: PlainAcl, now: int) -> None:
    """In the file that has the account; a new one in plain_acl.yml."""
    try:
        path, document = _file_with(change.access_key, acl) or (acl.file, _document(acl.file))
        _replace(path, changes.with_account(document, change), acl, now)
    except (ValueError, OSError) as error:
        raise _failed(AclUpdateFailed, error) from None
    log.info("changed account=%s in %s by=%s", change.access_key, path, caller)


def delete_account(caller: str, access_key: str, acl: PlainAcl, now: int) -> None:
    failed = f"The accessKey[{access_key[:128]}] corresponding to accessConfig has been deleted failed."
    found = _file_with(access_key, acl)
    if found is None:
        raise AclDeleteFailed(failed)
    path, document = found
    try:
        _replace(path, changes.without_account(document, access_key), acl, now)
    except (ValueError, OSError) as error:
        raise _failed(AclDeleteFailed, error) from None
    log.info("deleted account=%s from %s by=%s", access_key, path, caller)


def replace_white_addresses(caller: str, text: str, file: str, acl: PlainAcl, now: int) -> None:
    """All of one file, plain_acl.yml where none is named; no other file than those that are read is written."""
    path = next((each for each in acl.files if str(each) == file), None) if file else acl.file
    if path is None:
        raise WhiteAddressesUpdateFailed(f"The globalWhiteAddresses[{text[:200]}] has been updated failed.")
    try:
        document = _document(path)
        _replace(path, changes.with_white_addresses(document, changes.split_addresses(text)), acl, now)
    except (ValueError, OSError) as error:
        raise _failed(WhiteAddressesUpdateFailed, error) from None
    log.info("changed white addresses of %s by=%s", path, caller)


def _failed(kind: type[BrokerError], error: ValueError | OSError) -> BrokerError:
    return kind(str(error) if isinstance(error, ValueError) else f"the file is not written: {error.strerror}")


def _file_with(access_key: str, acl: PlainAcl) -> tuple[Path, Document] | None:
    """The first that has the account owns it."""
    for path in acl.files:
        document = _document(path)
        if any(each.get("accessKey") == access_key for each in accounts_of(document)):
            return path, document
    return None


def _document(path: Path) -> Document:
    return parse_document(path.read_text()) if path.exists() else {}


def _replace(path: Path, document: Document, acl: PlainAcl, now: int) -> None:
    text = changes.render(document, now)
    parse_plain_acl(text)  # ValueError: what cannot be read again is not written
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600
    if path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
        _write(path.with_name(f"{path.name}.bak"), path.read_bytes(), mode)
    _write(path, text.encode(), mode)
    acl.tick(now)


def _write(path: Path, data: bytes, mode: int) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    draft.unlink(missing_ok=True)  # of another time: it might be somebody's
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


# -- looking -----------------------------------------------------------------------------------------------------


def versions(acl: PlainAcl) -> Versions:
    found = {str(path): changes.version_of(_document(path)) for path in acl.files}
    return Versions(found.get(str(acl.file)) or changes.version_of({}), found)


def config(access: Access, acl: PlainAcl) -> AclConfig:
    """All files as one, the first of an account counts."""
    white: list[str] = []
    accounts: dict[str, PlainAccessConfig] = {}
    for path in acl.files:
        document = _document(path)
        white += document.get("globalWhiteRemoteAddresses") or []
        for each in accounts_of(document):
            accounts.setdefault(each.get("accessKey") or "", _told(each, access))
    return AclConfig(global_white_addrs=white, plain_access_configs=list(accounts.values()))


def _told(account: Document, access: Access) -> PlainAccessConfig:
    return PlainAccessConfig(
        access_key=account.get("accessKey"),
        secret_key=HIDDEN_PASSWORD if access.rules.hides_passwords else account.get("secretKey"),
        white_remote_address=account.get("whiteRemoteAddress"),
        admin=(account.get("admin") or "").lower() in ("true", "yes", "on"),
        default_topic_perm=account.get("defaultTopicPerm"),
        default_group_perm=account.get("defaultGroupPerm"),
        topic_perms=account.get("topicPerms"),
        group_perms=account.get("groupPerms"),
    )
