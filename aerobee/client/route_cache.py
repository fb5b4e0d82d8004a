# SPDX-License-Identifier: Apache-2.0
"""Which brokers and queues a topic has, as the name servers last said. Values only; the session does the asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.protocol.bodies import TopicRoute

MASTER = 0


class TopicQueues(msgspec.Struct, frozen=True):
    """One topic's route, unfolded."""

    route: TopicRoute
    readable: tuple[MessageQueue, ...]
    writable: tuple[MessageQueue, ...]
    ordered: bool


def unfold(topic: str, route: TopicRoute) -> TopicQueues:
    """Queues one by one. Writable are only those of brokers with a master; an ordered topic names its own."""
    with_master = {broker.broker_name for broker in route.broker_datas if MASTER in broker.broker_addrs}
    readable, writable = [], []
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        if data.perm & Perm.READ:
            readable += [MessageQueue(data.broker_name, i, topic) for i in range(data.read_queue_nums)]
        if data.perm & Perm.WRITE and data.broker_name in with_master:
            writable += [MessageQueue(data.broker_name, i, topic) for i in range(data.write_queue_nums)]
    ordered = _ordered_queues(topic, route.order_topic_conf)
    return TopicQueues(route, tuple(readable), tuple(ordered or writable), bool(ordered))


def limited(route: TopicRoute, queues: int) -> TopicRoute:
    """The route a topic made after `route` will have: at most `queues` queues, no inheritance further on."""
    cut = [
        msgspec.structs.replace(
            data,
            perm=data.perm & ~Perm.INHERIT,
            read_queue_nums=min(queues, data.read_queue_nums),
            write_queue_nums=min(queues, data.write_queue_nums),
        )
        for data in route.queue_datas
    ]
    return msgspec.structs.replace(route, queue_datas=cut)


def _ordered_queues(topic: str, conf: str | None) -> list[MessageQueue]:
    """`broker-a:4;broker-b:4`: a fixed queue list, so that keys keep their queue while a broker is away."""
    queues = []
    for part in (conf or "").split(";"):
        broker, colon, count = part.partition(":")
        if colon and count.isdigit():
            queues += [MessageQueue(broker, i, topic) for i in range(int(count))]
    return queues


class RouteCache:
    def __init__(self) -> None:
        self._topics: dict[str, TopicQueues] = {}
        self._brokers: dict[str, dict[int, str]] = {}  # broker name -> broker id -> address
        self.version = 0  # grows with every change: what was derived from a route is stale then

    def get(self, topic: str) -> TopicQueues | None:
        return self._topics.get(topic)

    def put(self, topic: str, route: TopicRoute) -> bool:
        """Remember a route; True when it differs from the one before."""
        known = self._topics.get(topic)
        for broker in route.broker_datas:
            if self._brokers.get(broker.broker_name) != broker.broker_addrs:
                self._brokers[broker.broker_name] = dict(broker.broker_addrs)
                self.version += 1
        if known is not None and known.route == route:
            return False
        self._topics[topic] = unfold(topic, route)
        self.version += 1
        return True

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self.version += 1

    def topics(self) -> list[str]:
        return list(self._topics)

    def master(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER)

    def address(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """The broker asked for; a missing slave is replaced by the next one, else by any of the name (2.6)."""
        members = self._brokers.get(broker_name, {})
        if broker_id in members:
            return members[broker_id]
        if broker_id != MASTER and broker_id + 1 in members:
            return members[broker_id + 1]
        return next(iter(members.values()), None)

    def is_master(self, broker_name: str, address: str) -> bool:
        return self.master(broker_name) == address

    def name_of(self, address: str) -> str | None:
        for name, members in self._brokers.items():
            if address in members.values():
                return name
        return None

    def brokers_of(self, topics: Iterable[str]) -> dict[str, dict[int, str]]:
        """Addresses by broker name and id, of the brokers that host any of the topics."""
        found: dict[str, dict[int, str]] = {}
        for topic in topics:
            known = self._topics.get(topic)
            for broker in known.route.broker_datas if known else ():
                found[broker.broker_name] = self._brokers.get(broker.broker_name, {})
        return found
