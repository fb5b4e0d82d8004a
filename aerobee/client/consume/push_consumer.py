# SPDX-License-Identifier: Apache-2.0
"""The push consumer: subscribe, and a function is called with every message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Self

import msgspec

from aerobee.client import spans, trace
from aerobee.client.consume import report as consumer_report
from aerobee.client.consume.assignment import as_the_broker_says
from aerobee.client.consume.concurrent_loop import ConsumeLoop
from aerobee.client.consume.fetch_loop import FetchLoop
from aerobee.client.consume.handler import Handler, UserHandler
from aerobee.client.consume.hooks import Hooks
from aerobee.client.consume.membership import GroupMember, Membership, OwnedQueue, PoppedQueue
from aerobee.client.consume.offset_keeper import LocalOffsets, OffsetStore, RemoteOffsets
from aerobee.client.consume.ordered_loop import OrderedLoop
from aerobee.client.consume.ownership import Ownership
from aerobee.client.consume.pop_loop import PopLoop
from aerobee.client.consume.queue_locks import QueueLocks, handlers_ended
from aerobee.client.consume.rebalance import BY_NAME, Strategy
from aerobee.client.consume.rebalancer import Rebalancer
from aerobee.client.consume.start_offset import Start, StartPoint
from aerobee.client.consume.subscriptions import Expression, Subscriptions, to_data
from aerobee.client.options import PushOptions
from aerobee.client.session.session import Session
from aerobee.client.session.tasks import Tasks
from aerobee.errors import AerobeeError, NoPermission
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import MessageModel, MessageQueue
from aerobee.protocol.headers.consume import CheckClientConfig

if TYPE_CHECKING:
    from aerobee.clock import Clock
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.client.consumer")

QueueListener = Callable[[str, Collection[MessageQueue], Collection[MessageQueue]], None]


class PushConsumer:
    """Calls `handler` with every message of the topics, for as long as it is open.

    >>> async def handle(message):
    ...     print(message.body)
    >>> async with PushConsumer("127.0.0.1:9876", group="billing", topics={"orders": "paid||void"},
    ...                         handler=handle, start="first") as consumer:
    ...     await consumer.wait()

    `handler` is a coroutine function, or a plain one (run in threads). When it returns, the message is done; when it
    raises, the message comes again later and, after the group's limit, goes to the dead letters. With `ordered`,
    each queue is consumed one message at a time and a failing message holds its queue. `model` is "clustering" (each
    message to one consumer of the group) or "broadcasting" (to every one). `start` says where a new group begins:
    "first", "last", or a time. With `PushOptions(consume_batch=n)` the handler gets lists of up to n messages.
    """

    def __init__(  # noqa: PLR0913 - each is a real setting of a consumer
        self,
        namesrv: str | Session | None = None,
        *,
        group: str,
        topics: Mapping[str, Expression],
        handler: UserHandler,
        ordered: bool = False,
        model: str = "clustering",
        start: Start = "last",
        options: PushOptions | None = None,
        strategy: Strategy | None = None,
        on_queues: QueueListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        kind = _model(model)
        if kind is MessageModel.BROADCASTING:
            options = _with_lasting_id(options or PushOptions())
        session: Session[PushOptions] = Session.of_role(PushOptions, namesrv, options, clock)
        clock, options = session.clock, session.options
        subscriptions = Subscriptions(topics, clock.now())
        if kind is MessageModel.CLUSTERING:
            subscriptions.add(names.retry_topic(group), "*", clock.now())
        self.session = session
        self.group = group
        self._place = GroupMember(self, session, group, subscriptions)
        self._member = member = Membership(
            session, group, kind, ordered, subscriptions, _offsets(session, kind, group), StartPoint.of(start),
            strategy or named_strategy(options.strategy),
        )  # fmt: skip
        self._on_queues = on_queues
        self._tasks = Tasks()
        self._stopped: asyncio.Event = asyncio.Event()
        self.hooks = Hooks(options.consume_timeout_ms)
        self._tracer = trace.of_consumer(session, group, self.hooks)
        handler = spans.around(handler, group)
        self._handler = Handler(handler, options.consume_batch, options.concurrency, group)
        self._locks = QueueLocks(member)
        self._consuming: ConsumeLoop | OrderedLoop = (
            OrderedLoop(member, self._handler, self.hooks, self._tasks, self._locks.lock)
            if ordered
            else ConsumeLoop(member, self._handler, self.hooks, self._tasks)
        )
        self._fetching = FetchLoop(member, self._consuming.submit, self._start_repair)
        self._popping = PopLoop(member, self._handler, self.hooks, self._tasks)
        self._ownership = Ownership(member, self._locks, self._start_pulling, self._start_popping)
        self._rebalancer = Rebalancer(
            member, self._ownership, self._queues_changed, as_the_broker_says, options.idle_queue_ms
        )
        self._rebalancing: asyncio.Task[None] | None = None
        self.started_at = 0

    # -- life ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Join the group. Raises when a subscription is refused, or the right to it; unknown topics are waited for."""
        self._member.offsets.load()
        try:
            self._rebalancer.unrouted |= await self._place.join()
            for subscription in self._member.subscriptions.sql():
                await self._check_sql(to_data(subscription))
            await self._place.announce()
            await self._place.check_admitted()
        except BaseException:
            await self.stop()
            raise
        self.started_at = self._member.clock.now()
        self._member.running = True
        self._start_background()

    async def _check_sql(self, subscription: bodies.SubscriptionData) -> None:
        """Brokers may have SQL switched off, or understand less of it than we do."""
        body = bodies.CheckClient(
            client_id=self.session.client_id, group=self.group, subscription_data=subscription
        )
        for members in self.session.routes.brokers_of([subscription.topic]).values():
            for address in list(members.values())[:1]:
                await self.session.call(address, CheckClientConfig(), bodies.encode(body))

    def _start_background(self) -> None:
        self._rebalancing = self._tasks.start(self._rebalancer.run_forever(), "rebalance")
        self._tasks.start(self._persist_forever(), "offsets")
        if self._member.locks_queues:
            self._tasks.start(self._locks.renew_forever(), "locks")
        if isinstance(self._consuming, ConsumeLoop):
            self._tasks.start(self._consuming.clean_forever(), "overdue")

    async def stop(self) -> None:
        """Let running handlers end, report offsets, release locks, leave the group."""
        member = self._member
        if not self._place.is_in:
            return
        member.running = False
        self._begin_no_more()
        if self._rebalancing is not None:
            self._rebalancing.cancel()
        fetching = [owned.fetching for owned in member.pulled.values()]
        fetching += [popped.fetching for popped in member.popped.values()]
        for task in fetching:
            if task is not None:
                task.cancel()
        wait_ms = member.options.stop_wait_ms
        both = self._consuming.slots, self._popping.slots
        ended = await asyncio.gather(*(slots.drained(wait_ms) for slots in both))
        if not all(ended):
            log.warning("handlers of group=%s still run after stop_wait_ms=%d", self.group, wait_ms)
        if isinstance(self._consuming, ConsumeLoop):
            self._consuming.settle()
        if self._tracer is not None:
            await self._tracer.close()
        await self._tasks.cancel()  # before unlocking: the renewal would lock again
        await self._settle()
        await self._place.leave()
        self._stopped.set()

    def _begin_no_more(self) -> None:
        """Running handlers end; what was fetched and not begun comes again, to whoever is next."""
        self._consuming.slots.close()
        self._popping.slots.close()
        self._handler.close()

    async def _settle(self) -> None:
        """What the rest of the group needs of us before we go."""
        member = self._member
        try:
            await member.offsets.persist(list(member.pulled))
            if member.locks_queues:
                await self._locks.unlock_all()
        except AerobeeError as error:
            log.warning("group=%s could not tell how far it is: %s", self.group, error)
        await self._place.say_goodbye()
        for owned in member.pulled.values():
            owned.inbox.dropped = True
        for popped in member.popped.values():
            popped.dropped = True

    async def wait(self) -> None:
        """Until the consumer is stopped."""
        await self._stopped.wait()

    def pause(self) -> None:
        """Fetch nothing more until `resume`; what is in work goes on."""
        self._member.suspended = True
        for owned in self._member.pulled.values():
            # A pull held by the broker would still bring messages; its answer is not waited for. (A held pop is
            # left: its messages would be leased to nobody.)
            if owned.fetching is not None and not owned.inbox.dropped:
                owned.fetching.cancel()
                self._start_pulling(owned)

    def resume(self) -> None:
        self._member.suspended = False
        self._rebalancer.wake()

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Add a topic, or change its expression."""
        self._member.subscriptions.add(topic, expression, self._member.clock.now())
        await self._place.announce()
        self._rebalancer.wake()

    async def unsubscribe(self, topic: str) -> None:
        self._member.subscriptions.remove(topic)
        self.session.unuse_topic(topic)
        await self._place.announce()
        self._rebalancer.wake()

    @property
    def refused(self) -> NoPermission | None:
        """Why a topic is not consumed now, where a broker refuses it: after the start that is only logged."""
        return self._member.refusals.any

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this consumer has now; id -1 means it pops every queue of the broker."""
        return sorted([*self._member.pulled, *self._member.popped])

    # -- background ----------------------------------------------------------------------------------------

    def _start_pulling(self, owned: OwnedQueue) -> None:
        after_ms = self._member.options.dispatch_ms
        owned.fetching = self._tasks.start(self._fetching.run(owned, after_ms), f"pull {owned.queue}")

    def _start_popping(self, popped: PoppedQueue) -> None:
        after_ms = self._member.options.dispatch_ms
        popped.fetching = self._tasks.start(self._popping.run(popped, after_ms), f"pop {popped.queue}")

    async def _persist_forever(self) -> None:
        while True:
            await self._member.clock.sleep(self._member.options.persist_offsets_ms)
            await self._member.offsets.persist(list(self._member.pulled))

    def _start_repair(self, owned: OwnedQueue, after_ms: int) -> None:
        owned.repairing = True
        self._tasks.start(self._repair(owned, after_ms), "offset-repair")

    async def _repair(self, owned: OwnedQueue, after_ms: int) -> None:
        """The broker has not the offset we asked for, or an operator moved the group: begin again where it says."""
        member = self._member
        if after_ms:
            await member.clock.sleep(after_ms)
        await handlers_ended([owned])
        if member.pulled.get(owned.queue) is not owned:
            return  # reset, or unsubscribed: where it stands is told by who has it now
        member.offsets.memory.freeze(owned.queue, owned.next_offset)
        await member.offsets.persist_one(owned.queue)
        if member.pulled.get(owned.queue) is owned:
            member.offsets.memory.remove(owned.queue)
            del member.pulled[owned.queue]
        log.info("offset repaired queue=%s offset=%d", owned.queue, owned.next_offset)
        self._rebalancer.wake()

    def _queues_changed(
        self, topic: str, every: Collection[MessageQueue], own: Collection[MessageQueue]
    ) -> None:
        member = self._member
        member.queues_changed(topic)
        member.subscriptions.renew(topic, member.clock.now())
        self._tasks.start(self._place.announce(), "heartbeat")
        if self._on_queues is not None:
            self._on_queues(topic, every, own)

    # -- what brokers ask for (through the session) --------------------------------------------------------

    def heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            consume_from_where=self._member.start.where,
            group_name=self.group,
            message_model=self._member.model,
            subscription_data_set=self._member.subscriptions.data(),
        )

    def route_changed(self, topic: str) -> None:
        if topic in self._member.subscriptions:
            self._rebalancer.wake()

    def members_changed(self) -> None:
        self._rebalancer.wake()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Stop the queues, wait for an ordered handler in work, and begin again at the offsets given. Java waits ten
        seconds for all handlers; here what those of a dropped queue finish counts no longer, so none need be."""
        member = self._member
        was_paused = member.suspended
        self.pause()
        try:
            affected = [owned for owned in member.pulled_of(topic) if owned.queue in offsets]
            for owned in affected:
                owned.inbox.dropped = True
                owned.inbox.clear()
            await handlers_ended(affected)
            for owned in affected:
                member.offsets.memory.set(owned.queue, offsets[owned.queue])
                await member.offsets.persist_one(owned.queue)
                self._ownership.drop(owned.queue)
        finally:
            if not was_paused:
                self.resume()

    def status(self, topic: str) -> dict[MessageQueue, int]:
        known = self._member.offsets.memory.snapshot()
        return {queue: offset for queue, offset in known.items() if not topic or queue.topic == topic}

    def running_info(self) -> bodies.ConsumerRunningInfo:
        info = consumer_report.running_info(self._member, self.started_at)
        info.properties["PROP_THREADPOOL_CORE_SIZE"] = str(self._member.options.concurrency)
        return info

    async def consume_directly(self, record: Record, broker_name: str) -> bodies.ConsumeDirectlyResult:
        return await consumer_report.consume_directly(self._member, self._handler, record, broker_name)


def _model(model: str) -> MessageModel:
    try:
        return MessageModel(model.upper())
    except ValueError:
        raise ValueError(f"model is {model!r}; it is 'clustering' or 'broadcasting'") from None


def _with_lasting_id(options: PushOptions) -> PushOptions:
    """The path of a broadcast consumer's offsets holds its client id, which must therefore not change."""
    return options if options.instance else msgspec.structs.replace(options, instance="DEFAULT")


def named_strategy(name: str) -> Strategy:
    try:
        return BY_NAME[name]
    except KeyError:
        raise ValueError(f"strategy is {name!r}; by name there are {', '.join(BY_NAME)}") from None


def _offsets(session: Session[PushOptions], model: MessageModel, group: str) -> OffsetStore:
    if model is MessageModel.CLUSTERING:
        return RemoteOffsets(session, group)
    return LocalOffsets.at(session.options.local_offsets, session.client_id, group)
