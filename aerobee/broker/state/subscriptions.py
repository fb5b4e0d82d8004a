# SPDX-License-Identifier: Apache-2.0
"""What a group subscribes, from what its members say.

One table for all members, as in RocketMQ: for a topic the highest version wins, and a topic missing from any member's
heartbeat is dropped. Members that subscribe differently therefore overwrite each other and lose messages;
`compare` finds that out and reports it once per change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.state.clients import ConsumerGroup
    from aerobee.protocol.bodies import SubscriptionData

log = logging.getLogger("aerobee.clients")

Conflicts = dict[str, dict[str, list[str]]]  # topic -> expression -> client ids


def expression(subscription: SubscriptionData) -> str:
    """The expression, with its type in front when it is not a tag."""
    kind = subscription.expression_type or "TAG"
    return subscription.sub_string if kind == "TAG" else f"{kind}: {subscription.sub_string}"


def merge(group: ConsumerGroup, subscriptions: Iterable[SubscriptionData]) -> bool:
    """Take a member's subscription over into the group's. True when a topic came or went."""
    changed = False
    named = set()
    for new in subscriptions:
        named.add(new.topic)
        old = group.subscriptions.get(new.topic)
        if old is None:
            changed = True
            log.info("subscribed group=%s topic=%s expression=%s", group.name, new.topic, expression(new))
        if old is None or new.sub_version > old.sub_version:
            group.subscriptions[new.topic] = new
    for topic in [topic for topic in group.subscriptions if topic not in named]:
        del group.subscriptions[topic]
        changed = True
        log.info("unsubscribed group=%s topic=%s", group.name, topic)
    return changed


def note(group: ConsumerGroup, client_id: str, subscriptions: Iterable[SubscriptionData]) -> None:
    """Remember what the member said itself, and compare when that is new."""
    said = {subscription.topic: expression(subscription) for subscription in subscriptions}
    if group.expressions.get(client_id) != said:
        group.expressions[client_id] = said
        compare(group)


def compare(group: ConsumerGroup) -> None:
    """Find the topics on which members disagree; a topic that one of them lacks counts as disagreement."""
    conflicts: Conflicts = {}
    for topic in sorted({topic for said in group.expressions.values() for topic in said}):
        by_expression: dict[str, list[str]] = {}
        for client_id, said in group.expressions.items():
            by_expression.setdefault(said.get(topic, ""), []).append(client_id)
        if len(by_expression) > 1:
            conflicts[topic] = by_expression
    if _kinds(conflicts) != _kinds(group.conflicts):
        _report(group.name, conflicts)
    group.conflicts = conflicts


def _kinds(conflicts: Conflicts) -> dict[str, set[str]]:
    return {topic: set(by_expression) for topic, by_expression in conflicts.items()}


def _report(group: str, conflicts: Conflicts) -> None:
    for topic, by_expression in conflicts.items():
        log.warning(
            "group=%s topic=%s: members subscribe differently and will lose messages: %s; "
            "give all consumers of a group the same subscription",
            group,
            topic,
            ", ".join(f"{text or '(none)'} by {len(ids)}" for text, ids in by_expression.items()),
        )
