# SPDX-License-Identifier: Apache-2.0
"""The cluster as Spark's driver and workers see it: connections, name servers in turn, routes.

One object serves one thread; it may be pickled, its connections stay behind.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from aerobee.errors import NetworkError
from aerobee.protocol import bodies
from aerobee.protocol.addresses import parse_addresses
from aerobee.protocol.headers.route import AllTopics, GetClusterInfo, GetRoute
from aerobee.protocol.routing import NameServers, TopicQueues, unfold
from aerobee.spark.blocking_connection import BlockingConnection, connection_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.spark.options import Read, Write

T = TypeVar("T")


class Cluster:
    """`tries`: how often a server that cannot be reached is asked before that is an error. Who plans a query asks
    often, for an exception there ends the query; who has tries of its own asks once."""

    def __init__(self, options: Read | Write, tries: int = 1) -> None:
        self._options = options
        self._tries = tries
        self._name_servers = NameServers(parse_addresses(options.namesrv))
        self._links: dict[str, BlockingConnection] = {}

    def link(self, address: str) -> BlockingConnection:
        """The connection, made when it is first used."""
        return self._links.setdefault(address, connection_to(address, self._options))

    def ask(self, address: str, question: Callable[[BlockingConnection], T]) -> T:
        for left in reversed(range(self._tries)):
            link = self.link(address)
            try:
                return question(link)
            except NetworkError:
                link.close()
                if not left:
                    raise
                time.sleep(self._options.retry_ms / 1000)
        raise AssertionError("unreachable")

    def ask_name_server(self, question: Callable[[BlockingConnection], T]) -> T:
        last: NetworkError | None = None
        for address in self._name_servers:
            try:
                return self.ask(address, question)
            except NetworkError as error:
                last = error
                self._name_servers.failed(address)
        raise NetworkError(f"no name server answers ({self._options.namesrv}): {last}. Is one running there?")

    def topics(self) -> list[str]:
        body = self.ask_name_server(lambda link: link.call(AllTopics()).body)
        return sorted(bodies.decode(body, bodies.TopicList).topic_list)

    def route(self, topic: str) -> TopicQueues:
        """TopicNotFound when no name server knows it."""
        return _unfolded(topic, self.ask_name_server(lambda link: link.call(GetRoute(topic=topic)).body))

    def masters(self) -> dict[str, str]:
        """broker name -> master's address, whatever topics there are."""
        body = self.ask_name_server(lambda link: link.call(GetClusterInfo()).body)
        table = bodies.decode(body, bodies.ClusterInfo).broker_addr_table
        return {name: data.master for name, data in table.items() if data.master}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_links": {}}


@lru_cache(maxsize=1024)
def _unfolded(topic: str, body: bytes) -> TopicQueues:
    """A stream asks all the time and mostly gets the very bytes it got before, so the same answer is read once."""
    return unfold(topic, bodies.decode(body, bodies.TopicRoute))
