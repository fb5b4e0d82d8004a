# SPDX-License-Identifier: Apache-2.0
"""Which queues to give up and which to take, from what is owned and what is assigned. Pure, told now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aerobee.protocol.bodies import MessageQueue


class Owned(Protocol):
    def idle(self, now: int) -> bool:
        """Whether it has not been fetched for so long that it should be taken anew."""
        ...


class Change(msgspec.Struct, frozen=True):
    lost: list[MessageQueue]
    gained: list[MessageQueue]


def compare(
    topic: str, owned: Mapping[MessageQueue, Owned], assigned: Collection[MessageQueue], now: int
) -> Change:
    """Only entries of `topic` are looked at. An idle one is lost, and gained in the same round."""
    mine = {queue: entry for queue, entry in owned.items() if queue.topic == topic}
    lost = [queue for queue, entry in mine.items() if queue not in assigned or entry.idle(now)]
    kept = mine.keys() - set(lost)
    return Change(sorted(lost), sorted(queue for queue in set(assigned) if queue not in kept))


def unsubscribed(owned: Collection[MessageQueue], topics: Collection[str]) -> list[MessageQueue]:
    return [queue for queue in owned if queue.topic not in topics]
