# SPDX-License-Identifier: Apache-2.0
"""Ordered consuming: one handler at a time per queue, and a message that fails is tried again before the next one.

A queue is worked on by at most one worker (`Inbox.busy`), and only while this client holds its lock at the broker.
After `ordered_slice_ms` a worker yields to other queues. A failed message stays at the front and the queue rests for
`suspend_queue_ms`; past the retry limit, if there is one, it goes to the dead letters and the queue goes on.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aerobee.client.consume import backoff
from aerobee.client.consume.handler import ConsumeResult, Handler, Outcome
from aerobee.client.consume.send_back import send_to_retry_topic, tell_of_death
from aerobee.client.consume.slots import Slots, each
from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.client.consume.hooks import Hooks
    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.options import PushOptions
    from aerobee.client.session.tasks import Tasks

log = logging.getLogger("aerobee.client.consumer")

RELOCK_MS, AGAIN_MS, NOT_LOCKED_MS = 100, 10, 3_000
NO_LIMIT = 2**31 - 1


class OrderedLoop:
    def __init__(
        self,
        member: Membership[PushOptions],
        handler: Handler,
        hooks: Hooks,
        tasks: Tasks,
        lock: Callable[[OwnedQueue], Awaitable[bool]],
    ) -> None:
        self._member = member
        self._handler = handler
        self._hooks = hooks
        self._tasks = tasks
        self._lock = lock
        self._retry = names.retry_topic(member.group)
        self.slots: Slots[OwnedQueue] = Slots(tasks, member.options.concurrency, each(self._work), "consume")

    def submit(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """One worker per queue: it takes what it needs from the inbox, so it is only started when none runs."""
        if owned.inbox.claim():
            self.slots.add(owned)

    def _later(self, owned: OwnedQueue, ms: int) -> None:
        self._tasks.start(self._submit_after(owned, ms), "ordered-later")

    async def _submit_after(self, owned: OwnedQueue, ms: int) -> None:
        await self._member.clock.sleep(ms)
        self.slots.add(owned)

    # -- one queue -----------------------------------------------------------------------------------------

    async def _work(self, owned: OwnedQueue) -> None:
        member, inbox = self._member, owned.inbox
        if inbox.dropped:
            return
        if member.clustering and not self._holds_lock(owned):
            self._tasks.start(self._lock_again(owned, RELOCK_MS), "relock")
            return
        began = member.clock.now()
        while member.running and not inbox.dropped:
            if member.clustering and not self._holds_lock(owned):
                self._tasks.start(self._lock_again(owned, AGAIN_MS), "relock")
                return
            if member.clock.now() - began > member.options.ordered_slice_ms:
                self._later(owned, AGAIN_MS)
                return
            batch = inbox.take(member.options.consume_batch)
            if not batch or not await self._consume(owned, batch):
                return

    def _holds_lock(self, owned: OwnedQueue) -> bool:
        inbox = owned.inbox
        return inbox.locked and not inbox.lock_expired(
            self._member.clock.now(), self._member.options.lock_life_ms
        )

    async def _lock_again(self, owned: OwnedQueue, after_ms: int) -> None:
        await self._member.clock.sleep(after_ms)
        locked = await self._lock(owned)
        await self._submit_after(owned, AGAIN_MS if locked else NOT_LOCKED_MS)

    async def _consume(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> bool:
        """True when the worker may go on with the next batch."""
        now = self._member.clock.now()
        for message in batch:
            message.consume_started = now
            if message.topic == self._retry:
                message.call_it(message.property(props.RETRY_TOPIC) or message.topic)
        self._hooks.before(batch, now)
        # Whoever takes the queue from us waits for this before the broker may give it to someone else.
        owned.handling = asyncio.get_running_loop().create_future()
        try:
            outcome = await self._handler.call(batch)
        finally:
            owned.handling.set_result(None)
            owned.handling = None
        self._hooks.after(batch, outcome, self._member.clock.now())
        owned.inbox.last_consume = ended = self._member.clock.now()
        good = len(batch) if outcome.result in (ConsumeResult.SUCCESS, ConsumeResult.COMMIT) else 0
        self._member.figures.consumed(owned.queue.topic, good, len(batch) - good, ended - now, ended)
        return await self._finish(owned, batch, outcome)

    # -- what came of it -----------------------------------------------------------------------------------

    async def _finish(self, owned: OwnedQueue, batch: list[ReceivedMessage], outcome: Outcome) -> bool:
        auto_commit = self._member.options.ordered_auto_commit
        match outcome.result:
            case ConsumeResult.RETRY | ConsumeResult.SUSPEND:
                if await self._may_suspend(batch, outcome.error):
                    owned.inbox.put_back(batch)
                    self._rest(owned, outcome)
                    return False
                if auto_commit:
                    self._commit(owned)
            case ConsumeResult.ROLLBACK if not auto_commit:
                owned.inbox.rollback()
                self._rest(owned, outcome)
                return False
            case ConsumeResult.SUCCESS if not auto_commit:
                pass
            case ConsumeResult.COMMIT | ConsumeResult.ROLLBACK if auto_commit:
                log.warning(
                    "handler returned %s although ordered_auto_commit is on: committing", outcome.result.name
                )
                self._commit(owned)
            case _:
                self._commit(owned)
        return True

    def _rest(self, owned: OwnedQueue, outcome: Outcome) -> None:
        self._later(owned, backoff.suspend_ms(outcome.suspend_ms, self._member.options.suspend_queue_ms))

    def _commit(self, owned: OwnedQueue) -> None:
        offset = owned.inbox.commit()
        if offset >= 0 and not owned.inbox.dropped:
            self._member.offsets.memory.set(owned.queue, offset)

    async def _may_suspend(self, batch: list[ReceivedMessage], why: BaseException | None) -> bool:
        """Whether the batch stays at the front. Messages past the limit are sent to the dead letters instead."""
        limit = self._member.options.max_reconsume
        limit = NO_LIMIT if limit < 0 else limit
        suspend = False
        for message in batch:
            if message.reconsume_times >= limit and await self._sent_away(message, limit, why):
                continue
            message.reconsume_times += 1
            suspend = True
        return suspend

    async def _sent_away(self, message: ReceivedMessage, limit: int, why: BaseException | None) -> bool:
        try:
            await send_to_retry_topic(self._member.session, self._member.group, message, limit, why)
        except (AerobeeError, IndexError) as error:
            log.warning(
                "dead letter not sent message_id=%s: %s; the handler is called again, then it is tried again",
                message.message_id,
                error,
            )
            return False
        tell_of_death(self._member.group, message)
        return True
