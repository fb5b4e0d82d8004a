# SPDX-License-Identifier: Apache-2.0
"""When the sender of a message may be told that it is kept.

In sync mode its record must be on disk, unless the sender does not want to wait for that. In either mode the settings
of its topic must be, when the message made the topic or an operator just changed it: a start after a crash would know
of a topic that has messages, but not how many queues it had, and refuse the sends of those who still know.

An operation that stores says in its result what is not kept yet, or None; whoever answers it awaits `until_kept`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.properties import WAIT

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

# In the properties of a message whose sender does not want to wait for the disk.
NOT_WAITING = f"{WAIT}\x01false\x02"

Unkept = tuple[str, int]  # a topic, empty when it cannot be new; where its last record ends in the log


def unkept(topic: str, end: int, broker: Broker, properties_text: str = "") -> Unkept | None:
    if topic in broker.topics.unsaved or (broker.store.needs_sync and NOT_WAITING not in properties_text):
        return topic, end
    return None


async def until_kept(what: Unkept, broker: Broker) -> None:
    topic, end = what
    await broker.store.durable(end)
    if topic in broker.topics.unsaved:
        await broker.topics.saved()
