# SPDX-License-Identifier: Apache-2.0
"""Groups, for operators: settings, and who is connected."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.operations.admin import attributes
from aerobee.broker.state.counted import Stopwatch
from aerobee.errors import ConsumerNotOnline, GroupNotFound, InvalidParameter, SystemFailure
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    Connection,
    ConsumerConnection,
    GroupConfigs,
    GroupSubscriptionBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from aerobee.protocol.codes import Perm
from aerobee.store.saved_table import all_saved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.broker import Broker
    from aerobee.broker.state.clients import Member
    from aerobee.protocol.bodies import GroupConfig

log = logging.getLogger("aerobee.groups")


async def put_groups(configs: Iterable[GroupConfig], broker: Broker) -> None:
    """Create or change groups, all or none; their attributes come as `+key` to set and `-key` to drop."""
    with Stopwatch(broker.stats.counted.group_made):
        for config in [_checked(config, broker) for config in configs]:
            broker.groups.put(config)
        await broker.groups.saved()


def _checked(config: GroupConfig, broker: Broker) -> GroupConfig:
    try:
        names.check_group(config.group_name)
    except ValueError as error:
        raise InvalidParameter(str(error)) from None
    if config.retry_queue_nums < 0 or config.retry_max_times < -1:
        raise InvalidParameter(
            f"group '{config.group_name}': retryQueueNums {config.retry_queue_nums} and retryMaxTimes "
            f"{config.retry_max_times} must not be negative"
        )
    known = broker.groups.get(config.group_name)
    after = attributes.changed(known.attributes if known else None, config.attributes, attributes.OF_GROUPS)
    return msgspec.structs.replace(config, attributes=after)


def group_config(group: str, broker: Broker) -> GroupConfig:
    config = broker.groups.get(group)
    if config is None:
        raise GroupNotFound(f"group '{group}' does not exist; it is created when a consumer starts")
    return config


def all_groups(broker: Broker) -> GroupConfigs:
    groups = broker.groups
    return GroupConfigs(
        data_version=groups.data_version,
        forbidden_table=groups.forbidden_table,
        subscription_group_table=groups.all(),
    )


async def delete_group(group: str, broker: Broker, *, clean_offsets: bool) -> None:
    """The group's settings, and its offsets if asked. Its retry and dead-letter topics are topics of their own."""
    broker.groups.delete(group)
    broker.stats.remove_group(group)
    if clean_offsets:
        broker.offsets.remove_group(group)
        broker.pops.remove_group(group)
    await all_saved(broker.groups, broker.offsets, broker.pops.modes, broker.pops.orders)


async def forbid(group: str, topic: str, readable: bool | None, broker: Broker) -> bool:  # noqa: FBT001 the value itself
    """Let a group read a topic or not (None: only ask). Returns whether it may now."""
    group_config(group, broker)
    broker.topics.require(topic)
    if readable is not None:
        broker.groups.forbid(group, topic, 0 if readable else int(Perm.READ))
        await broker.groups.saved()
    return not broker.groups.forbidden(group, topic)


# -- who is connected
# ------------------------------------------------------------------------------------------


def consumer_connection(name: str, broker: Broker) -> ConsumerConnection:
    group = broker.clients.group(name)
    if group is None:
        raise ConsumerNotOnline(f"group '{name}' has no consumer online")
    return ConsumerConnection(
        connection_set=_connections(group.members.values()),
        consume_from_where=group.from_where,
        consume_type=group.consume_type,
        message_model=group.model,
        subscription_table=group.subscriptions,
    )


def producer_connection(group: str, broker: Broker) -> ProducerConnection:
    members = broker.clients.producers(group)
    if not members:
        raise SystemFailure(f"producer group '{group}' has no producer online")
    return ProducerConnection(connection_set=_connections(members))


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [
        Connection(
            client_addr=member.link.remote_text,
            client_id=member.client_id,
            language=member.language,
            version=member.version,
        )
        for member in members
    ]


def all_producers(broker: Broker) -> ProducerTable:
    return ProducerTable(
        data={
            group: [
                ProducerInfo(
                    client_id=member.client_id,
                    language=member.language,
                    last_update_timestamp=member.last_seen,
                    remote_ip=member.link.remote_text,
                    version=member.version,
                )
                for member in members.values()
            ]
            for group, members in broker.clients.producer_groups().items()
        }
    )


def topics_of(group: str, broker: Broker) -> list[str]:
    """The topics a group has offsets on."""
    return sorted(broker.offsets.topics_of(group))


def subscription(group: str, topic: str, broker: Broker) -> GroupSubscriptionBody:
    found = broker.clients.subscription(group, topic)
    return GroupSubscriptionBody(group=group, topic=topic, subscription_data=found)
