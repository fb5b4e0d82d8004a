# SPDX-License-Identifier: Apache-2.0
"""A push consumer that pops: the broker chooses, leases and retries; here messages are asked for, handed to the
handler, and acked or hidden until their next attempt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.client.consume import backoff
from aerobee.client.consume.concurrent_loop import failed_part
from aerobee.client.consume.decoding import wanted
from aerobee.client.consume.done_soon import DoneSoon
from aerobee.client.consume.failed_fetch import wait_after
from aerobee.client.consume.handler import SUCCESS
from aerobee.client.consume.inbox import Full
from aerobee.client.consume.popped import PopAnswer, pop
from aerobee.client.consume.slots import Slots, each
from aerobee.errors import AerobeeError
from aerobee.protocol import reading
from aerobee.protocol.bodies import ConsumeFromWhere
from aerobee.protocol.failure_text import failure_text
from aerobee.protocol.reading import PopRequest

if TYPE_CHECKING:
    from aerobee.client.consume.handler import Handler, Outcome
    from aerobee.client.consume.hooks import Hooks
    from aerobee.client.consume.membership import Membership, PoppedQueue
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.options import PushOptions
    from aerobee.client.session.tasks import Tasks
    from aerobee.protocol.command import Command
    from aerobee.protocol.filters.tags import Subscription
    from aerobee.protocol.headers.consume import PopMessage

log = logging.getLogger("aerobee.client.pop")


class _Acking:
    """Waits for the answer to an ack; there is nothing to be done about a failure."""

    __slots__ = ("_message", "_over", "_popped")

    def __init__(self, popped: PoppedQueue, message: ReceivedMessage) -> None:
        self._popped = popped
        self._message = message
        self._over = False

    def done(self) -> bool:
        return self._over

    def set_result(self, answer: Command) -> None:
        self._over = True
        self._popped.unacked -= 1
        if answer.code:
            _log_failed_ack(self._message, answer.remark)

    def set_exception(self, error: BaseException) -> None:
        self._over = True
        self._popped.unacked -= 1
        _log_failed_ack(self._message, error)

    def exception(self) -> BaseException | None:
        """It has been told."""
        return None


def _log_failed_ack(message: ReceivedMessage, why: object) -> None:
    log.warning("ack failed message_id=%s, it will come again: %s", message.message_id, why)


class PopLoop:
    def __init__(self, member: Membership[PushOptions], handler: Handler, hooks: Hooks, tasks: Tasks) -> None:
        self._member = member
        self._handler = handler
        self._hooks = hooks
        self._tasks = tasks
        self._done: DoneSoon[PoppedQueue] = DoneSoon(self._settle)
        self._max_reconsume = backoff.effective_max(member.options.max_reconsume)
        self.slots: Slots[tuple[PoppedQueue, list[ReceivedMessage], int]] = Slots(
            tasks, member.options.concurrency, each(self._consume), "pop-consume"
        )

    # -- asking --------------------------------------------------------------------------------------------

    async def run(self, popped: PoppedQueue, first_after_ms: int = 0) -> None:
        """Until the queue is dropped."""
        wait_ms: int | None = first_after_ms
        while wait_ms is not None:
            if wait_ms:
                await self._member.clock.sleep(wait_ms)
            try:
                wait_ms = await self.pop_once(popped)
            except Exception:
                # Whatever is wrong with one pop, the queue must be popped again.
                log.exception("pop failed queue=%s", popped.queue)
                wait_ms = self._member.options.exception_ms

    async def pop_once(self, popped: PoppedQueue) -> int | None:
        """One pop. The wait before the next one in ms; None when the queue is dropped."""
        member, options = self._member, self._member.options
        if popped.dropped:
            return None
        popped.last_pop = member.clock.now()
        if not member.running:
            return options.exception_ms
        if member.suspended:
            return options.suspended_ms
        if popped.unacked > options.pop_unacked:
            if member.flow_warnings.hit(Full.COUNT):
                log.warning("not popping queue=%s: unacked=%d", popped.queue, popped.unacked)
            return options.flow_control_ms
        subscription = member.subscriptions.get(popped.queue.topic)
        if subscription is None:
            return options.exception_ms
        try:
            address = await member.session.master(popped.queue.broker_name, popped.queue.topic)
            answer = await pop(member.session, address, self._request(popped, subscription))
        except AerobeeError as error:
            return wait_after(error, member, popped.queue, options.exception_ms)
        if member.refusals.standing:
            member.refusals.over(popped.queue.topic)
        if answer.full:
            return options.exception_ms
        self._answered(popped, subscription, answer)
        return options.pull_interval_ms if answer.messages else 0

    def _request(self, popped: PoppedQueue, subscription: Subscription) -> PopMessage:
        member, options = self._member, self._member.options
        request = PopRequest(
            group=member.group,
            queue=popped.queue,
            subscription=subscription,
            max_messages=options.pop_batch,
            invisible_ms=options.pop_invisible_ms,
            hold_ms=options.pop_hold_ms,
            from_first=member.start.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        return reading.pop(request, member.clock.wall())

    def _answered(self, popped: PoppedQueue, subscription: Subscription, answer: PopAnswer) -> None:
        messages = [
            m for m in wanted(answer.messages, subscription) if m.reconsume_times <= self._max_reconsume
        ]
        popped.unacked += len(answer.messages)
        if len(messages) < len(answer.messages):
            kept = set(map(id, messages))
            for message in answer.messages:
                if (
                    id(message) not in kept
                ):  # not ours, or tried often enough: the broker must not bring it again
                    self._ack(popped, message)
        size = self._member.options.consume_batch
        cuts = range(0, len(messages), size)
        self.slots.add_all([(popped, messages[at : at + size], answer.until) for at in cuts])

    # -- consuming -----------------------------------------------------------------------------------------

    async def _consume(self, work: tuple[PoppedQueue, list[ReceivedMessage], int]) -> None:
        popped, batch, expires = work
        clock = self._member.clock
        now = clock.now()
        if popped.dropped or now >= expires:
            popped.unacked -= len(batch)  # too late: others may have them already
            return
        for message in batch:
            message.consume_started = now
        if self._hooks.active:
            self._hooks.before(batch, now)
        outcome = await self._handler.call(batch)
        if self._hooks.active:
            self._hooks.after(batch, outcome, clock.now())
        if outcome is SUCCESS and not self._hooks.active and clock.now() < expires:
            self._done.add(popped, batch)
            return
        if clock.now() >= expires and all(m.lease is None or m.lease.expired(clock.now()) for m in batch):
            log.warning("handler outlived the invisible time queue=%s messages=%d", popped.queue, len(batch))
            popped.unacked -= len(batch)
            return
        self._finish(popped, batch, outcome)

    def _settle(self, done: dict[PoppedQueue, list[ReceivedMessage]]) -> None:
        for popped, messages in done.items():
            now = self._member.clock.now()
            took_ms = now - messages[0].consume_started
            self._member.figures.consumed(popped.queue.topic, len(messages), 0, took_ms, now)
            for message in messages:
                self._ack(popped, message)

    def _finish(self, popped: PoppedQueue, batch: list[ReceivedMessage], outcome: Outcome) -> None:
        failed = failed_part(batch, outcome)
        now = self._member.clock.now()
        took_ms = now - batch[0].consume_started
        self._member.figures.consumed(popped.queue.topic, len(batch) - len(failed), len(failed), took_ms, now)
        for message in batch[: len(batch) - len(failed)]:
            self._ack(popped, message)
        for message in failed:
            self._failed(popped, message, outcome)

    def _failed(self, popped: PoppedQueue, message: ReceivedMessage, outcome: Outcome) -> None:
        delay_level = max(0, outcome.delay_level)
        age_ms = self._member.clock.wall() - message.born_timestamp
        step = backoff.pop_failure(message.reconsume_times, delay_level, age_ms, self._max_reconsume)
        if isinstance(step, backoff.Hide):
            why = failure_text(outcome.error, self._member.options.failure_text_length)
            self._tasks.start(self._hide(popped, message, step.ms, why), "hide")
        else:
            log.warning("giving up message_id=%s after attempts=%d", message.message_id, message.attempt)
            self._ack(popped, message)

    def _ack(self, popped: PoppedQueue, message: ReceivedMessage) -> None:
        lease = message.lease
        if lease is None or not lease.ack_soon(_Acking(popped, message)):
            self._tasks.start(self._ack_slowly(popped, message), "ack")

    async def _ack_slowly(self, popped: PoppedQueue, message: ReceivedMessage) -> None:
        try:
            if message.lease is not None:
                await message.lease.ack()
        except AerobeeError as error:
            _log_failed_ack(message, error)
        finally:
            popped.unacked -= 1

    async def _hide(self, popped: PoppedQueue, message: ReceivedMessage, ms: int, why: str) -> None:
        try:
            if message.lease is not None:
                await message.lease.hide(ms, why)
        except AerobeeError as error:
            log.warning("invisible time not changed message_id=%s: %s", message.message_id, error)
        finally:
            popped.unacked -= 1
