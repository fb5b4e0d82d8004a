# SPDX-License-Identifier: Apache-2.0
"""Dividing sorted queues among sorted clients: the two strategies that broker and client both know by name.

A client that is not in the list gets nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Queue = TypeVar("Queue")


def average(client_id: str, queues: Sequence[Queue], clients: Sequence[str]) -> list[Queue]:
    """AVG: contiguous blocks; the first (queues mod clients) clients hold one queue more."""
    if client_id not in clients:
        return []
    index = clients.index(client_id)
    each, more = divmod(len(queues), len(clients))
    start = index * each + min(index, more)
    return list(queues[start : start + each + (index < more)])


def by_circle(client_id: str, queues: Sequence[Queue], clients: Sequence[str]) -> list[Queue]:
    """AVG_BY_CIRCLE: dealt like cards."""
    if client_id not in clients:
        return []
    return list(queues[clients.index(client_id) :: len(clients)])


STRATEGIES = {"AVG": average, "AVG_BY_CIRCLE": by_circle}
