# SPDX-License-Identifier: Apache-2.0
"""Access control as the settings say it: its rules, and the users that are there from the start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.broker.access.access import Access, Rules
from aerobee.broker.access.audit import Audit
from aerobee.broker.access.beside import UsersOfBroker
from aerobee.broker.access.migrate import migrate
from aerobee.broker.access.plain_acl import PlainAcl, read_files
from aerobee.errors import AerobeeError, BrokerError
from aerobee.protocol.accounts import Credentials
from aerobee.settings.broker import first_user, own_account

if TYPE_CHECKING:
    from aerobee.broker.access.pointed import LookUp
    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.access")


def open_access(config: BrokerConfig, data: Path, look_up: LookUp | None = None) -> Access:
    """The users and policies of the data directory, and the users whom the settings name."""
    access = Access(users_file(data), rules_of(config), look_up)
    _first_users(access, config)
    file = Path(config.acl_file) if config.acl_file else data / "conf" / "plain_acl.yml"
    try:
        if config.acl:
            access.plain = PlainAcl(file, config.cluster, look_up)
        _keep_audit(access, config, config.name)
        if config.migrate_acl:
            migrate(read_files(file), access)
    except ValueError as error:
        raise AerobeeError(str(error)) from None
    return access


def users_file(data: Path) -> Path:
    """Of a broker's data directory."""
    return data / "store" / "config" / "access.json"


def _keep_audit(access: Access, config: BrokerConfig, broker: str) -> None:
    if not config.audit_log:
        return
    try:
        Path(config.audit_log).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        access.audit = Audit(Path(config.audit_log), config.audit_log_bytes, config.audit_logs, broker=broker)
    except OSError as error:
        raise ValueError(
            f"audit_log {config.audit_log}: {error.strerror}; name a file that this user may write"
        ) from None
    if access.plain is not None:
        access.plain.audit = access.audit


def open_namesrv_access(config: BrokerConfig, first_broker: Path | None) -> Access:
    """Of a name server without a broker in its process. `first_broker` is the data directory of the broker beside it
    whose users it goes by; where there is none it has those whom its settings name, and keeps no file: nobody could
    change them there."""
    if first_broker is None or not config.authentication:
        access = Access(None, Rules(cluster=config.cluster, authentication=True, authorization=True))
        _first_users(access, config)
    else:
        access = _users_beside(config, first_broker)
    try:
        _keep_audit(access, config, "" if first_broker is None else config.name)
    except ValueError as error:
        raise AerobeeError(str(error)) from None
    return access


def _users_beside(config: BrokerConfig, first_broker: Path) -> UsersOfBroker:
    """As strict as in the broker's process. Before its first start the broker has made nobody of the settings yet."""
    own = Credentials(*own_account(config))
    access = UsersOfBroker(users_file(first_broker), rules_of(config), [own])
    if not access.was_read:
        _first_users(access, config)
    return access


def rules_of(config: BrokerConfig) -> Rules:
    return Rules(
        cluster=config.cluster,
        authentication=config.authentication,
        authorization=config.authorization,
        unauthenticated=_listed(config.authentication_whitelist),
        unauthorized=_listed(config.authorization_whitelist),
        keeps_users=config.authentication or bool(config.authentication_metadata_provider),
        hides_passwords=config.hide_passwords,
    )


def _listed(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())


def _first_users(access: Access, config: BrokerConfig) -> None:
    try:
        access.ensure_super(Credentials(*first_user(config)))
        access.ensure_super(Credentials(*own_account(config)))
    except BrokerError as error:
        raise AerobeeError(f"a user of the settings cannot be made: {error.remark}") from None
    access.save()
    if access.rules.authentication and not any(user.is_super for user in access.users.all()):
        log.warning("no super user yet, so nobody can make users: name one by `init_user`")
