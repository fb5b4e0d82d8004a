# SPDX-License-Identifier: Apache-2.0
"""How far groups have come, for operators: lag, times, copies of offsets.

mqadmin shows `brokerOffset - consumerOffset` as Diff and `pullOffset - consumerOffset` as Inflight. A POP group's
committed offset passes messages that are leased, and stays behind ones acked out of turn, so for those groups the two
offsets are chosen to make both differences exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.admin.figures import queue_figures
from aerobee.broker.pop.pops import retry_topics
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    MessageQueue,
    Mode,
    QueueProgress,
    QueueTimeSpan,
)
from aerobee.protocol.message import host_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import TopicConfig

NEVER = 2**63 - 1


def consume_stats(group: str, topic: str | None, topic_list: Iterable[str], broker: Broker) -> ConsumeStats:
    """The group's place in every queue it reads: of one topic, of those listed, or of all it has to do with."""
    listed = [name for name in topic_list if name]
    stats = ConsumeStats()
    for name in listed or ([topic] if topic else _topics(group, broker)):
        config = broker.topics.get(name)
        if config is None or (not listed and _unsubscribed(group, name, broker)):
            continue
        for queue_id in range(config.read_queue_nums):
            queue = MessageQueue(broker.config.name, queue_id, name)
            stats.offset_table[queue] = _progress(group, name, queue_id, broker)
        stats.consume_tps += broker.stats.consume_rate(group, name)
    return stats


def _topics(group: str, broker: Broker) -> list[str]:
    """Where the group has an offset or a lease, and where its POP retries of these wait."""
    found: set[str] = set(broker.offsets.topics_of(group))
    found |= {lane.topic for lane in broker.pops.leases.in_flight.lanes_of(group)}
    found |= {retry for name in found if not names.is_retry(name) for retry in retry_topics(name, group)}
    return sorted(name for name in found if broker.topics.get(name) is not None)


def _unsubscribed(group: str, topic: str, broker: Broker) -> bool:
    """An online group that does not subscribe to the topic; offline groups are never told apart."""
    online = broker.clients.group(group)
    if online is None or not online.subscriptions:
        return False
    # Who subscribes to a topic also gets its POP retries, though nobody subscribes to those by name.
    return topic not in online.subscriptions and names.normal_topic(topic, group) not in online.subscriptions


def _progress(group: str, topic: str, queue_id: int, broker: Broker) -> QueueProgress:
    store = broker.store
    committed = max(0, broker.offsets.get(group, topic, queue_id))
    consumed = max(0, store.store_time(topic, queue_id, committed - 1)) if committed > 0 else 0
    end = max(0, store.max_offset(topic, queue_id))
    progress = QueueProgress(broker_offset=end, consumer_offset=committed, last_timestamp=consumed)
    if _pops(group, topic, queue_id, broker):
        exact = queue_figures(broker, group, topic, queue_id)
        progress.consumer_offset = end - exact.ready - exact.in_flight
        progress.pull_offset = progress.consumer_offset + exact.in_flight
    else:
        progress.pull_offset = max(committed, broker.offsets.pull_offset(group, topic, queue_id))
    return progress


def _pops(group: str, topic: str, queue_id: int, broker: Broker) -> bool:
    """Whether offsets alone do not say how far the group is in the queue."""
    normal = names.normal_topic(topic, group)
    return (
        normal != topic
        or (topic, group, queue_id) in broker.pops.leases.in_flight.lanes
        or broker.pops.orders.get(topic, group, queue_id) is not None
        or broker.pops.modes.get(topic, group).mode is Mode.POP
    )


def broker_consume_stats(broker: Broker, *, ordered_only: bool) -> ConsumeStatsList:
    """All groups at once, and how far they are behind together."""
    result = ConsumeStatsList(broker_addr=address(broker))
    for group in sorted(broker.groups.all()):
        rows = []
        for topic in _topics(group, broker):
            config = broker.topics.require(topic)
            if (ordered_only and not config.order) or _unsubscribed(group, topic, broker):
                continue
            rows.append(_topic_stats(group, config, broker))
        result.consume_stats_list.append({group: rows})
        for row in rows:
            for progress in row.offset_table.values():
                result.total_diff += progress.broker_offset - progress.consumer_offset
                result.total_inflight_diff += progress.pull_offset - progress.consumer_offset
    return result


def _topic_stats(group: str, config: TopicConfig, broker: Broker) -> ConsumeStats:
    name, topic = broker.config.name, config.topic_name
    table = {
        MessageQueue(name, queue_id, topic): _progress(group, topic, queue_id, broker)
        for queue_id in range(config.write_queue_nums)
    }
    return ConsumeStats(consume_tps=broker.stats.consume_rate(group, topic), offset_table=table)


def address(broker: Broker) -> str:
    """Where clients reach this broker."""
    return host_text(broker.store.store_host)


def time_spans(group: str, topic: str, broker: Broker) -> ConsumeTimeSpans:
    """Per queue: the times of its first, last and last consumed message, and how old the next one is."""
    config = broker.topics.require(topic)
    spans = [_span(group, topic, queue_id, broker) for queue_id in range(config.write_queue_nums)]
    return ConsumeTimeSpans(consume_time_span_set=spans)


def _span(group: str, topic: str, queue_id: int, broker: Broker) -> QueueTimeSpan:
    store = broker.store
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    first = store.store_time(topic, queue_id, low)
    offset = broker.offsets.get(group, topic, queue_id)
    span = QueueTimeSpan(
        message_queue=MessageQueue(broker.config.name, queue_id, topic),
        min_time_stamp=first,
        max_time_stamp=store.store_time(topic, queue_id, high - 1),
        consume_time_stamp=store.store_time(topic, queue_id, offset - 1) if offset > 0 else first,
    )
    if offset < high and (waiting := store.store_time(topic, queue_id, max(offset, low))) > 0:
        span.delay_time = broker.clock.wall() - waiting
    return span


def correction_offsets(filtered: str, compared: str, topic: str, broker: Broker) -> dict[int, int]:
    """Per queue the smallest offset of all groups but `filtered`; NEVER where `compared` is behind even that."""
    skipped = {name for name in filtered.split(",") if name}
    smallest: dict[int, int] = {}
    for group in broker.offsets.groups_of(topic) - skipped:
        for queue_id, offset in broker.offsets.table(group, topic).items():
            if offset >= broker.store.min_offset(topic, queue_id):
                smallest[queue_id] = min(offset, smallest.get(queue_id, NEVER))
    for queue_id, offset in broker.offsets.table(compared, topic).items():
        if smallest.get(queue_id, 0) > offset:
            smallest[queue_id] = NEVER
    return smallest


async def clone_offsets(
    source: str, target: str, topic: str | None, broker: Broker, *, offline: bool
) -> None:
    """Let `target` go on where `source` is, on one topic or on all."""
    for name in [topic] if topic else sorted(broker.offsets.topics_of(source)):
        if broker.topics.get(name) is None or (not offline and _unsubscribed(source, name, broker)):
            continue
        broker.offsets.clone(source, target, name)
    await broker.offsets.saved()
