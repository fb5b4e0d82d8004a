# SPDX-License-Identifier: Apache-2.0
"""Topics that keep messages for less long than the log does: RocketMQ's topic attribute `reserve.time`, in hours.

All topics share one log, whose files are deleted whole, so no space is won by it: what is older is no longer served. Its
queue begins after it, for every reader, and groups that stood there go on at the new beginning. By id or key it is found
until its log file is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.names import RESERVE_TIME
from aerobee.protocol.properties import whole_number

if TYPE_CHECKING:
    from aerobee.broker.state.topics import Topics
    from aerobee.clock import Clock
    from aerobee.protocol.bodies import TopicConfig
    from aerobee.store.message_store import MessageStore

HOUR_MS = 3_600_000
LOOK_MS = 10_000


class TopicRetention:
    def __init__(self, topics: Topics, store: MessageStore, clock: Clock) -> None:
        self._topics = topics
        self._store = store
        self._clock = clock
        self._limited: set[str] = set()
        topics.listeners.append(self._changed)

    def tick(self, now: int) -> None:
        """Each topic's queues begin where its hours say."""
        for config in list(self._topics.all().values()):
            if hours_of(config):
                self._limit(config, now + self._clock.ahead)

    def _limit(self, config: TopicConfig, wall: int) -> None:
        self._limited.add(config.topic_name)
        since = wall - hours_of(config) * HOUR_MS
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            self._store.serve_since(config.topic_name, queue_id, max(1, since))

    def _changed(self, topic: str) -> None:
        """An operator's word holds at once, not only at the next look; a topic without hours shows all it has."""
        config = self._topics.get(topic)
        if config is None:
            self._limited.discard(topic)
        elif hours_of(config):
            self._limit(config, self._clock.wall())
        elif topic in self._limited:
            self._limited.discard(topic)
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
                self._store.serve_since(topic, queue_id, 0)


def hours_of(config: TopicConfig) -> int:
    """0 for a topic that keeps what the log keeps."""
    text = config.attributes.get(RESERVE_TIME) if config.attributes else None
    return max(0, whole_number(text) or 0) if text else 0
