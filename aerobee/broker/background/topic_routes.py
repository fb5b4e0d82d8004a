# SPDX-License-Identifier: Apache-2.0
"""The other brokers of a topic, from the name servers: what balancing over a whole cluster and gRPC routes need.

A name server in this process is asked by a plain call. One over the wire is asked once, by the first request for a
topic, which waits; after that the answer is at hand and is refreshed every 30 s, as long as anybody asks for the topic.
This broker's own queues are not taken from here: it knows them better.

Routes name remoting addresses only. A broker's gRPC address travels in the list of filter servers of its registration:
every name server, Apache's too, keeps it and tells it with the route, and clients without class filters never read it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from aerobee.broker.state.routes import GRPC_SCHEME, Host
from aerobee.errors import AerobeeError, NetworkError, TopicNotFound, error_for
from aerobee.net.pool import Pool
from aerobee.net.tls import namesrv_tls
from aerobee.protocol.addresses import format_address, parse_address, parse_addresses
from aerobee.protocol.bodies import TopicRoute, decode
from aerobee.protocol.command import request
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.routing import NameServers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from aerobee.broker.broker import Broker
    from aerobee.broker.state.routes import Routes
    from aerobee.clock import Clock, Timer

log = logging.getLogger("aerobee.routes")

REFRESH_MS = 30_000
ABSENT_MS = 1_000  # a topic that is nowhere may be created any moment
FORGET_MS = 300_000
ASK_MS = 1_000  # each server: a client waits 3 s for its assignment

Hosts = tuple[Host, ...]


class LocalRouteTable(Protocol):
    """The routes of a name server in this process."""

    def route(self, topic: str) -> TopicRoute | None: ...


class LocalRoutes:
    def __init__(self, table: LocalRouteTable, own_name: str) -> None:
        self._table = table
        self._own_name = own_name

    def known(self, topic: str) -> Hosts:
        route = self._table.route(topic)
        return () if route is None else hosts_elsewhere(route, self._own_name)

    async def look_up(self, topic: str) -> None:
        """Nothing to wait for."""

    async def stop(self) -> None:
        """Nothing runs."""


class RemoteRoutes:
    def __init__(
        self, servers: list[str], own_name: str, clock: Clock, tls: ssl.SSLContext | None = None
    ) -> None:
        self._servers = NameServers(servers)
        self._own_name = own_name
        self._clock = clock
        self._pool = Pool(tls=tls)
        self._known: dict[str, Hosts] = {}
        self._absent: dict[str, int] = {}  # topic -> when it has to be asked for again
        self._wanted: dict[str, int] = {}  # topic -> when somebody asked for it last
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._answering = True
        self._refresh: asyncio.Task[None] | None = None
        self._timer: Timer | None = None

    # -- what the broker asks ------------------------------------------------------------------------------

    def known(self, topic: str) -> Hosts | None:
        now = self._wanted[topic] = self._clock.now()
        found = self._known.get(topic)
        return () if found is None and self._absent.get(topic, 0) > now else found

    async def look_up(self, topic: str) -> None:
        """Ask for a topic that is not known; all who ask for it meanwhile wait for the same answer."""
        task = self._asking.get(topic)
        if task is None:
            task = self._asking[topic] = asyncio.get_running_loop().create_task(self._learn(topic))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))
        await asyncio.wait([task])  # one requester's leaving is not the others'
        self._refresh_later()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        running = [*self._asking.values(), *([self._refresh] if self._refresh else [])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._pool.close()

    # -- the name servers ----------------------------------------------------------------------------------

    async def _learn(self, topic: str) -> None:
        """What was known stays when nobody answers."""
        try:
            route = await self._ask(topic)
        except TopicNotFound:
            self._known.pop(topic, None)
            self._absent[topic] = self._clock.now() + ABSENT_MS
        except Exception as error:  # whatever they answered: refreshing goes on
            if self._answering:  # once, not at every attempt
                log.warning("no name server tells the route of topic=%s: %r", topic, error)
            self._answering = False
            return
        else:
            self._absent.pop(topic, None)
            self._known[topic] = hosts_elsewhere(route, self._own_name)
        self._answering = True

    async def _ask(self, topic: str) -> TopicRoute:
        failure: AerobeeError = NetworkError("no name server is set")
        for server in self._servers:
            try:
                async with asyncio.timeout(ASK_MS / 1000):
                    connection = await self._pool.get(server)
                    header = GetRoute(topic=topic, accept_standard_json_only=True)
                    answer = await connection.call(request(header), ASK_MS)
                if answer.code != 0:
                    raise error_for(answer.code, answer.remark)
                return decode(answer.body, TopicRoute)
            except TopicNotFound:
                raise
            except TimeoutError:
                failure = NetworkError(f"{server} did not answer within {ASK_MS} ms")
            except AerobeeError as error:
                failure = error
            self._servers.failed(server)
        raise failure

    # -- keeping up ----------------------------------------------------------------------------------------

    def _refresh_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now() + REFRESH_MS, self._begin_refresh)

    def _begin_refresh(self) -> None:
        self._refresh = asyncio.get_running_loop().create_task(self._refresh_all())

    async def _refresh_all(self) -> None:
        oldest = self._clock.now() - FORGET_MS
        for topic, asked in list(self._wanted.items()):
            if asked < oldest:
                for table in (self._wanted, self._known, self._absent):
                    table.pop(topic, None)
            elif topic in self._known:
                await self._learn(topic)
        self._timer = None
        if self._wanted:
            self._refresh_later()


def routes_for(broker: Broker, local: LocalRouteTable | None) -> Routes | None:
    """None where there is no name server at all."""
    if local is not None:
        return LocalRoutes(local, broker.config.name)
    config = broker.config
    servers = parse_addresses(config.namesrv)
    return RemoteRoutes(servers, config.name, broker.clock, namesrv_tls(config)) if servers else None


def hosts_elsewhere(route: TopicRoute, own_name: str) -> Hosts:
    """All brokers of a route but one."""
    masters = {data.broker_name: data.master or "" for data in route.broker_datas}
    found = []
    for data in route.queue_datas:
        if data.broker_name != own_name:
            address = masters.get(data.broker_name, "")
            grpc_address = _grpc_address(route.filter_server_table.get(address, ()))
            queues = (data.perm, data.read_queue_nums, data.write_queue_nums)
            found.append(Host(data.broker_name, *queues, address, grpc_address))
    return tuple(found)


def _grpc_address(filter_servers: Sequence[str]) -> str:
    """The list is a stranger's: what is no address of ours is passed over."""
    for text in filter_servers:
        with suppress(ValueError):
            if text.startswith(GRPC_SCHEME):
                return format_address(*parse_address(text.removeprefix(GRPC_SCHEME)))
    return ""
