# SPDX-License-Identifier: Apache-2.0
"""What the driver asks: which topics and queues there are, where they begin and end, which offset a time has.

Two answers to the same questions: brokers over the wire (`BrokerQueues`), or store files (`StoreQueues`).
"""

from __future__ import annotations

import difflib
import logging
import re
from typing import TYPE_CHECKING, Protocol

from aerobee.errors import (
    AerobeeError,
    BrokerError,
    NetworkError,
    NoPermission,
    NoRoute,
    QueryNotFound,
    RequestCodeNotSupported,
    TopicNotFound,
)
from aerobee.protocol.headers.consume import ReadUnits
from aerobee.protocol.headers.offsets import (
    OffsetResult,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.names import is_dead_letter, is_retry, is_system_topic, pop_retry_topic, retry_topic
from aerobee.spark.cluster import Cluster, Question
from aerobee.spark.reading.heads import BrokerHeads, Routes, TopicByTopic, together
from aerobee.spark.reading.plan import Look, Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.protocol.command import Command, Header
    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Bounds, Range

log = logging.getLogger("aerobee.spark")

MISSING = (TopicNotFound, NoRoute)
_UNASKED = NetworkError("not asked yet")
Queues = dict[str, dict[str, tuple[int, int]]]  # broker -> queue -> (min, max)


class QueueSource(Protocol):
    def topics(self) -> list[str]: ...
    def existing(self, topics: Sequence[str]) -> list[str]: ...
    def look(self, topics: Iterable[str], carried: frozenset[tuple[str, str]] = ...) -> Look: ...
    def forget_routes(self) -> None: ...
    def offsets_at(self, places: Sequence[Place], timestamps: Sequence[int]) -> list[int]: ...


def chosen_topics(options: Read, source: QueueSource) -> list[str]:
    """The topics the options select, now."""
    if options.assign:
        return sorted(options.assign)
    names = list(options.topics)
    listed = source.topics() if options.pattern else None
    if listed is not None:
        wanted = re.compile(options.pattern)
        names = [n for n in listed if wanted.fullmatch(n) and not is_system_topic(n)]
        names = [n for n in names if not is_retry(n) and not is_dead_letter(n)]
    if options.include_retries:
        retries = [retry_topic(options.group), *(pop_retry_topic(t, options.group) for t in names)]
        # Who consumes named topics need not be allowed to list all that there are.
        names += source.existing(retries) if listed is None else [n for n in retries if n in set(listed)]
    return sorted(set(names))


def bounds_of(options: Read, source: QueueSource, topics: list[str]) -> dict[str, Queues]:
    """The bounds of `topics`. Topics come and go under a pattern; a named one that is missing is an error, unless
    `failOnDataLoss` says to go on with what is there. A broker that does not answer is always one."""
    look = source.look(topics)
    for error in look.away.values():
        raise error
    for topic, error in look.failed.items():
        if not isinstance(error, MISSING):
            raise error
        if is_named(options, topic) and options.fail_on_data_loss:
            raise with_nearest(error, topic, source) from error
        log.warning("topic=%s left out: %s", topic, error)
    return look.bounds


def with_nearest(error: AerobeeError, topic: str, source: QueueSource) -> AerobeeError:
    """The error of a topic that was named; one that is missing with what may have been meant."""
    if not isinstance(error, MISSING):
        return error
    told = error.remark if isinstance(error, BrokerError) else str(error)
    return type(error)(f"{told}{nearest(topic, source)}")


def nearest(topic: str, source: QueueSource) -> str:
    """What a topic that is missing may have been meant to be; empty where nothing is near, or none may be listed."""
    try:
        return meant(topic, source.topics())
    except AerobeeError:
        return ""


def meant(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def is_named(options: Read, topic: str) -> bool:
    """Did the user ask for this very topic?"""
    return topic in options.topics or topic in (options.assign or {})


class BrokerQueues:
    def __init__(self, options: Read) -> None:
        self._options = options
        self._cluster = Cluster(options, options.retries + 1)
        self._routes = Routes(self._cluster)
        self._heads: dict[str, BrokerHeads | TopicByTopic] = {}  # by broker
        self._others: dict[str, str] = {}  # addresses of brokers that have none of the topics
        self._found_for: tuple[int, frozenset[str]] | None = None  # version of the routes, and topics
        self._asked: tuple[frozenset[str], frozenset[tuple[str, str]]] | None = None
        self._last: Look | None = None

    def topics(self) -> list[str]:
        return self._cluster.topics()

    def existing(self, topics: Sequence[str]) -> list[str]:
        """Those of the topics that have a route."""
        answers = self._cluster.ask_name_server_each([GetRoute(topic=topic) for topic in topics])
        found = [t for t, answer in zip(topics, answers, strict=True) if not isinstance(answer, MISSING)]
        for answer in answers:
            if isinstance(answer, AerobeeError) and not isinstance(answer, MISSING):
                raise answer
        return found

    def address(self, broker: str) -> str:
        if broker in self._heads:
            return self._heads[broker].address
        if broker not in self._others:
            self._others = self._cluster.masters()
        if broker not in self._others:
            raise NoRoute(f"the name server {self._options.namesrv} knows no broker {broker!r}")
        return self._others[broker]

    def forget_routes(self) -> None:
        """Ask for them again: new queues and moved brokers show."""
        self._routes.doubt_some()

    def close(self) -> None:
        self._cluster.close()

    def __del__(self) -> None:
        self.close()  # errors that were raised here keep it in a cycle: connections end when that is found

    # -- where queues begin and end ---------------------------------------------------------------------------

    def queues(self, topic: str) -> Queues:
        """Bounds of all queues of one topic, TopicNotFound when there is no such topic."""
        look = self.look([topic])
        for error in (*look.away.values(), *look.failed.values()):
            raise error
        return look.bounds[topic]

    def look(self, topics: Iterable[str], carried: frozenset[tuple[str, str]] = frozenset()) -> Look:
        """`carried` are topics of brokers that had them once, and may have them no more."""
        names = frozenset(topics)
        self._routes.look_up(names)
        self._find_brokers(names, carried)
        outcome = self._ask_brokers(names, carried, list(self._heads))
        lost = [broker for broker, told in outcome.items() if isinstance(told, NetworkError)]
        if moved := [broker for broker in lost if self._has_moved(broker)]:
            outcome.update(self._ask_brokers(names, carried, moved))
        return self._seen(names, carried, outcome)

    def _find_brokers(self, names: frozenset[str], carried: frozenset[tuple[str, str]]) -> None:
        """Those with a route to them, and those that can still tell what became of a topic. One that is new, or moved,
        is asked for everything."""
        if self._found_for == (self._routes.version, names):
            return
        there = self._routes.brokers(names)
        answering = self._last.brokers if self._last else frozenset()
        for broker in {broker for _, broker in carried} & answering & self._heads.keys():
            there.setdefault(broker, self._heads[broker].address)
        kept = {broker: heads for broker, heads in self._heads.items() if heads.address == there.get(broker)}
        self._heads = {broker: kept.get(broker) or BrokerHeads(address) for broker, address in there.items()}
        self._found_for = (self._routes.version, names)

    def _has_moved(self, broker: str) -> bool:
        address = self._routes.address_now(broker)
        if address is None or address == self._heads[broker].address:
            return False
        self._heads[broker] = BrokerHeads(address)
        return True

    def _ask_brokers(
        self, names: frozenset[str], carried: frozenset[tuple[str, str]], brokers: list[str]
    ) -> dict[str, set[str] | AerobeeError]:
        """The topics whose bounds changed, by broker, or what went wrong there."""
        outcome = together(
            self._cluster,
            {
                broker: self._heads[broker].look(names, frozenset(t for t, at in carried if at == broker))
                for broker in brokers
            },
        )
        others = [broker for broker in brokers if self._is_other(broker, outcome[broker])]
        if others:
            for broker in others:
                self._heads[broker] = TopicByTopic(self._heads[broker].address, broker, self._routes)
            outcome.update(self._ask_brokers(names, carried, others))
        return outcome

    def _is_other(self, broker: str, told: set[str] | AerobeeError) -> bool:
        """It was asked in our way and does not know it, or does not want to hear it."""
        refused = isinstance(told, (RequestCodeNotSupported, NoPermission))
        return refused and isinstance(self._heads[broker], BrokerHeads)

    def _seen(
        self,
        names: frozenset[str],
        carried: frozenset[tuple[str, str]],
        outcome: dict[str, set[str] | AerobeeError],
    ) -> Look:
        away = {broker: told for broker, told in outcome.items() if isinstance(told, AerobeeError)}
        there = frozenset(outcome.keys() - away.keys())
        changed = {topic for told in outcome.values() if isinstance(told, set) for topic in told}
        last = self._last
        if last is None or self._asked != (names, carried) or last.brokers != there:
            changed, bounds = {*names, *(topic for topic, _ in carried)}, {}
        elif changed or away or self._routes.failed:
            bounds = dict(last.bounds) if changed else last.bounds
        else:
            return last
        for topic in changed:
            if found := self._bounds_now(topic, there):
                bounds[topic] = found
            else:
                bounds.pop(topic, None)
        gone = frozenset((t, b) for t, b in carried if b in there and self._heads[b].lacks(t))
        self._asked = (names, carried)
        self._last = Look(bounds, self._failed(names, bounds, away), away, there, gone)
        return self._last

    def _bounds_now(self, topic: str, there: frozenset[str]) -> Queues:
        found = {b: queues for b in sorted(there) if (queues := self._heads[b].topics.get(topic))}
        wanted = (self._options.assign or {}).get(topic)
        return _only(found, wanted) if wanted else found

    def _failed(
        self, names: frozenset[str], bounds: Bounds, away: dict[str, AerobeeError]
    ) -> dict[str, AerobeeError]:
        """Why topics, or queues that were assigned, are not there."""
        failed: dict[str, AerobeeError] = {}
        unknown = next(iter(away.values()), None)
        for topic in sorted(names - bounds.keys()):
            error = unknown or self._routes.failed.get(topic)
            if error is None:
                brokers = ", ".join(sorted(self._heads))
                error = TopicNotFound(f"no broker has a topic {topic!r} to be read ({brokers})")
                self._routes.doubt(topic, error)
            failed[topic] = error
        for topic, wanted in (self._options.assign or {}).items() if not unknown else ():
            for broker, queue in _missing_queues(bounds.get(topic, {}), wanted) if topic in bounds else ():
                failed[topic] = TopicNotFound(f"option 'assign': {topic}/{broker} has no queue {queue}")
        return failed

    # -- questions about queues, many at a time ---------------------------------------------------------------

    def offsets_at(self, places: Sequence[Place], timestamps: Sequence[int]) -> list[int]:
        """Of each queue the first offset stored at or after its time."""
        headers = [
            SearchOffset(topic=place.topic, queue_id=place.queue, timestamp=timestamp)
            for place, timestamp in zip(places, timestamps, strict=True)
        ]
        return [_answered(answer).fields(OffsetResult).offset for answer in self._each(places, headers)]

    def group_offsets(self, places: Sequence[Place]) -> list[int | None]:
        group = self._options.group
        headers = [
            QueryConsumerOffset(
                consumer_group=group, topic=place.topic, queue_id=place.queue, set_zero_if_not_found=False
            )
            for place in places
        ]
        return [
            None if isinstance(answer, QueryNotFound) else _answered(answer).fields(OffsetResult).offset
            for answer in self._each(places, headers)
        ]

    def commit_each(self, offsets: Sequence[tuple[Place, int]]) -> dict[Place, AerobeeError]:
        """Tell the group's offsets; what could not be told."""
        places = [place for place, _ in offsets]
        headers = [
            UpdateConsumerOffset(
                consumer_group=self._options.group,
                topic=place.topic,
                queue_id=place.queue,
                commit_offset=offset,
            )
            for place, offset in offsets
        ]
        answers = self._each(places, headers)
        return {p: a for p, a in zip(places, answers, strict=True) if isinstance(a, AerobeeError)}

    def commit(self, topic: str, broker: str, queue: int, offset: int) -> None:
        for error in self.commit_each([(Place(topic, broker, queue), offset)]).values():
            raise error

    def units_of(self, parts: Sequence[Range], steps: Sequence[int]) -> list[bytes | AerobeeError]:
        """Every `step`th queue unit of each range; only Aerobee's brokers know this question."""
        headers = [
            ReadUnits(topic=part.topic, queue_id=part.queue, offset=part.start, count=len(part), step=step)
            for part, step in zip(parts, steps, strict=True)
        ]
        places = [Place(part.topic, part.broker, part.queue) for part in parts]
        answers = self._each(places, headers)
        return [answer if isinstance(answer, AerobeeError) else answer.body for answer in answers]

    def _each(self, places: Sequence[Place], headers: Sequence[Header]) -> list[Command | AerobeeError]:
        answers: list[Command | AerobeeError] = []
        asked: list[tuple[int, Question]] = []
        for at, (place, header) in enumerate(zip(places, headers, strict=True)):
            try:
                asked.append((at, Question(self.address(place.broker), header)))
                answers.append(_UNASKED)
            except AerobeeError as error:
                answers.append(error)
        got = self._cluster.ask_each([question for _, question in asked])
        for (at, _), answer in zip(asked, got, strict=True):
            answers[at] = answer
        return answers


def _answered(answer: Command | AerobeeError) -> Command:
    if isinstance(answer, AerobeeError):
        raise answer
    return answer


def _only(found: Queues, wanted: dict[str, list[int]]) -> Queues:
    kept: Queues = {}
    for broker, queues in wanted.items():
        for queue in queues:
            if (bounds := found.get(broker, {}).get(str(queue))) is not None:
                kept.setdefault(broker, {})[str(queue)] = bounds
    return kept


def _missing_queues(found: Queues, wanted: dict[str, list[int]]) -> list[tuple[str, int]]:
    return [(b, q) for b, queues in wanted.items() for q in queues if str(q) not in found.get(b, {})]


def source_for(options: Read) -> QueueSource:
    if options.store_path:
        from aerobee.spark.reading.store_scan import StoreQueues

        return StoreQueues(options.store_path, options.assign)
    return BrokerQueues(options)
