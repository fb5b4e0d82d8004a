# SPDX-License-Identifier: Apache-2.0
"""Which brokers and queues a topic has, as the name servers last said. Values only; the session does the asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.routing import MASTER, TopicQueues, unfold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.protocol.bodies import TopicRoute


class RouteCache:
    def __init__(self) -> None:
        self._topics: dict[str, TopicQueues] = {}
        self.get: Callable[[str], TopicQueues | None] = self._topics.get
        self._brokers: dict[str, dict[int, str]] = {}  # broker name -> broker id -> address
        self._masters: dict[str, str] = {}  # broker name -> address
        self.master: Callable[[str], str | None] = self._masters.get
        self._had: set[str] = set()  # topics that were known once
        self.version = 0  # grows with every change: what was derived from a route is stale then

    def put(self, topic: str, route: TopicRoute) -> bool:
        """Remember a route; True when it differs from the one before."""
        known = self._topics.get(topic)
        for broker in route.broker_datas:
            if self._brokers.get(broker.broker_name) != broker.broker_addrs:
                self._brokers[broker.broker_name] = dict(broker.broker_addrs)
                self._masters.pop(broker.broker_name, None)
                if MASTER in broker.broker_addrs:
                    self._masters[broker.broker_name] = broker.broker_addrs[MASTER]
                self.version += 1
        if known is not None and known.route == route:
            return False
        self._topics[topic] = unfold(topic, route)
        self._had.add(topic)
        self.version += 1
        return True

    def forget(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self.version += 1

    def had(self, topic: str) -> bool:
        """Whether the topic was ever known, be it gone now."""
        return topic in self._had

    def topics(self) -> list[str]:
        return list(self._topics)

    def address(self, broker_name: str, broker_id: int = MASTER) -> str | None:
        """The broker asked for; a missing slave is replaced by the next one, else by any of the name."""
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
