# SPDX-License-Identifier: Apache-2.0
"""Topics, for operators: create, change, delete, describe."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker import checks
from aerobee.broker.operations.admin import attributes
from aerobee.broker.state.counted import Stopwatch
from aerobee.errors import InvalidParameter
from aerobee.protocol import names
from aerobee.protocol.bodies import MessageQueue, TopicConfigs, TopicOffset, TopicStats
from aerobee.store.saved_table import all_saved

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import TopicConfig

log = logging.getLogger("aerobee.topics")

MAX_PERM = 15


async def put_topic(config: TopicConfig, changes: str, broker: Broker) -> None:
    """Create or change a topic. `changes` is `+key=value,-key` for its attributes."""
    with Stopwatch(broker.stats.counted.topic_made):
        broker.topics.put(checked(config, attributes.parse(changes), broker))
        await broker.topics.saved()


async def put_topics(configs: list[TopicConfig], broker: Broker) -> None:
    """All of them, or, when any is refused, none."""
    with Stopwatch(broker.stats.counted.topic_made):
        wanted = [
            # A list exported by a tool has its attributes without signs.
            checked(config, {_signed(key): value for key, value in config.attributes.items()}, broker)
            for config in configs
        ]
        for config in wanted:
            broker.topics.put(config)
        await broker.topics.saved()


def _signed(key: str) -> str:
    return key if key.startswith(("+", "-")) else f"+{key}"


def checked(config: TopicConfig, changes: dict[str, str], broker: Broker) -> TopicConfig:
    """The topic as it would be stored."""
    _check_changeable(config.topic_name, broker)
    for what, count in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
        if not 0 <= count <= names.MAX_QUEUES:
            raise InvalidParameter(
                f"topic '{config.topic_name}': {count} {what} queues; 0 to {names.MAX_QUEUES} are allowed"
            )
    if not 0 <= config.perm <= MAX_PERM:
        raise InvalidParameter(f"topic '{config.topic_name}': perm {config.perm}; 2 write, 4 read, 6 both")
    if changes.get(f"+{attributes.MESSAGE_TYPE}") == attributes.MIXED and not broker.config.mixed_topics:
        raise InvalidParameter(
            "MIXED message type is not supported. Name one type, or turn enableMixedMessageType on"
        )
    known = broker.topics.get(config.topic_name)
    after = attributes.changed(known.attributes if known else None, changes, attributes.OF_TOPICS)
    return msgspec.structs.replace(config, attributes=after)


def _check_changeable(topic: str, broker: Broker) -> None:
    checks.topic_name(topic)
    if is_system(topic, broker):
        raise InvalidParameter(f"topic '{topic}' is the broker's own; it can neither be changed nor deleted")


def is_system(topic: str, broker: Broker) -> bool:
    config = broker.config
    own = (config.cluster, config.name, names.reply_topic(config.cluster))
    return names.is_system_topic(topic) or topic in own


async def delete_topic(topic: str, broker: Broker) -> None:
    """The topic, its messages, the offsets of its groups, and the POP retry topics made for it.

    All at once, and then on disk: a send that comes meanwhile creates the topic anew and loses nothing.
    """
    _check_changeable(topic, broker)
    for group in sorted(broker.offsets.groups_of(topic) | broker.clients.readers(topic)):
        for retry in (names.pop_retry_topic(topic, group), names.pop_retry_topic_v2(topic, group)):
            if broker.topics.get(retry) is not None:
                _delete(retry, broker)
    _delete(topic, broker)
    await all_saved(broker.topics, broker.offsets, broker.pops.modes, broker.pops.orders)


def _delete(topic: str, broker: Broker) -> None:
    config = broker.topics.get(topic)
    # Readers are held on queues that nothing was stored in, too.
    queues = {*broker.store.queue_ids(topic), *range(0 if config is None else config.read_queue_nums)}
    # Settings first: from here on nobody can send to it, and readers that wake are told it is gone.
    broker.topics.delete(topic)
    broker.offsets.remove_topic(topic)
    broker.pops.remove_topic(topic)
    broker.stats.remove_topic(topic)
    broker.store.delete_topic(topic)
    for queue_id in queues:
        broker.parked.wake(topic, queue_id)


def clean_unused_topics(broker: Broker) -> None:
    """Messages of topics that no longer exist: they went with `delete_topic`, save those of an older broker."""
    for topic in broker.store.topics():
        if broker.topics.get(topic) is None and not is_system(topic, broker):
            log.info("cleaning topic=%s: it has messages but no settings", topic)
            broker.store.delete_topic(topic)


def all_topics(broker: Broker) -> TopicConfigs:
    return TopicConfigs(
        data_version=broker.topics.data_version,
        topic_config_table=broker.topics.all(),
        mapping_data_version=broker.topics.data_version,
        topic_queue_mapping_detail_map=dict(broker.topics.static.all()),
        topic_queue_mapping_info_map={},
    )


def system_topics(broker: Broker) -> list[str]:
    return sorted(topic for topic in broker.topics.all() if is_system(topic, broker))


def topic_stats(topic: str, broker: Broker) -> TopicStats:
    """Where each queue begins and ends, and when it last grew."""
    config, store, table = broker.topics.require(topic), broker.store, {}
    for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        last = max(0, store.store_time(topic, queue_id, high - 1)) if high > 0 else 0
        queue = MessageQueue(broker.config.name, queue_id, topic)
        table[queue] = TopicOffset(last_update_timestamp=last, max_offset=high, min_offset=max(0, low))
    return TopicStats(offset_table=table, topic_put_tps=broker.stats.send_rate(topic))


def groups_of(topic: str, broker: Broker) -> list[str]:
    """Who consumes the topic: subscribed now, with offsets on it, or with messages of it in flight."""
    popping = {group for name, group, _ in broker.pops.leases.in_flight.lanes if name == topic}
    return sorted(broker.clients.subscribers(topic) | broker.offsets.groups_of(topic) | popping)
