# SPDX-License-Identifier: Apache-2.0
"""Static topics on one broker: every logic queue is the broker's queue of the same number, from its first message on.

So nothing has to be translated when such a topic is written or read. A mapping over several brokers, which RocketMQ
keeps when queues move between them, is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.operations.admin import topics
from aerobee.errors import SystemFailure

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import QueueMapping, TopicConfig


async def put_static_topic(config: TopicConfig, mapping: QueueMapping, broker: Broker) -> None:
    """Create a static topic, or give it more queues."""
    _check(config.topic_name, mapping, broker)
    known = broker.topics.static.get(config.topic_name)
    if known is not None and mapping.epoch < known.epoch:
        raise SystemFailure(f"Can't accept data with small epoch {mapping.epoch} < {known.epoch}")
    if known is not None:
        mapping = msgspec.structs.replace(mapping, hosted_queues=known.hosted_queues | mapping.hosted_queues)
    checked = topics.checked(config, {}, broker)
    broker.topics.static.put(mapping)  # first: the topic is registered when it is put, its mapping with it
    broker.topics.put(checked)
    await broker.topics.saved()


def _check(topic: str, mapping: QueueMapping, broker: Broker) -> None:
    name = broker.config.name
    if mapping.topic != topic or mapping.bname != name:
        raise SystemFailure(
            f"the mapping is of topic '{mapping.topic}' on broker '{mapping.bname}', not of '{topic}' on '{name}'"
        )
    for number, parts in mapping.hosted_queues.items():
        part = parts[-1] if len(parts) == 1 else None
        if part is None or (part.bname, part.queue_id, part.logic_offset) != (name, number, 0):
            raise SystemFailure(
                f"static topic '{topic}': logic queue {number} is not queue {number} of this broker from its first "
                "message on; moving queues between brokers is not supported, create the topic on one broker"
            )
