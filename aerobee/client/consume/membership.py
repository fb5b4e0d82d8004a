# SPDX-License-Identifier: Apache-2.0
"""What every part of a consumer that owns queues needs to know about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from aerobee.client.consume.figures import Figures
from aerobee.client.consume.inbox import FlowLimits, Inbox, Warnings
from aerobee.client.consume.refusals import Refusals
from aerobee.protocol.bodies import MessageModel

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import TypeVar

    from aerobee.client.consume.offset_keeper import OffsetStore
    from aerobee.client.consume.rebalance import Strategy
    from aerobee.client.consume.start_offset import StartPoint
    from aerobee.client.consume.subscriptions import Subscriptions
    from aerobee.client.options import QueueOptions
    from aerobee.client.session.session import Session
    from aerobee.clock import Clock
    from aerobee.protocol.bodies import MessageQueue

    # A bare `Membership` is that of any consumer that owns queues. (Python's own TypeVar has no default before 3.13.)
    Owning = TypeVar("Owning", bound=QueueOptions, default=QueueOptions, covariant=True)
else:
    from typing import TypeVar

    Owning = TypeVar("Owning", covariant=True)


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
