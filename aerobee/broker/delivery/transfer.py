# SPDX-License-Identifier: Apache-2.0
"""What goes out in one answer to an ordinary consumer, be it pull, pop or peek, and how far behind it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.message import stored_at
from aerobee.store.results import Found, ReadLimit, ReadStatus

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.settings import BrokerConfig

SCAN = 800  # queue units looked at for a filter that matches little
_LEAST_BYTES = 100


def ordinary_limit(wanted: int, config: BrokerConfig, max_bytes: int | None = None) -> ReadLimit:
    """What was asked for, within what the broker transfers at once; less where it has to come from disk."""
    size, cold_size = config.pull_bytes, config.cold_pull_bytes
    if max_bytes is not None and max_bytes > 0:
        max_bytes = max(max_bytes, _LEAST_BYTES)
        size, cold_size = min(max_bytes, size), min(max_bytes, cold_size)
    return ReadLimit(
        min(wanted, config.pull_messages),
        size,
        max(SCAN, min(wanted, config.max_pull_messages)),
        min(wanted, config.cold_pull_messages),
        cold_size,
    )


def note_distance(group: str, topic: str, queue_id: int, found: Found, broker: Broker) -> None:
    """How far behind the end of the log the group reads; bulk readers of whole records copy and do not consume."""
    if found.messages:
        behind_ms = max(0, broker.clock.wall() - stored_at(found.messages[-1]))
        broker.stats.fell_behind(group, topic, queue_id, found.behind_bytes, behind_ms)
    elif found.status is ReadStatus.OFFSET_OVERFLOW_ONE:
        broker.stats.fell_behind(group, topic, queue_id, 0, 0)
