# SPDX-License-Identifier: Apache-2.0
"""Pulling one queue again and again: RocketMQ's pull in its twelve steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.consume.decoding import decode_pulled
from aerobee.client.consume.failed_fetch import is_reset, tell_moved, wait_after
from aerobee.client.consume.inbox import Full, full
from aerobee.client.consume.start_offset import start_offset
from aerobee.client.message import ReceivedMessage
from aerobee.client.session.outages import level
from aerobee.errors import AerobeeError, NoRoute
from aerobee.protocol.codes import PullFlag, ResponseCode
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.reading import PULL_ANSWERS, PullRequest, member_pull, pull

if TYPE_CHECKING:
    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.options import PushOptions
    from aerobee.protocol.command import Command
    from aerobee.protocol.filters.tags import Subscription

log = logging.getLogger("aerobee.client.fetch")

Submit = Callable[["OwnedQueue", Sequence[ReceivedMessage]], None]


class FetchLoop:
    def __init__(
        self, member: Membership[PushOptions], submit: Submit, repair: Callable[[OwnedQueue, int], None]
    ) -> None:
        self._member = member
        self._submit = submit
        self._repair = repair  # after so many milliseconds

    async def run(self, owned: OwnedQueue, first_after_ms: int = 0) -> None:
        """Until the queue is dropped."""
        wait_ms: int | None = first_after_ms
        while wait_ms is not None:
            if wait_ms:
                await self._member.clock.sleep(wait_ms)
            elif owned.inbox.count and owned.inbox.has_all:
                # The next pull will be held anyway: what came is handled before it is asked.
                await asyncio.sleep(0)
            try:
                wait_ms = await self.pull_once(owned)
            except Exception:
                # Whatever is wrong with one pull, the queue must be pulled again.
                log.exception("pull failed queue=%s offset=%d", owned.queue, owned.next_offset)
                wait_ms = self._member.options.exception_ms

    async def pull_once(self, owned: OwnedQueue) -> int | None:
        """One pull. The wait before the next one in ms; None when there is none, the queue being dropped."""
        member, inbox, options = self._member, owned.inbox, self._member.options
        if inbox.dropped:  # 1
            return None
        inbox.last_pull = member.clock.now()  # 2: before all that delays, so a slow consumer never looks idle
        if not member.running:  # 3
            return options.exception_ms
        if member.suspended:  # 4
            return options.suspended_ms
        reason = full(inbox, member.limits(owned.queue.topic))  # 5 count, 6 size, 7 span
        if reason is not None:
            self._warn_full(owned, reason)
            return options.flow_control_ms
        if member.ordered and not await self._lock_settled(owned):  # 8
            return options.exception_ms
        subscription = member.subscriptions.get(owned.queue.topic)  # 9
        if subscription is None:
            log.warning("no subscription for topic=%s group=%s", owned.queue.topic, member.group)
            return options.exception_ms
        request = self._request(owned, subscription)  # 11
        began = member.clock.now()
        try:
            answer = await self._ask(owned, request)  # 12
        except AerobeeError as error:
            return wait_after(error, member, owned.queue, options.exception_ms)
        if member.refusals.standing:
            member.refusals.over(owned.queue.topic)
        handle = (
            self._found if answer.code == ResponseCode.SUCCESS else self._nothing_found
        )  # 10, Java's callback
        return handle(owned, request, subscription, answer, began)

    def _warn_full(self, owned: OwnedQueue, reason: Full) -> None:
        if self._member.flow_warnings.hit(reason):
            inbox = owned.inbox
            log.warning(
                "not pulling queue=%s: too many unfinished %s; messages=%d bytes=%d span=%d",
                owned.queue, reason, inbox.count, inbox.size_bytes, inbox.span,
            )  # fmt: skip

    async def _lock_settled(self, owned: OwnedQueue) -> bool:
        """Ordered: the queue must be ours at the broker. The first pull then asks where to begin once more, for
        the owner before us may have gone on consuming until we got the lock."""
        if not owned.inbox.locked:
            return False
        if not owned.previously_locked:
            member = self._member
            try:
                offset = await start_offset(member.session, member.offsets, member.start, owned.queue)
            except AerobeeError as error:
                log.log(level(error), "no start offset for queue=%s: %s", owned.queue, error)
                return False
            if offset < owned.next_offset:
                log.warning(
                    "start offset of queue=%s goes back from=%d to=%d", owned.queue, owned.next_offset, offset
                )
            owned.next_offset = offset
            owned.previously_locked = True
        return True

    def _request(self, owned: OwnedQueue, subscription: Subscription) -> PullMessage:
        member, options, queue = self._member, self._member.options, owned.queue
        commit = (member.offsets.memory.get(queue) or 0) if member.clustering else 0
        wanted = msgspec.structs.replace(subscription, version=member.subscriptions.told_version(queue.topic))
        request = PullRequest(
            group=member.group,
            queue=queue,
            offset=owned.next_offset,
            subscription=wanted,
            max_messages=self._at_once(owned),
            max_bytes=options.pull_batch_bytes,
            hold_ms=options.pull_hold_ms,
            commit=max(commit, 0),
        )
        return pull(request) if options.post_subscription else member_pull(request)

    def _at_once(self, owned: OwnedQueue) -> int:
        """More while there is a backlog, for a pull costs as much as several messages; but not past the limit of
        unfinished ones."""
        options, inbox = self._member.options, owned.inbox
        if inbox.backlog <= options.pull_batch:
            return options.pull_batch
        room = self._member.limits(owned.queue.topic).messages - inbox.count
        return max(options.pull_batch, min(options.pull_backlog_batch, room))

    async def _ask(self, owned: OwnedQueue, request: PullMessage) -> Command:
        session, queue = self._member.session, owned.queue
        address = session.routes.address(queue.broker_name, owned.next_broker)
        if address is None:
            await session.refresh_route(queue.topic)
            address = session.routes.address(queue.broker_name, owned.next_broker)
        if address is None:
            raise NoRoute(
                f"broker {queue.broker_name!r} has no address in the route of topic {queue.topic!r}"
            )
        if not session.routes.is_master(queue.broker_name, address):
            # Offsets live with the master, which slaves copy; a slave would keep ours to itself.
            request = msgspec.structs.replace(request, sys_flag=request.sys_flag & ~PullFlag.COMMIT_OFFSET)
        return await session.call(
            address, request, timeout_ms=self._member.options.pull_timeout_ms, accept=PULL_ANSWERS
        )

    def _nothing_found(
        self, owned: OwnedQueue, request: PullMessage, subscription: Subscription, answer: Command, began: int
    ) -> int | None:
        result = answer.fields(PullResult)
        owned.next_broker = result.suggest_which_broker_id
        owned.next_offset = result.next_begin_offset
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            there = result.min_offset, result.max_offset
            tell_moved(owned.queue, request.queue_offset, there, result.next_begin_offset)
            owned.inbox.dropped = True
            was_reset = is_reset(request.queue_offset, there)
            self._repair(owned, 0 if was_reset else self._member.options.offset_repair_ms)
            return None
        if owned.inbox.count == 0 and not owned.inbox.dropped:
            # Nothing matched up to here and nothing is unfinished: the group is that far.
            self._member.offsets.memory.raise_to(owned.queue, owned.next_offset)
        return 0

    def _found(
        self, owned: OwnedQueue, request: PullMessage, subscription: Subscription, answer: Command, began: int
    ) -> int:
        now = self._member.clock.now()
        result = answer.fields(PullResult)
        owned.next_broker = result.suggest_which_broker_id
        messages = decode_pulled(answer.body, owned.queue.broker_name, result, subscription)
        owned.next_offset = result.next_begin_offset
        lowest = result.next_begin_offset
        if messages:
            lowest = min(lowest, messages[0].queue_offset)
        if lowest < request.queue_offset:
            log.warning("answer of queue=%s goes back to offset=%d", owned.queue, lowest)
        if messages and not owned.inbox.dropped:
            owned.inbox.put(messages)
            self._submit(owned, messages)
        self._member.figures.pulled(owned.queue.topic, len(messages), now - began, now)
        return self._member.options.pull_interval_ms if messages else 0
