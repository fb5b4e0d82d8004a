# SPDX-License-Identifier: Apache-2.0
"""Accounts of a plain_acl.yml become users, those that are not there yet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.broker.access.users import User, check_name
from aerobee.errors import BrokerError
from aerobee.protocol.access import UserType
from aerobee.protocol.plain_acl import as_policies
from aerobee.protocol.policy_infos import policy_of

if TYPE_CHECKING:
    from aerobee.broker.access.access import Access
    from aerobee.protocol.plain_acl import PlainAccount, PlainAclFile

log = logging.getLogger("aerobee.access")


def migrate(file: PlainAclFile, access: Access) -> None:
    """One account that cannot be a user does not keep the others from it."""
    for account in file.accounts:
        if access.users.get(account.access_key) is None:
            try:
                _add(account, access)
            except BrokerError as error:
                log.error("account=%s is not made a user: %s", account.access_key, error.remark)
            else:
                log.info("made user=%s of its account in plain_acl.yml", account.access_key)
    access.save()


def _add(account: PlainAccount, access: Access) -> None:
    check_name(account.access_key)
    kind = UserType.SUPER if account.admin else UserType.NORMAL
    user = User(username=account.access_key, password=account.secret_key, user_type=kind)
    policy = policy_of(as_policies(account))
    access.put_user(user)
    access.put_policy(account.access_key, policy)
