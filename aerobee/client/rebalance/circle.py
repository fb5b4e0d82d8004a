# SPDX-License-Identifier: Apache-2.0
"""AVG_BY_CIRCLE: queues are dealt like cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.rebalance.strategy import position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.bodies import MessageQueue


def circle(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    index = position(client_id, queues, clients)
    return [] if index is None else list(queues[index :: len(clients)])
