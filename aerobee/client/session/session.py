# SPDX-License-Identifier: Apache-2.0
"""A client's connections: name servers, brokers, routes and heartbeats; shared by the producers and consumers of
one client id. Requests that brokers send to us are answered in `broker_requests.py`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, cast
from weakref import WeakSet

from aerobee.client.options import Options, SessionOptions, whole
from aerobee.client.session import broker_requests
from aerobee.client.session.ack_turns import AckTurns
from aerobee.client.session.deadlines import Deadlines
from aerobee.client.session.identity import client_id, local_ip, usual_namesrv
from aerobee.client.session.once_more import once_more_if_lost
from aerobee.client.session.outages import Outages, Watch, level
from aerobee.client.session.refusal import UNKNOWN, about_tls, refusal
from aerobee.client.session.route_cache import RouteCache
from aerobee.client.session.tasks import Tasks
from aerobee.clock import Clock, SystemClock
from aerobee.errors import (
    AerobeeError,
    NetworkError,
    NoRoute,
    RequestCodeNotSupported,
    TopicNotFound,
)
from aerobee.net.connection import Answer, Connection, Limits
from aerobee.net.pool import Pool
from aerobee.net.shared import Shared
from aerobee.net.tls import client_tls
from aerobee.protocol import bodies, names
from aerobee.protocol import command as wire
from aerobee.protocol.accounts import sign
from aerobee.protocol.addresses import parse_addresses
from aerobee.protocol.headers.consume import SendHeartbeat, Unregister
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.routing import MASTER, NameServers, TopicQueues, unfold

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterator
    from typing import Any

    from typing_extensions import TypeVar

    from aerobee.client.session.broker_requests import Consumer, Producer
    from aerobee.protocol.command import Command, Header

    # A bare `Session` has what every client has. (Python's own TypeVar has no default before 3.13.)
    Held = TypeVar("Held", bound=SessionOptions, default=SessionOptions, covariant=True)
else:
    from typing import TypeVar

    Held = TypeVar("Held", covariant=True)

log = logging.getLogger("aerobee.client.session")

SUCCESS = frozenset({0})
_ANY_ROUTE = GetRoute(topic=names.DEFAULT_TOPIC, accept_standard_json_only=True)


class Session(Generic[Held]):
    """Started once; every call raises a NetworkError or a BrokerError, never returns a refusal.

    Roles may share it, so it holds all options. Parts say which of them they read: those of a producer take a
    `Session[ProducerOptions]`.
    """

    options: Held

    def __init__(
        self: Session[Options],
        namesrv: str | None = None,
        options: SessionOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.options = whole(options)
        self.clock = clock or SystemClock()
        self.namesrv = namesrv = usual_namesrv() if namesrv is None else namesrv
        servers = parse_addresses(namesrv)
        if not servers:
            raise ValueError(f"namesrv is {namesrv!r}; give host:port, several separated by ';'")
        self._name_servers = NameServers(servers)
        ip = self.options.client_ip or local_ip(servers[0])
        self.client_id = client_id(ip, self.options.instance)
        self.routes = RouteCache()
        self.tasks = Tasks()
        self.outages = Outages(self.clock)
        self._watch = Watch(self.outages, self.tasks, self.clock, self._is_back)
        self._untold: list[tuple[str, NetworkError]] | None = None  # failures of a client that comes up
        self.deadlines = Deadlines(self.clock)  # of requests that wait `request_timeout_ms` without a task
        self.acks = AckTurns(self)
        self.producers: dict[str, Producer] = {}
        self.consumers: dict[str, Consumer] = {}
        self._left: WeakSet[Consumer] = WeakSet()  # have said good-bye: no heartbeat names them any more
        self.broker_versions: dict[str, int] = {}
        self._used_topics: set[str] = set()
        self._first_routes = Shared(self.refresh_route, "asking for the route of")
        self._greeted: dict[str, Connection] = {}
        self._greetings = Shared(self._introduce, "greeting")
        tls = None
        if self.options.tls == "on":
            tls = client_tls(self.options.tls_ca, self.options.tls_cert, self.options.tls_key)
        limits = Limits(max_write_buffer=1 << 30)  # what we send is bounded by the producer's gate
        self._pool = Pool(self._asked, limits, tls)
        self.users = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # that it was started on

    @staticmethod
    def of_role(
        role: type[SessionOptions],
        namesrv: str | Session | None,
        options: SessionOptions | None,
        clock: Clock | None,
    ) -> Session[Options]:
        """The session a client was given to share, or its own."""
        if isinstance(namesrv, Session):
            return cast("Session[Options]", namesrv)
        if options is not None and not isinstance(options, role):
            given = type(options).__name__
            raise TypeError(f"{role.taken_by} takes {role.__name__} or Options as options, not {given}")
        return Session(namesrv, options, clock)

    # -- life ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Each user (producer, consumer, admin) starts and stops the session; the first and last one count."""
        self.users += 1
        if self.users == 1:
            self._loop = asyncio.get_running_loop()
            self.tasks.start(self._refresh_routes_forever(), "routes")
            self.tasks.start(self._heartbeat_forever(), "heartbeat")

    async def stop(self) -> None:
        self.users -= 1
        if self.users == 0:
            await self.tasks.cancel()
            self.outages.open.clear()
            self.deadlines.close()
            await self._first_routes.close()
            await self._greetings.close()
            await self._pool.close()

    def check_loop(self) -> None:
        """RuntimeError on another event loop than its own, where answers would not be read."""
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "this client was started on another event loop, use it on that one "
                "(in pytest-asyncio: give fixture and test the same loop_scope)"
            )

    async def _refresh_routes_forever(self) -> None:
        while True:
            await self.clock.sleep(self.options.route_refresh_ms)
            for topic in sorted(self._used_topics):
                await self._refresh_quietly(topic)

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh_route(topic)
        except AerobeeError as error:
            log.debug("route of topic=%s not refreshed: %s", topic, error)

    async def _heartbeat_forever(self) -> None:
        while True:
            await self.clock.sleep(self.options.heartbeat_ms)
            await self.heartbeat()

    # -- asking --------------------------------------------------------------------------------------------

    async def connection(self, address: str) -> Connection:
        """The open connection; a broker's new one starts with our heartbeat, for it knows us no longer."""
        self.check_loop()
        known = self._greeted.get(address)
        if known is not None and known.is_open:
            return known
        try:
            connection = await self._pool.get(address)
        except NetworkError as error:
            self._failed(address, error)
            raise
        if self._greeted.get(address) is not connection:
            await self._greetings.get(address)
        return connection

    async def _introduce(self, address: str) -> None:
        connection = self._pool.peek(address)
        if connection is None:
            return  # lost again: the request that follows fails and says so
        is_new_to_broker = self.routes.name_of(address) is not None
        try:
            if is_new_to_broker:
                await self._greet(address, connection)
        except AerobeeError as error:
            log.log(level(error), "heartbeat to broker=%s failed: %s", address, error)
        self._greeted[address] = connection
        if is_new_to_broker:
            for consumer in list(self.consumers.values()):
                consumer.members_changed()

    def open_connection(self, address: str) -> Connection | None:
        """The greeted open connection, if there is one: the way without waiting."""
        connection = self._greeted.get(address)
        return connection if connection is not None and connection.is_open else None

    async def call(
        self,
        address: str,
        header: Header,
        body: bytes = b"",
        *,
        timeout_ms: int = 0,
        accept: Collection[int] = SUCCESS,
    ) -> Command:
        connection = await self.connection(address)
        try:
            return await self._call_on(
                connection, header, body, timeout_ms or self.options.request_timeout_ms, accept
            )
        except NetworkError as error:
            self._failed(address, error)
            raise

    def _failed(self, address: str, error: NetworkError) -> None:
        if self._untold is not None:
            self._untold.append((address, error))
            return
        self.outages.failed(address, error)
        if self.producers or self.consumers:  # an admin asks, and goes
            self._watch.begin()

    async def _is_back(self, address: str) -> None:
        """Asked only to find out."""
        if address in self._name_servers:
            await self.call(address, _ANY_ROUTE)
        elif self.routes.name_of(address) is not None:
            await self._heartbeat_to(address)
        else:
            self.outages.forget(address)

    async def _call_on(
        self,
        connection: Connection,
        header: Header,
        body: bytes,
        timeout_ms: int,
        accept: Collection[int] = SUCCESS,
    ) -> Command:
        request = wire.request(header, body)
        if self.options.access_key:
            sign(request, self.options)
        answer = await connection.call(request, timeout_ms)
        if self.outages.open:
            self.outages.answered(connection.attributes["address"])
        if answer.code not in accept:
            raise refusal(answer)
        return answer

    async def send(self, address: str, header: Header, body: bytes = b"") -> None:
        """One-way: no answer, so no refusal either."""
        connection = await self.connection(address)
        connection.send(sign(wire.request(header, body, one_way=True), self.options))

    async def ask_name_server(self, header: Header, body: bytes = b"") -> Command:
        """The name server in use is kept until it fails, then the next one is."""
        last: NetworkError | None = None
        for address in self._name_servers:
            try:
                return await self.call(address, header, body)
            except NetworkError as error:
                last = error
                self._name_servers.failed(address)
        raise last or NetworkError(f"no name server in {self.namesrv!r}")

    def _asked(self, connection: Connection, command: Command) -> Answer | Coroutine[Any, Any, Answer]:
        return broker_requests.handle(self, connection, command)

    async def meet_name_server(self) -> None:
        """One that answers as such: a wrong address is told at once, and not with the first message. Where none does
        the exception tells; no client is left that would be "trying on"."""
        failures = self._untold = []
        try:
            # A topic that is not found: its brokers create none, or are not there yet.
            with suppress(TopicNotFound), self.blaming_the_address():
                await self.ask_name_server(_ANY_ROUTE)
        finally:
            self._untold = None
        for address, error in failures:
            self._failed(address, error)

    @contextmanager
    def blaming_the_address(self) -> Iterator[None]:
        """Around the first question to the name servers: what fails there is most often a wrong address."""
        try:
            yield
        except RequestCodeNotSupported:
            raise NetworkError(
                f"{self.namesrv} is a broker, or speaks for one: give the name server's address, which usually has "
                "port 9876"
            ) from None
        except NetworkError as error:
            raise type(error)(
                f"no name server answers at {self.namesrv}: {error}; is it running, and is this its port? "
                f"(9876 unless it was told another){about_tls(self.options.tls, error)}"
            ) from None

    # -- routes --------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicQueues:
        """The topic's queues, asked for once and then kept fresh. NoRoute when no name server knows it."""
        self._used_topics.add(topic)
        known = self.routes.get(topic)
        if known is None:
            self.check_loop()
            known = await self._first_routes.get(topic)
        return known

    async def refresh_route(self, topic: str) -> TopicQueues:
        try:
            question = GetRoute(topic=topic, accept_standard_json_only=True)
            answer = await once_more_if_lost(partial(self.ask_name_server, question))
        except TopicNotFound:
            self._route_gone(topic)
            raise NoRoute(f"topic {topic!r} is unknown to the name servers {self.namesrv}{UNKNOWN}") from None
        self._learn(topic, bodies.decode(answer.body, bodies.TopicRoute))
        found = self.routes.get(topic)
        if found is None:
            raise NoRoute(f"topic {topic!r} has no route")
        return found

    def adopt_route(self, topic: str, route: bodies.TopicRoute) -> TopicQueues:
        """An unknown topic is sent to the template topic's brokers, which then create it."""
        self._learn(topic, route)
        return self.routes.get(topic) or unfold(topic, route)

    def _learn(self, topic: str, route: bodies.TopicRoute) -> None:
        if self.routes.put(topic, route):
            log.debug("route of topic=%s changed brokers=%d", topic, len(route.broker_datas))
            self._tell_route_changed(topic)

    def _route_gone(self, topic: str) -> None:
        if self.routes.get(topic) is not None:
            self.routes.forget(topic)
            self._tell_route_changed(topic)

    def _tell_route_changed(self, topic: str) -> None:
        for consumer in list(self.consumers.values()):
            consumer.route_changed(topic)

    def unuse_topic(self, topic: str) -> None:
        self._used_topics.discard(topic)

    async def master(self, broker_name: str, topic: str) -> str:
        """The master's address; a missing one is looked for once in a fresh route, then any broker will do."""
        address = self.routes.master(broker_name)
        if address is None:
            await self.refresh_route(topic)
            address = self.routes.address(broker_name)
        if address is None:
            raise NoRoute(f"broker {broker_name!r} of topic {topic!r} has no address in the routes")
        return address

    # -- heartbeats ----------------------------------------------------------------------------------------

    def _heartbeat_body(self) -> bytes:
        here = [consumer for consumer in self.consumers.values() if consumer not in self._left]
        consumers = [consumer.heartbeat_data() for consumer in here]
        producers = [bodies.ProducerData(group_name=group) for group in self.producers]
        return bodies.encode(
            bodies.Heartbeat(
                client_id=self.client_id, consumer_data_set=consumers, producer_data_set=producers
            )
        )

    def _brokers(self) -> list[str]:
        """Whom we tell that we live: all brokers of our topics; slaves only when we consume."""
        return [
            address
            for members in self.routes.brokers_of(self._used_topics).values()
            for broker_id, address in members.items()
            if broker_id == MASTER or self.consumers
        ]

    async def heartbeat(self) -> int:
        """Tell every broker of our topics who we are and what we subscribe to; how many were told."""
        if not self.producers and not self.consumers:
            return 0
        told = await asyncio.gather(*(self._heartbeat_to(address) for address in self._brokers()))
        return sum(told)

    async def _heartbeat_to(self, address: str) -> bool:
        try:
            known = self._greeted.get(address)
            connection = await self.connection(address)
            if known is connection:  # else the greeting has said it
                await self._greet(address, connection)
        except AerobeeError as error:
            log.log(level(error), "heartbeat to broker=%s failed: %s", address, error)
            return False
        return True

    async def _greet(self, address: str, connection: Connection) -> None:
        if not self.producers and not self.consumers:
            return
        try:
            answer = await self._call_on(
                connection, SendHeartbeat(), self._heartbeat_body(), self.options.request_timeout_ms
            )
        except NetworkError as error:
            self._failed(address, error)
            raise
        self.broker_versions[address] = answer.version

    async def leave(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Tell all brokers that a group has one member less; those that cannot be reached will find out."""
        if consumer_group is not None and (consumer := self.consumers.get(consumer_group)) is not None:
            self._left.add(consumer)
        header = Unregister(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        for address in self._brokers():
            connection = self._pool.peek(address)
            if connection is None:
                continue
            try:
                await self._call_on(connection, header, b"", self.options.request_timeout_ms)
            except AerobeeError as error:
                log.debug("leaving broker=%s failed: %s", address, error)
