# SPDX-License-Identifier: Apache-2.0
"""Who gets which queues of a topic: everybody all, divided here among the members, or as the broker says."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, TypeVar

import msgspec

from aerobee.errors import AerobeeError, NoRoute
from aerobee.protocol import bodies, names
from aerobee.protocol.allocation import STRATEGIES
from aerobee.protocol.bodies import MessageQueue, Mode
from aerobee.protocol.headers.consume import ConsumerList, QueryAssignment

if TYPE_CHECKING:
    from aerobee.client.consume.membership import Membership
    from aerobee.client.options import PushOptions, QueueOptions

log = logging.getLogger("aerobee.client.rebalance")


class Assigned(msgspec.Struct, frozen=True):
    pulled: frozenset[MessageQueue]
    popped: frozenset[MessageQueue] = frozenset()


Wanted = TypeVar("Wanted", bound="QueueOptions")
# Of a topic and all its queues: ours. None: nothing can be said now, so nothing changes.
Assign = Callable[["Membership[Wanted]", str, Collection[MessageQueue]], Awaitable[Assigned | None]]


async def divided_here(member: Membership, topic: str, queues: Collection[MessageQueue]) -> Assigned | None:
    """By the member's own strategy, as every other member divides them."""
    if not member.clustering:
        return Assigned(frozenset(queues))
    if not queues:
        return None
    answer = await member.session.call(_some_broker(member, topic), ConsumerList(consumer_group=member.group))
    clients = bodies.decode(answer.body, bodies.ConsumerIds).consumer_id_list
    if not clients:
        return None
    own = member.strategy.divide(member.session.client_id, sorted(queues), sorted(clients))
    return Assigned(frozenset(own))


async def as_the_broker_says(
    member: Membership[PushOptions], topic: str, queues: Collection[MessageQueue]
) -> Assigned | None:
    """'auto' asks the broker first whether the group pops the topic. If it does, the broker's assignment is taken; if
    it pulls, the queues are divided here. An empty answer does not say which: then it is as it was."""
    if _broker_may_decide(member, topic):
        try:
            answer = await _ask_broker(member, topic)
        except AerobeeError as error:
            log.debug("no assignment from the broker topic=%s: %s", topic, error)
            if _pops(member, topic) or member.options.rebalance == "broker":
                return None  # an outage is no reason to change from POP to pull
        else:
            if answer is None:
                return None
            to_drop_all = not answer.pulled and _pops(member, topic)
            if answer.popped or to_drop_all or member.options.rebalance == "broker":
                return answer
    return await divided_here(member, topic, queues)


def _broker_may_decide(member: Membership[PushOptions], topic: str) -> bool:
    wanted = member.clustering and not member.ordered and member.options.rebalance != "client"
    return wanted and not names.is_retry(topic)


def _pops(member: Membership, topic: str) -> bool:
    return any(queue.topic == topic for queue in member.popped)


async def _ask_broker(member: Membership[PushOptions], topic: str) -> Assigned | None:
    query = bodies.AssignmentQuery(
        client_id=member.session.client_id,
        consumer_group=member.group,
        message_model=member.model,
        strategy_name=_told_strategy(member),
        topic=topic,
    )
    answer = await member.session.call(_some_broker(member, topic), QueryAssignment(), bodies.encode(query))
    found = bodies.decode(answer.body, bodies.Assignment).message_queue_assignments
    if found is None:
        return None
    return Assigned(
        frozenset(entry.message_queue for entry in found if entry.mode is not Mode.POP),
        frozenset(entry.message_queue for entry in found if entry.mode is Mode.POP),
    )


def _told_strategy(member: Membership[PushOptions]) -> str:
    """One that brokers know, where they only decide about POP: of any other they say nothing at all."""
    name = member.strategy.name
    return name if name in STRATEGIES or member.options.rebalance == "broker" else next(iter(STRATEGIES))


def _some_broker(member: Membership, topic: str) -> str:
    """Any broker of the topic knows the group's members: master first, else a slave."""
    brokers = member.session.routes.brokers_of([topic])
    with_address = [name for name, members in brokers.items() if members]
    address = member.session.routes.address(random.choice(with_address)) if with_address else None
    if address is None:
        raise NoRoute(f"topic {topic!r} has no broker with an address")
    return address
