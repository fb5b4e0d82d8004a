# SPDX-License-Identifier: Apache-2.0
"""Which brokers a gRPC client is told of for a topic: this one and those that the name servers know to speak gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.assignment import route_of
from aerobee.broker.state.routes import Host
from aerobee.errors import TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker


async def hosts_of(topic: str, broker: Broker) -> list[Host]:
    """At least one, this broker first. Raises TopicNotFound."""
    return _speaking(topic, await _look_up(topic, broker), broker)


async def hosts_or_new_topic(topic: str, broker: Broker) -> list[Host]:
    """For a producer that asks before it sends; the request does not tell producers from consumers.

    RocketMQ creates topics by a send only, and its gRPC producers do not get as far: they stop when a topic they
    declare has no route. The setting is for those who want theirs to start.
    """
    hosts = await _look_up(topic, broker)
    config = broker.config
    if not hosts and config.grpc_auto_create_on_route and not names.is_retry(topic):
        broker.topics.create_for_send(topic, names.DEFAULT_TOPIC, config.default_queues, "grpc")
        hosts = _known(topic, broker)
    return _speaking(topic, hosts, broker)


def readable(hosts: list[Host]) -> list[Host]:
    return [host for host in hosts if host.perm & Perm.READ and host.read_queues > 0]


async def _look_up(topic: str, broker: Broker) -> list[Host]:
    looking = route_of(topic, broker)
    if looking is not None:
        await looking
    return _known(topic, broker)


def _known(topic: str, broker: Broker) -> list[Host]:
    """Without an answer of any name server this broker alone: better than nothing, and corrected with the next."""
    config, routes = broker.topics.get(topic), broker.pops.routes
    others = [] if routes is None else list(routes.known(topic) or ())
    if config is None:
        return others
    perm = config.perm & broker.config.perm
    own = Host(broker.config.name, perm, config.read_queue_nums, config.write_queue_nums)
    return [own, *others]


def _speaking(topic: str, hosts: list[Host], broker: Broker) -> list[Host]:
    found = [host for host in hosts if host.grpc_address or host.broker_name == broker.config.name]
    if not found and hosts:
        silent = ", ".join(host.broker_name for host in hosts)
        raise TopicNotFound(f"topic '{topic}' is only on brokers that tell no gRPC address: {silent}")
    if not found:
        raise TopicNotFound(f"topic '{topic}' does not exist; create it first, or send a message to it")
    return found
