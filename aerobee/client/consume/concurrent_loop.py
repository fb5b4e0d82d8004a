# SPDX-License-Identifier: Apache-2.0
"""Concurrent consuming: handlers run side by side, failed messages are sent back, the offset follows the slowest.

Walk: `submit` cuts what was fetched into batches; a slot takes a batch, calls the handler and finishes it: what
succeeded leaves the inbox, what failed is sent back first and then leaves it too; what could not be sent back stays
and is tried again here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aerobee.client.consume import backoff
from aerobee.client.consume.done_soon import DoneSoon
from aerobee.client.consume.handler import SUCCESS, ConsumeResult, Handler, Outcome
from aerobee.client.consume.send_back import send_back, tell_of_death
from aerobee.client.consume.slots import YIELD_EVERY, Slots, each
from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from aerobee.client.consume.hooks import Hooks
    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.options import PushOptions
    from aerobee.client.session.tasks import Tasks

log = logging.getLogger("aerobee.client.consumer")

Batch = list["ReceivedMessage"]
CHUNK = 16  # plain functions: batches handed to a thread at once, when plenty wait
OVERDUE_LEVEL = 3  # delay level of a message whose handler takes too long
OVERDUE_AT_ONCE = 16


class ConsumeLoop:
    def __init__(self, member: Membership[PushOptions], handler: Handler, hooks: Hooks, tasks: Tasks) -> None:
        self._member = member
        self._handler = handler
        self._hooks = hooks
        self._tasks = tasks
        self._now = member.clock.now
        self._done: DoneSoon[OwnedQueue] = DoneSoon(self._settle)
        self.settle = self._done.settle
        work_off = self._work_off if handler.is_async else each(self._consume_some)
        self.slots: Slots[tuple[OwnedQueue, Batch]] = Slots(
            tasks, member.options.concurrency, work_off, "consume"
        )

    def submit(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        size = self._member.options.consume_batch
        if size == 1:
            self.slots.add_all([(owned, [message]) for message in messages])
        else:
            cuts = range(0, len(messages), size)
            self.slots.add_all([(owned, list(messages[at : at + size])) for at in cuts])

    # -- calling the handler -------------------------------------------------------------------------------

    async def _work_off(self, ready: deque[tuple[OwnedQueue, Batch]]) -> None:
        """Async functions: the loop of a slot, written out, for with a short handler it is most of the cost."""
        call, done = self._handler.call, 0
        while ready:
            owned, batch = ready.popleft()
            if owned.inbox.dropped:
                continue
            self._prepare(batch)
            outcome = await call(batch)
            if outcome is SUCCESS and not self._hooks.active:
                self._done.add(owned, batch)
            else:
                await self._finish(owned, batch, outcome)
            done += 1
            if done % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _consume_some(self, work: tuple[OwnedQueue, Batch]) -> None:
        """Plain functions: with plenty waiting, several batches go to a thread in one hand-over."""
        ready = self.slots.ready
        works = [work]
        while len(works) < CHUNK and len(ready) > self._member.options.concurrency * CHUNK:
            works.append(ready.popleft())
        works = [(owned, batch) for owned, batch in works if not owned.inbox.dropped]
        if not works:
            return
        for _, batch in works:
            self._prepare(batch)
        batches = [batch for _, batch in works]
        if len(batches) == 1:
            outcomes = [await self._handler.call(batches[0])]
        else:
            outcomes = await self._handler.call_each(batches)
        # Those without an outcome were not begun: they stay in their inbox.
        for (owned, batch), outcome in zip(works, outcomes, strict=False):
            await self._finish(owned, batch, outcome)

    def _prepare(self, batch: Batch) -> None:
        now = self._now()
        for message in batch:
            message.consume_started = now
            if message.topic[0] == "%" and message.topic.startswith(names.RETRY_PREFIX):
                group = self._member.group
                message.call_it(
                    message.property(props.RETRY_TOPIC) or names.normal_topic(message.topic, group)
                )
        if self._hooks.active:
            self._hooks.before(batch, now)

    def _settle(self, done: dict[OwnedQueue, Batch]) -> None:
        """What succeeded leaves the inbox and moves the offset."""
        now = self._member.clock.now()
        for owned, batch in done.items():
            inbox = owned.inbox
            if inbox.dropped:
                continue  # someone else owns the queue now and will deliver these again
            inbox.last_consume = now
            took_ms = now - batch[0].consume_started
            self._member.figures.consumed(owned.queue.topic, len(batch), 0, took_ms, now)
            offset = inbox.remove(batch)
            if offset >= 0:
                self._member.offsets.memory.raise_to(owned.queue, offset)

    # -- what came of it -----------------------------------------------------------------------------------

    async def _finish(self, owned: OwnedQueue, batch: Batch, outcome: Outcome) -> None:
        if self._hooks.active:
            self._hooks.after(batch, outcome, self._member.clock.now())
        inbox = owned.inbox
        if inbox.dropped:
            return  # someone else owns the queue now and will deliver these again
        failed, total = failed_part(batch, outcome), len(batch)
        took_ms = self._member.clock.now() - batch[0].consume_started
        if failed:
            for message in failed:
                message.consume_started = (
                    0  # its handler has ended: however long the way back takes, it is not overdue
                )
            batch = await self._give_back(owned, batch, failed, outcome)
        inbox.last_consume = now = self._member.clock.now()
        self._member.figures.consumed(owned.queue.topic, total - len(failed), len(failed), took_ms, now)
        offset = inbox.remove(batch)
        if offset >= 0 and not inbox.dropped:
            self._member.offsets.memory.raise_to(owned.queue, offset)

    async def _give_back(self, owned: OwnedQueue, batch: Batch, failed: Batch, outcome: Outcome) -> Batch:
        """Send the failed ones back. Returns what may leave the inbox."""
        if not self._member.clustering:
            for message in failed:
                log.warning(
                    "broadcast: failed message is dropped queue=%s offset=%d",
                    owned.queue,
                    message.queue_offset,
                )
            return batch
        kept: Batch = []
        for message in failed:
            if message in owned.inbox and not await self._sent_back(
                message, outcome.delay_level, outcome.error
            ):
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            self._tasks.start(self._retry_here(owned, kept), "retry-here")
            return [message for message in batch if not any(message is other for other in kept)]
        return batch

    async def _sent_back(self, message: ReceivedMessage, delay_level: int, why: BaseException | None) -> bool:
        member = self._member
        limit = backoff.effective_max(member.options.max_reconsume)
        try:
            await send_back(member.session, member.group, message, delay_level, limit, why)
        except (AerobeeError, IndexError) as error:
            log.warning("send-back failed, retrying here message_id=%s: %s", message.message_id, error)
            return False
        if delay_level < 0 or message.reconsume_times >= limit:
            tell_of_death(member.group, message)
        return True

    async def _retry_here(self, owned: OwnedQueue, messages: Batch) -> None:
        await self._member.clock.sleep(self._member.options.send_back_timeout_ms)
        self.submit(owned, messages)

    # -- messages whose handler hangs ----------------------------------------------------------------------

    async def clean_forever(self) -> None:
        while True:
            await self._member.clock.sleep(self._member.options.consume_timeout_ms)
            for owned in list(self._member.pulled.values()):
                await self.clean_overdue(owned)

    async def clean_overdue(self, owned: OwnedQueue) -> None:
        """A message in work for too long holds the offset of all later ones back: send it back and let it go. The
        handler cannot be stopped; should it fail later, the message has left the inbox and is not sent twice."""
        inbox, timeout_ms = owned.inbox, self._member.options.consume_timeout_ms
        for _ in range(OVERDUE_AT_ONCE):
            message = inbox.overdue(self._member.clock.now(), timeout_ms)
            why = TimeoutError(f"the handler ran longer than {timeout_ms} ms")
            if message is None or not await self._sent_back(message, OVERDUE_LEVEL, why):
                return
            log.warning(
                "handler runs too long, message sent back queue=%s offset=%d",
                owned.queue,
                message.queue_offset,
            )
            if inbox.is_first(message):
                offset = inbox.remove([message])
                if offset >= 0 and not inbox.dropped:
                    self._member.offsets.memory.raise_to(owned.queue, offset)


def failed_part(batch: Batch, outcome: Outcome) -> Batch:
    """The messages of the batch that must be delivered again."""
    if outcome.result is ConsumeResult.SUCCESS or outcome.result is ConsumeResult.COMMIT:
        return [] if outcome.ack_index is None else batch[outcome.ack_index + 1 :]
    return batch
