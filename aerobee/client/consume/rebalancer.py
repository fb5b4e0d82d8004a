# SPDX-License-Identifier: Apache-2.0
"""Which queues are this consumer's: asked anew on a timer, when members come or go, and when routes change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Generic

import msgspec

from aerobee.client.consume.assignment import Wanted
from aerobee.client.consume.rebalance.table import compare, unsubscribed
from aerobee.client.session.outages import level
from aerobee.clock import Alarm
from aerobee.errors import AerobeeError, NoPermission, NoRoute
from aerobee.protocol import names
from aerobee.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from aerobee.client.consume.assignment import Assign, Assigned
    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.consume.ownership import Ownership

log = logging.getLogger("aerobee.client.rebalance")

# Told of a topic whose queues changed: all queues, and ours.
Changed = Callable[[str, Collection[MessageQueue], Collection[MessageQueue]], None]


class Rebalancer(Generic[Wanted]):
    """`assign` says which queues are ours, `idle_ms` after which time without a fetch one is taken anew (0: never)."""

    def __init__(
        self,
        member: Membership[Wanted],
        ownership: Ownership,
        changed: Changed,
        assign: Assign[Wanted],
        idle_ms: int,
    ) -> None:
        self._member = member
        self._ownership = ownership
        self._changed = changed
        self._assign = assign
        self._idle_ms = idle_ms
        self._alarm = Alarm(member.clock)
        self.unrouted: set[str] = set()  # topics that no name server knows now

    def wake(self) -> None:
        self._alarm.ring()

    async def run_forever(self) -> None:
        options, clock = self._member.options, self._member.clock
        while True:
            began = clock.now()
            balanced = await self.rebalance()
            wait_ms = options.rebalance_ms if balanced else options.rebalance_soon_ms
            await self._alarm.wait(wait_ms)
            too_soon_ms = began + options.rebalance_min_ms - clock.now()
            if too_soon_ms > 0:
                await clock.sleep(too_soon_ms)

    async def rebalance(self) -> bool:
        """All topics, each by itself. False when one should be tried again soon."""
        member = self._member
        if member.suspended:
            return True
        balanced = True
        for topic in member.subscriptions:
            try:
                balanced = await self._rebalance_topic(topic) and balanced
            except NoPermission as error:
                member.refusals.met(topic, error, member.clock.now())  # and no sooner than any other round
            except (AerobeeError, ValueError) as error:
                if not names.is_retry(topic):
                    log.log(
                        level(error), "rebalance failed group=%s topic=%s: %s", member.group, topic, error
                    )
                    balanced = False
            except Exception:
                # A strategy or a listener of the user's: whatever is wrong with it, members come and go.
                log.exception("rebalance failed group=%s topic=%s", member.group, topic)
                balanced = False
        for queue in unsubscribed(list(member.pulled), set(member.subscriptions)):
            self._ownership.drop(queue)
        for queue in unsubscribed(list(member.popped), set(member.subscriptions)):
            self._ownership.give_up_popped(queue)
        return balanced

    async def _rebalance_topic(self, topic: str) -> bool:
        member = self._member
        try:
            queues = (await member.session.route(topic)).readable
        except NoRoute:
            if not names.is_retry(topic):
                self._changed(topic, (), ())
                if topic not in self.unrouted:  # asked every second: told once
                    self.unrouted.add(topic)
                    log.warning("topic=%s of group=%s has no route yet", topic, member.group)
            return names.is_retry(topic)
        if topic in self.unrouted:
            self.unrouted.remove(topic)
            log.info("topic=%s of group=%s has a route now", topic, member.group)
        assigned = await self._assign(member, topic, queues)
        return assigned is None or await self._apply(topic, queues, assigned)

    # -- acting on it --------------------------------------------------------------------------------------

    async def _apply(self, topic: str, queues: Collection[MessageQueue], assigned: Assigned) -> bool:
        """Give up what is lost, then take what is gained; True when we own exactly what is assigned."""
        member, now = self._member, self._member.clock.now()
        changed = self._apply_popped(topic, assigned.popped, now)
        live = {queue: _Idle(self._lost_touch(owned, now)) for queue, owned in member.pulled.items()}
        change = compare(topic, live, assigned.pulled, now)
        for queue in change.lost:
            owned = member.pulled.get(queue)
            if owned is not None and not owned.repairing:
                changed = await self._ownership.give_up(owned) or changed
        for queue in change.gained:
            if queue not in member.pulled:
                changed = await self._ownership.take(queue) or changed
        if changed:
            self._changed(topic, queues, assigned.pulled | assigned.popped)
        mine = {
            queue
            for queue, owned in member.pulled.items()
            if queue.topic == topic and not owned.inbox.dropped
        }
        return mine == assigned.pulled

    def _lost_touch(self, owned: OwnedQueue, now: int) -> bool:
        if owned.inbox.dropped:
            return not owned.repairing
        return bool(self._idle_ms) and owned.inbox.pull_expired(now, self._idle_ms)

    def _apply_popped(self, topic: str, assigned: frozenset[MessageQueue], now: int) -> bool:
        member = self._member
        live = {queue: _Idle(popped.expired(now, self._idle_ms)) for queue, popped in member.popped.items()}
        change = compare(topic, live, assigned, now)
        for queue in change.lost:
            self._ownership.give_up_popped(queue)
        for queue in change.gained:
            self._ownership.take_popped(queue)
        if assigned:
            member.subscriptions.remove(names.pop_retry_topic(topic, member.group))
        elif change.lost:
            # From POP back to pull: what waits there for another try would be stranded.
            member.subscriptions.add(names.pop_retry_topic(topic, member.group), "*", now)
        return bool(change.lost or change.gained)


class _Idle(msgspec.Struct, frozen=True):
    expired: bool

    def idle(self, now: int) -> bool:
        return self.expired
