# SPDX-License-Identifier: Apache-2.0
"""Who has which queue of a group, and how each member gets on: as its consumers say themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aerobee.errors import AerobeeError
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.reading import ANY_QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.admin import Admin
    from aerobee.protocol.bodies import ConsumerConnection, ConsumerRunningInfo

ASKED = 100  # members at most: each is asked by itself

Told = dict[str, "ConsumerRunningInfo"]  # by client id


async def told(admin: Admin, group: str, members: ConsumerConnection | None) -> Told:
    """Members that do not say (gRPC clients, and those that have just gone) are left out."""

    async def ask(client_id: str) -> ConsumerRunningInfo | None:
        try:
            return await admin.running_info(group, client_id)
        except AerobeeError:
            return None

    ids = [] if members is None else [each.client_id for each in members.connection_set[:ASKED]]
    answers = await asyncio.gather(*map(ask, ids))
    return {name: answer for name, answer in zip(ids, answers, strict=True) if answer is not None}


def of_queue(row: Mapping[str, Any], members: Told) -> dict[str, Any]:
    """Its owner, and how many of its messages that one has fetched and not finished. Several may pop one queue."""
    queue = MessageQueue(row["brokerName"], row["queueId"], row["topic"])
    every = MessageQueue(row["brokerName"], ANY_QUEUE, row["topic"])
    pulling = [name for name, info in members.items() if queue in info.mq_table]
    popping = [name for name, info in members.items() if {queue, every} & info.mq_pop_table.keys()]
    held = sum(members[name].mq_table[queue].cached_msg_count for name in pulling)
    return {"owner": ", ".join(pulling or popping) or None, "held": held if pulling else None}


def of_member(client_id: str, members: Told) -> dict[str, Any]:
    """Queues, what it holds, and how many it finishes and fails a second; empty where it does not say."""
    info = members.get(client_id)
    if info is None:
        return {}
    held = sum(each.cached_msg_count for each in info.mq_table.values())
    held += sum(each.wait_ack_count for each in info.mq_pop_table.values())
    return {
        "queues": len(info.mq_table) + len(info.mq_pop_table),
        "held": held,
        "doneRate": round(sum(each.consume_ok_tps for each in info.status_table.values()), 1),
        "failedRate": round(sum(each.consume_failed_tps for each in info.status_table.values()), 1),
    }
