# SPDX-License-Identifier: Apache-2.0
"""Locks at the broker: of a group's ordered consumers only the holder may consume a queue."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from aerobee.client.session.outages import level
from aerobee.errors import AerobeeError
from aerobee.protocol import bodies
from aerobee.protocol.headers.consume import LockQueues, UnlockQueues

if TYPE_CHECKING:
    from collections.abc import Collection

    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.options import PushOptions
    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.client.rebalance")

UNLOCK_TRIES = 3
MOVED_WAIT_S = 10.0


async def handlers_ended(queues: Collection[OwnedQueue]) -> None:
    """Before queues that were moved are begun anew: one handler of an ordered queue at a time, unless it hangs."""
    running = [owned.handling for owned in queues if owned.handling is not None]
    if running:
        await asyncio.wait(running, timeout=MOVED_WAIT_S)


class QueueLocks:
    def __init__(self, member: Membership[PushOptions]) -> None:
        self._member = member

    async def lock(self, owned: OwnedQueue) -> bool:
        """Take or renew one lock and note it in the inbox."""
        held = await self.take(owned.queue)
        self._note(owned, held=held)
        return held

    async def take(self, queue: MessageQueue) -> bool:
        try:
            return queue in await self._ask(queue.broker_name, [queue])
        except AerobeeError as error:
            log.log(level(error), "lock of queue=%s failed: %s", queue, error)
            return False

    async def renew_forever(self) -> None:
        await self._member.clock.sleep(1_000)
        while True:
            await self.renew()
            await self._member.clock.sleep(self._member.options.lock_renew_ms)

    async def renew(self) -> None:
        """All owned queues, one request per broker; a queue that is not ours any more is not pulled further."""
        by_broker: dict[str, list[OwnedQueue]] = defaultdict(list)
        for owned in self._member.pulled.values():
            by_broker[owned.queue.broker_name].append(owned)
        for broker_name, queues in by_broker.items():
            try:
                held = await self._ask(broker_name, [owned.queue for owned in queues])
            except AerobeeError as error:
                log.log(level(error), "locks at broker=%s not renewed: %s", broker_name, error)
                continue
            for owned in queues:
                if self._member.pulled.get(owned.queue) is owned:
                    self._note(owned, held=owned.queue in held)
                elif owned.queue in held and owned.queue not in self._member.pulled:
                    await self.unlock(owned.queue)  # given up while we asked

    def _note(self, owned: OwnedQueue, *, held: bool) -> None:
        if held:
            owned.inbox.last_lock = self._member.clock.now()
        elif owned.inbox.locked:
            log.warning("lock of queue=%s is lost", owned.queue)
        owned.inbox.locked = held

    async def _ask(self, broker_name: str, queues: list[MessageQueue]) -> Collection[MessageQueue]:
        address = await self._member.session.master(broker_name, queues[0].topic)
        answer = await self._member.session.call(
            address, LockQueues(), self._body(queues), timeout_ms=self._member.options.lock_timeout_ms
        )
        return set(bodies.decode(answer.body, bodies.LockedQueues).lock_ok_mq_set)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        member = self._member
        return bodies.encode(
            bodies.LockBatch(client_id=member.session.client_id, consumer_group=member.group, mq_set=queues)
        )

    async def handler_ended(self, owned: OwnedQueue) -> bool:
        """Waited for a while; a handler that runs on for too long after the last renewal is not."""
        options = self._member.options
        if (
            owned.handling is None
            or self._member.clock.now() > owned.inbox.last_lock + options.forced_unlock_ms
        ):
            return True
        await asyncio.wait([owned.handling], timeout=options.unlock_wait_ms / 1000)
        return owned.handling is None

    async def unlock(self, queue: MessageQueue) -> None:
        """Java sends this one-way; a lost one keeps the next owner out for a minute, so the answer is waited for."""
        await self._unlock(queue.broker_name, [queue])

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> None:
        member = self._member
        for tries_left in reversed(range(UNLOCK_TRIES)):
            try:
                address = await member.session.master(broker_name, queues[0].topic)
                body, timeout_ms = self._body(queues), member.options.lock_timeout_ms
                await member.session.call(address, UnlockQueues(), body, timeout_ms=timeout_ms)
            except AerobeeError as error:
                if not tries_left:
                    log.log(level(error), "unlock at broker=%s failed: %s", broker_name, error)
            else:
                return

    async def unlock_all(self) -> None:
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in self._member.pulled:
            by_broker[queue.broker_name].append(queue)
        for broker_name, queues in by_broker.items():
            await self._unlock(broker_name, queues)
