# SPDX-License-Identifier: Apache-2.0
"""AVG: contiguous blocks; the first (queues mod clients) clients hold one queue more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.rebalance.strategy import position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.bodies import MessageQueue


def average(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
    index = position(client_id, queues, clients)
    if index is None:
        return []
    each, rest = divmod(len(queues), len(clients))
    start = index * each + min(index, rest)
    return list(queues[start : start + each + (index < rest)])
