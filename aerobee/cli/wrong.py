# SPDX-License-Identifier: Apache-2.0
"""What is wrong with brokers, for commands that list them or lack their figures; in the words of the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.cli import connect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aerobee.client.admin import Admin
    from aerobee.protocol.bodies import GoneBroker


async def gone_brokers(admin: Admin) -> list[GoneBroker]:
    """None for an account that may not ask."""
    from aerobee.errors import AclDenied, NoPermission

    try:
        return await admin.gone_brokers()
    except (NoPermission, AclDenied):
        return []


def of_gone(gone: list[GoneBroker]) -> list[str]:
    from aerobee.console.problems import brokers_gone
    from aerobee.console.sampler import gone_seen

    return [each.said(str.format) for each in brokers_gone(gone_seen(gone, connect.clock.wall()))]


def of_refusing(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of rows of `aerobee cluster`."""
    from aerobee.console.history import BrokerSeen
    from aerobee.console.problems import brokers_refuse

    seen = [BrokerSeen(row["brokerName"], row["address"], refuses=row.get("refuses", "")) for row in rows]
    return [each.said(str.format) for each in brokers_refuse(seen)]
