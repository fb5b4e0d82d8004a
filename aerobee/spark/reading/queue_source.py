# SPDX-License-Identifier: Apache-2.0
"""What the driver asks: which topics and queues there are, where they begin and end, which offset a time has.

Two answers to the same questions: brokers over the wire (`BrokerQueues`), or store files (`StoreQueues`).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from aerobee.errors import AerobeeError, NoRoute, QueryNotFound, TopicNotFound
from aerobee.protocol import bodies
from aerobee.protocol.headers.consume import ReadUnits
from aerobee.protocol.headers.offsets import (
    OffsetResult,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.protocol.headers.topics import TopicStatsQuery
from aerobee.protocol.names import is_dead_letter, is_retry, is_system_topic, pop_retry_topic, retry_topic
from aerobee.spark.cluster import Cluster

if TYPE_CHECKING:
    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Range

log = logging.getLogger("aerobee.spark")

MISSING = (TopicNotFound, NoRoute)
Queues = dict[str, dict[str, tuple[int, int]]]  # broker -> queue -> (min, max)
Route = dict[str, tuple[str, int]]  # broker -> (master's address, readable queues)


class QueueSource(Protocol):
    def topics(self) -> list[str]: ...
    def queues(self, topic: str) -> Queues: ...
    def forget_routes(self) -> None: ...
    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int: ...


def chosen_topics(options: Read, source: QueueSource) -> list[str]:
    """The topics the options select, now."""
    if options.assign:
        return sorted(options.assign)
    names = list(options.topics)
    if options.pattern:
        wanted = re.compile(options.pattern)
        names = [n for n in source.topics() if wanted.fullmatch(n) and not is_system_topic(n)]
        names = [n for n in names if not is_retry(n) and not is_dead_letter(n)]
    if options.include_retries:
        known = set(source.topics())
        retries = [retry_topic(options.group), *(pop_retry_topic(t, options.group) for t in names)]
        names += [n for n in retries if n in known]
    return sorted(set(names))


def bounds_of(options: Read, source: QueueSource, topics: list[str]) -> dict[str, Queues]:
    """The bounds of `topics`. Topics come and go under a pattern; a named one that is missing is an error, unless
    `failOnDataLoss` says to go on with what is there."""
    found = {}
    for topic in topics:
        try:
            found[topic] = source.queues(topic)
        except MISSING as error:
            if is_named(options, topic) and options.fail_on_data_loss:
                raise
            log.warning("topic=%s left out: %s", topic, error)
    return found


def is_named(options: Read, topic: str) -> bool:
    """Did the user ask for this very topic?"""
    return topic in options.topics or topic in (options.assign or {})


class BrokerQueues:
    def __init__(self, options: Read) -> None:
        self._options = options
        self._cluster = Cluster(options, options.retries + 1)
        self._brokers: dict[str, str] = {}  # broker name -> address
        self._routes: dict[str, Route] = {}  # good until they fail, or `forget_routes`

    def topics(self) -> list[str]:
        return self._cluster.topics()

    def address(self, broker: str) -> str:
        return self._brokers[broker]

    def queues(self, topic: str) -> Queues:
        """Bounds of all queues of the topic; one request per broker, TopicNotFound when there is no such topic."""
        kept = self._routes.pop(topic, None)
        if kept is not None:
            try:
                return self._queues_by(kept, topic)
            except (
                AerobeeError
            ) as error:  # its brokers may have moved, or the topic was deleted and made anew
                log.debug("topic=%s: its route is asked for again: %s", topic, error)
        return self._queues_by(self.route(topic), topic)

    def _queues_by(self, route: Route, topic: str) -> Queues:
        found: Queues = {}
        for broker, (address, readable) in route.items():
            stats = self._cluster.ask(address, lambda link: link.call(TopicStatsQuery(topic=topic)).body)
            bounds = _bounds(stats)
            found[broker] = {str(queue): bounds[queue] for queue in bounds if queue < readable}
        wanted = (self._options.assign or {}).get(topic)
        if wanted:
            found = _only(found, wanted, topic)
        self._routes[topic] = route
        return found

    def forget_routes(self) -> None:
        """Ask for them again: new queues and moved brokers show."""
        self._routes.clear()

    def route(self, topic: str) -> Route:
        queues = self._cluster.route(topic)
        counts = Counter(queue.broker_name for queue in queues.readable)
        found = {
            name: (queues.masters[name], count) for name, count in counts.items() if name in queues.masters
        }
        self._brokers.update({broker: address for broker, (address, _) in found.items()})
        if not found:
            raise NoRoute(
                f"topic {topic!r} has no readable broker; the name server is {self._options.namesrv}"
            )
        return found

    def close(self) -> None:
        self._cluster.close()

    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int:
        header = SearchOffset(topic=topic, queue_id=queue, timestamp=timestamp)
        return self._cluster.ask(
            self.address(broker), lambda link: link.call(header).fields(OffsetResult).offset
        )

    def units(self, part: Range, step: int) -> bytes:
        """Every `step`th queue unit of a range; only Aerobee's brokers know this question."""
        header = ReadUnits(
            topic=part.topic, queue_id=part.queue, offset=part.start, count=len(part), step=step
        )
        return self._cluster.ask(self.address(part.broker), lambda link: link.call(header).body)

    def group_offset(self, topic: str, broker: str, queue: int) -> int | None:
        header = QueryConsumerOffset(
            consumer_group=self._options.group, topic=topic, queue_id=queue, set_zero_if_not_found=False
        )
        try:
            return self._cluster.ask(
                self.address(broker), lambda link: link.call(header).fields(OffsetResult).offset
            )
        except QueryNotFound:
            return None

    def commit(self, topic: str, broker: str, queue: int, offset: int) -> None:
        if broker not in self._brokers:
            self.route(topic)
        header = UpdateConsumerOffset(
            consumer_group=self._options.group, topic=topic, queue_id=queue, commit_offset=offset
        )
        self._cluster.ask(self.address(broker), lambda link: link.call(header))


# An idle planner's work is mostly reading answers it has read before: the same answer is read once.


@lru_cache(maxsize=1024)
def _bounds(body: bytes) -> dict[int, tuple[int, int]]:
    """A topic's statistics: queue -> (min, max)."""
    table = bodies.decode(body, bodies.TopicStats).offset_table
    return {q.queue_id: (max(0, entry.min_offset), max(0, entry.max_offset)) for q, entry in table.items()}


def _only(found: Queues, wanted: dict[str, list[int]], topic: str) -> Queues:
    kept: Queues = {}
    for broker, queues in wanted.items():
        for queue in queues:
            bounds = found.get(broker, {}).get(str(queue))
            if bounds is None:
                raise TopicNotFound(f"option 'assign': {topic}/{broker} has no queue {queue}")
            kept.setdefault(broker, {})[str(queue)] = bounds
    return kept


def source_for(options: Read) -> QueueSource:
    if options.store_path:
        from aerobee.spark.reading.store_scan import StoreQueues

        return StoreQueues(options.store_path, options.assign)
    return BrokerQueues(options)
