# SPDX-License-Identifier: Apache-2.0
"""Which queues are this consumer's: asked anew on a timer, when members come or go, and when routes change.

'auto' asks the broker first whether the group pops the topic. If it does, the broker's assignment is taken; if it
pulls, the queues are divided here, by the strategy of this consumer.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.consume.alarm import Alarm
from aerobee.client.consume.rebalance.table import compare, unsubscribed
from aerobee.errors import AerobeeError, NoRoute
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import MessageQueue, Mode
from aerobee.protocol.headers.consume import ConsumerList, QueryAssignment

if TYPE_CHECKING:
    from aerobee.client.consume.membership import Membership, OwnedQueue
    from aerobee.client.consume.ownership import Ownership

log = logging.getLogger("aerobee.client.consume.rebalance")

# Told of a topic whose queues changed: all queues, and ours.
Changed = Callable[[str, Collection[MessageQueue], Collection[MessageQueue]], None]


class Assigned(msgspec.Struct, frozen=True):
    pulled: frozenset[MessageQueue]
    popped: frozenset[MessageQueue] = frozenset()


class Rebalancer:
    def __init__(self, member: Membership, ownership: Ownership, changed: Changed) -> None:
        self._member = member
        self._ownership = ownership
        self._changed = changed
        self._alarm = Alarm(member.clock)

    def wake(self) -> None:
        self._alarm.ring()

    async def run_forever(self) -> None:
        options, clock = self._member.options, self._member.clock
        wait_ms = options.rebalance_ms
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
            except (AerobeeError, ValueError) as error:
                if not names.is_retry(topic):
                    log.warning("rebalance failed group=%s topic=%s: %s", member.group, topic, error)
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
                log.warning("topic=%s of group=%s has no route yet", topic, member.group)
            return names.is_retry(topic)
        assigned = await self._assigned(topic, queues)
        return assigned is None or await self._apply(topic, queues, assigned)

    # -- who gets what -------------------------------------------------------------------------------------

    async def _assigned(self, topic: str, queues: Collection[MessageQueue]) -> Assigned | None:
        """None: nothing can be said now, so nothing changes."""
        member = self._member
        if not member.clustering:
            return Assigned(frozenset(queues))
        if self._broker_may_decide(topic):
            try:
                answer = await self._ask_broker(topic)
            except AerobeeError as error:
                log.debug("no assignment from the broker topic=%s: %s", topic, error)
                if self._pops(topic) or member.options.rebalance == "broker":
                    return None  # an outage is no reason to change from POP to pull
            else:
                if answer is None:
                    return None
                if answer.popped or member.options.rebalance == "broker":
                    return answer
        return await self._divide(topic, queues)

    def _broker_may_decide(self, topic: str) -> bool:
        member = self._member
        wanted = member.may_pop and not member.ordered and member.options.rebalance != "client"
        return wanted and not names.is_retry(topic)

    def _pops(self, topic: str) -> bool:
        return any(queue.topic == topic for queue in self._member.popped)

    async def _ask_broker(self, topic: str) -> Assigned | None:
        member = self._member
        query = bodies.AssignmentQuery(
            client_id=member.session.client_id,
            consumer_group=member.group,
            message_model=member.model,
            strategy_name=member.strategy.name,
            topic=topic,
        )
        answer = await member.session.call(self._some_broker(topic), QueryAssignment(), bodies.encode(query))
        found = bodies.decode(answer.body, bodies.Assignment).message_queue_assignments
        if found is None:
            return None
        return Assigned(
            frozenset(entry.message_queue for entry in found if entry.mode is not Mode.POP),
            frozenset(entry.message_queue for entry in found if entry.mode is Mode.POP),
        )

    async def _divide(self, topic: str, queues: Collection[MessageQueue]) -> Assigned | None:
        member = self._member
        if not queues:
            return None
        answer = await member.session.call(
            self._some_broker(topic), ConsumerList(consumer_group=member.group)
        )
        clients = bodies.decode(answer.body, bodies.ConsumerIds).consumer_id_list
        if not clients:
            return None
        own = member.strategy.divide(member.session.client_id, sorted(queues), sorted(clients))
        return Assigned(frozenset(own))

    def _some_broker(self, topic: str) -> str:
        """Any broker of the topic knows the group's members: master first, else a slave."""
        brokers = self._member.session.routes.brokers_of([topic])
        names_with_address = [name for name, members in brokers.items() if members]
        if not names_with_address:
            raise NoRoute(f"topic {topic!r} has no broker with an address")
        address = self._member.session.routes.address(random.choice(names_with_address))
        if address is None:
            raise NoRoute(f"topic {topic!r} has no broker with an address")
        return address

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
        member = self._member
        return member.renews_idle_queues and owned.inbox.pull_expired(now, member.options.idle_queue_ms)

    def _apply_popped(self, topic: str, assigned: frozenset[MessageQueue], now: int) -> bool:
        member = self._member
        idle_ms = member.options.idle_queue_ms
        live = {queue: _Idle(popped.expired(now, idle_ms)) for queue, popped in member.popped.items()}
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
