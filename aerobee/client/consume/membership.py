# SPDX-License-Identifier: Apache-2.0
"""A consumer in its group: its place there, whatever kind it is (joined once, told to the brokers, left), and what
every part of one that owns queues needs to know about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from aerobee.client.consume.figures import Figures
from aerobee.client.consume.inbox import FlowLimits, Inbox, Warnings
from aerobee.client.consume.refusals import Refusals
from aerobee.errors import AerobeeError, NoPermission, NoRoute
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import MessageModel
from aerobee.protocol.headers.consume import SendHeartbeat

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import TypeVar

    from aerobee.client.consume.offset_keeper import OffsetStore
    from aerobee.client.consume.rebalance import Strategy
    from aerobee.client.consume.start_offset import StartPoint
    from aerobee.client.consume.subscriptions import Subscriptions
    from aerobee.client.options import QueueOptions
    from aerobee.client.session.broker_requests import Consumer
    from aerobee.client.session.session import Session
    from aerobee.clock import Clock
    from aerobee.protocol.bodies import MessageQueue

    # A bare `Membership` is that of any consumer that owns queues. (Python's own TypeVar has no default before 3.13.)
    Owning = TypeVar("Owning", bound=QueueOptions, default=QueueOptions, covariant=True)
else:
    from typing import TypeVar

    Owning = TypeVar("Owning", covariant=True)

log = logging.getLogger("aerobee.client.consumer")


def check_group(group: str) -> None:
    names.check_group(group)
    if group == "DEFAULT_CONSUMER":
        raise ValueError("group 'DEFAULT_CONSUMER' is RocketMQ's placeholder; choose a name of your own")


class GroupMember:
    """`consumer` is what the session asks in the group's name (heartbeats, offsets, running info)."""

    def __init__(
        self, consumer: Consumer, session: Session, group: str, subscriptions: Subscriptions
    ) -> None:
        check_group(group)
        self._consumer = consumer
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._was_started = False

    @property
    def is_in(self) -> bool:
        return self._session.consumers.get(self._group) is self._consumer

    def check_in(self) -> None:
        if not self.is_in:
            raise RuntimeError(f"consumer of group {self._group!r} is not started, or stopped")

    async def join(self) -> set[str]:
        """Start the session, ask where the topics are; then `announce`. Unknown ones are told, waited for, returned."""
        if self._was_started:
            raise RuntimeError(f"consumer of group {self._group!r} was started already; make a new one")
        if self._group in self._session.consumers:
            raise ValueError(f"group {self._group!r} has a consumer in this session already")
        self._was_started = True
        self._session.consumers[self._group] = self._consumer
        await self._session.start()
        unknown: set[str] = set()
        for topic in self._subscriptions:
            try:
                with self._session.blaming_the_address():
                    await self._session.route(topic)
            except NoRoute:
                if not names.is_retry(topic):
                    unknown.add(topic)
                    log.warning("topic=%s of group=%s is unknown to the name servers yet", topic, self._group)
        return unknown

    async def announce(self) -> None:
        """Tell brokers what we subscribe to, before any request refers to it."""
        versions = self._subscriptions.versions()
        await self._session.heartbeat()
        self._subscriptions.told(versions)

    async def check_admitted(self) -> None:
        """NoPermission when a broker would refuse us: at the start, and not as a consumer to which nothing comes.

        Asked by our own heartbeat once more: it needs exactly what consuming does, and changes nothing. Brokers that
        do not answer now are not waited for."""
        said = bodies.Heartbeat(
            client_id=self._session.client_id, consumer_data_set=[self._consumer.heartbeat_data()]
        )
        for address in self._masters():
            try:
                await self._session.call(address, SendHeartbeat(), bodies.encode(said))
            except NoPermission:
                raise
            except AerobeeError as error:  # whatever the loops behind will meet themselves
                log.debug("group=%s broker=%s: %s", self._group, address, error)

    def _masters(self) -> list[str]:
        """Of our topics, those that we are connected with."""
        found: dict[str, None] = {}
        for topic in self._subscriptions:
            route = None if names.is_retry(topic) else self._session.routes.get(topic)
            for name in sorted({queue.broker_name for queue in route.readable}) if route else ():
                address = self._session.routes.master(name)
                if address is not None and self._session.open_connection(address) is not None:
                    found[address] = None
        return list(found)

    async def say_goodbye(self) -> None:
        """Tell the brokers, which need not wait for us to be silent."""
        try:
            await self._session.leave(consumer_group=self._group)
        except AerobeeError as error:
            log.warning("group=%s left without a word: %s", self._group, error)

    async def leave(self) -> None:
        """The session answers for us no longer."""
        del self._session.consumers[self._group]
        await self._session.stop()


class OwnedQueue:
    """A queue this consumer pulls: its inbox, where the next pull begins, and the task that pulls."""

    def __init__(self, queue: MessageQueue, next_offset: int, now: int) -> None:
        self.queue = queue
        self.inbox = Inbox(now)
        self.next_offset = next_offset
        self.next_broker = 0  # broker id the last answer suggested
        self.previously_locked = False
        self.repairing = False  # its offset was illegal: left alone until the repair has removed it
        self.handling: asyncio.Future[None] | None = None  # an ordered handler is running
        self.fetching: asyncio.Task[None] | None = None


class PoppedQueue:
    """A queue this consumer pops, perhaps together with others; id -1 is every queue of the broker."""

    def __init__(self, queue: MessageQueue, now: int) -> None:
        self.queue = queue
        self.unacked = 0
        self.last_pop = now
        self.dropped = False
        self.fetching: asyncio.Task[None] | None = None

    def expired(self, now: int, idle_ms: int) -> bool:
        return now - self.last_pop > idle_ms


@dataclass
class Membership(Generic[Owning]):
    """One consumer in its group. Parts read it; only the consumer itself and the rebalance change it."""

    session: Session[Owning]
    group: str
    model: MessageModel
    ordered: bool
    subscriptions: Subscriptions
    offsets: OffsetStore
    start: StartPoint
    strategy: Strategy
    running: bool = False
    suspended: bool = False
    pulled: dict[MessageQueue, OwnedQueue] = field(default_factory=dict)
    popped: dict[MessageQueue, PoppedQueue] = field(default_factory=dict)
    flow_warnings: Warnings = field(default_factory=Warnings)
    figures: Figures = field(default_factory=Figures)
    _limits: dict[str, FlowLimits] = field(default_factory=dict)
    refusals: Refusals = field(init=False)

    def __post_init__(self) -> None:
        self.refusals = Refusals(self.group)

    @property
    def options(self) -> Owning:
        return self.session.options

    @property
    def clock(self) -> Clock:
        return self.session.clock

    @property
    def clustering(self) -> bool:
        return self.model is MessageModel.CLUSTERING

    @property
    def locks_queues(self) -> bool:
        return self.ordered and self.clustering

    def pulled_of(self, topic: str) -> list[OwnedQueue]:
        return [owned for owned in self.pulled.values() if owned.queue.topic == topic]

    def limits(self, topic: str) -> FlowLimits:
        found = self._limits.get(topic)
        if found is None:
            owned = len(self.pulled_of(topic))
            span = None if self.ordered else self.options.span
            found = self._limits[topic] = FlowLimits.of(self.options, owned_queues=owned, span=span)
        return found

    def queues_changed(self, topic: str) -> None:
        """A limit per topic is spread over the queues owned now."""
        self._limits.pop(topic, None)
