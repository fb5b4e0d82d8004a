# SPDX-License-Identifier: Apache-2.0
"""When the sender of a message may be told that it is kept.

In sync mode its record must be on disk. In either mode the settings of its topic must be, when the message made the
topic or an operator just changed it: a start after a crash would know of a topic that has messages, but not how many
queues it had, and refuse the sends of those who still know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.protocol.properties import WAIT

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aerobee.broker.broker import Broker


# In the properties of a message whose sender does not want to wait for the disk.
NOT_WAITING = f"{WAIT}\x01false\x02"


def unkept(topic: str, end: int, broker: Broker) -> Coroutine[Any, Any, None] | None:
    """What is to be awaited before an answer says that records are kept, or None.

    `end` is where the last of them ends in the log, 0 when there is none. An empty topic: none that could be new.
    """
    if end and (broker.store.needs_sync or topic in broker.topics.unsaved):
        return _until_kept(topic, end, broker)
    return None


def unkept_message(
    topic: str, properties_text: str, end: int, broker: Broker
) -> Coroutine[Any, Any, None] | None:
    """The same for a message, whose sender may not want to wait."""
    # Written out: a call less on the way of every send.
    if topic in broker.topics.unsaved or (broker.store.needs_sync and NOT_WAITING not in properties_text):
        return _until_kept(topic, end, broker)
    return None


async def _until_kept(topic: str, end: int, broker: Broker) -> None:
    await broker.store.durable(end)
    if topic in broker.topics.unsaved:
        await broker.topics.saved()
