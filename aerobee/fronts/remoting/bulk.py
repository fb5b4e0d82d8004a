# SPDX-License-Identifier: Apache-2.0
"""Queue units (20002), bytes of the log (20003), heads of queues (20004): Aerobee's own requests for readers in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker import checks
from aerobee.broker.operations.bulk import MOST_TOPICS, heads_of, log_from, moved_heads, units_of
from aerobee.net.reply import Large, Reply, reply_frame
from aerobee.protocol import bodies
from aerobee.protocol.headers.consume import HeadsRead, LogBounds, ReadHeads, ReadLog, ReadUnits, UnitsRead

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request


def read_units(request: Request, header: ReadUnits, broker: Broker) -> Answer:
    first, units = units_of(header.topic, header.queue_id, header.offset, header.count, header.step, broker)
    return Reply(header=UnitsRead(offset=first), body=units)


def read_log(request: Request, header: ReadLog, broker: Broker) -> Answer:
    found = log_from(header.position, header.size, broker)
    bounds = LogBounds(min_position=broker.store.log_min, max_position=broker.store.log_max)
    return Large(reply_frame(request.command, Reply(header=bounds)), found)


def read_heads(request: Request, header: ReadHeads, broker: Broker) -> Answer:
    body = request.command.body
    names = bodies.decode_request(body, list[str]) if body else []
    checks.at_most(MOST_TOPICS, len(names), "topics")
    found = heads_of(names, header.since, broker) if names else moved_heads(header.since, broker)
    return Reply(
        header=HeadsRead(stamp=found.stamp, since=found.since or None),
        body=bodies.encode(bodies.QueueHeads(topics=found.topics)) if found.topics else b"",
    )
