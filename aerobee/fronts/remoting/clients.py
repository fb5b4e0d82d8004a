# SPDX-License-Identifier: Apache-2.0
"""Requests of clients about themselves: heartbeat, unregister, who else is there, queue locks."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from aerobee.broker import checks
from aerobee.broker.operations import heartbeat as op
from aerobee.net.connection import Reply
from aerobee.protocol import bodies
from aerobee.protocol.headers import consume as h

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request
    from aerobee.protocol.command import Command, Header


MAX_LOCKED_QUEUES = 10_000  # of one client of an ordered group
_ORDER = attrgetter("topic", "broker_name", "queue_id")


def heartbeat(request: Request, header: Header, broker: Broker) -> Answer:
    attributes = request.connection.attributes  # who speaks, for tools that list clients
    attributes["language"], attributes["version"] = request.command.language, request.command.version
    attributes["user"] = request.user
    beat = bodies.decode_request(request.command.body, bodies.Heartbeat)
    full_form = op.heartbeat(request.connection, beat, broker)
    return Reply(header=h.HeartbeatResult(support_v2=True, subscription_changed=full_form))


def unregister(request: Request, header: h.Unregister, broker: Broker) -> Answer:
    broker.clients.check_owner(header.client_id, request.user)
    broker.clients.unregister(header.client_id, header.producer_group, header.consumer_group)
    return Reply()


def consumer_list(request: Request, header: h.ConsumerList, broker: Broker) -> Answer:
    ids = op.consumer_ids(header.consumer_group, broker)
    return Reply(body=bodies.encode(bodies.ConsumerIds(consumer_id_list=ids)))


def check_client(request: Request, header: Header, broker: Broker) -> Answer:
    asked = bodies.decode_request(request.command.body, bodies.CheckClient)
    op.check_subscription(asked.subscription_data, broker)
    return Reply()


def lock(request: Request, header: Header, broker: Broker) -> Answer:
    asked = _lock_batch(request.command)
    held = broker.locks.lock(asked.consumer_group, asked.client_id, asked.mq_set, broker.clock.now())
    return Reply(body=bodies.encode(bodies.LockedQueues(lock_ok_mq_set=sorted(held, key=_ORDER))))


def unlock(request: Request, header: Header, broker: Broker) -> Answer:
    asked = _lock_batch(request.command)
    broker.locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
    return Reply()


def _lock_batch(command: Command) -> bodies.LockBatch:
    asked = bodies.decode_request(command.body, bodies.LockBatch)
    checks.at_most(MAX_LOCKED_QUEUES, len(asked.mq_set), "queues")
    return asked
