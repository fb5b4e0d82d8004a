# SPDX-License-Identifier: Apache-2.0
"""The pull consumer: the application asks for messages when it wants them, and says itself how far it is."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Self

from aerobee.client import spans
from aerobee.client.consume import raw_pull
from aerobee.client.consume import report as consumer_report
from aerobee.client.consume import start_offset as offsets_of
from aerobee.client.consume.assignment import divided_here
from aerobee.client.consume.failed_fetch import tell_moved, wait_after
from aerobee.client.consume.inbox import full
from aerobee.client.consume.iteration import Messages
from aerobee.client.consume.membership import GroupMember, Membership, OwnedQueue
from aerobee.client.consume.offset_keeper import RemoteOffsets, read_memory_first
from aerobee.client.consume.ownership import Ownership
from aerobee.client.consume.poll_buffer import PollBuffer
from aerobee.client.consume.push_consumer import QueueListener, named_strategy
from aerobee.client.consume.raw_pull import PullAnswer, PullStatus
from aerobee.client.consume.rebalancer import Rebalancer
from aerobee.client.consume.start_offset import Start, StartPoint
from aerobee.client.consume.subscriptions import Expression, Subscriptions
from aerobee.client.options import PullOptions
from aerobee.client.session.session import Session
from aerobee.client.session.tasks import Tasks
from aerobee.errors import AerobeeError, SystemFailure
from aerobee.protocol import bodies
from aerobee.protocol.bodies import ConsumeType, MessageModel, MessageQueue
from aerobee.protocol.filters.tags import TAG, subscribe
from aerobee.protocol.reading import PullRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from aerobee.client.consume.rebalance import Strategy
    from aerobee.client.message import ReceivedMessage
    from aerobee.clock import Clock
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.client.consumer")

PAUSED_MS = 1_000
FAILED_MS = 1_000


class PullConsumer:
    """Messages when asked for.

    >>> async with PullConsumer("127.0.0.1:9876", group="audit", topics={"orders": "*"}) as consumer:
    ...     for message in await consumer.poll(max_messages=32, timeout_ms=5_000):
    ...         print(message.body)

    With `topics` the group shares the queues; without, `assign` names them. What `poll` has handed out counts as
    consumed at the next `poll` (every `auto_commit_ms`), at `commit`, and at the end; not when an exception ends the
    `async with`: the last `poll` then comes again.
    """

    def __init__(  # noqa: PLR0913 - each is a real setting of a consumer
        self,
        namesrv: str | Session | None = None,
        *,
        group: str,
        topics: Mapping[str, Expression] | None = None,
        start: Start = "last",
        options: PullOptions | None = None,
        strategy: Strategy | None = None,
        on_queues: QueueListener | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.session: Session[PullOptions] = Session.of_role(PullOptions, namesrv, options, clock)
        clock = self.session.clock
        self.group = group
        self._shares = topics is not None
        self._member = member = Membership(
            self.session,
            group,
            MessageModel.CLUSTERING,
            False,
            Subscriptions(topics or {}, clock.now()),
            RemoteOffsets(self.session, group),
            StartPoint.of(start),
            strategy or named_strategy(self.session.options.strategy),
        )
        self._place = GroupMember(self, self.session, group, member.subscriptions)
        self._on_queues = on_queues
        self._tasks = Tasks()
        self._buffer = PollBuffer()
        member.refusals.heard = self._buffer.wake
        self._paused: set[MessageQueue] = set()
        spans.watch_receiver(self, "poll")
        self._consumed: dict[MessageQueue, int] = {}
        self._before: dict[MessageQueue, int | None] = {}  # the last poll, where it took something
        self._last_commit = clock.now()
        self._ownership = Ownership(member, None, self._begin, lambda popped: None)
        # Never as the broker says, which may be POP; and a queue may be left alone as long as the application likes.
        self._rebalancer = Rebalancer(member, self._ownership, self._queues_changed, divided_here, idle_ms=0)
        self.started_at = 0

    # -- life ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._take_back()
        await self.stop()

    async def start(self) -> None:
        try:
            self._rebalancer.unrouted |= await self._place.join()
            await self._place.announce()
            await self._place.check_admitted()
        except BaseException:
            await self.stop()
            raise
        self.started_at = self._member.clock.now()
        self._member.running = True
        if self._shares:
            self._tasks.start(self._rebalancer.run_forever(), "rebalance")
        self._tasks.start(self._persist_forever(), "offsets")

    async def stop(self) -> None:
        """What was polled counts as consumed."""
        if not self._place.is_in:
            return
        self._member.running = False
        try:
            if self.session.options.auto_commit_ms:
                await self.commit()
        except AerobeeError as error:
            log.warning("group=%s could not tell how far it is: %s", self.group, error)
        await self._place.say_goodbye()
        await self._tasks.cancel()
        await self._place.leave()

    async def _persist_forever(self) -> None:
        while True:
            await self._member.clock.sleep(self.session.options.persist_offsets_ms)
            await self._member.offsets.persist(list(self._member.pulled))

    # -- reading -------------------------------------------------------------------------------------------

    async def poll(self, max_messages: int = 32, timeout_ms: int | None = None) -> list[ReceivedMessage]:
        """Up to `max_messages`, as soon as there are any; an empty list when there are none in time. NoPermission when
        a broker refuses them, once each time that it does."""
        self._place.check_in()
        if max_messages <= 0:
            raise ValueError(f"max_messages is {max_messages}; ask for at least one")
        if timeout_ms is not None and timeout_ms < 0:
            raise ValueError(f"timeout_ms is {timeout_ms}; it cannot be negative")
        self._auto_commit()
        self._before.clear()
        wait_ms = self.session.options.poll_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._member.clock.now() + wait_ms
        while True:
            found: list[ReceivedMessage] = []
            for owned, messages in self._buffer.take(max_messages):
                self._before.setdefault(owned.queue, self._consumed.get(owned.queue))
                self._consumed[owned.queue] = owned.inbox.remove(messages)
                found += messages
            refusals = self._member.refusals
            if not found and refusals.standing and (refusal := refusals.take()) is not None:
                raise refusal
            left_ms = deadline - self._member.clock.now()
            if found or left_ms <= 0 or not await self._buffer.wait(left_ms):
                return found

    def messages(self, timeout_ms: int | None = None) -> Messages:
        """One message after the other; each counts as consumed when the next is asked for."""
        self._place.check_in()
        return Messages(partial(self.poll, 1, timeout_ms), lambda: self._place.is_in)

    def __aiter__(self) -> Messages:
        return self.messages()

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: str = "*",
        hold_ms: int = 0,
    ) -> PullAnswer:
        """One pull by hand, beside poll and commit: the caller keeps `next_offset` himself."""
        if offset < 0:
            raise ValueError(f"offset is {offset}; it cannot be negative")
        if max_messages <= 0:
            raise ValueError(f"max_messages is {max_messages}; ask for at least one")
        subscription = subscribe(queue.topic, expression, 0, TAG)
        return await raw_pull.pull(
            self.session,
            PullRequest(
                group=self.group, queue=queue, offset=offset, subscription=subscription, max_messages=max_messages,
                hold_ms=hold_ms,
            ),
        )  # fmt: skip

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic, ours or not."""
        return list((await self.session.route(topic)).readable)

    @property
    def assignment(self) -> list[MessageQueue]:
        return sorted(self._member.pulled)

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read exactly these queues, whatever other members of the group do."""
        self._place.check_in()
        if self._shares:
            raise TypeError(
                "this consumer was given topics and shares their queues; assign needs one without"
            )
        wanted = set(queues)
        for queue in [queue for queue in self._member.pulled if queue not in wanted]:
            self._buffer.forget(self._member.pulled[queue])
            await self._ownership.give_up(self._member.pulled[queue])
        for queue in sorted(wanted):
            if queue.topic not in self._member.subscriptions:
                self._member.subscriptions.add(queue.topic, expression, self._member.clock.now())
                await self.session.route(queue.topic)
            if queue not in self._member.pulled and not await self._ownership.take(queue):
                raise SystemFailure(f"queue {queue} could not be taken: its broker does not answer")
        await self._place.announce()

    # -- position ------------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset`, which the queue must have."""
        owned = self._owned(queue)
        lowest, highest = await self.offset_range(queue)
        if not lowest <= offset <= highest:
            raise ValueError(f"offset {offset} is outside of queue {queue}, which has {lowest} to {highest}")
        self._restart(owned, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        self._restart(self._owned(queue), (await self.offset_range(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        self._restart(self._owned(queue), (await self.offset_range(queue))[1])

    async def seek_to_time(self, queue: MessageQueue, when: datetime | int) -> None:
        """Go on at the first message stored at or after `when`."""
        owned = self._owned(queue)
        self._restart(owned, await self.offset_for_time(queue, when))

    async def offset_range(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset there is, and the next to be written."""
        lowest = await offsets_of.min_offset(self.session, queue)
        return lowest, await offsets_of.max_offset(self.session, queue)

    async def offset_for_time(self, queue: MessageQueue, when: datetime | int) -> int:
        return await offsets_of.offset_at(self.session, queue, StartPoint.of(when).timestamp)

    def _restart(self, owned: OwnedQueue, offset: int) -> None:
        if owned.fetching is not None:
            owned.fetching.cancel()
        self._buffer.forget(owned)
        owned.inbox.clear()
        owned.next_offset = offset
        self._consumed[owned.queue] = offset
        self._before.pop(owned.queue, None)
        self._member.offsets.memory.set(owned.queue, offset)
        self._start_fetching(owned)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Fetch no more of these queues until `resume`."""
        self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.difference_update(queues)

    def _owned(self, queue: MessageQueue) -> OwnedQueue:
        self._place.check_in()
        owned = self._member.pulled.get(queue)
        if owned is None:
            raise ValueError(f"queue {queue} is not assigned to this consumer")
        return owned

    # -- progress ------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Report progress now: of everything polled, or the offsets given (of the next message to consume)."""
        if offsets is None:
            self._before.clear()
            self._remember_consumed()
            await self._member.offsets.persist(list(self._member.pulled))
            return
        for queue, offset in offsets.items():
            if offset < 0:
                raise ValueError(f"offset {offset} of queue {queue} cannot be negative")
            self._consumed[queue] = offset
            self._before.pop(queue, None)
            self._member.offsets.memory.set(queue, offset)
            await self._member.offsets.persist_one(queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The next offset the group will read; None when it has none yet."""
        return await read_memory_first(self._member.offsets, queue)

    def _auto_commit(self) -> None:
        interval_ms = self.session.options.auto_commit_ms
        if interval_ms and self._member.clock.now() - self._last_commit >= interval_ms:
            self._last_commit = self._member.clock.now()
            self._remember_consumed()  # and the timer reports it

    def _take_back(self) -> None:
        """Nobody can tell how far the work on the last poll came."""
        for queue, offset in self._before.items():
            if offset is None:
                self._consumed.pop(queue, None)
            else:
                self._consumed[queue] = offset
        self._before.clear()

    def _remember_consumed(self) -> None:
        for queue, offset in self._consumed.items():
            owned = self._member.pulled.get(queue)
            if offset >= 0 and owned is not None and not owned.inbox.dropped:
                self._member.offsets.memory.set(queue, offset)

    # -- fetching ------------------------------------------------------------------------------------------

    def _begin(self, owned: OwnedQueue) -> None:
        """Of a queue that is ours now: how far we were when we had it before counts no longer."""
        self._consumed.pop(owned.queue, None)
        self._before.pop(owned.queue, None)
        self._start_fetching(owned)

    def _start_fetching(self, owned: OwnedQueue) -> None:
        owned.fetching = self._tasks.start(self._fetch_forever(owned), f"fetch {owned.queue}")

    async def _fetch_forever(self, owned: OwnedQueue) -> None:
        wait_ms: int | None = 0
        while wait_ms is not None:
            if wait_ms:
                await self._member.clock.sleep(wait_ms)
            try:
                wait_ms = await self._fetch_once(owned)
            except Exception:
                # Whatever is wrong with one pull, the queue must be pulled again: no idle rule takes it anew.
                log.exception("pull failed queue=%s offset=%d", owned.queue, owned.next_offset)
                wait_ms = FAILED_MS

    async def _fetch_once(self, owned: OwnedQueue) -> int | None:
        options, queue = self.session.options, owned.queue
        if owned.inbox.dropped:
            return None
        if queue in self._paused:
            return PAUSED_MS
        owned.inbox.last_pull = self._member.clock.now()
        if self._buffer.count > options.poll_messages or full(owned.inbox, self._member.limits(queue.topic)):
            return options.flow_control_ms
        subscription = self._member.subscriptions.get(queue.topic)
        if subscription is None:
            return FAILED_MS
        request = PullRequest(
            group=self.group, queue=queue, offset=owned.next_offset, subscription=subscription,
            max_messages=options.poll_batch, hold_ms=options.poll_hold_ms,
        )  # fmt: skip
        try:
            answer = await raw_pull.pull(self.session, request)
        except AerobeeError as error:
            return wait_after(error, self._member, queue, FAILED_MS)
        if self._member.refusals.standing:
            self._member.refusals.over(queue.topic)
        if answer.messages and not owned.inbox.dropped:
            owned.inbox.put(answer.messages)
            self._buffer.put(owned, answer.messages)
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            tell_moved(queue, owned.next_offset, (answer.min_offset, answer.max_offset), answer.next_offset)
        owned.next_offset = answer.next_offset
        return 0

    def _queues_changed(
        self, topic: str, every: Collection[MessageQueue], own: Collection[MessageQueue]
    ) -> None:
        self._member.queues_changed(topic)
        if self._on_queues is not None:
            self._on_queues(topic, every, own)

    # -- what brokers ask for (through the session) --------------------------------------------------------

    def heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(
            consume_from_where=self._member.start.where,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            group_name=self.group,
            message_model=self._member.model,
            subscription_data_set=self._member.subscriptions.data(),
        )

    def route_changed(self, topic: str) -> None:
        if self._shares and topic in self._member.subscriptions:
            self._rebalancer.wake()

    def members_changed(self) -> None:
        if self._shares:
            self._rebalancer.wake()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for owned in self._member.pulled_of(topic):
            if owned.queue in offsets:
                self._restart(owned, offsets[owned.queue])
        await asyncio.sleep(0)

    def status(self, topic: str) -> dict[MessageQueue, int]:
        known = self._member.offsets.memory.snapshot()
        return {queue: offset for queue, offset in known.items() if not topic or queue.topic == topic}

    def running_info(self) -> bodies.ConsumerRunningInfo:
        info = consumer_report.running_info(self._member, self.started_at)
        info.properties["PROP_CONSUME_TYPE"] = ConsumeType.CONSUME_ACTIVELY
        return info

    async def consume_directly(self, record: Record, broker_name: str) -> bodies.ConsumeDirectlyResult:
        raise SystemFailure(f"group {self.group!r} pulls its messages; there is no handler to call")
