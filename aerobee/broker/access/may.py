# SPDX-License-Identifier: Apache-2.0
"""Whether somebody who is not asking right now may be told something: by the same rules as if they asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import BrokerError
from aerobee.protocol.addresses import parse_address

if TYPE_CHECKING:
    from aerobee.broker.access.access import Access
    from aerobee.broker.access.plain_acl import PlainAcl
    from aerobee.protocol.access import Need


def may(guard: Access | PlainAcl, user: str | None, need: Need, peer: str) -> bool:
    """`user` as its gate found it, `peer` its address and port."""
    if user is None or not guard.checks_rights or guard.may_everything(user):
        return True
    try:
        guard.check(user, [need], parse_address(peer)[0], None)
    except BrokerError:
        return False
    return True
