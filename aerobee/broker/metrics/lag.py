# SPDX-License-Identifier: Apache-2.0
"""How far groups are behind: exact for pull, POP and gRPC, connected or not; the figures of `admin/figures.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.metrics.family import gauge
from aerobee.broker.operations.admin.figures import queue_figures, topics_of
from aerobee.broker.pop.pops import retry_topics
from aerobee.protocol import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Asked
    from aerobee.broker.metrics.family import Labels
    from aerobee.protocol.bodies.figures import QueueLag

LAG = gauge("rocketmq_consumer_lag_messages", "Messages that a group has not finished: ready and in flight.")
LAG_TIME = gauge("rocketmq_consumer_lag_latency_milliseconds", "Age of the oldest of them.", "milliseconds")
IN_FLIGHT = gauge("rocketmq_consumer_inflight_messages", "Messages at consumers, not finished.")
READY = gauge("rocketmq_consumer_ready_messages", "Messages that wait to be read.")
READY_TIME = gauge(
    "rocketmq_consumer_queueing_latency_milliseconds", "Age of the oldest of those.", "milliseconds"
)


class _Sums:
    """Over the queues of a topic, and over topics that are not shown by name."""

    __slots__ = ("in_flight", "oldest", "oldest_ready", "ready")

    def __init__(self) -> None:
        self.ready = self.in_flight = self.oldest = self.oldest_ready = 0

    def add(self, queue: QueueLag) -> None:
        self.ready += queue.ready
        self.in_flight += queue.in_flight
        self.oldest_ready = max(self.oldest_ready, queue.oldest_ready_ms)
        self.oldest = max(self.oldest, queue.oldest_ready_ms, queue.oldest_in_flight_ms)


def collect(broker: Broker, asked: Asked) -> Iterator[None]:
    sums: dict[Labels, _Sums] = {}
    for group in list(dict.fromkeys((*broker.groups.all(), *broker.clients.groups()))):
        if names.is_system_group(group):
            continue
        for topic in _topics(group, broker):
            config = broker.topics.get(topic)
            if config is None:
                continue
            labels = asked.pair(group, topic)
            found = sums.get(labels)
            if found is None:
                found = sums[labels] = _Sums()
            for queue_id in range(config.read_queue_nums):
                found.add(queue_figures(broker, group, topic, queue_id))
                yield
        yield
    for labels, each in sums.items():
        asked.scrape.add(LAG, each.ready + each.in_flight, labels)
        asked.scrape.add(LAG_TIME, each.oldest, labels)
        asked.scrape.add(IN_FLIGHT, each.in_flight, labels)
        asked.scrape.add(READY, each.ready, labels)
        asked.scrape.add(READY_TIME, each.oldest_ready, labels)
        yield


def _topics(group: str, broker: Broker) -> list[str]:
    """What the group reads, its own retries and those of POP among it."""
    read = topics_of(group, broker)
    retries = {name for topic in read if not names.is_retry(topic) for name in retry_topics(topic, group)}
    return sorted(read | retries | ({names.retry_topic(group)} if read else set()))
