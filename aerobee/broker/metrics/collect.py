# SPDX-License-Identifier: Apache-2.0
"""All metrics of a broker at one moment, or nearly: nobody waits for it.

Each part of the list is a generator that stops wherever it has done a little, and between two such steps, when the
turn has lasted long enough, everybody else has theirs. A scrape of ten thousand topics holds the loop no longer
than one of ten.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.broker.metrics import health, lag, pops, storage, traffic
from aerobee.broker.metrics.family import Scrape
from aerobee.broker.metrics.shown import OTHER, Shown
from aerobee.broker.state.stats import GROUP_GET, TOPIC_PUT
from aerobee.broker.turns import in_turns
from aerobee.protocol import names

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Set

    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.family import Labels

PARTS = (health.collect, traffic.collect, lag.collect, storage.collect, pops.collect)


class Asked:
    """One scrape: what it has found, and which topics and groups it shows under their own names."""

    def __init__(self, topics: Set[str], groups: Set[str]) -> None:
        self.scrape = Scrape()
        self.topics = topics
        self.groups = groups

    def shown_topic(self, topic: str) -> str:
        return topic if topic in self.topics or names.is_system_topic(topic) else OTHER

    def shown_group(self, group: str) -> str:
        return group if group in self.groups else OTHER

    def pair(self, group: str, topic: str) -> Labels:
        """A topic that a group reads. Where it is told by POP under a name for its retries, it is its own topic."""
        normal = names.normal_topic(topic, group)
        retry = normal != topic or names.is_retry(topic) or names.is_dead_letter(topic)
        shown = OTHER if self.shown_group(group) == OTHER else self.shown_topic_of(normal, group)
        return _pair(
            self.shown_group(group), shown, "true" if retry else "false", traffic.is_system(topic, group)
        )

    def shown_topic_of(self, topic: str, group: str) -> str:
        """A group's own retry topic goes with the group."""
        own = (names.retry_topic(group), names.dead_letter_topic(group))
        return topic if topic in own else self.shown_topic(topic)


@lru_cache(maxsize=traffic.LABELS_KEPT)
def _pair(group: str, topic: str, retry: str, system: str) -> Labels:
    return ("consumer_group", group), ("topic", topic), ("is_retry", retry), ("is_system", system)


class Metrics:
    """Scrapes of one broker; who asks while one is under way gets the same."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics = Shown()
        self._groups = Shown()
        self._under_way: asyncio.Task[Scrape] | None = None

    async def scrape(self) -> Scrape:
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.get_running_loop().create_task(self._collect())
        return await asyncio.shield(self._under_way)

    async def _collect(self) -> Scrape:
        return await in_turns(self._steps())

    def _steps(self) -> Generator[None, None, Scrape]:
        broker, top = self._broker, self._broker.config.metrics_top
        topics = self._topics.choose(broker.topics.all().keys(), top, self._sent)
        yield
        there = broker.groups.all().keys() | broker.clients.groups().keys()
        asked = Asked(topics, self._groups.choose(there, top, self._got))
        yield
        for part in PARTS:
            yield from part(broker, asked)
        return asked.scrape

    def _sent(self) -> Callable[[str], int]:
        meters = dict(self._broker.stats.meters(TOPIC_PUT))
        return lambda topic: meters[topic].count if topic in meters else 0

    def _got(self) -> Callable[[str], int]:
        counts: Counter[str] = Counter()
        for key, meter in self._broker.stats.meters(GROUP_GET):
            counts[key.partition("@")[2]] += meter.count
        return counts.__getitem__
