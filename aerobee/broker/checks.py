# SPDX-License-Identifier: Apache-2.0
"""Preconditions that several operations share. Each returns what it looked up, or raises the refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.errors import InvalidParameter, NoPermission, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from aerobee.broker.state.groups import Groups
    from aerobee.broker.state.topics import Topics
    from aerobee.protocol.bodies import GroupConfig, TopicConfig
    from aerobee.settings import BrokerConfig


READ, WRITE = int(Perm.READ), int(Perm.WRITE)  # plain integers: an IntFlag's & is a slow call


def at_most(limit: int, count: int, what: str) -> None:
    """A request with more entries would keep everybody else waiting."""
    if count > limit:
        raise InvalidParameter(f"{count} {what} in one request, limit {limit}; send several")


def broker_readable(config: BrokerConfig) -> None:
    if not config.perm & READ:
        raise NoPermission(
            f"broker '{config.name}' may not be read at present (brokerPermission {config.perm})"
        )


def broker_writable(config: BrokerConfig) -> None:
    if not config.perm & WRITE:
        raise NoPermission(
            f"broker '{config.name}' may not be written at present (brokerPermission {config.perm})"
        )


def consuming_group(groups: Groups, name: str) -> GroupConfig:
    """The group, created on first use where that is allowed, if it may consume."""
    group = groups.require(name)
    if not group.consume_enable:
        raise NoPermission(f"group '{name}' may not consume; enable it with updateSubGroup")
    return group


def readable_topic(topics: Topics, name: str) -> TopicConfig:
    topic = topics.get(name)
    if topic is None:
        raise TopicNotFound(f"topic '{name}' does not exist; create it first, or send a message to it")
    if not topic.perm & READ:
        raise NoPermission(f"topic '{name}' may not be read (perm {topic.perm})")
    return topic


def readable_queue(topics: Topics, name: str, queue_id: int) -> TopicConfig:
    """The topic, if it may be read and has that queue."""
    topic = readable_topic(topics, name)
    if not 0 <= queue_id < topic.read_queue_nums:
        raise InvalidParameter(
            f"topic '{name}' has {topic.read_queue_nums} queues to read; asked for queue {queue_id}"
        )
    return topic


def topic_name(name: str) -> None:
    """Refuse a name that no topic may have."""
    try:
        names.check_topic(name)
    except ValueError as error:
        raise InvalidParameter(str(error)) from None
