# SPDX-License-Identifier: Apache-2.0
"""Clients come, stay and go; the members of a group are told when it changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.broker import checks
from aerobee.broker.delivery.reading import accept_for
from aerobee.errors import GroupNotFound, SystemFailure
from aerobee.protocol import names
from aerobee.protocol.command import request as command_of
from aerobee.protocol.headers.consume import NotifyIdsChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.broker.state.clients import ConsumerGroup, Link
    from aerobee.broker.state.groups import Groups
    from aerobee.protocol.bodies import Heartbeat, SubscriptionData

log = logging.getLogger("aerobee.clients")


# Of one heartbeat, which one client sends for all its groups.
MAX_PRODUCERS = 2_000
MAX_CONSUMERS = 150
MAX_SUBSCRIPTIONS = 2_000


def heartbeat(link: Link, beat: Heartbeat, broker: Broker) -> bool:
    """Register what the heartbeat names. True asks the client for the full form next time (V2 heartbeats)."""
    checks.at_most(MAX_PRODUCERS, len(beat.producer_data_set), "producer groups")
    checks.at_most(MAX_CONSUMERS, len(beat.consumer_data_set), "consumer groups")
    subscribed = sum(len(data.subscription_data_set) for data in beat.consumer_data_set)
    checks.at_most(MAX_SUBSCRIPTIONS, subscribed, "subscriptions")
    broker.clients.check_owner(beat.client_id, link.attributes.get("user", ""))
    now = broker.clock.now()
    full_form = broker.clients.needs_full_form(beat)
    for producer in beat.producer_data_set:
        broker.clients.register_producer(link, beat.client_id, producer.group_name, now)
    for data in beat.consumer_data_set:
        try:
            group = broker.groups.require(data.group_name)
        except GroupNotFound as refusal:
            log.warning("heartbeat client=%s: %s", beat.client_id, refusal)
            continue
        broker.topics.ensure(names.retry_topic(data.group_name), group.retry_queue_nums)
        broker.clients.register_consumer(link, beat, data, now)
    broker.clients.remember_fingerprint(beat)
    return full_form


def check_subscription(subscription: SubscriptionData, broker: Broker) -> None:
    """Refuse, when a consumer starts, an expression its pulls would be refused for."""
    accept_for(subscription.expression_type, subscription.sub_string, broker.config)


def consumer_ids(group: str, broker: Broker) -> list[str]:
    """The client ids of the group's connected members."""
    found = broker.clients.consumer_ids(group)
    if not found:
        raise SystemFailure(f"group '{group}' has no consumer online")
    return found


def notice(groups: Groups) -> Callable[[ConsumerGroup], None]:
    """What tells the members of a group that it changed, unless they consume by broadcasting or it is turned off."""

    def tell(group: ConsumerGroup) -> None:
        config = groups.get(group.name)
        if group.broadcasting or (config is not None and not config.notify_consumer_ids_changed_enable):
            return
        header = NotifyIdsChanged(consumer_group=group.name)
        for member in group.members.values():
            if member.link.is_open:
                member.link.send(command_of(header))

    return tell
