# SPDX-License-Identifier: Apache-2.0
"""QueryRoute and QueryAssignment: this broker is the route; POP spreads the load, so every client gets all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker import checks
from aerobee.fronts.grpc import limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK, Refused
from aerobee.protocol import names
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import TopicConfig

_ALL_TYPES = (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION)
_TYPES = {"NORMAL": (pb.NORMAL,), "FIFO": (pb.FIFO,), "DELAY": (pb.DELAY,), "TRANSACTION": (pb.TRANSACTION,)}


def accepted_types(config: TopicConfig) -> tuple[Any, ...]:
    """By the topic's attribute; without one a topic takes every type (the proxy says NORMAL only)."""
    return _TYPES.get(str(config.attributes.get("message.type", "MIXED")).upper(), _ALL_TYPES)


def query_route(request: Any, broker: Broker, port: int) -> Any:
    topic = limits.topic_name(request.topic)
    config = topic_config(topic, broker)
    endpoints = _endpoints(request.endpoints, broker, port)
    answer = pb.QueryRouteResponse(status=OK)
    for queue_id, permission in enumerate(_permissions(config)):
        queue = answer.message_queues.add(id=queue_id, permission=permission)
        queue.topic.CopyFrom(request.topic)
        queue.broker.name = broker.config.name
        queue.broker.id = broker.config.broker_id
        queue.broker.endpoints.CopyFrom(endpoints)
        queue.accept_message_types.extend(accepted_types(config))
    return answer


def topic_config(topic: str, broker: Broker) -> TopicConfig:
    found = broker.topics.get(topic)
    if found is None and broker.config.auto_create_topics and not names.is_retry(topic):
        # A remoting producer creates a topic by its first send; a gRPC client asks for the route before that.
        found = broker.topics.create_for_send(
            topic, names.DEFAULT_TOPIC, broker.config.default_queues, "grpc"
        )
    return found if found is not None else checks.readable_topic(broker.topics, topic)


def _permissions(config: TopicConfig) -> list[Any]:
    reads = config.read_queue_nums if config.perm & Perm.READ else 0
    writes = config.write_queue_nums if config.perm & Perm.WRITE else 0
    both = min(reads, writes)
    if not reads and not writes:
        return [pb.NONE] * max(1, config.read_queue_nums, config.write_queue_nums)
    return [pb.READ_WRITE] * both + [pb.READ] * (reads - both) + [pb.WRITE] * (writes - both)


def _endpoints(asked: Any, broker: Broker, port: int) -> Any:
    """The host the client reached us by, so that it reaches us again; our port."""
    host = asked.addresses[0].host if asked.addresses else broker.config.advertise or broker.config.host
    scheme = asked.scheme or (pb.IPv6 if ":" in host else pb.IPv4)
    return pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=port)])


def query_assignment(request: Any, broker: Broker, port: int) -> Any:
    topic, group = limits.topic_name(request.topic), limits.group_name(request.group)
    config = checks.readable_topic(broker.topics, topic)
    if not config.read_queue_nums:
        raise Refused(pb.FORBIDDEN, f"topic {topic!r} has no readable queue")
    ordered = broker.groups.require(group).consume_message_orderly
    answer = pb.QueryAssignmentResponse(status=OK)
    for queue_id in range(config.read_queue_nums) if ordered else (-1,):
        queue = answer.assignments.add().message_queue
        queue.topic.CopyFrom(request.topic)
        queue.id = queue_id
        queue.permission = pb.READ_WRITE
        queue.broker.name = broker.config.name
        queue.broker.id = broker.config.broker_id
        queue.broker.endpoints.CopyFrom(_endpoints(request.endpoints, broker, port))
        queue.accept_message_types.extend(accepted_types(config))
    return answer
