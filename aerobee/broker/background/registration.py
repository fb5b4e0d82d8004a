# SPDX-License-Identifier: Apache-2.0
"""Tells name servers where this broker is and which topics it has.

A name server in the same process is told in the same turn, by a plain call, so that a topic created by a send
has its route before the send is answered. Those over the wire each have a task of their own: one that is dead
delays nobody, changes made in one turn of the loop make one registration, and all is repeated every 30 s and
as soon as a connection was lost (a name server drops a broker whose connection closes).
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from aerobee.broker.state.routes import GRPC_SCHEME
from aerobee.broker.state.topics import EVERY_TOPIC
from aerobee.clock import Alarm
from aerobee.errors import AerobeeError, error_for
from aerobee.net.pool import Pool
from aerobee.net.tls import namesrv_tls
from aerobee.protocol.accounts import Credentials, sign
from aerobee.protocol.addresses import format_address, parse_address, parse_addresses
from aerobee.protocol.bodies import (
    DataVersion,
    QueueMappingInfo,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
    encode_registration,
)
from aerobee.protocol.codes import Perm
from aerobee.protocol.command import request
from aerobee.protocol.headers.route import RegisterBroker, RegisterBrokerResult, UnregisterBroker
from aerobee.settings.broker import own_account

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from aerobee.broker.broker import Broker
    from aerobee.clock import Clock
    from aerobee.net.connection import Connection
    from aerobee.settings import BrokerConfig, InForce

log = logging.getLogger("aerobee.registration")

CALL_MS = 24_000
RETRY_MS = 3_000
FIRST_WAIT_MS = 3_000  # how long a start waits for name servers to hear of it
GOODBYE_MS = 1_000
READ_WRITE = Perm.READ | Perm.WRITE
NEVER_MS = 1 << 60  # a broker in the name server's own process cannot die alone

Describe = Callable[[], RegisterBrokerBody]


class Identity(msgspec.Struct, frozen=True):
    """Who registers."""

    cluster: str
    name: str
    broker_id: int
    address: str

    def registration(self, heartbeat_timeout_ms: int | None = None, body: bytes = b"") -> RegisterBroker:
        host, port = parse_address(self.address)
        return RegisterBroker(
            broker_name=self.name,
            broker_addr=self.address,
            cluster_name=self.cluster,
            ha_server_addr=format_address(host, port + 1),
            broker_id=self.broker_id,
            heartbeat_timeout_millis=heartbeat_timeout_ms,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )

    def goodbye(self) -> UnregisterBroker:
        return UnregisterBroker(
            broker_name=self.name,
            broker_addr=self.address,
            cluster_name=self.cluster,
            broker_id=self.broker_id,
        )


class LocalNameServer(Protocol):
    """A name server in this process."""

    def register(self, request: RegisterBroker, body: RegisterBrokerBody) -> RegisterBrokerResult: ...
    def withdraw(self, broker_name: str, topics: Iterable[str]) -> None: ...
    def unregister(self, request: UnregisterBroker) -> None: ...


class NameServerLink(Protocol):
    @property
    def registered(self) -> bool: ...
    async def start(self) -> None: ...
    def changed(self, topic: str) -> None: ...
    async def stop(self) -> None: ...


class LocalLink:
    """Told only of the topic that changed: thousands of topics make a whole registration slow."""

    def __init__(self, server: LocalNameServer, identity: Identity, describe: Describe) -> None:
        self._server = server
        self._identity = identity
        self._describe = describe
        self.registered = False

    async def start(self) -> None:
        self._tell(self._describe())
        self.registered = True

    def changed(self, topic: str) -> None:
        whole = self._describe()
        if topic == EVERY_TOPIC:
            self._tell(whole)
            return
        configs = whole.topic_config_serialize_wrapper
        config = configs.topic_config_table.get(topic)
        if config is None:
            self._server.withdraw(self._identity.name, [topic])
        mapping = (configs.topic_queue_mapping_info_map or {}).get(topic)
        one = TopicConfigs(
            data_version=configs.data_version,
            topic_config_table={topic: config} if config else {},
            topic_queue_mapping_info_map={topic: mapping} if mapping else None,
        )
        self._tell(msgspec.structs.replace(whole, topic_config_serialize_wrapper=one))

    def _tell(self, body: RegisterBrokerBody) -> None:
        self._server.register(self._identity.registration(NEVER_MS), body)

    async def stop(self) -> None:
        self._server.unregister(self._identity.goodbye())


class RemoteLink:
    def __init__(
        self,
        address: str,
        identity: Identity,
        describe: Describe,
        clock: Clock,
        settings: InForce[BrokerConfig],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self._identity = identity
        self._describe = describe
        self._settings = settings
        self._account = Credentials(*own_account(settings.value))
        self._pool = Pool(observer=self, tls=tls)
        self._wake = Alarm(clock)
        self._tried = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self.registered = False

    async def start(self) -> None:
        """Returns after the first attempt, or after three seconds of it."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WAIT_MS / 1000):
                await self._tried.wait()

    def changed(self, topic: str) -> None:
        self._wake.ring()  # the task runs in a later turn: all changes of this one go together

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            wait_ms = self._settings.value.register_ms
            try:
                await self._register()
            except Exception as error:  # whatever it answered: the next attempt may fare better
                if self.registered or not self._tried.is_set():  # once, not at every retry
                    log.warning("cannot register namesrv=%s: %r", self.address, error)
                self.registered = False
                wait_ms = RETRY_MS
            self._tried.set()
            await self._wake.wait(wait_ms)

    async def _register(self) -> None:
        body = encode_registration(self._describe())
        connection = await self._pool.get(self.address)
        asked = sign(request(self._identity.registration(body=body), body), self._account)
        answer = await connection.call(asked, CALL_MS)
        if answer.code != 0:
            raise error_for(answer.code, answer.remark)
        if not self.registered:
            log.info(
                "registered namesrv=%s broker=%s address=%s",
                self.address,
                self._identity.name,
                self._identity.address,
            )
        self.registered = True

    def opened(self, connection: Connection) -> None:
        """Registering is what opened it."""

    def closed(self, connection: Connection) -> None:
        if not self._stopping:
            self._wake.ring()

    async def stop(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        connection = self._pool.peek(self.address)
        if connection is not None:
            with suppress(AerobeeError):  # it will notice the closed connection
                await connection.call(sign(request(self._identity.goodbye()), self._account), GOODBYE_MS)
        await self._pool.close()


class Registration:
    def __init__(self, links: list[NameServerLink]) -> None:
        self._links = links

    @classmethod
    def for_broker(
        cls, broker: Broker, address: str, local: LocalNameServer | None, grpc_address: str = ""
    ) -> Registration:
        """With the name server of this process, if there is one, and all that the settings name."""
        config = broker.config
        identity = Identity(config.cluster, config.name, config.broker_id, address)

        grpc_front = [f"{GRPC_SCHEME}{grpc_address}"] if grpc_address else []

        def describe() -> RegisterBrokerBody:
            topics = broker.topics
            static = {name: mapping.info() for name, mapping in topics.static.all().items()}
            body = registration_body(topics.all(), topics.data_version, broker.config.perm, static)
            body.filter_server_list = grpc_front
            return body

        tls = namesrv_tls(config)
        links: list[NameServerLink] = [LocalLink(local, identity, describe)] if local else []
        links += [
            RemoteLink(server, identity, describe, broker.clock, broker.settings, tls)
            for server in parse_addresses(config.namesrv)
        ]
        return cls(links)

    async def start(self) -> None:
        await asyncio.gather(*(link.start() for link in self._links))

    @property
    def registered(self) -> bool:
        """Whether a name server knows of this broker: clients find it then."""
        return any(link.registered for link in self._links)

    def changed(self, topic: str) -> None:
        """A topic was made, changed or deleted; or every topic was."""
        for link in self._links:
            link.changed(topic)

    async def stop(self) -> None:
        await asyncio.gather(*(link.stop() for link in self._links))


def registration_body(
    topics: dict[str, TopicConfig],
    version: DataVersion,
    broker_perm: int = READ_WRITE,
    mappings: dict[str, QueueMappingInfo] | None = None,
) -> RegisterBrokerBody:
    """All topics of a broker, none with a permission the broker itself does not have."""
    if broker_perm & READ_WRITE != READ_WRITE:
        topics = {
            name: msgspec.structs.replace(config, perm=config.perm & broker_perm)
            for name, config in topics.items()
        }
    configs = TopicConfigs(
        data_version=version,
        topic_config_table=topics,
        topic_queue_mapping_info_map=mappings or None,
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=configs)
