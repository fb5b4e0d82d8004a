# SPDX-License-Identifier: Apache-2.0
"""QueryRoute and QueryAssignment. POP spreads the load, so every client gets every broker of a topic."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from aerobee.broker.operations.hosts import hosts_of, hosts_or_new_topic, readable
from aerobee.fronts.grpc import limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK, Refused
from aerobee.protocol.addresses import parse_address
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.routes import Host
    from aerobee.fronts.grpc.caller import Caller
    from aerobee.protocol.bodies import TopicConfig

MASTER_ID = 0
ANY_QUEUE = -1
_ALL_TYPES = (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION)
_TYPES = {"NORMAL": (pb.NORMAL,), "FIFO": (pb.FIFO,), "DELAY": (pb.DELAY,), "TRANSACTION": (pb.TRANSACTION,)}
_PERMISSIONS = {Perm.READ | Perm.WRITE: pb.READ_WRITE, Perm.READ: pb.READ, Perm.WRITE: pb.WRITE}


def accepted_types(config: TopicConfig | None) -> tuple[Any, ...]:
    """By the topic's attribute; without one a topic takes every type (the proxy says NORMAL only).

    A topic that is not on this broker takes every type here; its own broker refuses what it does not.
    """
    kind = "MIXED" if config is None else str(config.attributes.get("message.type", "MIXED"))
    return _TYPES.get(kind.upper(), _ALL_TYPES)


async def query_route(caller: Caller, request: Any, broker: Broker) -> Any:
    topic = limits.topic_name(request.topic)
    answer = pb.QueryRouteResponse(status=OK)
    for host in await hosts_or_new_topic(topic, broker):
        queue = _queue(request, topic, host, broker, caller.port)
        for queue_id, permission in enumerate(_permissions(host)):
            queue.id, queue.permission = queue_id, permission
            answer.message_queues.append(queue)
    return answer


async def query_assignment(caller: Caller, request: Any, broker: Broker) -> Any:
    topic, group = limits.topic_name(request.topic), limits.group_name(request.group)
    hosts = readable(await hosts_of(topic, broker))
    if not hosts:
        raise Refused(pb.FORBIDDEN, f"topic {topic!r} has no readable queue")
    ordered = broker.groups.require(group).consume_message_orderly
    answer = pb.QueryAssignmentResponse(status=OK)
    for host in hosts:
        queue = _queue(request, topic, host, broker, caller.port)
        queue.permission = _PERMISSIONS[Perm(host.perm) & (Perm.READ | Perm.WRITE)]
        for queue_id in range(host.read_queues) if ordered else (ANY_QUEUE,):
            queue.id = queue_id
            answer.assignments.add().message_queue.CopyFrom(queue)
    return answer


def _queue(request: Any, topic: str, host: Host, broker: Broker, port: int) -> Any:
    queue = pb.MessageQueue(topic=request.topic)
    queue.broker.name = host.broker_name
    queue.broker.id = MASTER_ID
    if host.broker_name == broker.config.name:
        queue.broker.id = broker.config.broker_id
        queue.broker.endpoints.CopyFrom(_own_endpoints(request.endpoints, broker, port))
    else:
        queue.broker.endpoints.CopyFrom(_endpoints(*parse_address(host.grpc_address)))
    queue.accept_message_types.extend(accepted_types(broker.topics.get(topic)))
    return queue


def _permissions(host: Host) -> list[Any]:
    reads = host.read_queues if host.perm & Perm.READ else 0
    writes = host.write_queues if host.perm & Perm.WRITE else 0
    both = min(reads, writes)
    if not reads and not writes:
        return [pb.NONE] * max(1, host.read_queues, host.write_queues)
    return [pb.READ_WRITE] * both + [pb.READ] * (reads - both) + [pb.WRITE] * (writes - both)


def _own_endpoints(asked: Any, broker: Broker, port: int) -> Any:
    """The advertised host; without one the host by which the client reached us, so that it reaches us again."""
    config = broker.config
    if asked.addresses and not config.advertise:
        return pb.Endpoints(
            scheme=asked.scheme or _scheme(asked.addresses[0].host),
            addresses=[pb.Address(host=asked.addresses[0].host, port=port)],
        )
    return _endpoints(config.advertise or config.host, port)


def _endpoints(host: str, port: int) -> Any:
    return pb.Endpoints(scheme=_scheme(host), addresses=[pb.Address(host=host, port=port)])


def _scheme(host: str) -> Any:
    try:
        return pb.IPv6 if ipaddress.ip_address(host).version == 6 else pb.IPv4
    except ValueError:
        return pb.DOMAIN_NAME
