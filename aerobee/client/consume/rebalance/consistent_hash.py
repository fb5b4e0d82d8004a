# SPDX-License-Identifier: Apache-2.0
"""CONSISTENT_HASH: a ring of virtual nodes, so that a client that comes or goes moves few queues."""

from __future__ import annotations

from bisect import bisect_left
from hashlib import md5
from typing import TYPE_CHECKING

from aerobee.client.consume.rebalance.strategy import Strategy, position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.bodies import MessageQueue

VIRTUAL_NODES = 10


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    if virtual_nodes <= 0:
        raise ValueError(f"virtual_nodes is {virtual_nodes}; at least 1 is needed")

    def divide(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        if position(client_id, queues, clients) is None:
            return []
        ring = sorted((_hash(f"{client}-{n}"), client) for client in clients for n in range(virtual_nodes))
        points = [point for point, _ in ring]

        def owner(queue: MessageQueue) -> str:
            return ring[bisect_left(points, _hash(_queue_text(queue))) % len(ring)][1]

        return [queue for queue in queues if owner(queue) == client_id]

    return Strategy("CONSISTENT_HASH", divide)


def _queue_text(queue: MessageQueue) -> str:
    # Java's MessageQueue.toString: the text every Java client of a mixed group hashes.
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
