# SPDX-License-Identifier: Apache-2.0
"""When the sender of a message may be told that it is kept.

In sync mode its record must be on disk. In either mode the settings of its topic must be, when the message made the
topic or an operator just changed it: a start after a crash would know of a topic that has messages, but not how many
queues it had, and refuse the sends of those who still know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker


def must_wait(topic: str, broker: Broker) -> bool:
    return broker.store.needs_sync or topic in broker.topics.unsaved


async def until_kept(topic: str, end: int, broker: Broker) -> None:
    """`end` is where the last record ends in the log."""
    await broker.store.durable(end)
    if topic in broker.topics.unsaved:
        await broker.topics.saved()
