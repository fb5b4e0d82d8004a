# SPDX-License-Identifier: Apache-2.0
"""Taking queues and giving them up: what must happen before the first pull and after the last."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aerobee.client.consume.membership import OwnedQueue, PoppedQueue
from aerobee.client.consume.start_offset import start_offset
from aerobee.client.session.outages import level
from aerobee.errors import AerobeeError, NoPermission

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.consume.membership import Membership
    from aerobee.client.consume.queue_locks import QueueLocks
    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.client.rebalance")


class Ownership:
    def __init__(
        self,
        member: Membership,
        locks: QueueLocks | None,
        start_pulling: Callable[[OwnedQueue], None],
        start_popping: Callable[[PoppedQueue], None],
    ) -> None:
        self._member = member
        self._locks = locks if member.locks_queues else None
        self._start_pulling = start_pulling
        self._start_popping = start_popping

    # -- pulled queues -------------------------------------------------------------------------------------

    async def take(self, queue: MessageQueue) -> bool:
        """Lock it (ordered), find where to begin, start pulling. False leaves it for the next round."""
        member = self._member
        if self._locks is not None and not await self._locks.take(queue):
            log.info("queue=%s is locked by another consumer of group=%s", queue, member.group)
            return False
        member.offsets.memory.remove(queue)  # what we remember may be older than what the last owner reported
        try:
            offset = await start_offset(member.session, member.offsets, member.start, queue)
        except NoPermission:
            raise  # nothing that the next round would find otherwise
        except AerobeeError as error:
            log.log(level(error), "no start offset for queue=%s, not taken: %s", queue, error)
            return False
        if queue in member.pulled:
            return True  # a second add of the same queue changes nothing
        owned = OwnedQueue(queue, offset, member.clock.now())
        owned.inbox.locked = True
        member.pulled[queue] = owned
        log.info("took queue=%s group=%s offset=%d", queue, member.group, offset)
        self._start_pulling(owned)
        return True

    async def give_up(self, owned: OwnedQueue) -> bool:
        """Report how far we came and, ordered, unlock it once no handler runs. False: not yet, try again."""
        member, queue = self._member, owned.queue
        if owned.fetching is not None:
            owned.fetching.cancel()
        await asyncio.sleep(0)  # what was consumed in this turn is settled before the queue is dropped
        owned.inbox.dropped = True
        await member.offsets.persist_one(queue)
        if self._locks is not None:
            if not await self._locks.handler_ended(owned):
                owned.inbox.unlock_attempts += 1
                log.info(
                    "handler still runs on lost queue=%s attempts=%d", queue, owned.inbox.unlock_attempts
                )
                return False
            await member.offsets.persist_one(queue)
            owned.inbox.locked = False
            await self._locks.unlock(queue)
        member.offsets.memory.remove(queue)
        member.pulled.pop(queue, None)
        log.info("gave up queue=%s group=%s", queue, member.group)
        return True

    def drop(self, queue: MessageQueue) -> None:
        """Of a topic no longer subscribed: no report, no unlock, as RocketMQ does."""
        owned = self._member.pulled.pop(queue, None)
        if owned is not None:
            owned.inbox.dropped = True
            if owned.fetching is not None:
                owned.fetching.cancel()

    # -- popped queues -------------------------------------------------------------------------------------

    def take_popped(self, queue: MessageQueue) -> None:
        """The broker keeps the progress, so there is nothing to ask."""
        popped = PoppedQueue(queue, self._member.clock.now())
        self._member.popped[queue] = popped
        log.info("pops queue=%s group=%s", queue, self._member.group)
        self._start_popping(popped)

    def give_up_popped(self, queue: MessageQueue) -> None:
        popped = self._member.popped.pop(queue, None)
        if popped is not None:
            popped.dropped = True
            if popped.fetching is not None:
                popped.fetching.cancel()
            log.info("pops no longer queue=%s group=%s", queue, self._member.group)
