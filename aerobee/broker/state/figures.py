# SPDX-License-Identifier: Apache-2.0
"""Where a group's messages are, in numbers. Values only; `operations/admin/figures.py` counts."""

from __future__ import annotations

import msgspec


class QueueFigures(msgspec.Struct, rename="camel", kw_only=True):
    """One queue of one topic for one group. Every message after `committed` is in exactly one count or acked."""

    topic: str  # the real one: maybe a retry topic
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed: int  # where a restart goes on
    position: int  # the next offset to be handed out
    ready: int  # stored and not handed out; those a filter will leave out are counted too
    in_flight: int  # handed out and not acked, the delayed ones of POP included
    oldest_ready_ms: int = 0  # age of the oldest ready message, 0 when there is none
    oldest_in_flight_ms: int = 0

    @property
    def lag(self) -> int:
        """What is not done yet. RocketMQ's lag, max - committed, also counts what was acked out of turn."""
        return self.ready + self.in_flight


class GroupFigures(msgspec.Struct, rename="camel", kw_only=True):
    group: str
    online: bool
    modes: dict[str, str]  # topic -> PULL or POP
    ready: int = 0
    in_flight: int = 0
    retrying: int = 0  # in a retry topic, ready to be handed out again
    delayed: int = 0  # sent back, waiting for their delay
    dead: int = 0  # in the dead-letter topic
    oldest_ms: int = 0  # age of the oldest message not acked, retries by their own time of storing
    delayed_is_exact: bool = True  # False when more are delayed than are looked at
    # topic -> expression -> client ids, where members subscribe differently (they lose messages, S004-64)
    conflicts: dict[str, dict[str, list[str]]] = {}
    queues: list[QueueFigures] = []
