# SPDX-License-Identifier: Apache-2.0
"""What the driver asks: which topics and queues there are, where they begin and end, which offset a time has.

Two answers to the same questions: brokers over the wire (`BrokerHeads`), or store files (`StoreHeads`).
"""

from __future__ import annotations

import logging
import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from aerobee.errors import AerobeeError, NetworkError, NoRoute, QueryNotFound, TopicNotFound
from aerobee.protocol import bodies
from aerobee.protocol.headers.consume import ReadUnits
from aerobee.protocol.headers.offsets import (
    OffsetResult,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.protocol.headers.route import AllTopics, GetClusterInfo, GetRoute
from aerobee.protocol.headers.topics import TopicStatsQuery
from aerobee.protocol.names import is_dead_letter, is_retry, is_system_topic, pop_retry_topic, retry_topic
from aerobee.spark.link import Link, link_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.spark.options import Read
    from aerobee.spark.plan import Range

log = logging.getLogger("aerobee.spark")

T = TypeVar("T")
MISSING = (TopicNotFound, NoRoute)
Queues = dict[str, dict[str, tuple[int, int]]]  # broker -> queue -> (min, max)
Route = dict[str, tuple[str, int]]  # broker -> (master's address, readable queues)


class Heads(Protocol):
    def topics(self) -> list[str]: ...
    def queues(self, topic: str) -> Queues: ...
    def forget_routes(self) -> None: ...
    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int: ...


def chosen_topics(options: Read, heads: Heads) -> list[str]:
    """The topics the options select, now."""
    if options.assign:
        return sorted(options.assign)
    names = list(options.topics)
    if options.pattern:
        wanted = re.compile(options.pattern)
        names = [n for n in heads.topics() if wanted.fullmatch(n) and not is_system_topic(n)]
        names = [n for n in names if not is_retry(n) and not is_dead_letter(n)]
    if options.include_retries:
        known = set(heads.topics())
        retries = [retry_topic(options.group), *(pop_retry_topic(t, options.group) for t in names)]
        names += [n for n in retries if n in known]
    return sorted(set(names))


def bounds_of(options: Read, heads: Heads, topics: list[str]) -> dict[str, Queues]:
    """The bounds of `topics`. Topics come and go under a pattern; a named one that is missing is an error, unless
    `failOnDataLoss` says to go on with what is there."""
    found = {}
    for topic in topics:
        try:
            found[topic] = heads.queues(topic)
        except MISSING as error:
            if is_named(options, topic) and options.fail_on_data_loss:
                raise
            log.warning("topic=%s left out: %s", topic, error)
    return found


def is_named(options: Read, topic: str) -> bool:
    """Did the user ask for this very topic?"""
    return topic in options.topics or topic in (options.assign or {})


class BrokerHeads:
    def __init__(self, options: Read) -> None:
        self._options = options
        self._links: dict[str, Link] = {}
        self._brokers: dict[str, str] = {}  # broker name -> address
        self._routes: dict[str, Route] = {}  # good until they fail, or `forget_routes`

    def topics(self) -> list[str]:
        body = self._ask_namesrv(lambda link: link.call(AllTopics()).body)
        return sorted(bodies.decode(body, bodies.TopicList).topic_list)

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
            bounds = _bounds(self._ask(address, lambda link: link.call(TopicStatsQuery(topic=topic)).body))
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
        body = self._ask_namesrv(lambda link: link.call(GetRoute(topic=topic)).body)
        found = _readable(body)
        self._brokers.update({broker: address for broker, (address, _) in found.items()})
        if not found:
            raise NoRoute(
                f"topic {topic!r} has no readable broker; the name server is {self._options.namesrv}"
            )
        return found

    def masters(self) -> dict[str, str]:
        """broker name -> master's address, whatever topics there are."""
        body = self._ask_namesrv(lambda link: link.call(GetClusterInfo()).body)
        table = bodies.decode(body, bodies.ClusterInfo).broker_addr_table
        found = {name: data.broker_addrs.get(0) for name, data in table.items()}
        return {name: address for name, address in found.items() if address}

    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int:
        header = SearchOffset(topic=topic, queue_id=queue, timestamp=timestamp)
        return self._ask(self.address(broker), lambda link: link.call(header).fields(OffsetResult).offset)

    def units(self, part: Range, step: int) -> bytes:
        """Every `step`th queue unit of a range; only Aerobee's brokers know this question."""
        header = ReadUnits(
            topic=part.topic, queue_id=part.queue, offset=part.start, count=len(part), step=step
        )
        return self._ask(self.address(part.broker), lambda link: link.call(header).body)

    def group_offset(self, topic: str, broker: str, queue: int) -> int | None:
        header = QueryConsumerOffset(
            consumer_group=self._options.group, topic=topic, queue_id=queue, set_zero_if_not_found=False
        )
        try:
            return self._ask(self.address(broker), lambda link: link.call(header).fields(OffsetResult).offset)
        except QueryNotFound:
            return None

    def commit(self, topic: str, broker: str, queue: int, offset: int) -> None:
        if broker not in self._brokers:
            self.route(topic)
        header = UpdateConsumerOffset(
            consumer_group=self._options.group, topic=topic, queue_id=queue, commit_offset=offset
        )
        self._ask(self.address(broker), lambda link: link.call(header))

    def _ask_namesrv(self, question: Callable[[Link], T]) -> T:
        last: AerobeeError | None = None
        for address in self._options.namesrv.split(";"):
            try:
                return self._ask(address, question)
            except NetworkError as error:
                last = error
        raise NetworkError(f"no name server answers ({self._options.namesrv}): {last}. Is one running there?")

    def _ask(self, address: str, question: Callable[[Link], T]) -> T:
        """With retries: an exception in the planner ends a streaming query at once."""
        for attempt in range(self._options.retries + 1):
            link = self._links.setdefault(address, link_to(address, self._options))
            try:
                return question(link)
            except NetworkError:
                link.close()
                if attempt == self._options.retries:
                    raise
                time.sleep(self._options.retry_ms / 1000)
        raise AssertionError("unreachable")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_links": {}}


# A stream asks all the time and mostly gets the very bytes it got before. Reading those is most of an idle planner's
# work, so the same answer is read once.


@lru_cache(maxsize=1024)
def _readable(body: bytes) -> Route:
    route = bodies.decode(body, bodies.TopicRoute)
    masters = {data.broker_name: data.broker_addrs.get(0) for data in route.broker_datas}
    found = {}
    for data in route.queue_datas:
        address = masters.get(data.broker_name)
        if address and data.perm & 4:
            found[data.broker_name] = (address, data.read_queue_nums)
    return found


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


def heads_for(options: Read) -> Heads:
    if options.store_path:
        from aerobee.spark.store_scan import StoreHeads

        return StoreHeads(options.store_path, options.assign)
    return BrokerHeads(options)
